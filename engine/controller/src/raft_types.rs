//! The raft library's parameters: what an entry carries, who the nodes are, which runtime.
//!
//! A term has one leader at most (`leader_id_std`). Entries carry a `Proposal` as opaque bytes, so that a log entry reads
//! the same whatever the library's envelope looks like.

use std::fmt;

use openraft::impls::{BasicNode, leader_id_std};
use serde::{Deserialize, Serialize};

use crate::apply::Decision;
use crate::error::CommandError;
use crate::runtime::ShardRuntime;

openraft::declare_raft_types!(
    /// All parameters together.
    pub Quorum:
        D = ProposalBytes,
        R = Outcome,
        NodeId = u64,
        Node = BasicNode,
        LeaderId = leader_id_std::LeaderId<u64, u64>,
        AsyncRuntime = ShardRuntime,
);

/// An encoded `Proposal`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposalBytes(pub Vec<u8>);

impl fmt::Debug for ProposalBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proposal of {} bytes", self.0.len())
    }
}

impl fmt::Display for ProposalBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What applying an entry gave; `None` for entries of raft itself. It goes to the task that proposed, on this node, and
/// is never serialized (the library asks for the traits).
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// What the command did.
    #[serde(skip)]
    pub result: Option<Result<Decision, CommandError>>,
}

/// A committed leader, which is a term.
pub type Term = openraft::type_config::alias::CommittedLeaderIdOf<Quorum>;
/// Position of an entry: term and index.
pub type LogId = openraft::type_config::alias::LogIdOf<Quorum>;
/// A vote.
pub type Vote = openraft::type_config::alias::VoteOf<Quorum>;
/// A log entry.
pub type Entry = openraft::type_config::alias::EntryOf<Quorum>;
/// Voters with the entry that made them so.
pub type Membership = openraft::type_config::alias::StoredMembershipOf<Quorum>;
