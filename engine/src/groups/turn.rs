//! One call into a coordinator: its time, its settings, and the effects that gather.
//!
//! Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use sakia_protocol::ids::Uuid;

use super::offsets::Committing;
use super::records::GroupRecord;
use super::request::{Append, AppendNumber, Clock, Effects, GroupAnswer, GroupBody, GroupSettings, Ticket};

/// What happens when an append is finished.
#[derive(Clone, Debug)]
pub(super) enum Then {
    /// The group takes over this assignment, by member.
    Assign { generation: i32, assignments: BTreeMap<String, bytes::Bytes> },
    /// A static member came back under a new id.
    Replace(Replacement),
    /// Offsets become visible and the ticket is answered.
    Commit(Committing),
    /// The ticket gets this answer, or the refusal of what was asked.
    Answer { ticket: Ticket, answer: GroupAnswer, asked: Box<GroupBody> },
    /// Nothing: the record only saves work after a restart.
    Nothing,
}

/// A static member that came back while the group was stable.
#[derive(Clone, Debug)]
pub(super) struct Replacement {
    pub(super) ticket: Ticket,
    pub(super) version: i16,
    pub(super) generation: i32,
    pub(super) instance_id: String,
    pub(super) old_id: String,
    pub(super) new_id: String,
}

/// One call.
pub(super) struct Turn<'a> {
    pub(super) clock: Clock,
    pub(super) settings: &'a GroupSettings,
    pub(super) fresh: Uuid,
    pub(super) effects: Effects,
    pub(super) group_id: String,
    pub(super) pending: &'a mut Pending,
}

/// Appends that are not finished.
#[derive(Debug, Default)]
pub(super) struct Pending {
    next: u64,
    appends: BTreeMap<AppendNumber, (String, Then)>,
}

impl Pending {
    pub(super) fn take(&mut self, number: AppendNumber) -> Option<(String, Then)> {
        self.appends.remove(&number)
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Then> + use<> {
        std::mem::take(&mut self.appends).into_values().map(|(_, then)| then)
    }

    /// Whether something of this group is not finished.
    pub(super) fn concerns(&self, group_id: &str) -> bool {
        self.appends.values().any(|(id, _)| id == group_id)
    }
}

impl Turn<'_> {
    pub(super) fn now(&self) -> Duration {
        self.clock.now
    }

    pub(super) fn answer(&mut self, ticket: Ticket, answer: GroupAnswer) {
        self.effects.answers.push((ticket, answer));
    }

    pub(super) fn append(&mut self, records: Vec<GroupRecord>, then: Then) -> AppendNumber {
        assert!(!records.is_empty(), "an append has a record");
        let number = AppendNumber(self.pending.next);
        self.pending.next += 1;
        self.pending.appends.insert(number, (self.group_id.clone(), then));
        self.effects.appends.push(Append { number, records });
        number
    }
}
