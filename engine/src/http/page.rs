//! What the status page says: a snapshot of the cluster as one process sees it. Pure.

use sakia_controller::Image;
use sakia_controller::image::{Standing, TopicImage};
use sakia_protocol::ids::{BrokerId, LeaderEpoch};

use crate::settings::{Role, Settings};

/// Partitions on the page. At the bound the rest is counted, not listed.
const PARTITIONS_MAX: usize = 2000;

/// A snapshot.
#[derive(Clone, Debug)]
pub struct StatusPage {
    /// Who shows it.
    pub process: Process,
    /// Kafka's cluster id; empty until the controller was heard.
    pub cluster_id: String,
    /// Index up to which the metadata is known; `None` on a controller's page.
    pub metadata_index: Option<i64>,
    /// Registered brokers.
    pub brokers: Vec<BrokerRow>,
    /// Partitions by topic name and number.
    pub partitions: Vec<PartitionRow>,
    /// Partitions that found no room on the page.
    pub partitions_left_out: usize,
}

/// The process that shows a page.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its `node.id`.
    pub id: BrokerId,
    /// What it is.
    pub role: Role,
    /// Its zone.
    pub rack: Option<String>,
    /// Whether followers replicate through the bucket.
    pub object_path: ObjectPath,
}

/// State of the object path by the settings; what happens on it is in the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectPath {
    /// `remote.log.wal.storage.system.enable=true`.
    On,
    /// Off: followers get record bytes.
    Off,
}

/// One broker.
#[derive(Clone, Debug)]
pub struct BrokerRow {
    /// Its id.
    pub id: BrokerId,
    /// `host:port` of its first listener.
    pub address: String,
    /// Its zone.
    pub rack: Option<String>,
    /// What it may do.
    pub standing: Standing,
}

/// One partition.
#[derive(Clone, Debug)]
pub struct PartitionRow {
    /// Topic.
    pub topic: String,
    /// Number.
    pub partition: usize,
    /// Leader.
    pub leader: Option<BrokerId>,
    /// Its epoch.
    pub leader_epoch: LeaderEpoch,
    /// Assigned brokers.
    pub replicas: Vec<BrokerId>,
    /// In-sync replicas, by id.
    pub isr: Vec<BrokerId>,
}

impl PartitionRow {
    /// Whether an assigned replica is not in sync.
    #[must_use]
    pub fn is_under_replicated(&self) -> bool {
        self.isr.len() < self.replicas.len()
    }
}

impl StatusPage {
    /// A broker's page.
    #[must_use]
    pub fn of_broker(settings: &Settings, image: &Image) -> Self {
        let mut partitions = Vec::new();
        let mut partitions_left_out = 0;
        for topic in image.topics_by_name() {
            let room = PARTITIONS_MAX - partitions.len();
            partitions_left_out += topic.partitions.len().saturating_sub(room);
            partitions.extend(rows(topic).take(room));
        }
        Self {
            process: Process::of(settings, Role::Broker),
            cluster_id: image.cluster_id.clone(),
            metadata_index: Some(image.index.get()),
            brokers: image
                .brokers
                .iter()
                .map(|(id, broker)| BrokerRow {
                    id: *id,
                    address: broker.listeners.first().map_or_else(String::new, |l| format!("{}:{}", l.host, l.port)),
                    rack: broker.rack.clone(),
                    standing: broker.standing,
                })
                .collect(),
            partitions,
            partitions_left_out,
        }
    }

    /// A controller's page. It says who it is and what it counts; the cluster is on the brokers' pages.
    #[must_use]
    pub fn of_controller(settings: &Settings) -> Self {
        Self {
            process: Process::of(settings, Role::Controller),
            cluster_id: String::new(),
            metadata_index: None,
            brokers: Vec::new(),
            partitions: Vec::new(),
            partitions_left_out: 0,
        }
    }
}

impl Process {
    fn of(settings: &Settings, role: Role) -> Self {
        let object_path = if settings.wal.enabled { ObjectPath::On } else { ObjectPath::Off };
        Self { id: settings.node_id, role, rack: settings.rack.clone(), object_path }
    }
}

fn rows(topic: &TopicImage) -> impl Iterator<Item = PartitionRow> + '_ {
    topic.partitions.iter().enumerate().map(|(number, partition)| {
        let mut isr: Vec<BrokerId> = partition.isr.iter().map(|member| member.broker).collect();
        isr.sort_unstable();
        PartitionRow {
            topic: topic.name.clone(),
            partition: number,
            leader: partition.leader,
            leader_epoch: partition.leader_epoch,
            replicas: partition.replicas.clone(),
            isr,
        }
    })
}
