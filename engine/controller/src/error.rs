//! Why a command was refused when it was applied, and Kafka's error code for it.
//!
//! A refused command is an entry of the log like any other; it changed nothing. Pure.

use sakia_protocol::ids::{BrokerId, TopicId};

/// Refusals, ordered by what the sender does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    // The sender asks again, elsewhere or later.
    /// Proposed by a controller that is no longer active.
    #[error("another controller is active")]
    NotController,
    /// Another process with this id is alive: wait until its session ends.
    #[error("broker {broker} is registered by another live process")]
    DuplicateRegistration {
        /// The id.
        broker: BrokerId,
    },
    /// The first replica is not in sync or not live.
    #[error("preferred leader is not available")]
    PreferredLeaderNotAvailable,
    /// No replica may lead.
    #[error("no eligible leader is available")]
    EligibleLeadersNotAvailable,
    /// A member of the wanted ISR is fenced, stopping, or has another broker epoch.
    #[error("broker {broker} cannot join the in-sync replicas now")]
    IneligibleReplica {
        /// The member.
        broker: BrokerId,
    },

    // The sender acts on an old image: it waits for a newer one.
    /// The broker was registered anew, or never.
    #[error("broker epoch of broker {broker} is stale")]
    StaleBrokerEpoch {
        /// The sender.
        broker: BrokerId,
    },
    /// No broker has this id.
    #[error("broker {broker} is not registered")]
    BrokerNotRegistered {
        /// The id.
        broker: BrokerId,
    },
    /// The leader epoch is older.
    #[error("leader epoch is fenced")]
    FencedLeaderEpoch,
    /// The partition epoch is older.
    #[error("partition epoch is stale")]
    InvalidUpdateVersion,
    /// No topic has this id.
    #[error("unknown topic id {topic_id}")]
    UnknownTopicId {
        /// The id.
        topic_id: TopicId,
    },
    /// The topic has no such partition.
    #[error("unknown partition")]
    UnknownPartition,
    /// The partition has the leader that was asked for.
    #[error("no election needed")]
    ElectionNotNeeded,

    // The sender's mistake: it asks for something else.
    /// The name is taken.
    #[error("topic {name} exists")]
    TopicExists {
        /// The name.
        name: String,
    },
    /// The name breaks Kafka's rules.
    #[error("invalid topic name: {reason}")]
    InvalidTopic {
        /// Which rule.
        reason: &'static str,
    },
    /// The number of partitions is not what it must be.
    #[error("invalid number of partitions")]
    InvalidPartitions,
    /// The replicas of a partition cannot be as asked.
    #[error("invalid replica assignment: {reason}")]
    InvalidAssignment {
        /// Why.
        reason: &'static str,
    },
    /// There are fewer live brokers than replicas.
    #[error("invalid replication factor: {live} live brokers")]
    InvalidReplicationFactor {
        /// How many live brokers there are.
        live: usize,
    },
    /// A configuration entry that may not be set here.
    #[error("invalid configuration: {reason}")]
    InvalidConfig {
        /// Why.
        reason: &'static str,
    },
    /// Anything else that no right sender asks.
    #[error("invalid request: {reason}")]
    InvalidRequest {
        /// Why.
        reason: &'static str,
    },
    /// A bound of `limits.rs`.
    #[error("too many {what}, the bound is {max}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The bound.
        max: usize,
    },
}

impl CommandError {
    /// Kafka's error code.
    #[must_use]
    pub const fn code(&self) -> i16 {
        match self {
            Self::UnknownPartition => 3,
            Self::InvalidTopic { .. } => 17,
            Self::TopicExists { .. } => 36,
            Self::InvalidPartitions => 37,
            Self::InvalidReplicationFactor { .. } => 38,
            Self::InvalidAssignment { .. } => 39,
            Self::InvalidConfig { .. } => 40,
            Self::NotController => 41,
            Self::InvalidRequest { .. } => 42,
            Self::TooMany { .. } => 44,
            Self::FencedLeaderEpoch => 74,
            Self::StaleBrokerEpoch { .. } => 77,
            Self::PreferredLeaderNotAvailable => 80,
            Self::EligibleLeadersNotAvailable => 83,
            Self::ElectionNotNeeded => 84,
            Self::InvalidUpdateVersion => 95,
            Self::UnknownTopicId { .. } => 100,
            Self::DuplicateRegistration { .. } => 101,
            Self::BrokerNotRegistered { .. } => 102,
            Self::IneligibleReplica { .. } => 107,
        }
    }
}
