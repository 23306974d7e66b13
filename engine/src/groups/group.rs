//! One classic group: its state, its members, and the moves between states.
//!
//! Pure.
//! ```text
//!            join                all joined, or time is up            assignment stored
//!   Empty ─────────► PreparingRebalance ─────────► CompletingRebalance ─────────► Stable
//!     ▲                  │     ▲                          │ member left, joined     │
//!     └── nobody left ───┘     └──────────────────────────┴─── again, or lost ──────┘
//! ```
//! A group without members, offsets and history is forgotten: it is then Dead, and nothing is kept for it.
//! Invariant: the generation grows with each completed round; whoever carries another one is refused.
//! Invariant: `static_members` names a member that exists, and that member carries the instance id.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::messages::join_group::JoinGroupResponse;
use sakia_protocol::messages::sync_group::SyncGroupResponse;

use super::limits::NOBODY_CAME_PAUSE;
use super::member::{Member, WaitingJoin};
use super::offsets::Offsets;
use super::records::{GroupRecord, GroupState, MemberState};
use super::request::{GroupAnswer, Ticket, join_refused};
use super::turn::{Then, Turn};

/// States of a classic group, by Kafka's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// No members; offsets may be kept.
    Empty,
    /// Waits for all members to join.
    PreparingRebalance,
    /// Waits for the leader's assignment.
    CompletingRebalance,
    /// Everybody has an assignment.
    Stable,
}

impl State {
    /// Kafka's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// Name of the state of a group that does not exist.
pub const DEAD: &str = "Dead";

/// A rebalance that waits for members.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) deadline: Duration,
    /// The first round of an empty group waits a fixed time, and goes on waiting while members come.
    pub(super) first: Option<FirstRound>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FirstRound {
    /// How much longer it may wait.
    pub(super) left: Duration,
    pub(super) member_came: bool,
}

/// A group.
#[derive(Clone, Debug)]
pub struct Group {
    pub(super) state: State,
    pub(super) generation: i32,
    pub(super) protocol_type: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) leader: Option<String>,
    pub(super) members: BTreeMap<String, Member>,
    pub(super) static_members: BTreeMap<String, String>,
    /// Member ids that were given out and have not joined: until when they are kept.
    pub(super) promised: BTreeMap<String, Duration>,
    pub(super) order: u64,
    pub(super) round: Option<Round>,
    /// Until when every member must have sent its sync.
    pub(super) sync_deadline: Option<Duration>,
    /// Whether this generation's assignment is on its way into the log.
    pub(super) is_storing: bool,
    pub(super) state_since_ms: i64,
    pub(super) offsets: Offsets,
    /// The earliest deadline that is scheduled for this group.
    pub(super) alarm: Option<Duration>,
}

impl Group {
    pub(super) fn new(wall_ms: i64) -> Self {
        Self {
            state: State::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            promised: BTreeMap::new(),
            order: 0,
            round: None,
            sync_deadline: None,
            is_storing: false,
            state_since_ms: wall_ms,
            offsets: Offsets::default(),
            alarm: None,
        }
    }

    /// Its state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Its generation.
    #[must_use]
    pub fn generation(&self) -> i32 {
        self.generation
    }

    /// Number of members.
    #[must_use]
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Whether nothing is worth keeping: no member, no promise, no offset, no history.
    pub(super) fn is_vacant(&self) -> bool {
        self.state == State::Empty && self.generation == 0 && self.promised.is_empty() && self.offsets.is_empty()
    }

    pub(super) fn set_state(&mut self, state: State, turn: &Turn<'_>) {
        self.state = state;
        self.state_since_ms = turn.clock.wall_ms;
    }

    /// The earliest moment at which [`Self::on_time`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let members = self.members.values().filter_map(|member| member.deadline);
        let promised = self.promised.values().copied();
        let rounds = self.round.map(|round| round.deadline).into_iter().chain(self.sync_deadline);
        members.chain(promised).chain(rounds).min()
    }

    /// The longest rebalance timeout of its members.
    pub(super) fn rebalance_timeout(&self) -> Duration {
        self.members.values().map(|member| member.rebalance_timeout).max().unwrap_or_default()
    }

    /// Whether a member with these ids may speak for itself (KIP-345): a static member must be the one that holds its
    /// instance id now.
    pub(super) fn check_member(&self, member_id: &str, instance_id: Option<&str>) -> Result<(), ErrorCode> {
        if let Some(instance) = instance_id {
            match self.static_members.get(instance) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(current) if current != member_id => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(member_id) { Ok(()) } else { Err(ErrorCode::UnknownMemberId) }
    }

    /// Begins a round, if none is under way: everybody must join anew.
    pub(super) fn prepare(&mut self, turn: &mut Turn<'_>) {
        if self.state != State::PreparingRebalance {
            self.answer_syncs(ErrorCode::RebalanceInProgress, turn);
            self.is_storing = false;
            self.sync_deadline = None;
            self.round = Some(self.new_round(turn));
            self.set_state(State::PreparingRebalance, turn);
        }
        self.complete_if_all_joined(turn);
    }

    fn new_round(&self, turn: &Turn<'_>) -> Round {
        let longest = self.rebalance_timeout();
        if self.state != State::Empty {
            return Round { deadline: turn.now() + longest, first: None };
        }
        let delay = turn.settings.initial_rebalance_delay.min(longest);
        let first = FirstRound { left: longest.saturating_sub(delay), member_came: false };
        let first = (!delay.is_zero()).then_some(first);
        Round { deadline: turn.now() + if first.is_some() { delay } else { longest }, first }
    }

    fn complete_if_all_joined(&mut self, turn: &mut Turn<'_>) {
        let waits_anyway = self.round.is_some_and(|round| round.first.is_some()) && !self.members.is_empty();
        let all_joined = self.members.values().all(|member| member.waiting_join.is_some());
        if self.state == State::PreparingRebalance && !waits_anyway && all_joined && self.promised.is_empty() {
            self.complete_round(turn);
        }
    }

    /// The round's time is up.
    pub(super) fn on_round_deadline(&mut self, turn: &mut Turn<'_>) {
        let Some(round) = self.round.as_mut() else { return };
        if let Some(first) = round.first.filter(|first| first.member_came && !first.left.is_zero()) {
            let delay = turn.settings.initial_rebalance_delay.min(first.left);
            round.deadline = turn.now() + delay;
            round.first = Some(FirstRound { left: first.left - delay, member_came: false });
            return;
        }
        self.complete_round(turn);
    }

    fn complete_round(&mut self, turn: &mut Turn<'_>) {
        // Static members that did not come keep their place: that is what they are static for.
        let gone = |member: &Member| member.waiting_join.is_none() && member.instance_id.is_none();
        self.members.retain(|_, member| !gone(member));
        if self.members.is_empty() {
            self.become_empty(turn);
            return;
        }
        if !self.elect_leader() {
            // Only static members, none of them here: ask again later, but not at once whatever timeout they name.
            let pause = self.rebalance_timeout().max(NOBODY_CAME_PAUSE);
            self.round = Some(Round { deadline: turn.now() + pause, first: None });
            return;
        }
        self.round = None;
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.protocol = self.select_protocol();
        self.set_state(State::CompletingRebalance, turn);
        self.sync_deadline = Some(turn.now() + self.rebalance_timeout());
        self.answer_joins(turn);
    }

    fn become_empty(&mut self, turn: &mut Turn<'_>) {
        self.round = None;
        self.sync_deadline = None;
        self.leader = None;
        self.protocol = None;
        self.static_members.clear();
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.set_state(State::Empty, turn);
        let record = self.record(&turn.group_id, None);
        turn.append(vec![record], Then::Nothing);
    }

    /// Keeps a leader that joined, or takes the first that did; `false` if nobody joined.
    fn elect_leader(&mut self) -> bool {
        let joined = |id: &String| self.members.get(id).is_some_and(|member| member.waiting_join.is_some());
        if self.leader.as_ref().is_some_and(joined) {
            return true;
        }
        let waiting = self.members.iter().filter(|(_, member)| member.waiting_join.is_some());
        self.leader = waiting.min_by_key(|(_, member)| member.order).map(|(id, _)| id.clone());
        self.leader.is_some()
    }

    /// Each member votes for the first of its protocols that all speak; of equal numbers of votes the leader's order decides.
    pub(super) fn select_protocol(&self) -> Option<String> {
        let common = |name: &str| self.members.values().all(|member| member.speaks(name));
        let vote = |member: &Member| member.protocols.iter().map(|known| known.name.clone()).find(|name| common(name));
        let mut votes: BTreeMap<String, usize> = BTreeMap::new();
        for choice in self.members.values().filter_map(vote) {
            *votes.entry(choice).or_default() += 1;
        }
        let leader = self.leader.as_ref().and_then(|id| self.members.get(id));
        let rank = |name: &String| {
            leader
                .and_then(|member| member.protocols.iter().position(|known| known.name == *name))
                .unwrap_or(usize::MAX)
        };
        let winner = votes.iter().min_by_key(|(name, votes)| (std::cmp::Reverse(**votes), rank(name)));
        winner.map(|(name, _)| name.clone())
    }

    fn answer_joins(&mut self, turn: &mut Turn<'_>) {
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let member = self.members.get_mut(&id).expect("the id was just read");
            member.synced = false;
            member.touch(turn.now());
            if let Some(waiting) = member.waiting_join.take() {
                let answer = self.joined(&id, waiting.version);
                turn.answer(waiting.ticket, GroupAnswer::Join(answer));
            }
        }
    }

    /// The answer to a member that is part of the current generation; the leader gets all members.
    pub(super) fn joined(&self, member_id: &str, version: i16) -> JoinGroupResponse {
        let protocol = self.protocol.clone().unwrap_or_default();
        let leads = self.leader.as_deref() == Some(member_id);
        let members = self.members.iter().filter(|_| leads).map(|(id, member)| member.for_leader(id, &protocol));
        JoinGroupResponse {
            generation_id: self.generation,
            protocol_type: self.protocol_type.clone().filter(|_| version >= 7),
            leader: self.leader.clone().unwrap_or_default(),
            member_id: member_id.to_owned(),
            members: members.collect(),
            protocol_name: Some(protocol),
            ..Default::default()
        }
    }

    /// Answers everybody who waits for an assignment with an error.
    pub(super) fn answer_syncs(&mut self, error: ErrorCode, turn: &mut Turn<'_>) {
        for member in self.members.values_mut() {
            if let Some(ticket) = member.waiting_sync.take() {
                member.touch(turn.now());
                turn.answer(ticket, sync_refused(error));
            }
        }
    }

    /// Takes a member out; whoever still waits under its id is told why. What follows from it is for [`Self::after_removal`].
    pub(super) fn remove_member(&mut self, member_id: &str, reason: ErrorCode, turn: &mut Turn<'_>) {
        let Some(member) = self.members.remove(member_id) else { return };
        release_waiting(member_id, (member.waiting_join, member.waiting_sync), reason, turn);
        if let Some(instance) = &member.instance_id {
            self.static_members.remove(instance);
        }
        if self.leader.as_deref() == Some(member_id) {
            self.leader = self.members.iter().min_by_key(|(_, member)| member.order).map(|(id, _)| id.clone());
        }
    }

    /// Members or promises are gone: the others must share anew, or the round is complete.
    pub(super) fn after_removal(&mut self, turn: &mut Turn<'_>) {
        match self.state {
            State::Stable | State::CompletingRebalance => self.prepare(turn),
            State::PreparingRebalance => self.complete_if_all_joined(turn),
            State::Empty => {}
        }
    }

    /// The record that keeps the group, with these assignments instead of the members' present ones.
    pub(super) fn record(&self, group_id: &str, assignments: Option<&BTreeMap<String, Bytes>>) -> GroupRecord {
        let protocol = self.protocol.clone().unwrap_or_default();
        let members = self.members.iter().map(|(id, member)| MemberState {
            member_id: id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout: member.rebalance_timeout,
            session_timeout: member.session_timeout,
            subscription: member.metadata(&protocol),
            assignment: match assignments {
                Some(assignments) => assignments.get(id).cloned().unwrap_or_default(),
                None => member.assignment.clone(),
            },
        });
        GroupRecord::Group {
            group_id: group_id.to_owned(),
            state: Some(GroupState {
                protocol_type: self.protocol_type.clone().unwrap_or_default(),
                generation: self.generation,
                protocol: self.protocol.clone(),
                leader: self.leader.clone(),
                state_since_ms: Some(self.state_since_ms),
                members: members.collect(),
            }),
        }
    }
}

/// A refused sync.
pub(super) fn sync_refused(error: ErrorCode) -> GroupAnswer {
    GroupAnswer::Sync(SyncGroupResponse { error_code: error.code(), ..Default::default() })
}

/// Tells requests that wait under a member id why they wait no longer.
pub(super) fn release_waiting(
    member_id: &str,
    (join, sync): (Option<WaitingJoin>, Option<Ticket>),
    reason: ErrorCode,
    turn: &mut Turn<'_>,
) {
    if let Some(join) = join {
        turn.answer(join.ticket, GroupAnswer::Join(join_refused(join.version, member_id.to_owned(), reason)));
    }
    if let Some(ticket) = sync {
        turn.answer(ticket, sync_refused(reason));
    }
}
