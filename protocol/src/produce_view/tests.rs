//! The view against the generated message, which reads and writes the same request field by field.

use super::*;
use crate::codec::{decode_exact, encode_to_bytes};
use crate::ids::Uuid;
use crate::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};

const ID: Uuid = Uuid::from_bytes([9; 16]);
const HEADER: &[u8] = b"some header";

fn request(version: i16) -> ProduceRequest {
    let partition = |index, records: Option<&'static [u8]>| PartitionProduceData {
        index,
        records: records.map(Bytes::from_static),
    };
    let topic = |name: &str, partition_data| TopicProduceData {
        name: if version < TOPIC_ID_FROM { name.to_owned() } else { String::new() },
        topic_id: if version < TOPIC_ID_FROM { Uuid::ZERO } else { ID },
        partition_data,
    };
    ProduceRequest {
        transactional_id: (version % 2 == 0).then(|| "payments".to_owned()),
        acks: -1,
        timeout_ms: 1500,
        topic_data: vec![
            topic("orders", vec![partition(0, Some(b"first")), partition(7, None), partition(-1, Some(b""))]),
            topic("empty", vec![]),
            topic("größe", vec![partition(2, Some(b"second"))]),
        ],
    }
}

fn framed(body: &[u8]) -> Bytes {
    Bytes::from([HEADER, body].concat())
}

fn decode(body: &[u8], version: i16) -> Result<ProduceView, WireError> {
    let mut view = ProduceView::new();
    view.decode(&framed(body), HEADER.len(), version).map(|()| view)
}

/// The view as the generated message, null records as empty ones.
fn as_message(view: &ProduceView) -> ProduceRequest {
    let topic = |topic: ProduceTopic<'_>| {
        let (name, topic_id) = match topic.topic() {
            TopicRef::Name(name) => (name.to_owned(), Uuid::ZERO),
            TopicRef::Id(id) => (String::new(), id),
        };
        let partition = |partition: ProducePartition<'_>| {
            assert_eq!(partition.records(), partition.records_bytes());
            PartitionProduceData { index: partition.index(), records: Some(partition.records()) }
        };
        TopicProduceData { name, topic_id, partition_data: topic.partitions().map(partition).collect() }
    };
    ProduceRequest {
        transactional_id: view.transactional_id().map(str::to_owned),
        acks: view.acks,
        timeout_ms: view.timeout_ms(),
        topic_data: view.topics().map(topic).collect(),
    }
}

fn without_null(mut request: ProduceRequest) -> ProduceRequest {
    for partition in request.topic_data.iter_mut().flat_map(|topic| &mut topic.partition_data) {
        partition.records.get_or_insert_default();
    }
    request
}

#[test]
fn every_version_reads_what_the_message_wrote() {
    for version in PRODUCE_VERSIONS {
        let request = request(version);
        let body = encode_to_bytes(&request, version).unwrap();
        let view = decode(&body, version).unwrap();
        assert_eq!(as_message(&view), without_null(request), "version {version}");
        assert_eq!(view.acks(), Some(Acks::All));
        assert_eq!(view.partition_count(), 4);
    }
}

#[test]
fn records_are_slices_of_the_frame() {
    let frame = framed(&encode_to_bytes(&request(9), 9).unwrap());
    let mut view = ProduceView::new();
    view.decode(&frame, HEADER.len(), 9).unwrap();
    let records = view.topics().next().unwrap().partitions().next().unwrap().records();
    assert!(frame.as_ptr_range().contains(&records.as_ptr()));
    view.clear();
    assert_eq!((view.partition_count(), view.topics().count(), &records[..]), (0, 0, &b"first"[..]));
}

#[test]
fn other_versions_are_refused() {
    let body = encode_to_bytes(&request(3), 3).unwrap();
    for version in [i16::MIN, -1, 0, 2, 14, i16::MAX] {
        assert_eq!(decode(&body, version).err(), Some(WireError::Version(version)));
    }
}

#[test]
fn every_cut_and_every_trailing_byte_is_refused() {
    for version in PRODUCE_VERSIONS {
        let body = encode_to_bytes(&request(version), version).unwrap();
        for len in 0..body.len() {
            assert!(decode(&body[..len], version).is_err(), "version {version} cut to {len}");
        }
        assert_eq!(decode(&[&body[..], &[0]].concat(), version).err(), Some(WireError::Trailing(1)));
    }
}

#[test]
fn damaged_bytes_give_what_the_message_gives() {
    for version in PRODUCE_VERSIONS {
        let body = encode_to_bytes(&request(version), version).unwrap();
        for position in 0..body.len() {
            for flip in [0x01, 0x40, 0x80, 0xff] {
                let mut damaged = body.to_vec();
                damaged[position] ^= flip;
                let expected: Result<ProduceRequest, WireError> =
                    decode_exact(&Bytes::copy_from_slice(&damaged), version);
                match (decode(&damaged, version), expected) {
                    (Ok(view), Ok(request)) => assert_eq!(as_message(&view), without_null(request)),
                    (Err(_), Err(_)) => {}
                    (view, request) => panic!("version {version}, byte {position}: {view:?} against {request:?}"),
                }
            }
        }
    }
}

#[test]
fn hostile_counts_take_no_memory() {
    // Version 3: null transaction, acks, timeout, then a count of topics; version 9 likewise, compact.
    let mut plain = vec![0xff, 0xff, 0, 1, 0, 0, 0, 0];
    plain.extend_from_slice(&i32::MAX.to_be_bytes());
    assert_eq!(decode(&plain, 3).err(), Some(WireError::CountAboveFrame(i32::MAX.cast_unsigned())));
    let compact = [0, 0, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f];
    assert_eq!(decode(&compact, 9).err(), Some(WireError::CountAboveFrame(u32::MAX - 1)));

    // As many partitions as fit into a large frame: refused at the bound.
    let mut body = vec![0xff, 0xff, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, b't'];
    let count = crate::topic_ref::PARTITIONS_MAX + 1;
    body.extend_from_slice(&i32::try_from(count).unwrap().to_be_bytes());
    body.resize(body.len() + count * 8, 0xff);
    assert_eq!(decode(&body, 3).err(), Some(WireError::TooLarge(count)));
}

#[test]
fn acks_are_minus_one_to_one() {
    let acks: Vec<_> = [-2, -1, 0, 1, 2].into_iter().map(Acks::from_wire).collect();
    assert_eq!(acks, [None, Some(Acks::All), Some(Acks::None), Some(Acks::Leader), None]);
}
