//! SyncGroup: the leader hands in the assignment, everybody fetches its own.
//!
//! Pure. The assignment is stored before anybody gets it: after a restart of the coordinator the group goes on with it.

use std::collections::BTreeMap;

use bytes::Bytes;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::messages::sync_group::{SyncGroupRequest, SyncGroupResponse};

use super::group::{Group, State, sync_refused};
use super::request::{GroupAnswer, Ticket};
use super::turn::{Then, Turn};

impl Group {
    /// A member asks for its assignment; the leader brings all of them.
    pub(super) fn sync(&mut self, ticket: Ticket, request: SyncGroupRequest, turn: &mut Turn<'_>) {
        if let Err(error) = self.check_sync(&request) {
            turn.answer(ticket, sync_refused(error));
            return;
        }
        let member = self.members.get_mut(&request.member_id).expect("it was just checked");
        member.synced = true;
        if self.state == State::Stable {
            member.touch(turn.now());
            let assignment = member.assignment.clone();
            turn.answer(ticket, self.synced(assignment));
        } else {
            member.deadline = None;
            if let Some(earlier) = member.waiting_sync.replace(ticket) {
                turn.answer(earlier, sync_refused(ErrorCode::RebalanceInProgress));
            }
            if self.leader.as_ref() == Some(&request.member_id) && !self.is_storing {
                self.store_assignment(request, turn);
            }
        }
        self.end_syncs_if_all_came();
    }

    fn check_sync(&self, request: &SyncGroupRequest) -> Result<(), ErrorCode> {
        self.check_member(&request.member_id, request.group_instance_id.as_deref())?;
        if request.generation_id != self.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        let differs = |asked: &Option<String>, own: &Option<String>| asked.is_some() && asked != own;
        if differs(&request.protocol_type, &self.protocol_type) || differs(&request.protocol_name, &self.protocol) {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        match self.state {
            State::Empty => Err(ErrorCode::UnknownMemberId),
            State::PreparingRebalance => Err(ErrorCode::RebalanceInProgress),
            State::CompletingRebalance | State::Stable => Ok(()),
        }
    }

    fn store_assignment(&mut self, request: SyncGroupRequest, turn: &mut Turn<'_>) {
        let of_members = request.assignments.into_iter().filter(|row| self.members.contains_key(&row.member_id));
        let assignments: BTreeMap<String, Bytes> = of_members.map(|row| (row.member_id, row.assignment)).collect();
        let record = self.record(&turn.group_id, Some(&assignments));
        let then = Then::Assign { generation: self.generation, assignments };
        turn.append(vec![record], then);
        self.is_storing = true;
    }

    /// The assignment of a generation is stored, or could not be.
    pub(super) fn assigned(
        &mut self,
        generation: i32,
        mut assignments: BTreeMap<String, Bytes>,
        stored: Result<(), ErrorCode>,
        turn: &mut Turn<'_>,
    ) {
        if self.state != State::CompletingRebalance || self.generation != generation {
            return;
        }
        self.is_storing = false;
        if let Err(error) = stored {
            self.answer_syncs(error, turn);
            self.prepare(turn);
            return;
        }
        self.set_state(State::Stable, turn);
        let mut answers = Vec::new();
        for (id, member) in &mut self.members {
            member.assignment = assignments.remove(id).unwrap_or_default();
            if let Some(ticket) = member.waiting_sync.take() {
                member.touch(turn.now());
                answers.push((ticket, member.assignment.clone()));
            }
        }
        for (ticket, assignment) in answers {
            turn.answer(ticket, self.synced(assignment));
        }
    }

    fn synced(&self, assignment: Bytes) -> GroupAnswer {
        GroupAnswer::Sync(SyncGroupResponse {
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol.clone(),
            assignment,
            ..Default::default()
        })
    }

    fn end_syncs_if_all_came(&mut self) {
        if self.members.values().all(|member| member.synced) {
            self.sync_deadline = None;
        }
    }
}
