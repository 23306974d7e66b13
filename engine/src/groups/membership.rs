//! Staying a member and ceasing to be one: Heartbeat, LeaveGroup, and time.
//!
//! Pure.

use std::time::Duration;

use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::messages::heartbeat::HeartbeatRequest;
use sakia_protocol::messages::leave_group::MemberIdentity;

use super::group::{Group, State};
use super::turn::Turn;

impl Group {
    /// A member says that it lives.
    pub(super) fn heartbeat(&mut self, request: &HeartbeatRequest, turn: &Turn<'_>) -> ErrorCode {
        if let Err(error) = self.check_member(&request.member_id, request.group_instance_id.as_deref()) {
            return error;
        }
        if request.generation_id != self.generation {
            return ErrorCode::IllegalGeneration;
        }
        self.touch(&request.member_id, turn.now());
        match self.state {
            State::Empty => ErrorCode::UnknownMemberId,
            State::PreparingRebalance => ErrorCode::RebalanceInProgress,
            State::CompletingRebalance | State::Stable => ErrorCode::None,
        }
    }

    /// Whatever a member asks for is a sign of life, unless it waits for the others anyway.
    pub(super) fn touch(&mut self, member_id: &str, now: Duration) {
        if let Some(member) = self.members.get_mut(member_id)
            && member.waiting_join.is_none()
            && member.waiting_sync.is_none()
        {
            member.touch(now);
        }
    }

    /// A member leaves: by its id, or (static ones) by instance id alone.
    pub(super) fn leave(&mut self, who: &MemberIdentity, turn: &mut Turn<'_>) -> ErrorCode {
        let instance_id = who.group_instance_id.as_deref();
        let member_id = match instance_id {
            Some(instance) if who.member_id.is_empty() => match self.static_members.get(instance) {
                Some(member_id) => member_id.clone(),
                None => return ErrorCode::UnknownMemberId,
            },
            _ => who.member_id.clone(),
        };
        if instance_id.is_none() && self.promised.remove(&member_id).is_some() {
            self.after_removal(turn);
            return ErrorCode::None;
        }
        if let Err(error) = self.check_member(&member_id, instance_id) {
            return error;
        }
        self.remove_member(&member_id, ErrorCode::UnknownMemberId, turn);
        self.after_removal(turn);
        ErrorCode::None
    }

    /// Time passed: whoever was not heard of for too long is no member any more, rounds that waited long enough end.
    pub(super) fn on_time(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now();
        let promised = self.promised.len();
        self.promised.retain(|_, until| now < *until);
        let silent = |deadline: Option<Duration>| deadline.is_some_and(|deadline| deadline <= now);
        let gone: Vec<String> =
            self.members.iter().filter(|(_, m)| silent(m.deadline)).map(|(id, _)| id.clone()).collect();
        for member_id in &gone {
            self.remove_member(member_id, ErrorCode::UnknownMemberId, turn);
        }
        if !gone.is_empty() || self.promised.len() < promised {
            self.after_removal(turn);
        }
        if self.round.is_some_and(|round| round.deadline <= now) {
            self.on_round_deadline(turn);
        }
        if silent(self.sync_deadline) {
            self.drop_unsynced(turn);
        }
    }

    /// Members that never fetched their assignment hold partitions that nobody reads.
    fn drop_unsynced(&mut self, turn: &mut Turn<'_>) {
        self.sync_deadline = None;
        let gone: Vec<String> = self.members.iter().filter(|(_, m)| !m.synced).map(|(id, _)| id.clone()).collect();
        for member_id in &gone {
            self.remove_member(member_id, ErrorCode::UnknownMemberId, turn);
        }
        if !gone.is_empty() {
            self.after_removal(turn);
        }
    }
}
