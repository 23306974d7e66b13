//! What brokers and administrators ask, and what they are told.

use bytes::Bytes;
use sakia_controller::image::{ConfigResource, Standing};
use sakia_protocol::api::ApiKey;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::codec::{Reader, decode_exact};
use sakia_protocol::header::{LENGTH_BYTES, RequestHeader, decode_response_header, encode_request};
use sakia_protocol::ids::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, Uuid};
use sakia_protocol::messages::api_versions::ApiVersionsRequest;
use sakia_protocol::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use sakia_protocol::messages::create_topics::{CreateTopicsRequest, CreateTopicsResponse};
use sakia_protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};

use super::cluster::{Cluster, FakeBroker, plain};
use crate::messages::{ControlMessage, IsrProposal};

fn names(codes: &[(String, ErrorCode)]) -> Vec<(&str, ErrorCode)> {
    codes.iter().map(|(name, code)| (name.as_str(), *code)).collect()
}

#[test]
fn brokers_register_serve_and_see_a_topic_that_a_client_asks_for() {
    let cluster = Cluster::new(1);
    let (one, two) = cluster.two_brokers();
    let codes = cluster.auto_create(&one, &["orders", "a b", "__consumer_offsets"]);
    assert_eq!(
        names(&codes),
        [
            ("__consumer_offsets", ErrorCode::None),
            ("a b", ErrorCode::InvalidTopicException),
            ("orders", ErrorCode::None),
        ]
    );
    // The answer came when the shards of the asked broker had the topic.
    let (_, partition) = one.partition("orders", 1).expect("the shards have it");
    assert_eq!((partition.replicas.len(), partition.isr.len()), (2, 2));
    assert!(partition.leader.is_some());
    assert_eq!(one.seen(|seen| seen.image.topic_named("__consumer_offsets").unwrap().partitions.len()), 3);
    assert_eq!(cluster.auto_create(&two, &["orders"]), [("orders".to_owned(), ErrorCode::None)]);
    assert_eq!(two.partition("orders", 1).map(|found| found.0), one.partition("orders", 1).map(|found| found.0));
    for broker in [&one, &two] {
        assert_eq!(broker.seen(|seen| seen.registrations.clone()), [broker.epoch()]);
    }
}

fn propose(cluster: &Cluster, broker: &FakeBroker, proposal: IsrProposal) -> ErrorCode {
    let key = proposal.key;
    let message = |reply| ControlMessage::AlterPartition { proposals: vec![proposal], reply };
    let codes = cluster.tell(broker, message);
    assert_eq!(codes.len(), 1);
    assert_eq!(codes[0].0, key);
    codes[0].1
}

#[test]
fn an_isr_is_changed_by_its_leader_in_the_present_epochs_only() {
    let cluster = Cluster::new(2);
    let (one, two) = cluster.two_brokers();
    cluster.auto_create(&one, &["orders"]);
    cluster.until(|| two.partition("orders", 0).is_some());
    let (key, record) = one.partition("orders", 0).unwrap();
    let (leader, follower) = if record.leader == Some(BrokerId::new(1)) { (&one, &two) } else { (&two, &one) };
    let leader_id = record.leader.unwrap();
    let follower_id = *record.replicas.iter().find(|id| **id != leader_id).unwrap();
    let alone = IsrProposal {
        key,
        leader_epoch: record.leader_epoch,
        partition_epoch: record.partition_epoch,
        isr: vec![(leader_id, leader.epoch())],
    };
    let newer = LeaderEpoch::new(record.leader_epoch.get() + 1);
    let code = propose(&cluster, leader, IsrProposal { leader_epoch: newer, ..alone.clone() });
    assert_eq!(code, ErrorCode::NotController);
    let code = propose(&cluster, follower, alone.clone());
    assert_eq!(code, ErrorCode::InvalidRequest, "the sender does not lead");
    let stale = BrokerEpoch::new(leader.epoch().get() - 1);
    let code = propose(&cluster, leader, IsrProposal { isr: vec![(leader_id, stale)], ..alone.clone() });
    assert_eq!(code, ErrorCode::IneligibleReplica);
    assert_eq!(one.partition("orders", 0).unwrap().1, record, "nothing was changed so far");

    assert_eq!(propose(&cluster, leader, alone.clone()), ErrorCode::None);
    let next = PartitionEpoch::new(record.partition_epoch.get() + 1);
    cluster.until(|| [&one, &two].iter().all(|b| b.partition("orders", 0).unwrap().1.partition_epoch == next));
    let after = two.partition("orders", 0).unwrap().1;
    assert_eq!((after.isr.len(), after.leader, after.leader_epoch), (1, record.leader, record.leader_epoch));

    assert_eq!(
        propose(&cluster, leader, alone),
        ErrorCode::InvalidUpdateVersion,
        "it was made without the last change"
    );
    let both = vec![(leader_id, leader.epoch()), (follower_id, follower.epoch())];
    let joined = IsrProposal { key, leader_epoch: record.leader_epoch, partition_epoch: next, isr: both };
    assert_eq!(propose(&cluster, leader, joined), ErrorCode::None);
    cluster.until(|| one.partition("orders", 0).unwrap().1.isr.len() == 2);
}

/// Sends a client's CreateTopics through a broker as it would be forwarded.
fn forwarded(cluster: &Cluster, broker: &FakeBroker, correlation_id: i32, topic: &str) -> CreateTopicsResponse {
    let request = CreateTopicsRequest { topics: vec![plain(topic)], ..CreateTopicsRequest::default() };
    let header =
        RequestHeader { api_key: ApiKey::CreateTopics, api_version: 7, correlation_id, client_id: Some("admin") };
    let frame = encode_request(&header, &request).unwrap().slice(LENGTH_BYTES..);
    let answer: Option<Bytes> = cluster.tell(broker, |reply| ControlMessage::Forward { frame, reply });
    let answer = answer.expect("the controller answers").slice(LENGTH_BYTES..);
    let mut reader = Reader::new(&answer);
    assert_eq!(decode_response_header(&mut reader, ApiKey::CreateTopics, 7), Ok(correlation_id));
    decode_exact(&answer.slice(reader.position()..), 7).unwrap()
}

#[test]
fn a_request_of_a_client_goes_to_the_controller_and_back_as_it_is() {
    let cluster = Cluster::new(3);
    let (one, two) = cluster.two_brokers();
    let answer = forwarded(&cluster, &one, 41, "orders");
    let row = &answer.topics[0];
    assert_eq!((row.error_code, row.num_partitions, row.replication_factor), (0, 2, 2));
    let configs = row.configs.as_ref().unwrap();
    let retention = configs.iter().find(|config| config.name == "retention.ms").unwrap();
    assert_eq!((retention.value.as_deref(), retention.config_source), (Some("604800000"), 5));
    let again = forwarded(&cluster, &two, 41, "orders");
    assert_eq!(again.topics[0].error_code, ErrorCode::TopicAlreadyExists.code());
    assert!(again.topics[0].error_message.is_some());
}

#[test]
fn producer_ids_are_given_once() {
    let cluster = Cluster::new(4);
    let (one, two) = cluster.two_brokers();
    let mut ids = Vec::new();
    for number in 0..1_010 {
        let broker = if number % 100 == 0 { &two } else { &one };
        ids.push(cluster.tell(broker, |reply| ControlMessage::ProducerId { reply }).expect("an id"));
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

#[test]
fn topics_are_validated_created_grown_and_deleted() {
    let cluster = Cluster::new(5);
    let (one, _two) = cluster.two_brokers();
    let code = |error: ErrorCode| error.code();
    let validated =
        cluster.ask(CreateTopicsRequest { topics: vec![plain("t")], timeout_ms: 1000, validate_only: true }, 7);
    assert_eq!((validated.topics[0].error_code, validated.topics[0].topic_id), (0, Uuid::ZERO));
    let answer = cluster.create(vec![plain("t"), plain("u"), plain("u"), plain("a.b")]);
    let codes: Vec<(&str, i16)> = answer.topics.iter().map(|row| (row.name.as_str(), row.error_code)).collect();
    assert_eq!(codes, [("t", 0), ("u", code(ErrorCode::InvalidRequest)), ("a.b", 0)]);
    let id = answer.topics[0].topic_id;
    assert_eq!(cluster.create(vec![plain("a_b")]).topics[0].error_code, code(ErrorCode::InvalidTopicException));

    let grow = |count, validate_only| {
        let topics = vec![CreatePartitionsTopic { name: "t".to_owned(), count, assignments: None }];
        let request = CreatePartitionsRequest { topics, timeout_ms: 1000, validate_only };
        cluster.ask(request, 3).results[0].error_code
    };
    assert_eq!(
        (grow(2, false), grow(1, false)),
        (code(ErrorCode::InvalidPartitions), code(ErrorCode::InvalidPartitions))
    );
    assert_eq!((grow(5, true), grow(5, false), grow(5, false)), (0, 0, code(ErrorCode::InvalidPartitions)));
    cluster.until(|| one.partition("t", 4).is_some());

    let delete = |name: Option<&str>, topic_id| {
        let topics = vec![DeleteTopicState { name: name.map(str::to_owned), topic_id }];
        cluster.ask(DeleteTopicsRequest { topics, ..DeleteTopicsRequest::default() }, 6).responses[0].error_code
    };
    cluster.auto_create(&one, &["__consumer_offsets"]);
    assert_eq!(delete(Some("__consumer_offsets"), Uuid::ZERO), code(ErrorCode::InvalidRequest));
    assert_eq!((delete(None, id), delete(None, id)), (0, code(ErrorCode::UnknownTopicId)));
    cluster.until(|| one.partition("t", 0).is_none());
    let by_name = DeleteTopicsRequest { topic_names: vec!["a.b".into(), "t".into()], ..Default::default() };
    let answer = cluster.ask(by_name, 1);
    let codes: Vec<i16> = answer.responses.iter().map(|row| row.error_code).collect();
    assert_eq!(codes, [0, code(ErrorCode::UnknownTopicOrPartition)]);
}

#[test]
fn the_controller_says_what_it_serves_without_its_private_requests() {
    let cluster = Cluster::new(6);
    let answer = cluster.ask(ApiVersionsRequest::default(), 4);
    assert!(answer.api_keys.iter().any(|row| row.api_key == ApiKey::CreateTopics.key()));
    assert!(answer.api_keys.iter().all(|row| row.api_key < ApiKey::FIRST_PRIVATE));
}

#[test]
fn elections_know_the_min_insync_replicas_of_the_settings() {
    let cluster = Cluster::with(7, &[("min.insync.replicas", "2")]);
    let (one, two) = cluster.two_brokers();
    let value = one.seen(|seen| seen.image.configs[&ConfigResource::Cluster]["min.insync.replicas"].clone());
    assert_eq!(value, "2");
    cluster.auto_create(&one, &["orders"]);
    let leader = one.partition("orders", 0).unwrap().1.leader;
    let (gone, left) = if leader == Some(BrokerId::new(1)) { (&one, &two) } else { (&two, &one) };
    gone.machine.crash(sakia_io::sim::Crash::Kill);
    cluster.until(|| left.partition("orders", 0).unwrap().1.leader != leader);
    // It left the ISR below min.insync.replicas, so it holds everything that is committed and may lead again.
    assert_eq!(left.partition("orders", 0).unwrap().1.elr, [leader.unwrap()]);
    assert!(matches!(left.standing(leader.unwrap().get()), Some((_, Standing::Fenced))));
}

#[test]
fn each_broker_gets_its_partition_of_the_topic_of_uploads() {
    let cluster = Cluster::new(8);
    let (one, two) = cluster.two_brokers();
    let stands = |broker: &FakeBroker| {
        broker.seen(|seen| {
            let topic = seen.image.topic_named("__remote_wal_log_metadata");
            topic.is_some_and(|topic| topic.partitions.len() == 2)
        })
    };
    cluster.until(|| stands(&one) && stands(&two));
    for id in [1, 2].map(BrokerId::new) {
        let number = one.seen(|seen| seen.image.metadata_partitions[&id]);
        let (_, partition) = one.partition("__remote_wal_log_metadata", number.get()).unwrap();
        assert_eq!((partition.replicas.as_slice(), partition.leader), ([id].as_slice(), Some(id)));
    }
}
