//! An owner shard: one thread's connections, partitions and view of the cluster.
//!
//! Path: connections and other threads → `inbox` → `partition` → the outbox. Reading order: this file (what a shard
//! holds), `inbox` (messages in), `partition` (one partition's life), `reconcile` (metadata → roles), `upkeep` (clocks).
//!
//! Invariant: a shard owns its state; nothing here is locked or shared. No borrow lives across an await.

mod announcements;
mod coordination;
mod inbox;
mod partition;
mod proposals;
mod reconcile;
mod start;
#[cfg(test)]
mod tests;
mod upkeep;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sakia_controller::Image;
use sakia_controller::image::{Standing, TopicImage};
use sakia_io::{Arena, Reply, Sender, Signal, oneshot};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{BrokerEpoch, BrokerId, LeaderEpoch, MetadataIndex, PartitionKey, TopicId};

use crate::combiner::BucketState;
use crate::counters::BrokerCounters;
use crate::fetcher::Fetchers;
use crate::log::LogSettings;
use crate::log::retention::RetentionSettings;
use crate::log::segment::RollSettings;
use crate::messages::{Addresses, LogAnswer, Question, Refusal, ShardId, ShardMessage};
use crate::outbox::Outbox;
use crate::placement::Placement;
use crate::replication::WalIndex;
use crate::settings::{Settings, TopicSettings};

pub(crate) use announcements::WAL_METADATA_TOPIC;
pub use coordination::Coordination;
pub(crate) use coordination::OFFSETS_TOPIC;
pub use partition::Partition;
pub use reconcile::FolderState;
pub use start::{ShardStart, run};
pub use upkeep::Lending;

/// One owner shard.
pub struct Shard {
    /// Its number.
    pub id: ShardId,
    /// The process's settings.
    pub settings: Arc<Settings>,
    /// The other threads.
    pub addresses: Addresses,
    /// Who owns which partition.
    pub placement: Placement,
    /// Memory for log tails.
    pub arena: Arena,
    /// What is to be told to other threads.
    pub outbox: Rc<Outbox>,
    /// What is counted.
    pub counters: Arc<BrokerCounters>,
    /// References of recent objects (R8).
    pub index: RefCell<WalIndex>,
    /// Partitions with bytes to lend.
    pub lending: Lending,
    /// ISR changes to be proposed.
    proposals: proposals::Proposals,
    /// Raised when the log folder failed (R6): the process stops.
    pub failure: Signal,
    /// Asks for the checkpoint files to be written now.
    pub checkpoint: Sender<Reply<()>>,
    /// Whether the bucket can be read, as the combiner finds it.
    pub bucket: BucketState,
    /// Fetchers of leaders that this shard hosts.
    pub fetchers: Fetchers,
    /// Group coordinators of `__consumer_offsets` partitions led here.
    pub coordination: Coordination,
    folder: FolderState,
    image: RefCell<Image>,
    metadata_index: Cell<Option<MetadataIndex>>,
    topic_settings: RefCell<BTreeMap<TopicId, Rc<TopicSettings>>>,
    partitions: RefCell<BTreeMap<PartitionKey, Rc<Partition>>>,
    pending: reconcile::Pending,
    generation: Cell<u64>,
    /// Hand-overs under way: producers are sent to whoever leads next. That before a stop never ends.
    handing_over: Cell<u32>,
    /// The shard ends: no more roles are brought about.
    stopping: Cell<bool>,
}

impl Shard {
    /// Reads the shard's view of the cluster.
    pub fn with_image<T>(&self, read: impl FnOnce(&Image) -> T) -> T {
        read(&self.image.borrow())
    }

    /// A partition that lives here.
    #[must_use]
    pub fn partition(&self, key: &PartitionKey) -> Option<Rc<Partition>> {
        self.partitions.borrow().get(key).cloned()
    }

    /// Settings of a topic: its own entries over the broker's. Kept until an entry of some topic changes.
    #[must_use]
    pub fn topic_settings(&self, topic: &TopicImage) -> Rc<TopicSettings> {
        if let Some(known) = self.topic_settings.borrow().get(&topic.id) {
            return known.clone();
        }
        // The controller checked every entry before it was committed; entries that only a newer version knows are skipped.
        let defaults = &self.settings.topic_defaults;
        let mut settings = defaults.with(&topic.configs).unwrap_or_else(|_| defaults.clone());
        // The controller elects by its own value of this one; leaders acknowledge by the same.
        let min_insync = self.with_image(|image| image.topic_config(topic, "min.insync.replicas")?.parse().ok());
        settings.min_insync = min_insync.unwrap_or(settings.min_insync);
        let settings = Rc::new(settings);
        self.topic_settings.borrow_mut().insert(topic.id, settings.clone());
        settings
    }

    /// This broker's registration, as the image knows it; `None` while it is fenced or unknown.
    #[must_use]
    pub fn broker_epoch(&self) -> Option<BrokerEpoch> {
        self.with_image(|image| {
            let me = image.brokers.get(&self.settings.node_id)?;
            (me.standing != Standing::Fenced).then_some(me.epoch)
        })
    }

    /// This broker's registration, fenced or not; `None` before the image holds one.
    #[must_use]
    pub fn registration(&self) -> Option<BrokerEpoch> {
        self.with_image(|image| Some(image.brokers.get(&self.settings.node_id)?.epoch))
    }

    /// Whether objects can be read at present: the combiner's breaker for the bucket is closed, or a probe is due.
    #[must_use]
    pub fn bucket_is_usable(&self) -> bool {
        self.outbox.has_combiner() && self.bucket.is_usable(sakia_io::now())
    }

    /// Where brokers are reached: id, host, port, rack.
    #[must_use]
    pub fn addresses_of(&self, mut brokers: Vec<BrokerId>) -> Vec<(BrokerId, String, u16, Option<String>)> {
        brokers.sort_unstable();
        brokers.dedup();
        self.with_image(|image| {
            let known = brokers.iter().filter_map(|id| {
                let broker = image.brokers.get(id)?;
                let listener = broker.listeners.first()?;
                Some((*id, listener.host.clone(), listener.port, broker.rack.clone()))
            });
            known.collect()
        })
    }

    /// A number that no earlier state of any partition here had (R7).
    fn next_generation(&self) -> u64 {
        self.generation.set(self.generation.get() + 1);
        self.generation.get()
    }

    /// Delivers to an owner shard: at once if it is this one, else through its mailbox, waiting for room.
    /// `false` if that shard is gone.
    pub async fn deliver(self: &Rc<Self>, to: ShardId, message: ShardMessage) -> bool {
        if to == self.id {
            self.take(message);
            return true;
        }
        let address: &Sender<ShardMessage> = &self.addresses.shards[to.index()];
        address.send(message).await.is_ok()
    }

    /// Asks the owner of a partition about its log.
    pub async fn ask(
        self: &Rc<Self>,
        key: PartitionKey,
        current_leader_epoch: Option<LeaderEpoch>,
        question: Question,
    ) -> LogAnswer {
        if self.with_image(|image| image.partition(&key).is_none()) {
            return LogAnswer::Refused(Refusal::code(ErrorCode::UnknownTopicOrPartition));
        }
        let (reply, answer) = oneshot();
        let message = ShardMessage::Ask { key, current_leader_epoch, question, reply };
        let unavailable = || LogAnswer::Refused(Refusal::code(ErrorCode::NotLeaderOrFollower));
        if !self.deliver(self.placement.owner(&key), message).await {
            return unavailable();
        }
        answer.await.unwrap_or_else(unavailable)
    }

    /// Who leads a partition, with the epoch, as the image knows it.
    #[must_use]
    pub fn leader_of(&self, key: &PartitionKey) -> Option<(BrokerId, LeaderEpoch)> {
        self.with_image(|image| {
            let partition = image.partition(key)?;
            Some((partition.leader?, partition.leader_epoch))
        })
    }
}

/// A topic's settings as its logs want them.
fn log_settings(settings: &TopicSettings) -> LogSettings {
    LogSettings {
        roll: RollSettings {
            bytes: u32::try_from(settings.segment_bytes).unwrap_or(u32::MAX),
            age: settings.segment_age,
        },
        retention: RetentionSettings { bytes: settings.retention_bytes, age: settings.retention },
        timestamp_type: settings.timestamp_type,
        flush_messages: (settings.flush_records != i64::MAX.unsigned_abs()).then_some(settings.flush_records),
        flush_age: (settings.flush_age != Duration::from_millis(i64::MAX.unsigned_abs())).then_some(settings.flush_age),
        ..LogSettings::default()
    }
}
