//! The hand-written hot path and `kafka-protocol` agree: Produce and Fetch requests, Fetch responses, record batches, in
//! every version both know.

use std::fmt::Write as _;

use bytes::{Bytes, BytesMut};
use kafka_protocol::indexmap::IndexMap;
use kafka_protocol::messages::{FetchRequest, FetchResponse, ProduceRequest, ResponseHeader};
use kafka_protocol::messages::{fetch_request, fetch_response, produce_request};
use kafka_protocol::protocol::{Encodable, StrBytes};
use kafka_protocol::records::{Compression as TheirCompression, Record, RecordBatchDecoder, RecordBatchEncoder};
use kafka_protocol::records::{RecordEncodeOptions, TimestampType};
use sakia_protocol::batch::{
    BatchBuilder, BatchProducer, BatchRecords, CheckLimits, Compression, Header, NewRecord, NullKeys, RawBatch,
    StampedTime, TimestampRule,
};
use sakia_protocol::fetch_response::{
    AbortedTransaction, CurrentLeader, DivergingEpoch, FetchResponseStart, FetchResponseWriter, FetchedPartition,
    NodeEndpoint, SnapshotId,
};
use sakia_protocol::fetch_view::{FETCH_VERSIONS, FetchPartition, FetchView, Isolation};
use sakia_protocol::ids::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicId};
use sakia_protocol::produce_view::{Acks, PRODUCE_VERSIONS, ProduceView};
use sakia_protocol::topic_ref::TopicRef;
use sakia_protocol_oracle::random::Random;

const SEED: u64 = 0x5a61_6b69;
const MESSAGES_PER_VERSION: usize = 100;
const NOW: i64 = 1_700_000_000_000;

fn small(random: &mut Random) -> i32 {
    i32::try_from(random.below(1000)).expect("below 1000")
}

fn text(random: &mut Random) -> StrBytes {
    let len = random.below(20);
    StrBytes::from_string((0..len).map(|_| *random.pick(&['a', 'b', 'ö', '.', '-'])).collect())
}

fn blob(random: &mut Random) -> Bytes {
    let len = *random.pick(&[0, 1, 61, 127, 128, 300]);
    (0..len).map(|_| random.byte()).collect()
}

fn id(random: &mut Random) -> TopicId {
    let mut bytes = [0; 16];
    bytes.fill_with(|| random.byte());
    TopicId::from_bytes(bytes)
}

/// An id as a type of theirs, which has no name here but can be read from text.
fn their_uuid<T: std::str::FromStr<Err: std::fmt::Debug>>(id: TopicId) -> T {
    let mut text = String::new();
    for byte in id.as_bytes() {
        write!(text, "{byte:02x}").expect("a string takes everything");
    }
    text.parse().expect("32 hexadecimal digits")
}

fn encoded<T: Encodable>(message: &T, version: i16) -> Bytes {
    let mut out = BytesMut::new();
    message.encode(&mut out, version).expect("a valid message");
    out.freeze()
}

fn is_called(topic: TopicRef<'_>, name: &str, topic_id: &[u8; 16]) -> bool {
    match topic {
        TopicRef::Name(own) => own == name && *topic_id == [0; 16],
        TopicRef::Id(own) => name.is_empty() && own.as_bytes() == topic_id,
    }
}

fn produce_request(random: &mut Random, version: i16) -> ProduceRequest {
    let topics = (0..random.below(4)).map(|_| {
        let partitions = (0..random.below(4)).map(|_| {
            let records = (!random.one_in(5)).then(|| blob(random));
            produce_request::PartitionProduceData::default().with_index(small(random)).with_records(records)
        });
        let topic = produce_request::TopicProduceData::default().with_partition_data(partitions.collect());
        if version < 13 { topic.with_name(text(random).into()) } else { topic.with_topic_id(their_uuid(id(random))) }
    });
    let request = ProduceRequest::default().with_topic_data(topics.collect()).with_timeout_ms(small(random));
    let transactional_id = random.one_in(2).then(|| text(random).into());
    request.with_acks(*random.pick(&[-1, 0, 1])).with_transactional_id(transactional_id)
}

#[test]
fn produce_requests_are_read_alike() {
    let mut random = Random::new(SEED);
    let mut view = ProduceView::new();
    for version in PRODUCE_VERSIONS {
        for _ in 0..MESSAGES_PER_VERSION {
            let request = produce_request(&mut random, version);
            view.decode(&encoded(&request, version), 0, version).expect("a valid request");
            assert_eq!(view.transactional_id(), request.transactional_id.as_ref().map(|id| id.as_str()));
            assert_eq!((view.acks(), view.timeout_ms()), (Acks::from_wire(request.acks), request.timeout_ms));
            assert_eq!(view.topics().len(), request.topic_data.len());
            for (topic, theirs) in view.topics().zip(&request.topic_data) {
                assert!(is_called(topic.topic(), theirs.name.as_str(), theirs.topic_id.as_bytes()));
                let own: Vec<_> = topic.partitions().map(|p| (p.index(), p.records())).collect();
                let theirs = theirs.partition_data.iter();
                assert_eq!(own, theirs.map(|p| (p.index, p.records.clone().unwrap_or_default())).collect::<Vec<_>>());
            }
        }
    }
}

fn fetch_request(random: &mut Random, version: i16) -> FetchRequest {
    let topics = (0..random.below(4)).map(|_| {
        let partitions = (0..random.below(4)).map(|_| their_partition(random, version)).collect();
        let topic = fetch_request::FetchTopic::default().with_partitions(partitions);
        if version < 13 { topic.with_topic(text(random).into()) } else { topic.with_topic_id(their_uuid(id(random))) }
    });
    let mut request = FetchRequest::default()
        .with_topics(topics.collect())
        .with_max_wait_ms(small(random))
        .with_min_bytes(small(random))
        .with_max_bytes(small(random))
        .with_isolation_level(*random.pick(&[0, 1]));
    if version >= 7 {
        request = request.with_session_id(small(random)).with_session_epoch(small(random));
        let forgotten = fetch_request::ForgottenTopic::default().with_partitions(vec![small(random), -1]);
        let forgotten = if version < 13 {
            forgotten.with_topic(text(random).into())
        } else {
            forgotten.with_topic_id(their_uuid(id(random)))
        };
        request = request.with_forgotten_topics_data(vec![forgotten]);
    }
    if version >= 11 {
        request = request.with_rack_id(text(random));
    }
    if version >= 12 {
        request = request.with_cluster_id(random.one_in(2).then(|| text(random)));
        request = request.with_unknown_tagged_field(100 + small(random), blob(random));
    }
    if random.one_in(2) {
        return request;
    }
    if version < 15 {
        request.with_replica_id(small(random).into())
    } else {
        let epoch = i64::from(small(random));
        let state = fetch_request::ReplicaState::default().with_replica_id(small(random).into());
        request.with_replica_state(state.with_replica_epoch(epoch))
    }
}

fn their_partition(random: &mut Random, version: i16) -> fetch_request::FetchPartition {
    let mut partition = fetch_request::FetchPartition::default()
        .with_partition(small(random))
        .with_fetch_offset(i64::from(small(random)))
        .with_partition_max_bytes(small(random));
    if version >= 5 && random.one_in(2) {
        partition = partition.with_log_start_offset(i64::from(small(random)));
    }
    if version >= 9 && random.one_in(2) {
        partition = partition.with_current_leader_epoch(small(random));
    }
    if version >= 12 && random.one_in(2) {
        partition = partition.with_last_fetched_epoch(small(random));
    }
    if version >= 17 && random.one_in(2) {
        partition = partition.with_replica_directory_id(their_uuid(id(random)));
    }
    if version >= 18 && random.one_in(2) {
        partition = partition.with_high_watermark(i64::from(small(random)));
    }
    partition
}

fn own_partition(theirs: &fetch_request::FetchPartition) -> FetchPartition {
    FetchPartition {
        index: theirs.partition,
        current_leader_epoch: LeaderEpoch::from_wire(theirs.current_leader_epoch),
        fetch_offset: theirs.fetch_offset,
        last_fetched_epoch: LeaderEpoch::from_wire(theirs.last_fetched_epoch),
        log_start_offset: Offset::from_wire(theirs.log_start_offset),
        partition_max_bytes: theirs.partition_max_bytes,
        replica_directory_id: TopicId::from_bytes(*theirs.replica_directory_id.as_bytes()),
        high_watermark: Offset::from_wire(theirs.high_watermark).filter(|offset| offset.get() < i64::MAX),
    }
}

#[test]
fn fetch_requests_are_read_alike() {
    let mut random = Random::new(SEED);
    let mut view = FetchView::new();
    for version in FETCH_VERSIONS {
        for _ in 0..MESSAGES_PER_VERSION {
            let request = fetch_request(&mut random, version);
            view.decode(&encoded(&request, version), 0, version).expect("a valid request");
            fields_are_alike(&view, &request, version);
            assert_eq!(view.topics().len(), request.topics.len());
            for (topic, theirs) in view.topics().zip(&request.topics) {
                assert!(is_called(topic.topic, theirs.topic.as_str(), theirs.topic_id.as_bytes()));
                assert_eq!(topic.partitions, theirs.partitions.iter().map(own_partition).collect::<Vec<_>>());
            }
            assert_eq!(view.forgotten_topics().len(), request.forgotten_topics_data.len());
            for (topic, theirs) in view.forgotten_topics().zip(&request.forgotten_topics_data) {
                assert!(is_called(topic.topic, theirs.topic.as_str(), theirs.topic_id.as_bytes()));
                assert_eq!(topic.partitions, theirs.partitions);
            }
        }
    }
}

fn fields_are_alike(view: &FetchView, theirs: &FetchRequest, version: i16) {
    assert_eq!(view.max_wait_ms(), theirs.max_wait_ms);
    assert_eq!((view.min_bytes(), view.max_bytes()), (theirs.min_bytes, theirs.max_bytes));
    assert_eq!(view.isolation() == Isolation::ReadCommitted, theirs.isolation_level == 1);
    assert_eq!((view.session_id(), view.session_epoch()), (theirs.session_id, theirs.session_epoch));
    assert_eq!(view.rack_id(), theirs.rack_id.as_str());
    assert_eq!(view.cluster_id(), theirs.cluster_id.as_deref());
    let (id, epoch) = if version < 15 {
        (theirs.replica_id, -1)
    } else {
        (theirs.replica_state.replica_id, theirs.replica_state.replica_epoch)
    };
    assert_eq!(view.replica().map(|replica| replica.id), BrokerId::from_wire(id.0));
    assert_eq!(view.replica().and_then(|replica| replica.epoch), BrokerEpoch::from_wire(epoch));
}

/// A partition's answer in both worlds, and its records.
fn answer<'a>(
    random: &mut Random,
    version: i16,
    aborted: &'a [AbortedTransaction],
) -> (FetchedPartition<'a>, fetch_response::PartitionData, Vec<Bytes>) {
    let own = FetchedPartition {
        index: small(random),
        error_code: *random.pick(&[0, 1, 6]),
        high_watermark: Offset::from_wire(i64::from(small(random))),
        last_stable_offset: Offset::from_wire(*random.pick(&[-1, 5])),
        log_start_offset: (version >= 5).then_some(Offset::new(7)),
        aborted_transactions: random.one_in(2).then_some(aborted),
        preferred_read_replica: (version >= 11 && random.one_in(2)).then_some(BrokerId::new(3)),
        diverging_epoch: (version >= 12 && random.one_in(2))
            .then_some(DivergingEpoch { epoch: LeaderEpoch::new(4), end_offset: Offset::new(44) }),
        current_leader: (version >= 12 && random.one_in(2))
            .then_some(CurrentLeader { leader_id: Some(BrokerId::new(2)), leader_epoch: LeaderEpoch::new(9) }),
        snapshot_id: (version >= 12 && random.one_in(2))
            .then_some(SnapshotId { end_offset: Offset::new(45), epoch: LeaderEpoch::new(5) }),
    };
    let records: Vec<Bytes> = (0..random.below(4)).map(|_| blob(random)).collect();
    let their_aborted = |one: &AbortedTransaction| {
        let theirs = fetch_response::AbortedTransaction::default().with_producer_id(one.producer_id.get().into());
        theirs.with_first_offset(one.first_offset.get())
    };
    let mut theirs = fetch_response::PartitionData::default()
        .with_partition_index(own.index)
        .with_error_code(own.error_code)
        .with_high_watermark(Offset::to_wire(own.high_watermark))
        .with_last_stable_offset(Offset::to_wire(own.last_stable_offset))
        .with_log_start_offset(Offset::to_wire(own.log_start_offset))
        .with_aborted_transactions(own.aborted_transactions.map(|list| list.iter().map(their_aborted).collect()))
        .with_preferred_read_replica(BrokerId::to_wire(own.preferred_read_replica).into())
        .with_records(Some(Bytes::from(records.concat())));
    if own.diverging_epoch.is_some() {
        let epoch = fetch_response::EpochEndOffset::default().with_epoch(4).with_end_offset(44);
        theirs = theirs.with_diverging_epoch(epoch);
    }
    if own.current_leader.is_some() {
        let leader = fetch_response::LeaderIdAndEpoch::default().with_leader_id(2.into()).with_leader_epoch(9);
        theirs = theirs.with_current_leader(leader);
    }
    if own.snapshot_id.is_some() {
        theirs = theirs.with_snapshot_id(fetch_response::SnapshotId::default().with_end_offset(45).with_epoch(5));
    }
    (own, theirs, records)
}

fn both_responses(random: &mut Random, version: i16) -> (Bytes, Bytes) {
    let aborted = [AbortedTransaction { producer_id: ProducerId::new(8), first_offset: Offset::new(80) }];
    let start = FetchResponseStart {
        correlation_id: small(random),
        throttle_time_ms: small(random),
        error_code: if version >= 7 { 70 } else { 0 },
        session_id: if version >= 7 { small(random) } else { 0 },
    };
    let topic_count = random.below(4);
    let mut writer = FetchResponseWriter::new(version, start, topic_count).expect("small");
    let mut topics = Vec::new();
    for _ in 0..topic_count {
        let partition_count = random.below(4);
        let (name, topic_id) = (text(random), id(random));
        let topic = fetch_response::FetchableTopicResponse::default();
        let (own, mut topic) = if version < 13 {
            (TopicRef::Name(name.as_str()), topic.with_topic(name.clone().into()))
        } else {
            (TopicRef::Id(topic_id), topic.with_topic_id(their_uuid(topic_id)))
        };
        writer.topic(own, partition_count).expect("small");
        for _ in 0..partition_count {
            let (own, theirs, records) = answer(random, version, &aborted);
            writer.partition(&own, records).expect("small");
            topic.partitions.push(theirs);
        }
        topics.push(topic);
    }
    let host = text(random);
    let mut theirs = FetchResponse::default()
        .with_throttle_time_ms(start.throttle_time_ms)
        .with_error_code(start.error_code)
        .with_session_id(start.session_id)
        .with_responses(topics);
    let own = NodeEndpoint { id: BrokerId::new(2), host: host.as_str(), port: 9092, rack: None };
    let private = blob(random);
    if version >= 16 {
        let endpoint = fetch_response::NodeEndpoint::default().with_node_id(2.into()).with_host(host.clone());
        theirs = theirs.with_node_endpoints(vec![endpoint.with_port(9092)]);
    }
    if version >= 17 {
        // Nullable bytes in compact form: one varint holding length + 1, then the bytes.
        let mut field = Vec::new();
        let len = u16::try_from(private.len() + 1).expect("small");
        if len < 128 {
            field.push(u8::try_from(len).expect("below 128"));
        } else {
            field.push(u8::try_from(len & 0x7f).expect("seven bits") | 0x80);
            field.push(u8::try_from(len >> 7).expect("small"));
        }
        field.extend_from_slice(&private);
        theirs = theirs.with_unknown_tagged_field(23_040, Bytes::from(field));
    }
    let header = ResponseHeader::default().with_correlation_id(start.correlation_id);
    let body = [encoded(&header, i16::from(version >= 12)), encoded(&theirs, version)].concat();
    let length = i32::try_from(body.len()).expect("small").to_be_bytes();
    let own = writer.finish(&[own], Some(&private)).expect("small").concat();
    (Bytes::from(own), Bytes::from([&length[..], &body].concat()))
}

#[test]
fn fetch_responses_are_written_alike() {
    let mut random = Random::new(SEED);
    for version in FETCH_VERSIONS {
        for _ in 0..MESSAGES_PER_VERSION {
            let (own, theirs) = both_responses(&mut random, version);
            assert_eq!(own, theirs, "version {version}");
        }
    }
}

#[derive(Clone)]
struct OwnedRecord {
    timestamp_ms: i64,
    key: Option<Bytes>,
    value: Option<Bytes>,
    headers: Vec<(String, Option<Bytes>)>,
}

fn owned_records(random: &mut Random) -> Vec<OwnedRecord> {
    let count = 1 + random.below(20);
    let record = |index: usize| OwnedRecord {
        timestamp_ms: NOW + i64::try_from(index).expect("small") * i64::from(small(random)),
        key: random.one_in(2).then(|| blob(random)),
        value: (!random.one_in(5)).then(|| blob(random)),
        // Their headers are a map, so each key comes once.
        headers: (0..random.below(3)).map(|n| (format!("{n}"), random.one_in(2).then(|| blob(random)))).collect(),
    };
    (0..count).map(record).collect()
}

fn their_records(records: &[OwnedRecord], base: i64) -> Vec<Record> {
    let record = |(index, record): (usize, &OwnedRecord)| Record {
        transactional: true,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: 6,
        producer_id: 500,
        producer_epoch: 3,
        timestamp_type: TimestampType::Creation,
        offset: base + i64::try_from(index).expect("small"),
        sequence: i32::try_from(index).expect("small"),
        timestamp: record.timestamp_ms,
        key: record.key.clone(),
        value: record.value.clone(),
        headers: record
            .headers
            .iter()
            .map(|(key, value)| (StrBytes::from_string(key.clone()), value.clone()))
            .collect::<IndexMap<_, _>>(),
    };
    records.iter().enumerate().map(record).collect()
}

fn own_batch(records: &[OwnedRecord], base: i64) -> Bytes {
    let producer = BatchProducer { id: ProducerId::new(500), epoch: ProducerEpoch::new(3), base_sequence: Some(0) };
    let mut builder = BatchBuilder::new(Compression::None).producer(producer).transactional();
    for record in records {
        let headers: Vec<Header<'_>> =
            record.headers.iter().map(|(key, value)| Header { key: key.as_bytes(), value: value.as_deref() }).collect();
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        builder.push(NewRecord { timestamp_ms: record.timestamp_ms, key, value, headers: &headers });
    }
    builder.build().place(Offset::new(base), LeaderEpoch::new(6), StampedTime::FromRecords).to_bytes()
}

#[test]
fn batches_of_ours_are_read_by_them_and_the_other_way_round() {
    let mut random = Random::new(SEED);
    let limits = CheckLimits {
        batch_bytes_max: 1 << 20,
        decompressed_bytes_max: 1 << 20,
        timestamps: TimestampRule::Replaced,
        null_keys: NullKeys::Allowed,
        produce_version: 9,
    };
    for round in 0..500 {
        let records = owned_records(&mut random);
        let theirs = their_records(&records, round);
        let decoded = RecordBatchDecoder::decode(&mut own_batch(&records, round)).expect("a right batch");
        assert_eq!(decoded.records, theirs);

        let options = RecordEncodeOptions { version: 2, compression: TheirCompression::None };
        let mut encoded = BytesMut::new();
        RecordBatchEncoder::encode(&mut encoded, &their_records(&records, 0), &options).expect("right records");
        let checked = RawBatch::new(&encoded.freeze()).check(&limits).expect("a right batch");
        let opened = BatchRecords::open(checked.bytes(), 1 << 20).expect("a right batch");
        for (own, sent) in opened.iter().map(|record| record.expect("a right record")).zip(&records) {
            assert_eq!(own.timestamp_ms, sent.timestamp_ms);
            assert_eq!((own.record.key, own.record.value), (sent.key.as_deref(), sent.value.as_deref()));
            let headers: Vec<_> =
                own.record.headers.into_iter().map(|h| (h.key.to_vec(), h.value.map(Bytes::copy_from_slice))).collect();
            let sent = sent.headers.iter().map(|(key, value)| (key.clone().into_bytes(), value.clone()));
            assert_eq!(headers, sent.collect::<Vec<_>>());
        }
    }
}
