//! What an entry of the controller log did: the typed result of `apply`, sent to brokers.
//!
//! Path: from `apply` through the ring of recent events and the metadata stream to `Image::apply` on every broker.
//! An event carries the new state, not the difference, so that applying it twice is harmless. In the metadata stream an
//! event is `index i64, kind u16, version u16, body`; all events of one index belong together.
//! Pure.

use std::sync::Arc;

use sakia_protocol::ids::{BrokerEpoch, BrokerId, ControllerEpoch, PartitionIndex, PartitionKey, TopicId, Uuid};

use crate::image::{BrokerImage, ConfigResource, PartitionImage, Standing, TopicImage};
use crate::wire::{wire_kinds, wire_struct};

/// One change of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A controller took over.
    ControllerActivated(ControllerActivated),
    /// A broker process is known, fenced at first.
    BrokerRegistered(BrokerRegistered),
    /// Fenced, unfenced, or about to stop.
    BrokerStandingChanged(BrokerStandingChanged),
    /// A broker is no longer registered.
    BrokerRemoved(BrokerRemoved),
    /// A topic with all its partitions.
    TopicCreated(TopicCreated),
    /// A topic is gone.
    TopicDeleted(TopicDeleted),
    /// More partitions of a topic.
    PartitionsAdded(PartitionsAdded),
    /// New leader, ISR or epochs.
    PartitionChanged(PartitionChanged),
    /// New dynamic configuration.
    ConfigsSet(ConfigsSet),
    /// Which partition of `__remote_wal_log_metadata` a broker writes.
    MetadataPartitionAssigned(MetadataPartitionAssigned),
    /// A block of producer ids belongs to a broker.
    ProducerIdsAllocated(ProducerIdsAllocated),
}

/// A controller took over; it has seen everything before this entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerActivated {
    /// Which.
    pub controller: BrokerId,
    /// One above the last.
    pub controller_epoch: ControllerEpoch,
    /// Set by the first activation, the same ever after.
    pub cluster_id: String,
    /// Set by the first activation, the same ever after.
    pub incarnation: Uuid,
}

/// A broker process is known. Its `epoch` is the index of this entry, unless the same process registers again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerRegistered {
    /// Which.
    pub broker: BrokerId,
    /// All that is known of it.
    pub registration: BrokerImage,
}

/// Fenced, unfenced, or about to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerStandingChanged {
    /// Which.
    pub broker: BrokerId,
    /// Its epoch.
    pub broker_epoch: BrokerEpoch,
    /// What it may do from now on.
    pub standing: Standing,
}

/// No longer registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerRemoved {
    /// Which.
    pub broker: BrokerId,
    /// Its last epoch.
    pub broker_epoch: BrokerEpoch,
}

/// A new topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicCreated {
    /// All of it.
    pub topic: Arc<TopicImage>,
}

/// A topic is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDeleted {
    /// Which.
    pub topic_id: TopicId,
    /// Its name, free again.
    pub name: String,
}

/// More partitions of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionsAdded {
    /// Whose.
    pub topic_id: TopicId,
    /// Number of the first of them.
    pub first: PartitionIndex,
    /// They, in order.
    pub partitions: Vec<PartitionImage>,
}

/// A partition's new record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionChanged {
    /// Which.
    pub key: PartitionKey,
    /// The whole record.
    pub partition: PartitionImage,
}

/// New values of configuration entries; `None` removes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigsSet {
    /// Whose.
    pub resource: ConfigResource,
    /// Name and new value.
    pub changes: Vec<(String, Option<String>)>,
}

/// Rule: R24.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataPartitionAssigned {
    /// The uploading broker.
    pub broker: BrokerId,
    /// Its partition.
    pub partition: PartitionIndex,
}

/// Producer ids `first..first + count`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerIdsAllocated {
    /// Whose they are.
    pub broker: BrokerId,
    /// Its epoch.
    pub broker_epoch: BrokerEpoch,
    /// The first.
    pub first: i64,
    /// How many.
    pub count: i64,
}

impl ProducerIdsAllocated {
    /// The first id behind the block.
    #[must_use]
    pub fn next(&self) -> i64 {
        self.first.checked_add(self.count).expect("producer ids stay below 2^63")
    }
}

wire_struct!(ControllerActivated { controller, controller_epoch, cluster_id, incarnation });
wire_struct!(BrokerRegistered { broker, registration });
wire_struct!(BrokerStandingChanged { broker, broker_epoch, standing });
wire_struct!(BrokerRemoved { broker, broker_epoch });
wire_struct!(TopicCreated { topic });
wire_struct!(TopicDeleted { topic_id, name });
wire_struct!(PartitionsAdded { topic_id, first, partitions });
wire_struct!(PartitionChanged { key, partition });
wire_struct!(ConfigsSet { resource, changes });
wire_struct!(MetadataPartitionAssigned { broker, partition });
wire_struct!(ProducerIdsAllocated { broker, broker_epoch, first, count });

wire_kinds!(Event, "event", {
    ControllerActivated = 1 v 1,
    BrokerRegistered = 2 v 1,
    BrokerStandingChanged = 3 v 1,
    BrokerRemoved = 4 v 1,
    TopicCreated = 5 v 1,
    TopicDeleted = 6 v 1,
    PartitionsAdded = 7 v 1,
    PartitionChanged = 8 v 1,
    ConfigsSet = 9 v 1,
    MetadataPartitionAssigned = 10 v 1,
    ProducerIdsAllocated = 11 v 1,
});
