//! How a controller node is configured, and what its calls give back.
//!
//! Errors are ordered by what the caller does next.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use sakia_protocol::ids::{BrokerId, MetadataIndex};

use crate::error::CommandError;
use crate::event::Event;
use crate::limits::{ENTRIES_KEPT, ENTRIES_PER_SNAPSHOT};
use crate::store::OpenLogError;

/// How a controller runs.
#[derive(Clone, Debug)]
pub struct ControllerConfig {
    /// `node.id`.
    pub node_id: BrokerId,
    /// `metadata.log.dir`: the log, its snapshots and a lock.
    pub dir: PathBuf,
    /// Kafka's cluster id for a new cluster; drawn if `None`. A cluster keeps the one it has.
    pub cluster_id: Option<String>,
    /// A follower campaigns after a time drawn from this range (`controller.quorum.election.timeout.ms`).
    pub election_timeout: Range<Duration>,
    /// Between heartbeats of the raft leader.
    pub heartbeat_interval: Duration,
    /// A broker that was not heard for so long is fenced (`broker.session.timeout.ms`).
    pub session_timeout: Duration,
    /// How long `propose` waits; after that the outcome is unknown.
    pub propose_timeout: Duration,
    /// Disk space reserved for a segment of the log.
    pub segment_bytes: usize,
    /// Entries after which a snapshot is made.
    pub entries_per_snapshot: u64,
    /// Entries that stay in log and memory behind a snapshot, for a controller that is a little late.
    pub entries_kept: u64,
}

impl ControllerConfig {
    /// Defaults: election 300 to 600 ms, heartbeat 100 ms, session 9 s, proposals 5 s, segments of 8 MiB.
    #[must_use]
    pub const fn new(node_id: BrokerId, dir: PathBuf) -> Self {
        Self {
            node_id,
            dir,
            cluster_id: None,
            election_timeout: Duration::from_millis(300)..Duration::from_millis(600),
            heartbeat_interval: Duration::from_millis(100),
            session_timeout: Duration::from_secs(9),
            propose_timeout: Duration::from_secs(5),
            segment_bytes: 8 * 1024 * 1024,
            entries_per_snapshot: ENTRIES_PER_SNAPSHOT,
            entries_kept: ENTRIES_KEPT,
        }
    }
}

/// Why a controller does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the folder.
    #[error("controller folder {dir} is in use by another process")]
    InUse {
        /// The folder.
        dir: PathBuf,
    },
    /// The disk refused.
    #[error("controller folder {dir}: {source}")]
    Disk {
        /// The folder.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] OpenLogError),
    /// The log was purged up to an entry that no readable snapshot reaches.
    #[error("no readable snapshot reaches entry {purged} of the controller log")]
    SnapshotMissing {
        /// Last purged index.
        purged: u64,
    },
    /// A setting is out of range, or raft refused to start.
    #[error("controller does not start: {reason}")]
    Raft {
        /// What raft said.
        reason: String,
    },
}

/// An accepted command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its place in the log.
    pub index: MetadataIndex,
    /// What it did.
    pub events: Vec<Event>,
    /// Items of a list command that were refused: place in the list, and why.
    pub refused: Vec<(usize, CommandError)>,
}

/// Why a command was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Another node is the active controller, or none is; nothing was proposed.
    #[error("this node is not the active controller")]
    NotActive {
        /// The raft leader, if known.
        leader: Option<BrokerId>,
    },
    /// The command may be applied, now or later, or not: ask the image, or repeat what can be repeated.
    #[error("the outcome of the command is not known")]
    Unknown,
    /// It was applied and refused.
    #[error(transparent)]
    Refused(#[from] CommandError),
    /// The log failed; this node must end.
    #[error("the controller has stopped")]
    Stopped,
}

impl ProposeError {
    /// Kafka's error code: NOT_CONTROLLER 41, REQUEST_TIMED_OUT 7, or the refusal's.
    #[must_use]
    pub const fn code(&self) -> i16 {
        match self {
            Self::NotActive { .. } | Self::Stopped => 41,
            Self::Unknown => 7,
            Self::Refused(error) => error.code(),
        }
    }
}
