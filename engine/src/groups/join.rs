//! JoinGroup: how a client becomes a member, and how a member enters the next generation.
//!
//! Pure. Dynamic members first get an id (from version 4 on) and join with it; static members (KIP-345) are known by
//! their instance id: one that comes back without a member id takes the place of the one before, in every state.
//! Invariant: of two processes with one instance id the older one gets FENCED_INSTANCE_ID wherever it waits.

use std::time::Duration;

use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::messages::join_group::{JoinGroupRequest, JoinGroupResponse};

use super::group::{Group, State, release_waiting};
use super::limits::{FIRST_JOIN_MAX, MEMBER_ID_PREFIX_BYTES_MAX, MEMBERS_MAX};
use super::member::{Member, WaitingJoin};
use super::request::{GroupAnswer, Ticket, join_refused};
use super::turn::{Replacement, Then, Turn};

/// A join on its way into a group.
pub(super) struct Joining {
    pub(super) ticket: Ticket,
    pub(super) version: i16,
    pub(super) client_id: String,
    pub(super) client_host: String,
    pub(super) request: JoinGroupRequest,
}

impl Joining {
    fn session_timeout(&self) -> Duration {
        millis(self.request.session_timeout_ms)
    }

    /// Version 0 has none: the session timeout stands for it.
    fn rebalance_timeout(&self) -> Duration {
        match self.request.rebalance_timeout_ms {
            ..0 => self.session_timeout(),
            timeout => millis(timeout),
        }
    }

    fn waiting(&self) -> WaitingJoin {
        WaitingJoin { ticket: self.ticket, version: self.version }
    }

    pub(super) fn refuse(&self, error: ErrorCode, turn: &mut Turn<'_>) {
        let answer = join_refused(self.version, self.request.member_id.clone(), error);
        turn.answer(self.ticket, GroupAnswer::Join(answer));
    }

    fn new_member_id(&self, turn: &Turn<'_>) -> String {
        let prefix = self.request.group_instance_id.as_ref().unwrap_or(&self.client_id);
        let len = prefix.floor_char_boundary(MEMBER_ID_PREFIX_BYTES_MAX);
        format!("{}-{}", &prefix[..len], turn.fresh)
    }
}

fn millis(value: i32) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0))
}

impl Group {
    /// A client joins.
    pub(super) fn join(&mut self, joining: Joining, turn: &mut Turn<'_>) {
        if !self.has_room(&joining, turn) {
            joining.refuse(ErrorCode::GroupMaxSizeReached, turn);
        } else if !self.speaks_with(&joining.request) {
            joining.refuse(ErrorCode::InconsistentGroupProtocol, turn);
        } else if !joining.request.member_id.is_empty() {
            self.join_known(joining, turn);
        } else if let Some(instance) = joining.request.group_instance_id.clone() {
            self.join_static(joining, instance, turn);
        } else {
            self.join_new(joining, turn);
        }
    }

    fn has_room(&self, joining: &Joining, turn: &Turn<'_>) -> bool {
        let request = &joining.request;
        let takes_place = |instance: &String| self.static_members.contains_key(instance);
        let known = self.members.contains_key(&request.member_id)
            || self.promised.contains_key(&request.member_id)
            || (request.member_id.is_empty() && request.group_instance_id.as_ref().is_some_and(takes_place));
        known || self.members.len() + self.promised.len() < turn.settings.group_size_max.min(MEMBERS_MAX)
    }

    /// Whether the client's type fits and some protocol of it is spoken by all members.
    fn speaks_with(&self, request: &JoinGroupRequest) -> bool {
        if request.protocol_type.is_empty() || request.protocols.is_empty() {
            return false;
        }
        if self.members.is_empty() {
            return true;
        }
        let common = |name: &str| self.members.values().all(|member| member.speaks(name));
        self.protocol_type.as_ref() == Some(&request.protocol_type)
            && request.protocols.iter().any(|protocol| common(&protocol.name))
    }

    fn join_new(&mut self, joining: Joining, turn: &mut Turn<'_>) {
        let member_id = joining.new_member_id(turn);
        if joining.version < 4 {
            self.add_member(member_id, joining, turn);
            return;
        }
        self.promised.insert(member_id.clone(), turn.now() + joining.session_timeout());
        let answer = join_refused(joining.version, member_id, ErrorCode::MemberIdRequired);
        turn.answer(joining.ticket, GroupAnswer::Join(answer));
    }

    fn join_static(&mut self, joining: Joining, instance: String, turn: &mut Turn<'_>) {
        let member_id = joining.new_member_id(turn);
        match self.static_members.get(&instance).cloned() {
            Some(old_id) => self.replace_static(joining, (instance, old_id, member_id), turn),
            None => self.add_member(member_id, joining, turn),
        }
    }

    fn join_known(&mut self, joining: Joining, turn: &mut Turn<'_>) {
        let member_id = joining.request.member_id.clone();
        if joining.request.group_instance_id.is_none() && self.promised.contains_key(&member_id) {
            self.add_member(member_id, joining, turn);
            return;
        }
        if let Err(error) = self.check_member(&member_id, joining.request.group_instance_id.as_deref()) {
            joining.refuse(error, turn);
            return;
        }
        let unchanged = self.members[&member_id].protocols == joining.request.protocols;
        let leads = self.leader.as_ref() == Some(&member_id);
        match self.state {
            // The answer to its first join was lost: it gets it again.
            State::CompletingRebalance if unchanged => self.answer_current(&joining, &member_id, turn),
            // A leader joins again when it wants to share anew.
            State::Stable if unchanged && !leads => self.answer_current(&joining, &member_id, turn),
            State::PreparingRebalance | State::CompletingRebalance | State::Stable => {
                self.update_member(&member_id, joining, turn);
                self.prepare(turn);
            }
            State::Empty => joining.refuse(ErrorCode::UnknownMemberId, turn),
        }
    }

    fn answer_current(&mut self, joining: &Joining, member_id: &str, turn: &mut Turn<'_>) {
        let answer = self.joined(member_id, joining.version);
        if let Some(member) = self.members.get_mut(member_id) {
            member.touch(turn.now());
        }
        turn.answer(joining.ticket, GroupAnswer::Join(answer));
    }

    fn add_member(&mut self, member_id: String, joining: Joining, turn: &mut Turn<'_>) {
        self.promised.remove(&member_id);
        if self.members.is_empty() {
            self.protocol_type = Some(joining.request.protocol_type.clone());
        }
        let waiting = joining.waiting();
        let (session_timeout, rebalance_timeout) = (joining.session_timeout(), joining.rebalance_timeout());
        self.order += 1;
        let member = Member {
            order: self.order,
            instance_id: joining.request.group_instance_id,
            client_id: joining.client_id,
            client_host: joining.client_host,
            rebalance_timeout,
            session_timeout,
            protocols: joining.request.protocols,
            assignment: bytes::Bytes::new(),
            deadline: Some(turn.now() + FIRST_JOIN_MAX),
            waiting_join: Some(waiting),
            waiting_sync: None,
            synced: false,
        };
        if let Some(instance) = &member.instance_id {
            self.static_members.insert(instance.clone(), member_id.clone());
        }
        self.leader.get_or_insert_with(|| member_id.clone());
        self.members.insert(member_id, member);
        if let Some(first) = self.round.as_mut().and_then(|round| round.first.as_mut()) {
            first.member_came = true;
        }
        self.prepare(turn);
    }

    /// A member says anew what it speaks, and waits for the next generation.
    fn update_member(&mut self, member_id: &str, joining: Joining, turn: &mut Turn<'_>) {
        let waiting = joining.waiting();
        let (session_timeout, rebalance_timeout) = (joining.session_timeout(), joining.rebalance_timeout());
        let member = self.members.get_mut(member_id).expect("the caller looked it up");
        let (join, sync) = (member.waiting_join.replace(waiting), member.waiting_sync.take());
        member.client_id = joining.client_id;
        member.client_host = joining.client_host;
        member.session_timeout = session_timeout;
        member.rebalance_timeout = rebalance_timeout;
        member.protocols = joining.request.protocols;
        member.deadline = None;
        // The same client asked before on another connection: that request has nobody left who reads its answer.
        release_waiting(member_id, (join, sync), ErrorCode::RebalanceInProgress, turn);
    }

    /// A static member comes back under a new member id.
    fn replace_static(
        &mut self,
        joining: Joining,
        (instance_id, old_id, new_id): (String, String, String),
        turn: &mut Turn<'_>,
    ) {
        self.rename_static(&instance_id, &old_id, &new_id, turn);
        let (ticket, version) = (joining.ticket, joining.version);
        let protocol = self.protocol.clone().unwrap_or_default();
        let topics_before = self.members[&new_id].topics(&protocol);
        self.update_member(&new_id, joining, turn);
        let same_topics = self.members[&new_id].topics(&protocol) == topics_before;
        if self.state == State::Stable && same_topics && self.select_protocol() == self.protocol {
            let member = self.members.get_mut(&new_id).expect("it was just renamed");
            member.waiting_join = None;
            member.touch(turn.now());
            let generation = self.generation;
            let record = self.record(&turn.group_id, None);
            let then = Replacement { ticket, version, generation, instance_id, old_id, new_id };
            turn.append(vec![record], Then::Replace(then));
        } else {
            self.prepare(turn);
        }
    }

    fn rename_static(&mut self, instance_id: &str, old_id: &str, new_id: &str, turn: &mut Turn<'_>) {
        let mut member = self.members.remove(old_id).expect("a static member is a member");
        let (join, sync) = (member.waiting_join.take(), member.waiting_sync.take());
        release_waiting(old_id, (join, sync), ErrorCode::FencedInstanceId, turn);
        self.members.insert(new_id.to_owned(), member);
        self.static_members.insert(instance_id.to_owned(), new_id.to_owned());
        if self.leader.as_deref() == Some(old_id) {
            self.leader = Some(new_id.to_owned());
        }
    }

    /// The new id of a static member is stored, or could not be.
    pub(super) fn replaced(&mut self, then: Replacement, stored: Result<(), ErrorCode>, turn: &mut Turn<'_>) {
        let Replacement { ticket, version, generation, instance_id, old_id, new_id } = then;
        let current = self.static_members.get(&instance_id) == Some(&new_id);
        let refusal = match stored {
            Err(error) => Some(error),
            Ok(()) if !current => Some(ErrorCode::FencedInstanceId),
            Ok(()) if self.state != State::Stable || self.generation != generation => {
                Some(ErrorCode::RebalanceInProgress)
            }
            Ok(()) => None,
        };
        let answer = match refusal {
            Some(error) => {
                if stored.is_err() && current {
                    self.rename_static(&instance_id, &new_id, &old_id, turn);
                }
                join_refused(version, new_id, error)
            }
            None => self.came_back(&new_id, &old_id, version),
        };
        turn.answer(ticket, GroupAnswer::Join(answer));
    }

    /// The group goes on as it is. A leader that came back must not share anew: from version 9 on it is told so, before
    /// that it is told that another one leads.
    fn came_back(&self, member_id: &str, old_id: &str, version: i16) -> JoinGroupResponse {
        let mut answer = self.joined(member_id, version);
        if self.leader.as_deref() == Some(member_id) {
            if version >= 9 {
                answer.skip_assignment = true;
            } else {
                answer.leader = old_id.to_owned();
                answer.members.clear();
            }
        }
        answer
    }
}
