//! Bytes of the messages that nobody else can judge: our own request and our own tagged fields in Kafka's.

use bytes::Bytes;
use sakia_protocol::codec::{Decode, Encode, decode_exact, encode_to_bytes};
use sakia_protocol::ids::Uuid;
use sakia_protocol::messages::broker_registration::BrokerRegistrationRequest;
use sakia_protocol::messages::fetch::{FetchRequest, FetchResponse};
use sakia_protocol::messages::metadata_stream::{MetadataEvent, MetadataStreamRequest, MetadataStreamResponse};

fn is_written_as<T: Encode + Decode + PartialEq + std::fmt::Debug>(value: &T, version: i16, golden: &[&[u8]]) {
    let golden = Bytes::from(golden.concat());
    assert_eq!(encode_to_bytes(value, version).as_ref(), Ok(&golden));
    assert_eq!(decode_exact::<T>(&golden, version).as_ref(), Ok(value));
    for cut in 0..golden.len() {
        assert!(decode_exact::<T>(&golden.slice(..cut), version).is_err(), "cut at {cut}");
    }
}

#[test]
fn metadata_stream() {
    let request = MetadataStreamRequest { broker_id: 1, broker_epoch: 2, from_index: 3, max_wait_ms: 500 };
    is_written_as(
        &request,
        0,
        &[&[0, 0, 0, 1], &[0, 0, 0, 0, 0, 0, 0, 2], &[0, 0, 0, 0, 0, 0, 0, 3], &[0, 0, 1, 0xf4], &[0]],
    );
    let event = MetadataEvent { index: 8, kind: 2, version: 1, body: Bytes::from_static(b"xy") };
    let response = MetadataStreamResponse {
        controller_epoch: 7,
        commit_index: 9,
        image: Some(Bytes::from_static(b"i")),
        image_index: 6,
        events: vec![event],
        ..MetadataStreamResponse::default()
    };
    is_written_as(
        &response,
        0,
        &[
            &[0, 0],
            &[0],
            &[0, 0, 0, 7],
            &[0, 0, 0, 0, 0, 0, 0, 9],
            &[2, b'i'],
            &[0, 0, 0, 0, 0, 0, 0, 6],
            &[2, 0, 0, 0, 0, 0, 0, 0, 8, 0, 2, 0, 1, 3, b'x', b'y', 0],
            &[0],
        ],
    );
}

#[test]
fn boot_id_is_tagged_field_23041_of_broker_registration() {
    let request = BrokerRegistrationRequest {
        broker_id: 1,
        cluster_id: "c".to_owned(),
        incarnation_id: Uuid::from_bytes([7; 16]),
        boot_id: Some("b".to_owned()),
        ..BrokerRegistrationRequest::default()
    };
    is_written_as(
        &request,
        4,
        &[&[0, 0, 0, 1], &[2, b'c'], &[7; 16], &[1, 1, 0, 0, 1], &[0xff; 8], &[1, 0x81, 0xb4, 1, 2, 2, b'b']],
    );
}

#[test]
fn references_are_tagged_field_23040_of_fetch_from_version_17_on() {
    let request = FetchRequest { sakia_wal: Some(Bytes::from_static(b"w")), ..FetchRequest::default() };
    let fields: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
    is_written_as(&request, 17, &[fields, &[1, 1, 1], &[1, 0x80, 0xb4, 1, 2, 2, b'w']]);
    let absent = FetchRequest { sakia_wal: None, ..request.clone() };
    is_written_as(&absent, 17, &[fields, &[1, 1, 1], &[0]]);
    assert_eq!(encode_to_bytes(&request, 16), encode_to_bytes(&absent, 16));

    let response = FetchResponse { sakia_wal: Some(Bytes::new()), ..FetchResponse::default() };
    is_written_as(&response, 17, &[&[0; 10], &[1], &[1, 0x80, 0xb4, 1, 1, 1]]);
}
