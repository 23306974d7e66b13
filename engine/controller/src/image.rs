//! What the cluster looks like after one index of the controller log: the same code on controller and broker.
//!
//! Path: from `apply` (controller) or the metadata stream (broker) to everything that asks who leads what.
//! An image changes by events only, in log order; applying the events of an index twice changes nothing, so a reader
//! that reconnects may repeat the last index. Equal images have equal bytes.
//!
//! ```text
//! magic "SKIM" · format version u16 = 1 · body (fields in the order of `Image`) · crc32c u32 over all before it
//! ```
//! Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use sakia_protocol::ids::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, MetadataIndex, PartitionEpoch, PartitionIndex, PartitionKey,
    TopicId, Uuid,
};

use crate::event::Event;
use crate::wire::{Cursor, Wire, WireError, malformed, take_exact, wire_choice, wire_struct};

const MAGIC: [u8; 4] = *b"SKIM";
const FORMAT: u16 = 1;

/// Configuration entries by name.
pub type Configs = BTreeMap<String, String>;

/// The whole cluster at one index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Index of the last entry in this image.
    pub index: MetadataIndex,
    /// Kafka's cluster id (22 characters); empty before the first controller is active.
    pub cluster_id: String,
    /// Random id of this life of the controller log; part of every object key in the bucket.
    pub incarnation: Uuid,
    /// The active controller.
    pub controller_id: Option<BrokerId>,
    /// Counts activations; 0 before the first.
    pub controller_epoch: ControllerEpoch,
    /// Registered brokers.
    pub brokers: BTreeMap<BrokerId, BrokerImage>,
    /// Dynamic configuration of brokers, the cluster and groups; a topic's is in its `TopicImage`.
    pub configs: BTreeMap<ConfigResource, Configs>,
    /// Partition of `__remote_wal_log_metadata` per broker; kept when the broker is removed. Rule: R24.
    pub metadata_partitions: BTreeMap<BrokerId, PartitionIndex>,
    /// First producer id not handed out.
    pub next_producer_id: i64,
    topics: BTreeMap<TopicId, Arc<TopicImage>>,
    names: BTreeMap<String, TopicId>,
}

/// One registered broker process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerImage {
    /// Index of its registration.
    pub epoch: BrokerEpoch,
    /// Random id of the process.
    pub incarnation: Uuid,
    /// Kernel boot under which it runs; zero if unknown. Rule: R3.
    pub boot_id: Uuid,
    /// Ids of its log folders. Rule: R3: a folder that is gone cannot hold what was stored.
    pub log_folders: Vec<Uuid>,
    /// Availability zone.
    pub rack: Option<String>,
    /// Where it can be reached.
    pub listeners: Vec<Listener>,
    /// Feature levels it supports, e.g. `sakia.wal`.
    pub features: BTreeMap<String, FeatureRange>,
    /// Whether it leads nothing and serves nobody.
    pub standing: Standing,
}

/// What a registered broker may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No session, or not yet caught up: leads nothing, joins no ISR.
    Fenced,
    /// Takes part in everything.
    Active,
    /// Unfenced, but about to stop: leads nothing new, joins no ISR.
    ShuttingDown,
}

/// An address of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// E.g. `PLAINTEXT`.
    pub name: String,
    /// Host name or address that clients use.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// How it is secured.
    pub protocol: SecurityProtocol,
}

/// Kafka's security protocols, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityProtocol {
    /// 0
    Plaintext,
    /// 1
    Tls,
    /// 2
    SaslPlaintext,
    /// 3
    SaslTls,
}

/// Lowest and highest level of a feature, both supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureRange {
    /// Lowest level.
    pub min: i16,
    /// Highest level, inclusive.
    pub max: i16,
}

/// Whose dynamic configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigResource {
    /// Every broker (Kafka: broker resource with an empty name).
    Cluster,
    /// One broker.
    Broker(BrokerId),
    /// One topic. Never a key in `Image::configs`.
    Topic(TopicId),
    /// One group.
    Group(String),
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicImage {
    /// Identity.
    pub id: TopicId,
    /// Name, unique at any index.
    pub name: String,
    /// Its own configuration entries (not the defaults).
    pub configs: Configs,
    /// Partition 0, 1, …
    pub partitions: Vec<PartitionImage>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionImage {
    /// Assigned brokers, the preferred leader first.
    pub replicas: Vec<BrokerId>,
    /// In-sync replicas, in no particular order.
    pub isr: Vec<IsrMember>,
    /// Eligible leader replicas (KIP-966): left the ISR while it was below min.insync.replicas, so they hold all below
    /// the high watermark. Never members of `isr`.
    pub elr: Vec<BrokerId>,
    /// Who led last, or the last eligible replica; only while there is no leader.
    pub last_known_leader: Option<BrokerId>,
    /// The leader: a member of the ISR.
    pub leader: Option<BrokerId>,
    /// Grows with each change of `leader`.
    pub leader_epoch: LeaderEpoch,
    /// Grows with each change of any field.
    pub partition_epoch: PartitionEpoch,
    /// Whether the leader was elected cleanly.
    pub recovery: LeaderRecovery,
}

/// One in-sync replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsrMember {
    /// The broker.
    pub broker: BrokerId,
    /// Its broker epoch when it was found in sync (KIP-903).
    pub broker_epoch: BrokerEpoch,
}

/// Kafka's leader recovery state (KIP-704).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaderRecovery {
    /// 0: elected cleanly, or recovery has ended.
    Recovered,
    /// 1: elected uncleanly; it first extends its log from the bucket. Rule: R20.
    Recovering,
}

impl Default for Image {
    fn default() -> Self {
        Self {
            index: MetadataIndex::ZERO,
            cluster_id: String::new(),
            incarnation: Uuid::ZERO,
            controller_id: None,
            controller_epoch: ControllerEpoch::ZERO,
            brokers: BTreeMap::new(),
            configs: BTreeMap::new(),
            metadata_partitions: BTreeMap::new(),
            next_producer_id: 0,
            topics: BTreeMap::new(),
            names: BTreeMap::new(),
        }
    }
}

impl Image {
    /// All topics, by id.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = &Arc<TopicImage>> {
        self.topics.values()
    }

    /// All topics, by name.
    pub fn topics_by_name(&self) -> impl ExactSizeIterator<Item = &Arc<TopicImage>> {
        self.names.values().map(|id| self.topics.get(id).expect("each name belongs to a topic"))
    }

    /// The topic with this id.
    #[must_use]
    pub fn topic(&self, id: &TopicId) -> Option<&Arc<TopicImage>> {
        self.topics.get(id)
    }

    /// The topic with this name.
    #[must_use]
    pub fn topic_named(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.topics.get(self.names.get(name)?)
    }

    /// One partition.
    #[must_use]
    pub fn partition(&self, key: &PartitionKey) -> Option<&PartitionImage> {
        self.topics.get(&key.topic_id)?.partitions.get(key.partition.index())
    }

    /// Partitions of all topics, in order of key.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionKey, &PartitionImage)> {
        self.topics.values().flat_map(|topic| topic.keys().zip(&topic.partitions))
    }

    /// The broker, if `epoch` is its present one.
    #[must_use]
    pub fn broker_at(&self, id: BrokerId, epoch: BrokerEpoch) -> Option<&BrokerImage> {
        self.brokers.get(&id).filter(|broker| broker.epoch == epoch)
    }

    /// A topic's value of a configuration entry: its own, else the cluster's dynamic one.
    #[must_use]
    pub fn topic_config<'a>(&'a self, topic: &'a TopicImage, name: &str) -> Option<&'a str> {
        let cluster = || self.configs.get(&ConfigResource::Cluster)?.get(name);
        topic.configs.get(name).or_else(cluster).map(String::as_str)
    }

    /// Takes over the events of the entry at `index`, one after the other. Several events may have one index.
    /// Panics if the index lies behind the image: events were skipped or mixed up.
    pub fn apply(&mut self, index: MetadataIndex, event: &Event) {
        self.advance(index);
        match event {
            Event::ControllerActivated(event) => {
                self.controller_id = Some(event.controller);
                self.controller_epoch = event.controller_epoch;
                self.cluster_id.clone_from(&event.cluster_id);
                self.incarnation = event.incarnation;
            }
            Event::BrokerRegistered(event) => {
                self.brokers.insert(event.broker, event.registration.clone());
            }
            Event::BrokerStandingChanged(event) => {
                if let Some(broker) = self.brokers.get_mut(&event.broker) {
                    broker.standing = event.standing;
                }
            }
            Event::BrokerRemoved(event) => {
                self.brokers.remove(&event.broker);
                self.configs.remove(&ConfigResource::Broker(event.broker));
            }
            Event::TopicCreated(event) => self.insert_topic(Arc::clone(&event.topic)),
            Event::TopicDeleted(event) => {
                self.topics.remove(&event.topic_id);
                self.names.remove(&event.name);
            }
            Event::PartitionsAdded(event) => {
                let topic = self.topic_mut(&event.topic_id);
                topic.partitions.truncate(event.first.index());
                topic.partitions.extend(event.partitions.iter().cloned());
            }
            Event::PartitionChanged(event) => {
                let topic = self.topic_mut(&event.key.topic_id);
                let slot = topic.partitions.get_mut(event.key.partition.index());
                slot.expect("only existing partitions change").clone_from(&event.partition);
            }
            Event::ConfigsSet(event) => self.set_configs(&event.resource, &event.changes),
            Event::MetadataPartitionAssigned(event) => {
                self.metadata_partitions.insert(event.broker, event.partition);
            }
            Event::ProducerIdsAllocated(event) => self.next_producer_id = event.next(),
        }
    }

    /// Notes that everything up to `index` is in this image, also entries without an event.
    /// Panics if `index` lies behind it.
    pub fn advance(&mut self, index: MetadataIndex) {
        assert!(index >= self.index, "metadata index went back from {} to {index}", self.index);
        self.index = index;
    }

    fn insert_topic(&mut self, topic: Arc<TopicImage>) {
        self.names.insert(topic.name.clone(), topic.id);
        self.topics.insert(topic.id, topic);
    }

    fn topic_mut(&mut self, id: &TopicId) -> &mut TopicImage {
        Arc::make_mut(self.topics.get_mut(id).expect("events name existing topics"))
    }

    fn set_configs(&mut self, resource: &ConfigResource, changes: &[(String, Option<String>)]) {
        let entries = match resource {
            ConfigResource::Topic(id) => &mut self.topic_mut(id).configs,
            other => self.configs.entry(other.clone()).or_default(),
        };
        for (name, value) in changes {
            match value {
                Some(value) => entries.insert(name.clone(), value.clone()),
                None => entries.remove(name),
            };
        }
        if entries.is_empty() {
            self.configs.remove(resource);
        }
    }

    /// The bytes of the whole image.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        FORMAT.put(&mut out);
        self.put(&mut out);
        let crc = crc32c::crc32c(&out);
        crc.put(&mut out);
        out
    }

    /// Reads the bytes of `encode`.
    ///
    /// # Errors
    /// Another format, a wrong checksum or malformed bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let (head, crc) = bytes.split_last_chunk::<4>().ok_or(malformed("image"))?;
        let (found, expected) = (crc32c::crc32c(head), u32::from_be_bytes(*crc));
        let body = head.strip_prefix(&MAGIC).ok_or(malformed("image magic"))?;
        let (version, body) = body.split_first_chunk::<2>().ok_or(malformed("image"))?;
        let version = u16::from_be_bytes(*version);
        if version != FORMAT {
            return Err(WireError::Unknown { what: "image", kind: 0, version });
        }
        if found != expected {
            return Err(WireError::Checksum { what: "image", found, expected });
        }
        take_exact(body)
    }
}

impl TopicImage {
    /// Keys of its partitions, in order.
    pub fn keys(&self) -> impl Iterator<Item = PartitionKey> + use<> {
        let topic_id = self.id;
        let count = i32::try_from(self.partitions.len()).expect("bounded by TOPIC_PARTITIONS_MAX");
        (0..count).map(move |number| PartitionKey { topic_id, partition: PartitionIndex::new(number) })
    }
}

impl PartitionImage {
    /// Whether the broker is an in-sync replica.
    #[must_use]
    pub fn in_isr(&self, broker: BrokerId) -> bool {
        self.isr.iter().any(|member| member.broker == broker)
    }
}

impl BrokerImage {
    /// Whether it may become a leader or join an ISR.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.standing == Standing::Active
    }

    /// Whether it is fenced.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.standing == Standing::Fenced
    }

    /// The listener with this name.
    #[must_use]
    pub fn listener(&self, name: &str) -> Option<&Listener> {
        self.listeners.iter().find(|listener| listener.name == name)
    }
}

impl SecurityProtocol {
    /// Kafka's number.
    #[must_use]
    pub const fn to_wire(self) -> i16 {
        match self {
            Self::Plaintext => 0,
            Self::Tls => 1,
            Self::SaslPlaintext => 2,
            Self::SaslTls => 3,
        }
    }

    /// From Kafka's number.
    #[must_use]
    pub const fn from_wire(number: i16) -> Option<Self> {
        match number {
            0 => Some(Self::Plaintext),
            1 => Some(Self::Tls),
            2 => Some(Self::SaslPlaintext),
            3 => Some(Self::SaslTls),
            _ => None,
        }
    }
}

wire_choice!(Standing { Fenced = 0, Active = 1, ShuttingDown = 2 });
wire_choice!(SecurityProtocol { Plaintext = 0, Tls = 1, SaslPlaintext = 2, SaslTls = 3 });
wire_choice!(LeaderRecovery { Recovered = 0, Recovering = 1 });
wire_struct!(FeatureRange { min, max });
wire_struct!(Listener { name, host, port, protocol });
wire_struct!(BrokerImage { epoch, incarnation, boot_id, log_folders, rack, listeners, features, standing });
wire_struct!(IsrMember { broker, broker_epoch });
wire_struct!(PartitionImage { replicas, isr, elr, last_known_leader, leader, leader_epoch, partition_epoch, recovery });
wire_struct!(TopicImage { id, name, configs, partitions });

impl Wire for ConfigResource {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Cluster => out.push(0),
            Self::Broker(id) => {
                out.push(1);
                id.put(out);
            }
            Self::Topic(id) => {
                out.push(2);
                id.put(out);
            }
            Self::Group(name) => {
                out.push(3);
                name.put(out);
            }
        }
    }
    fn take(input: &mut Cursor<'_>) -> Result<Self, WireError> {
        match u8::take(input)? {
            0 => Ok(Self::Cluster),
            1 => Wire::take(input).map(Self::Broker),
            2 => Wire::take(input).map(Self::Topic),
            3 => Wire::take(input).map(Self::Group),
            _ => Err(malformed("configuration resource")),
        }
    }
}

impl Wire for Image {
    fn put(&self, out: &mut Vec<u8>) {
        self.index.put(out);
        self.cluster_id.put(out);
        self.incarnation.put(out);
        self.controller_id.put(out);
        self.controller_epoch.put(out);
        self.brokers.put(out);
        self.configs.put(out);
        self.metadata_partitions.put(out);
        self.next_producer_id.put(out);
        self.topics.put(out);
    }

    fn take(input: &mut Cursor<'_>) -> Result<Self, WireError> {
        let mut image = Self {
            index: Wire::take(input)?,
            cluster_id: Wire::take(input)?,
            incarnation: Wire::take(input)?,
            controller_id: Wire::take(input)?,
            controller_epoch: Wire::take(input)?,
            brokers: Wire::take(input)?,
            configs: Wire::take(input)?,
            metadata_partitions: Wire::take(input)?,
            next_producer_id: Wire::take(input)?,
            topics: Wire::take(input)?,
            names: BTreeMap::new(),
        };
        for (id, topic) in &image.topics {
            if topic.id != *id || image.names.insert(topic.name.clone(), *id).is_some() {
                return Err(malformed("topic identity"));
            }
        }
        Ok(image)
    }
}
