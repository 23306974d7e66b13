//! One member of a classic group.
//!
//! Pure. Invariant: a member waits for a join or for a sync, never for both.

use std::time::Duration;

use bytes::Bytes;
use sakia_protocol::messages::join_group::{JoinGroupRequestProtocol, JoinGroupResponseMember};

use super::request::Ticket;
use super::subscription;

/// A join that is not answered yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WaitingJoin {
    pub(super) ticket: Ticket,
    /// Version of the request: it decides what an answer may leave out.
    pub(super) version: i16,
}

/// A member.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// Place in the order in which members came: the next leader is the one that came first.
    pub(super) order: u64,
    pub(super) instance_id: Option<String>,
    pub(super) client_id: String,
    pub(super) client_host: String,
    pub(super) rebalance_timeout: Duration,
    pub(super) session_timeout: Duration,
    pub(super) protocols: Vec<JoinGroupRequestProtocol>,
    pub(super) assignment: Bytes,
    /// When it is removed if nothing is heard of it. `None` while it waits for others.
    pub(super) deadline: Option<Duration>,
    pub(super) waiting_join: Option<WaitingJoin>,
    pub(super) waiting_sync: Option<Ticket>,
    /// Whether it sent its sync in this generation.
    pub(super) synced: bool,
}

impl Member {
    /// Heard of: its session begins anew.
    pub(super) fn touch(&mut self, now: Duration) {
        self.deadline = Some(now + self.session_timeout);
    }

    /// What it says of itself under a protocol; empty if it does not speak it.
    pub(super) fn metadata(&self, protocol: &str) -> Bytes {
        let found = self.protocols.iter().find(|known| known.name == protocol);
        found.map(|known| known.metadata.clone()).unwrap_or_default()
    }

    pub(super) fn speaks(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|known| known.name == protocol)
    }

    /// Topics it subscribes to under a protocol, where that can be read.
    pub(super) fn topics(&self, protocol: &str) -> Option<Vec<String>> {
        subscription::topics(&self.metadata(protocol))
    }

    /// As the leader of the group gets to see it.
    pub(super) fn for_leader(&self, member_id: &str, protocol: &str) -> JoinGroupResponseMember {
        JoinGroupResponseMember {
            member_id: member_id.to_owned(),
            group_instance_id: self.instance_id.clone(),
            metadata: self.metadata(protocol),
        }
    }
}
