//! What a controller proposes to its log: an intention, checked when it is applied.
//!
//! Path: from a request (or an expired session) through the log to `apply`. Everything that needs a clock, chance or a
//! choice of brokers was decided by the proposer and stands in the command, so that applying it is a pure function of
//! image, index and command.
//!
//! ```text
//! magic u8 = 1 · command id u16 · version u16 · proposer's controller epoch i32 · its wall clock i64 (ms)
//! body · crc32c u32 over all before it
//! ```
//! Pure.

use std::collections::BTreeMap;

use sakia_protocol::ids::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch, PartitionIndex, PartitionKey, TopicId, Uuid,
};

use crate::image::{ConfigResource, Configs, FeatureRange, IsrMember, LeaderRecovery, Listener};
use crate::wire::{Cursor, Wire, WireError, malformed, wire_choice, wire_kinds, wire_struct};

const MAGIC: u8 = 1;

/// A command with its envelope: one entry of the controller log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Epoch of the controller that proposed it; another epoch at apply refuses it.
    pub controller_epoch: ControllerEpoch,
    /// When it was proposed, milliseconds since 1970; for people only, nothing is decided by it.
    pub wall_clock_ms: i64,
    /// What is wanted.
    pub command: Command,
}

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The first command of a new raft leader.
    ActivateController(ActivateController),
    /// A broker process starts.
    RegisterBroker(RegisterBroker),
    /// Its session ended, or it has stopped.
    FenceBroker(FenceBroker),
    /// It has caught up with the log.
    UnfenceBroker(UnfenceBroker),
    /// It wants to stop: its leaderships move away.
    ControlledShutdown(ControlledShutdown),
    /// It will not come back.
    RemoveBroker(RemoveBroker),
    /// A new topic.
    CreateTopic(CreateTopic),
    /// A topic goes.
    DeleteTopic(DeleteTopic),
    /// More partitions of a topic.
    CreatePartitions(CreatePartitions),
    /// Leaders change their ISRs.
    AlterPartition(AlterPartition),
    /// Elections asked for by an administrator.
    ElectLeaders(ElectLeaders),
    /// One planned move of a leadership.
    MoveLeader(MoveLeader),
    /// New dynamic configuration.
    SetConfigs(SetConfigs),
    /// A broker needs producer ids.
    AllocateProducerIds(AllocateProducerIds),
    /// A broker needs a partition of `__remote_wal_log_metadata` (registration assigns one as well).
    AssignMetadataPartition(AssignMetadataPartition),
}

/// Raises the controller epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivateController {
    /// The node that leads the log.
    pub node: BrokerId,
    /// Used by the first activation only.
    pub cluster_id: String,
    /// Random; used by the first activation only.
    pub incarnation: Uuid,
}

/// A broker process starts. Its epoch will be the index of this entry. Rules: R2, R3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterBroker {
    /// `node.id`.
    pub broker: BrokerId,
    /// Random id of the process.
    pub incarnation: Uuid,
    /// The broker epoch that stopped cleanly last (a clean stop left a mark in every log folder).
    pub previous_broker_epoch: Option<BrokerEpoch>,
    /// Kernel boot it runs under; zero if unknown.
    pub boot_id: Uuid,
    /// Ids of its log folders.
    pub log_folders: Vec<Uuid>,
    /// Availability zone.
    pub rack: Option<String>,
    /// Where it can be reached.
    pub listeners: Vec<Listener>,
    /// Feature levels it supports.
    pub features: BTreeMap<String, FeatureRange>,
}

/// Fences a broker: it loses its leaderships in the same entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceBroker {
    /// Which.
    pub broker: BrokerId,
    /// Its epoch.
    pub broker_epoch: BrokerEpoch,
}

/// Unfences a broker; partitions without a leader that it may lead get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfenceBroker {
    /// Which.
    pub broker: BrokerId,
    /// Its epoch.
    pub broker_epoch: BrokerEpoch,
}

/// Starts a controlled shutdown. The broker is fenced by `FenceBroker` when it has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlledShutdown {
    /// Which.
    pub broker: BrokerId,
    /// Its epoch.
    pub broker_epoch: BrokerEpoch,
}

/// Forgets a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoveBroker {
    /// Which.
    pub broker: BrokerId,
}

/// Creates a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateTopic {
    /// Random.
    pub topic_id: TopicId,
    /// Kafka's rules for names.
    pub name: String,
    /// Its own configuration entries, already checked by value.
    pub configs: Configs,
    /// Replicas of partition 0, 1, …, the preferred leader first.
    pub assignments: Vec<Vec<BrokerId>>,
}

/// Deletes a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteTopic {
    /// Which.
    pub topic_id: TopicId,
}

/// Adds partitions to a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatePartitions {
    /// Which.
    pub topic_id: TopicId,
    /// Number of the first new partition: how many the proposer saw.
    pub first: PartitionIndex,
    /// Replicas of each new partition.
    pub assignments: Vec<Vec<BrokerId>>,
}

/// A leader's changes of its partitions' ISRs; each is accepted or refused for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterPartition {
    /// The leader.
    pub broker: BrokerId,
    /// Its epoch.
    pub broker_epoch: BrokerEpoch,
    /// The changes.
    pub changes: Vec<IsrChange>,
}

/// One partition's new ISR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsrChange {
    /// Which partition.
    pub key: PartitionKey,
    /// The epoch in which the sender leads it.
    pub leader_epoch: LeaderEpoch,
    /// The record that the sender saw.
    pub partition_epoch: PartitionEpoch,
    /// The ISR it wants, with the broker epochs of its fetchers (KIP-903).
    pub isr: Vec<IsrMember>,
    /// `Recovered` ends the recovery after an unclean election.
    pub recovery: LeaderRecovery,
}

/// Elections asked for by an administrator; each partition is elected or refused for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectLeaders {
    /// Which kind.
    pub election: Election,
    /// Which partitions.
    pub partitions: Vec<PartitionKey>,
}

/// Kafka's election types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Election {
    /// 0: the first replica, if it is in sync.
    Preferred,
    /// 1: any live replica, if there is no leader. May lose records.
    Unclean,
}

/// Moves one leadership to another in-sync replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveLeader {
    /// Which partition.
    pub key: PartitionKey,
    /// The epoch that the proposer saw.
    pub leader_epoch: LeaderEpoch,
    /// The new leader.
    pub to: BrokerId,
}

/// Changes dynamic configuration; the names and values were checked by the proposer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetConfigs {
    /// Whose.
    pub resource: ConfigResource,
    /// In order; an entry is changed once.
    pub changes: Vec<ConfigChange>,
}

/// One change of a configuration entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// Name of the entry.
    pub name: String,
    /// What happens to it.
    pub operation: ConfigOperation,
    /// The value, or the list elements added or taken away; empty for `Delete`.
    pub value: String,
}

/// Kafka's incremental operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigOperation {
    /// 0
    Set,
    /// 1
    Delete,
    /// 2: adds to a comma-separated list what it does not have. The proposer has checked that it is a list; without an
    /// own value the list starts empty, so the proposer sends `Set` where a default must be extended.
    Append,
    /// 3: takes away from a comma-separated list.
    Subtract,
}

/// Asks for the next block of producer ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocateProducerIds {
    /// For whom.
    pub broker: BrokerId,
    /// Its epoch.
    pub broker_epoch: BrokerEpoch,
}

/// Asks for a partition of `__remote_wal_log_metadata`; without effect if the broker has one. Rule: R24.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignMetadataPartition {
    /// For whom.
    pub broker: BrokerId,
}

wire_choice!(Election { Preferred = 0, Unclean = 1 });
wire_choice!(ConfigOperation { Set = 0, Delete = 1, Append = 2, Subtract = 3 });
wire_struct!(ConfigChange { name, operation, value });
wire_struct!(IsrChange { key, leader_epoch, partition_epoch, isr, recovery });
wire_struct!(ActivateController { node, cluster_id, incarnation });
wire_struct!(RegisterBroker {
    broker,
    incarnation,
    previous_broker_epoch,
    boot_id,
    log_folders,
    rack,
    listeners,
    features
});
wire_struct!(FenceBroker { broker, broker_epoch });
wire_struct!(UnfenceBroker { broker, broker_epoch });
wire_struct!(ControlledShutdown { broker, broker_epoch });
wire_struct!(RemoveBroker { broker });
wire_struct!(CreateTopic { topic_id, name, configs, assignments });
wire_struct!(DeleteTopic { topic_id });
wire_struct!(CreatePartitions { topic_id, first, assignments });
wire_struct!(AlterPartition { broker, broker_epoch, changes });
wire_struct!(ElectLeaders { election, partitions });
wire_struct!(MoveLeader { key, leader_epoch, to });
wire_struct!(SetConfigs { resource, changes });
wire_struct!(AllocateProducerIds { broker, broker_epoch });
wire_struct!(AssignMetadataPartition { broker });

wire_kinds!(Command, "command", {
    ActivateController = 1 v 1,
    RegisterBroker = 2 v 1,
    FenceBroker = 3 v 1,
    UnfenceBroker = 4 v 1,
    ControlledShutdown = 5 v 1,
    RemoveBroker = 6 v 1,
    CreateTopic = 7 v 1,
    DeleteTopic = 8 v 1,
    CreatePartitions = 9 v 1,
    AlterPartition = 10 v 1,
    ElectLeaders = 11 v 1,
    MoveLeader = 12 v 1,
    SetConfigs = 13 v 1,
    AllocateProducerIds = 14 v 1,
    AssignMetadataPartition = 15 v 1,
});

impl Proposal {
    /// The bytes of one log entry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![MAGIC];
        self.command.kind().put(&mut out);
        self.command.version().put(&mut out);
        self.controller_epoch.put(&mut out);
        self.wall_clock_ms.put(&mut out);
        self.command.encode_body(&mut out);
        let crc = crc32c::crc32c(&out);
        crc.put(&mut out);
        out
    }

    /// Reads the bytes of `encode`.
    ///
    /// # Errors
    /// Unknown magic, command or version (a newer binary wrote it: halt, never skip), or damaged bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let (head, crc) = bytes.split_last_chunk::<4>().ok_or(malformed("command"))?;
        let (found, expected) = (crc32c::crc32c(head), u32::from_be_bytes(*crc));
        if found != expected {
            return Err(WireError::Checksum { what: "command", found, expected });
        }
        let mut cursor = Cursor::new(head);
        if u8::take(&mut cursor)? != MAGIC {
            return Err(malformed("command magic"));
        }
        let (kind, version) = <(u16, u16)>::take(&mut cursor)?;
        let controller_epoch = Wire::take(&mut cursor)?;
        let wall_clock_ms = Wire::take(&mut cursor)?;
        let command = Command::decode_body(kind, version, cursor.remaining())?;
        Ok(Self { controller_epoch, wall_clock_ms, command })
    }
}
