//! A Kafka client's view of a cluster: metadata, connections by broker, and the requests that tests send.
//!
//! Path: producers, consumers and admins of the tests → `rpc::Peer` → the brokers. Nothing here retries by itself, except
//! where its doc says so: what a client does about an error is part of the test.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use sakia_engine::rpc::{Peer, PeerAddress, RpcError};
use sakia_io::{Class, sleep};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::Uuid;
use sakia_protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use sakia_protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use sakia_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic, PartitionData};
use sakia_protocol::messages::find_coordinator::FindCoordinatorRequest;
use sakia_protocol::messages::init_producer_id::InitProducerIdRequest;
use sakia_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use sakia_protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use sakia_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use sakia_protocol::messages::offset_fetch::{OffsetFetchRequest, OffsetFetchRequestTopic};
use sakia_protocol::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData,
};

use tracing::debug;

use crate::history::Place;

const LIMIT: Duration = Duration::from_secs(3);
const PORT: u16 = 9092;

/// What a client did not get.
#[derive(Debug)]
pub enum Trouble {
    /// No answer: whatever was asked may have happened.
    #[expect(dead_code, reason = "shown when a test fails")]
    Unanswered(RpcError),
    /// A Kafka error.
    #[expect(dead_code, reason = "shown when a test fails")]
    Code(ErrorCode),
    /// The metadata names no leader, or nobody gave any.
    NoLeader,
}

/// What an error code of an answer means.
pub fn checked(code: i16) -> Result<(), Trouble> {
    match ErrorCode::from_wire(code) {
        ErrorCode::None => Ok(()),
        code => Err(Trouble::Code(code)),
    }
}

impl From<RpcError> for Trouble {
    fn from(error: RpcError) -> Self {
        Self::Unanswered(error)
    }
}

/// One partition, as metadata shows it.
#[derive(Clone, Debug)]
pub struct PartitionView {
    pub leader: Option<i32>,
    pub leader_epoch: i32,
    pub replicas: Vec<i32>,
    pub isr: Vec<i32>,
}

/// One topic, as metadata shows it.
#[derive(Clone, Debug)]
pub struct TopicView {
    pub id: Uuid,
    pub partitions: Vec<PartitionView>,
}

/// A client. Used on one client shard.
pub struct Kafka {
    name: String,
    hosts: Vec<String>,
    next_host: Cell<usize>,
    peers: RefCell<BTreeMap<String, Rc<Peer>>>,
    brokers: RefCell<BTreeMap<i32, String>>,
    topics: RefCell<BTreeMap<String, TopicView>>,
    /// Topics that were deleted: a broker that has not heard of it may still name them.
    gone: RefCell<BTreeSet<Uuid>>,
}

impl Kafka {
    /// A client that knows these hosts.
    pub fn new(name: &str, hosts: &[String]) -> Rc<Self> {
        Rc::new(Self {
            name: name.to_owned(),
            hosts: hosts.to_vec(),
            next_host: Cell::new(0),
            peers: RefCell::default(),
            brokers: RefCell::default(),
            topics: RefCell::default(),
            gone: RefCell::default(),
        })
    }

    fn peer_at(&self, host: &str) -> Rc<Peer> {
        let mut peers = self.peers.borrow_mut();
        let peer = peers.entry(host.to_owned()).or_insert_with(|| {
            let address = PeerAddress {
                host: host.to_owned(),
                port: PORT,
                client_id: self.name.clone(),
                answer_bytes_max: 64 << 20,
            };
            Rc::new(Peer::new(address, Class::Foreground))
        });
        peer.clone()
    }

    /// The connection to a broker.
    pub fn peer(&self, broker: i32) -> Result<Rc<Peer>, Trouble> {
        let host = self.brokers.borrow().get(&broker).cloned().ok_or(Trouble::NoLeader)?;
        Ok(self.peer_at(&host))
    }

    /// Some broker; another one at the next call.
    fn any_peer(&self) -> Rc<Peer> {
        let number = self.next_host.get();
        self.next_host.set(number + 1);
        self.peer_at(&self.hosts[number % self.hosts.len()])
    }

    /// Asks one broker for metadata of these topics. A leadership that is older than a known one is not taken.
    pub async fn refresh(&self, topics: &[&str]) -> Result<(), Trouble> {
        let wanted =
            topics.iter().map(|name| MetadataRequestTopic { name: Some((*name).to_owned()), ..Default::default() });
        let request =
            MetadataRequest { topics: Some(wanted.collect()), allow_auto_topic_creation: false, ..Default::default() };
        let answer = self.any_peer().call(&request, 12, LIMIT).await?;
        let mut brokers = self.brokers.borrow_mut();
        for broker in answer.brokers {
            brokers.insert(broker.node_id, broker.host);
        }
        let mut known = self.topics.borrow_mut();
        for topic in answer.topics {
            checked(topic.error_code)?;
            if self.gone.borrow().contains(&topic.topic_id) {
                return Err(Trouble::NoLeader);
            }
            let mut partitions: Vec<PartitionView> = Vec::new();
            for (index, row) in topic.partitions.iter().enumerate() {
                assert_eq!(usize::try_from(row.partition_index), Ok(index), "metadata lists partitions in order");
                partitions.push(PartitionView {
                    leader: (row.leader_id >= 0).then_some(row.leader_id),
                    leader_epoch: row.leader_epoch,
                    replicas: row.replica_nodes.clone(),
                    isr: row.isr_nodes.clone(),
                });
            }
            let name = topic.name.expect("asked by name");
            if let Some(before) = known.get(&name).filter(|before| before.id == topic.topic_id) {
                for (view, before) in partitions.iter_mut().zip(&before.partitions) {
                    if before.leader_epoch > view.leader_epoch {
                        *view = before.clone();
                    }
                }
            }
            known.insert(name, TopicView { id: topic.topic_id, partitions });
        }
        Ok(())
    }

    /// What is known of a topic.
    pub fn topic(&self, topic: &str) -> Option<TopicView> {
        self.topics.borrow().get(topic).cloned()
    }

    /// What is known of a partition; asks for metadata if nothing is.
    pub async fn partition(&self, topic: &str, partition: usize) -> Result<(Uuid, PartitionView), Trouble> {
        if self.topic(topic).is_none() {
            self.refresh(&[topic]).await?;
        }
        let view = self.topic(topic).ok_or(Trouble::NoLeader)?;
        let partition = view.partitions.get(partition).cloned().ok_or(Trouble::NoLeader)?;
        Ok((view.id, partition))
    }

    /// Creates a topic and returns once a broker knows all of its leaders; tries again until it can.
    pub async fn create_topic(&self, name: &str, partitions: i32, replicas: i16, configs: &[(&str, &str)]) {
        let config = |(name, value): &(&str, &str)| CreatableTopicConfig {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        };
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: partitions,
            replication_factor: replicas,
            assignments: Vec::new(),
            configs: configs.iter().map(config).collect(),
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 2000, validate_only: false };
        loop {
            if let Ok(answer) = self.any_peer().call(&request, 7, LIMIT).await {
                match ErrorCode::from_wire(answer.topics[0].error_code) {
                    ErrorCode::None | ErrorCode::TopicAlreadyExists => break,
                    ErrorCode::NotController | ErrorCode::RequestTimedOut | ErrorCode::InvalidReplicationFactor => {}
                    code => panic!("{name} cannot be created: {} {:?}", code.name(), answer.topics[0].error_message),
                }
            }
            sleep(Duration::from_millis(50)).await;
        }
        while self.refresh(&[name]).await.is_err()
            || self.topic(name).is_none_or(|topic| topic.partitions.iter().any(|row| row.leader.is_none()))
        {
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Deletes a topic that is there; tries again until somebody says that it is gone. By its id: a request that the network
    /// holds for long may arrive when another topic has its name.
    pub async fn delete_topic(&self, name: &str) {
        while self.topic(name).is_none() {
            let _ = self.refresh(&[name]).await;
            sleep(Duration::from_millis(20)).await;
        }
        let topic_id = self.topics.borrow_mut().remove(name).expect("the topic is known").id;
        let topics = vec![DeleteTopicState { name: None, topic_id }];
        let request = DeleteTopicsRequest { topics, timeout_ms: 2000, ..DeleteTopicsRequest::default() };
        loop {
            if let Ok(answer) = self.any_peer().call(&request, 6, LIMIT).await {
                match ErrorCode::from_wire(answer.responses[0].error_code) {
                    ErrorCode::None | ErrorCode::UnknownTopicId => break,
                    ErrorCode::NotController | ErrorCode::RequestTimedOut => {}
                    code => panic!("{name} cannot be deleted: {}", code.name()),
                }
            }
            sleep(Duration::from_millis(50)).await;
        }
        self.gone.borrow_mut().insert(topic_id);
    }

    /// The group's coordinator, as some broker says.
    async fn coordinator(&self, group: &str) -> Result<Rc<Peer>, Trouble> {
        let request = FindCoordinatorRequest { key: group.to_owned(), ..FindCoordinatorRequest::default() };
        let answer = self.any_peer().call(&request, 3, LIMIT).await?;
        checked(answer.error_code)?;
        debug!(group, host = answer.host, "coordinator");
        Ok(self.peer_at(&answer.host))
    }

    /// Commits an offset for a group without members.
    pub async fn commit(&self, group: &str, place: &Place, offset: i64) -> Result<(), Trouble> {
        let partition = OffsetCommitRequestPartition {
            partition_index: place.1,
            committed_offset: offset,
            ..OffsetCommitRequestPartition::default()
        };
        let topic = OffsetCommitRequestTopic {
            name: place.0.clone(),
            partitions: vec![partition],
            ..OffsetCommitRequestTopic::default()
        };
        let request = OffsetCommitRequest {
            group_id: group.to_owned(),
            generation_id_or_member_epoch: -1,
            topics: vec![topic],
            ..OffsetCommitRequest::default()
        };
        let answer = self.coordinator(group).await?.call(&request, 7, LIMIT).await?;
        checked(answer.topics[0].partitions[0].error_code)
    }

    /// The offset that a group holds; -1 if it has none.
    pub async fn committed(&self, group: &str, place: &Place) -> Result<i64, Trouble> {
        let topic = OffsetFetchRequestTopic { name: place.0.clone(), partition_indexes: vec![place.1] };
        let request = OffsetFetchRequest {
            group_id: group.to_owned(),
            topics: Some(vec![topic]),
            ..OffsetFetchRequest::default()
        };
        let answer = self.coordinator(group).await?.call(&request, 5, LIMIT).await?;
        checked(answer.error_code)?;
        let row = &answer.topics[0].partitions[0];
        checked(row.error_code)?;
        Ok(row.committed_offset)
    }

    /// A new producer id, epoch 0.
    pub async fn producer_id(&self) -> Result<(i64, i16), Trouble> {
        let request = InitProducerIdRequest::default();
        let answer = self.any_peer().call(&request, 4, LIMIT).await?;
        checked(answer.error_code)?;
        Ok((answer.producer_id, answer.producer_epoch))
    }

    /// Sends one batch to a broker.
    pub async fn produce(&self, to: i32, batch: ProducedTo<'_>) -> Result<PartitionProduceResponse, Trouble> {
        let data = PartitionProduceData { index: batch.partition, records: Some(batch.records.clone()) };
        let topic = TopicProduceData { name: batch.topic.to_owned(), topic_id: batch.id, partition_data: vec![data] };
        let request =
            ProduceRequest { transactional_id: None, acks: batch.acks, timeout_ms: 1500, topic_data: vec![topic] };
        let answer = self.peer(to)?.call(&request, 13, LIMIT).await?;
        let row = answer.responses.first().and_then(|topic| topic.partition_responses.first());
        Ok(row.expect("an answer has the rows of its request").clone())
    }

    /// Reads one partition from a broker.
    pub async fn fetch(&self, from: i32, read: Read<'_>) -> Result<PartitionData, Trouble> {
        let partition = FetchPartition {
            partition: read.partition,
            current_leader_epoch: read.leader_epoch,
            fetch_offset: read.offset,
            partition_max_bytes: read.bytes_max,
            ..FetchPartition::default()
        };
        let request = FetchRequest {
            replica_id: -1,
            max_wait_ms: 100,
            min_bytes: 1,
            max_bytes: 1 << 20,
            topics: vec![FetchTopic { topic_id: read.id, partitions: vec![partition], ..FetchTopic::default() }],
            rack_id: read.rack.to_owned(),
            ..FetchRequest::default()
        };
        let answer = self.peer(from)?.call(&request, 15, LIMIT).await?;
        checked(answer.error_code)?;
        let row = answer.responses.into_iter().next().and_then(|topic| topic.partitions.into_iter().next());
        Ok(row.expect("an answer has the rows of its request"))
    }

    /// ListOffsets at the leader: -1 the high watermark, -2 the log start.
    pub async fn offset(&self, topic: &str, partition: usize, timestamp: i64) -> Result<i64, Trouble> {
        let (_, view) = self.partition(topic, partition).await?;
        let row = ListOffsetsPartition {
            partition_index: i32::try_from(partition).expect("a few partitions"),
            current_leader_epoch: -1,
            timestamp,
        };
        let topics = vec![ListOffsetsTopic { name: topic.to_owned(), partitions: vec![row] }];
        let request = ListOffsetsRequest { replica_id: -1, topics, ..ListOffsetsRequest::default() };
        let leader = self.peer(view.leader.ok_or(Trouble::NoLeader)?)?;
        let answer = leader.call(&request, 6, LIMIT).await?;
        let row = &answer.topics[0].partitions[0];
        checked(row.error_code)?;
        Ok(row.offset)
    }
}

/// One batch on its way.
pub struct ProducedTo<'a> {
    pub topic: &'a str,
    pub id: Uuid,
    pub partition: i32,
    pub acks: i16,
    pub records: &'a Bytes,
}

/// One read.
pub struct Read<'a> {
    pub id: Uuid,
    pub partition: i32,
    pub offset: i64,
    pub leader_epoch: i32,
    pub bytes_max: i32,
    pub rack: &'a str,
}
