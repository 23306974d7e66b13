//! The view against the generated message, which reads and writes the same request field by field.

use super::*;
use crate::codec::{decode_exact, encode_to_bytes};
use crate::messages::fetch as message;
use crate::messages::fetch::{FetchRequest, ReplicaState};

const ID: Uuid = Uuid::from_bytes([9; 16]);
const HEADER: &[u8] = b"some header";

fn request(version: i16) -> FetchRequest {
    let since = |from: i16, value: i32| if version >= from { value } else { -1 };
    let partition = |index: i32| message::FetchPartition {
        partition: index,
        current_leader_epoch: since(9, 5),
        fetch_offset: 1000 + i64::from(index),
        last_fetched_epoch: since(12, 4),
        log_start_offset: i64::from(since(5, 17)),
        partition_max_bytes: 1 << 20,
        replica_directory_id: if version >= 17 && index == 1 { ID } else { Uuid::ZERO },
        high_watermark: if version >= 18 && index == 1 { 999 } else { i64::MAX },
    };
    let names = version < TOPIC_ID_FROM;
    let topic = |name: &str, partitions| message::FetchTopic {
        topic: if names { name.to_owned() } else { String::new() },
        topic_id: if names { Uuid::ZERO } else { ID },
        partitions,
    };
    let forgotten = message::ForgottenTopic {
        topic: if names { "gone".to_owned() } else { String::new() },
        topic_id: if names { Uuid::ZERO } else { ID },
        partitions: vec![3, -1],
    };
    FetchRequest {
        replica_id: if version < REPLICA_STATE_FROM { 2 } else { -1 },
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 50 << 20,
        isolation_level: 1,
        session_id: if version >= 7 { 77 } else { 0 },
        session_epoch: since(7, 8),
        topics: vec![
            topic("orders", vec![partition(0), partition(1)]),
            topic("none", vec![]),
            topic("größe", vec![partition(-5)]),
        ],
        forgotten_topics_data: if version >= 7 { vec![forgotten] } else { vec![] },
        rack_id: if version >= 11 { "az1".to_owned() } else { String::new() },
        cluster_id: (version >= COMPACT_FROM).then(|| "cluster".to_owned()),
        replica_state: if version >= REPLICA_STATE_FROM {
            ReplicaState { replica_id: 2, replica_epoch: 44 }
        } else {
            ReplicaState::default()
        },
        sakia_wal: (version >= PRIVATE_FROM).then(|| Bytes::from_static(b"\x01private")),
    }
}

fn decode(body: &[u8], version: i16) -> Result<FetchView, WireError> {
    let mut view = FetchView::new();
    let frame = Bytes::from([HEADER, body].concat());
    view.decode(&frame, HEADER.len(), version).map(|()| view)
}

fn called(topic: TopicRef<'_>) -> (String, Uuid) {
    match topic {
        TopicRef::Name(name) => (name.to_owned(), Uuid::ZERO),
        TopicRef::Id(id) => (String::new(), id),
    }
}

fn as_message(view: &FetchView, version: i16) -> FetchRequest {
    let partition = |partition: &FetchPartition| message::FetchPartition {
        partition: partition.index,
        current_leader_epoch: LeaderEpoch::to_wire(partition.current_leader_epoch),
        fetch_offset: partition.fetch_offset,
        last_fetched_epoch: LeaderEpoch::to_wire(partition.last_fetched_epoch),
        log_start_offset: Offset::to_wire(partition.log_start_offset),
        partition_max_bytes: partition.partition_max_bytes,
        replica_directory_id: partition.replica_directory_id,
        high_watermark: partition.high_watermark.map_or(i64::MAX, Offset::get),
    };
    let topics = view.topics().map(|topic| {
        let (name, topic_id) = called(topic.topic);
        message::FetchTopic { topic: name, topic_id, partitions: topic.partitions.iter().map(partition).collect() }
    });
    let forgotten = view.forgotten_topics().map(|topic| {
        let (name, topic_id) = called(topic.topic);
        message::ForgottenTopic { topic: name, topic_id, partitions: topic.partitions.to_vec() }
    });
    let id = BrokerId::to_wire(view.replica().map(|replica| replica.id));
    let epoch = BrokerEpoch::to_wire(view.replica().and_then(|replica| replica.epoch));
    let in_state = version >= REPLICA_STATE_FROM;
    FetchRequest {
        replica_id: if in_state { -1 } else { id },
        max_wait_ms: view.max_wait_ms(),
        min_bytes: view.min_bytes(),
        max_bytes: view.max_bytes(),
        isolation_level: i8::from(view.isolation() == Isolation::ReadCommitted),
        session_id: view.session_id(),
        session_epoch: view.session_epoch(),
        topics: topics.collect(),
        forgotten_topics_data: forgotten.collect(),
        rack_id: view.rack_id().to_owned(),
        cluster_id: view.cluster_id().map(str::to_owned),
        replica_state: if in_state {
            ReplicaState { replica_id: id, replica_epoch: epoch }
        } else {
            ReplicaState::default()
        },
        sakia_wal: view.private_field(),
    }
}

#[test]
fn every_version_reads_what_the_message_wrote() {
    for version in FETCH_VERSIONS {
        let request = request(version);
        let body = encode_to_bytes(&request, version).unwrap();
        let view = decode(&body, version).unwrap();
        assert_eq!(as_message(&view, version), request, "version {version}");
        assert_eq!(view.partition_count(), 3);
    }
}

#[test]
fn a_consumer_is_no_replica() {
    for version in FETCH_VERSIONS {
        let request = FetchRequest { replica_id: -1, replica_state: ReplicaState::default(), ..request(version) };
        let view = decode(&encode_to_bytes(&request, version).unwrap(), version).unwrap();
        assert_eq!(view.replica(), None, "version {version}");
    }
}

#[test]
fn unknown_tagged_fields_are_passed_over() {
    let mut body = encode_to_bytes(&FetchRequest::default(), 12).unwrap().to_vec();
    assert_eq!(body.pop(), Some(0), "no tagged fields");
    body.extend_from_slice(&[2, 9, 3, 1, 2, 3, 0x80, 0xb4, 0x01, 1, 0xff]);
    let view = decode(&body, 12).unwrap();
    // Below version 17 even our own tag is just an unknown one.
    assert_eq!(view.private_field(), None);
}

#[test]
fn a_view_is_used_again_and_lets_its_frame_go() {
    let mut view = FetchView::new();
    for version in FETCH_VERSIONS.rev() {
        let frame = encode_to_bytes(&request(version), version).unwrap();
        view.decode(&frame, 0, version).unwrap();
        assert_eq!(as_message(&view, version), request(version), "version {version}");
        assert!(view.decode(&frame.slice(..10), 0, version).is_err());
        assert_eq!((view.partition_count(), view.private_field(), view.rack_id()), (0, None, ""));
    }
}

#[test]
fn other_versions_and_isolation_levels_are_refused() {
    let body = encode_to_bytes(&request(4), 4).unwrap();
    for version in [i16::MIN, -1, 0, 3, 19, i16::MAX] {
        assert_eq!(decode(&body, version).err(), Some(WireError::Version(version)));
    }
    let request = FetchRequest { isolation_level: 2, ..request(4) };
    assert_eq!(decode(&encode_to_bytes(&request, 4).unwrap(), 4).err(), Some(WireError::Value(2)));
}

#[test]
fn every_cut_and_every_trailing_byte_is_refused() {
    for version in FETCH_VERSIONS {
        let body = encode_to_bytes(&request(version), version).unwrap();
        for len in 0..body.len() {
            assert!(decode(&body[..len], version).is_err(), "version {version} cut to {len}");
        }
        assert_eq!(decode(&[&body[..], &[0]].concat(), version).err(), Some(WireError::Trailing(1)));
    }
}

#[test]
fn damaged_bytes_are_refused_or_read_as_the_message_reads_them() {
    for version in FETCH_VERSIONS {
        let body = encode_to_bytes(&request(version), version).unwrap();
        for position in 0..body.len() {
            for flip in [0x01, 0x40, 0x80, 0xff] {
                let mut damaged = body.to_vec();
                damaged[position] ^= flip;
                let expected: Result<FetchRequest, WireError> =
                    decode_exact(&Bytes::copy_from_slice(&damaged), version);
                match (decode(&damaged, version), expected) {
                    (Ok(view), Ok(request)) => {
                        // Negative numbers become None in the view, so only the shape is compared.
                        assert_eq!(view.topics().len(), request.topics.len());
                        assert_eq!(view.partition_count(), request.topics.iter().map(|t| t.partitions.len()).sum());
                        assert_eq!((view.max_bytes(), view.session_id()), (request.max_bytes, request.session_id));
                        assert_eq!(view.private_field(), request.sakia_wal);
                    }
                    (Err(_), Err(_) | Ok(FetchRequest { isolation_level: ..=-1 | 2.., .. })) => {}
                    (view, request) => panic!("version {version}, byte {position}: {view:?} against {request:?}"),
                }
            }
        }
    }
}

#[test]
fn hostile_counts_take_no_memory() {
    let mut plain = vec![0xff; 4];
    plain.extend_from_slice(&[0; 13]);
    plain.extend_from_slice(&i32::MAX.to_be_bytes());
    assert_eq!(decode(&plain, 4).err(), Some(WireError::CountAboveFrame(i32::MAX.cast_unsigned())));
    let mut compact = vec![0; 21];
    compact.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert_eq!(decode(&compact, 15).err(), Some(WireError::CountAboveFrame(u32::MAX - 1)));
}
