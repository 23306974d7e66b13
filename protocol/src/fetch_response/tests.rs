//! The written response against the generated message, which writes the same fields in one piece.

use super::*;
use crate::api::ApiKey;
use crate::header::encode_response;
use crate::ids::Uuid;
use crate::messages::fetch as message;

const ID: Uuid = Uuid::from_bytes([3; 16]);
const START: FetchResponseStart =
    FetchResponseStart { correlation_id: 0x0102_0304, throttle_time_ms: 12, error_code: 0, session_id: 99 };
const FIRST: &[u8] = b"first batch";
const SECOND: &[u8] = b"second batch of the partition";

fn partitions(version: i16) -> [FetchedPartition<'static>; 3] {
    const ABORTED: &[AbortedTransaction] = &[
        AbortedTransaction { producer_id: ProducerId::new(5), first_offset: Offset::new(6) },
        AbortedTransaction { producer_id: ProducerId::new(7), first_offset: Offset::new(8) },
    ];
    let flexible = version >= COMPACT_FROM;
    [
        FetchedPartition {
            index: 0,
            high_watermark: Some(Offset::new(1000)),
            last_stable_offset: Some(Offset::new(900)),
            log_start_offset: Some(Offset::new(10)),
            aborted_transactions: Some(ABORTED),
            ..FetchedPartition::default()
        },
        FetchedPartition {
            index: 1,
            error_code: 6,
            current_leader: flexible
                .then_some(CurrentLeader { leader_id: Some(BrokerId::new(2)), leader_epoch: LeaderEpoch::new(31) }),
            preferred_read_replica: (version >= 11).then_some(BrokerId::new(3)),
            ..FetchedPartition::default()
        },
        FetchedPartition {
            index: 2,
            high_watermark: Some(Offset::new(5)),
            aborted_transactions: Some(&[]),
            diverging_epoch: flexible
                .then_some(DivergingEpoch { epoch: LeaderEpoch::new(4), end_offset: Offset::new(55) }),
            snapshot_id: flexible.then_some(SnapshotId { end_offset: Offset::new(8), epoch: LeaderEpoch::new(1) }),
            ..FetchedPartition::default()
        },
    ]
}

fn topic(version: i16) -> TopicRef<'static> {
    if version < TOPIC_ID_FROM { TopicRef::Name("orders") } else { TopicRef::Id(ID) }
}

fn endpoints() -> [NodeEndpoint<'static>; 2] {
    [
        NodeEndpoint { id: BrokerId::new(2), host: "broker-2", port: 9192, rack: Some("az2") },
        NodeEndpoint { id: BrokerId::new(3), host: "broker-3", port: 65_535, rack: None },
    ]
}

fn written(version: i16, private: Option<&[u8]>) -> Vec<Bytes> {
    let [first, second, third] = partitions(version);
    let mut writer = FetchResponseWriter::new(version, START, 2).unwrap();
    writer.topic(topic(version), 3).unwrap();
    writer.partition(&first, [Bytes::from_static(FIRST), Bytes::new(), Bytes::from_static(SECOND)]).unwrap();
    writer.partition(&second, []).unwrap();
    writer.partition(&third, Some(Bytes::from_static(FIRST))).unwrap();
    writer.topic(topic(version), 0).unwrap();
    assert_eq!(writer.records_len(), 2 * FIRST.len() + SECOND.len());
    writer.finish(&endpoints(), private).unwrap()
}

fn expected(version: i16, private: Option<&'static [u8]>) -> message::FetchResponse {
    let records = [[FIRST, SECOND].concat(), vec![], FIRST.to_vec()];
    let partition_data =
        partitions(version).into_iter().zip(records).map(|(partition, records)| message::PartitionData {
            partition_index: partition.index,
            error_code: partition.error_code,
            high_watermark: Offset::to_wire(partition.high_watermark),
            last_stable_offset: Offset::to_wire(partition.last_stable_offset),
            log_start_offset: Offset::to_wire(partition.log_start_offset),
            aborted_transactions: partition.aborted_transactions.map(|list| {
                let aborted = |aborted: &AbortedTransaction| message::AbortedTransaction {
                    producer_id: aborted.producer_id.get(),
                    first_offset: aborted.first_offset.get(),
                };
                list.iter().map(aborted).collect()
            }),
            preferred_read_replica: BrokerId::to_wire(partition.preferred_read_replica),
            records: Some(Bytes::from(records)),
            diverging_epoch: partition.diverging_epoch.map_or_else(Default::default, |diverging| {
                message::EpochEndOffset { epoch: diverging.epoch.get(), end_offset: diverging.end_offset.get() }
            }),
            current_leader: partition.current_leader.map_or_else(Default::default, |leader| {
                message::LeaderIdAndEpoch {
                    leader_id: BrokerId::to_wire(leader.leader_id),
                    leader_epoch: leader.leader_epoch.get(),
                }
            }),
            snapshot_id: partition.snapshot_id.map_or_else(Default::default, |snapshot| message::SnapshotId {
                end_offset: snapshot.end_offset.get(),
                epoch: snapshot.epoch.get(),
            }),
        });
    let names = version < TOPIC_ID_FROM;
    let topic = |partitions| message::FetchableTopicResponse {
        topic: if names { "orders".to_owned() } else { String::new() },
        topic_id: if names { Uuid::ZERO } else { ID },
        partitions,
    };
    let endpoint = |endpoint: NodeEndpoint<'_>| message::NodeEndpoint {
        node_id: endpoint.id.get(),
        host: endpoint.host.to_owned(),
        port: i32::from(endpoint.port),
        rack: endpoint.rack.map(str::to_owned),
    };
    message::FetchResponse {
        throttle_time_ms: START.throttle_time_ms,
        error_code: START.error_code,
        session_id: if version >= 7 { START.session_id } else { 0 },
        responses: vec![topic(partition_data.collect()), topic(vec![])],
        node_endpoints: if version >= ENDPOINTS_FROM { endpoints().map(endpoint).to_vec() } else { vec![] },
        sakia_wal: private.map(Bytes::from_static),
    }
}

#[test]
fn every_version_is_byte_for_byte_the_generated_message() {
    for version in FETCH_VERSIONS {
        for private in [None, (version >= PRIVATE_FROM).then_some(&b"\x01references"[..])] {
            let expected = expected(version, private);
            let expected = encode_response(ApiKey::Fetch, version, START.correlation_id, &expected).unwrap();
            assert_eq!(written(version, private).concat(), expected, "version {version}");
        }
    }
}

#[test]
fn records_are_not_copied() {
    let records = Bytes::from(vec![1; 1000]);
    let mut writer = FetchResponseWriter::new(12, START, 1).unwrap();
    writer.topic(TopicRef::Name("t"), 1).unwrap();
    writer.partition(&FetchedPartition::default(), [records.clone()]).unwrap();
    let pieces = writer.finish(&[], None).unwrap();
    assert_eq!(pieces.len(), 3, "header, records, tags");
    assert_eq!(pieces[1].as_ptr(), records.as_ptr());
}

#[test]
fn a_response_without_topics_is_one_piece_of_stated_length() {
    for version in FETCH_VERSIONS {
        let start = FetchResponseStart { error_code: 70, ..START };
        let pieces = FetchResponseWriter::new(version, start, 0).unwrap().finish(&[], None).unwrap();
        assert_eq!(pieces.len(), 1);
        let stated = i32::from_be_bytes(*pieces[0].first_chunk().unwrap());
        assert_eq!(usize::try_from(stated).unwrap(), pieces[0].len() - LENGTH_LEN);
    }
}

#[test]
fn a_buffer_is_used_again() {
    let mut buffer = BytesMut::with_capacity(1024);
    let first = FetchResponseWriter::over(buffer.split_off(0), 12, START, 0).unwrap().finish(&[], None).unwrap();
    let second = FetchResponseWriter::new(12, START, 0).unwrap().finish(&[], None).unwrap();
    assert_eq!(first, second);
}

#[test]
fn a_topic_called_otherwise_than_the_version_does_is_an_error() {
    let by = |version, topic| FetchResponseWriter::new(version, START, 1).unwrap().topic(topic, 1).err();
    assert_eq!(by(12, TopicRef::Id(ID)), Some(WireError::Null));
    assert_eq!(by(13, TopicRef::Name("t")), Some(WireError::Null));
}

#[test]
#[should_panic(expected = "all announced partitions are written")]
fn a_missing_partition_is_our_own_mistake() {
    let mut writer = FetchResponseWriter::new(12, START, 1).unwrap();
    writer.topic(TopicRef::Name("t"), 1).unwrap();
    let _ = writer.finish(&[], None);
}
