//! The coordinator of one partition of `__consumer_offsets`: all groups that are kept there.
//!
//! Pure. Path: the leader replays the partition ([`Coordinator::replay`], [`Coordinator::loaded`]), then requests come in
//! ([`Coordinator::handle`]), appends end ([`Coordinator::append_finished`]) and time passes ([`Coordinator::on_time`]).
//! When the leadership ends, [`Coordinator::resign`] answers everybody who still waits.
//! Invariant: each ticket is answered exactly once; a group that is worth nothing is not kept.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::Uuid;
use sakia_protocol::messages::heartbeat::HeartbeatResponse;
use sakia_protocol::messages::join_group::JoinGroupRequestProtocol;
use sakia_protocol::messages::leave_group::{LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse};
use sakia_protocol::messages::offset_commit::OffsetCommitRequest;

use super::group::{Group, State, release_waiting};
use super::join::Joining;
use super::limits::GROUPS_MAX;
use super::member::Member;
use super::offsets;
use super::records::{GroupRecord, GroupState, RecordError};
use super::request::{
    AppendNumber, Clock, Effects, GroupAnswer, GroupBody, GroupRequest, GroupSettings, Ticket, commit_refused,
    join_refused,
};
use super::turn::{Pending, Then, Turn};

/// All groups of one partition.
#[derive(Debug)]
pub struct Coordinator {
    settings: GroupSettings,
    pub(super) groups: BTreeMap<String, Group>,
    /// When a group has to be looked at. May be too early, never too late.
    alarms: BTreeSet<(Duration, String)>,
    pub(super) pending: Pending,
    is_loading: bool,
}

impl Coordinator {
    /// A coordinator that begins to load.
    #[must_use]
    pub fn new(settings: GroupSettings) -> Self {
        let (groups, alarms) = (BTreeMap::new(), BTreeSet::new());
        Self { settings, groups, alarms, pending: Pending::default(), is_loading: true }
    }

    /// A group, if it is kept here.
    #[must_use]
    pub fn group(&self, group_id: &str) -> Option<&Group> {
        self.groups.get(group_id)
    }

    /// Whether its log is still being replayed.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.is_loading
    }

    /// Number of groups.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether it keeps no group.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Takes a record of the log, in order, before [`Self::loaded`].
    ///
    /// # Errors
    /// The record cannot be read. It is skipped: one damaged record must not make all groups unavailable.
    pub fn replay(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), RecordError> {
        assert!(self.is_loading, "records are replayed before requests are taken");
        match GroupRecord::decode(key, value)? {
            None => {}
            Some(GroupRecord::Offset { group_id, topic, partition, committed }) => {
                let group = self.groups.entry(group_id).or_insert_with(|| Group::new(0));
                match committed {
                    Some(committed) => group.offsets.insert(topic, partition, committed),
                    None => group.offsets.remove(&topic, partition),
                }
            }
            Some(GroupRecord::Group { group_id, state }) => {
                let kept = self.groups.remove(&group_id).map(|group| group.offsets).unwrap_or_default();
                let mut group = state.map_or_else(|| Group::new(0), restored);
                group.offsets = kept;
                self.groups.insert(group_id, group);
            }
        }
        Ok(())
    }

    /// The whole log was replayed: requests are taken from now on. Every member gets a fresh session.
    pub fn loaded(&mut self, clock: Clock) {
        self.is_loading = false;
        self.groups.retain(|_, group| !group.is_vacant());
        for (group_id, group) in &mut self.groups {
            for member in group.members.values_mut() {
                member.touch(clock.now);
            }
            group.alarm = group.next_deadline();
            self.alarms.extend(group.alarm.map(|alarm| (alarm, group_id.clone())));
        }
    }

    /// Takes a request. Its answer comes with this call's effects or a later one's.
    pub fn handle(&mut self, ticket: Ticket, request: GroupRequest, clock: Clock) -> Effects {
        if self.is_loading {
            return Effects::answer(ticket, request.body.refused(ErrorCode::CoordinatorLoadInProgress));
        }
        if let GroupBody::List { states, types } = &request.body {
            return Effects::answer(ticket, self.list(states, types));
        }
        let GroupRequest { client_id, client_host, fresh, body } = request;
        let group_id = body.group_id().expect("every request but List names a group").to_owned();
        match body {
            GroupBody::Join { version, request } => {
                self.join(Joining { ticket, version, client_id, client_host, request }, fresh, clock)
            }
            GroupBody::Commit(request) => self.commit(ticket, request, clock),
            GroupBody::FetchOffsets(asked) => {
                let offsets = self.groups.get(&group_id).map(|group| &group.offsets);
                Effects::answer(ticket, GroupAnswer::FetchOffsets(offsets::fetch(offsets, &asked)))
            }
            GroupBody::Describe { version, .. } => Effects::answer(ticket, self.describe(&group_id, version)),
            body @ (GroupBody::Delete { .. } | GroupBody::DeleteOffsets(_)) => self.delete(ticket, body, clock),
            body => self.ask_member(ticket, body, clock),
        }
    }

    fn join(&mut self, joining: Joining, fresh: Uuid, clock: Clock) -> Effects {
        let group_id = joining.request.group_id.clone();
        let session = Duration::from_millis(u64::try_from(joining.request.session_timeout_ms).unwrap_or(0));
        let allowed = self.settings.session_timeout_min..=self.settings.session_timeout_max;
        let exists = self.groups.contains_key(&group_id);
        let refusal = if group_id.is_empty() {
            Some(ErrorCode::InvalidGroupId)
        } else if !allowed.contains(&session) {
            Some(ErrorCode::InvalidSessionTimeout)
        } else if !exists && !joining.request.member_id.is_empty() {
            Some(ErrorCode::UnknownMemberId)
        } else if !exists && self.groups.len() >= GROUPS_MAX {
            Some(ErrorCode::CoordinatorNotAvailable)
        } else {
            None
        };
        if let Some(error) = refusal {
            let answer = join_refused(joining.version, joining.request.member_id.clone(), error);
            return Effects::answer(joining.ticket, GroupAnswer::Join(answer));
        }
        self.groups.entry(group_id.clone()).or_insert_with(|| Group::new(clock.wall_ms));
        self.turn(&group_id, fresh, clock, |group, turn| group.join(joining, turn))
    }

    fn commit(&mut self, ticket: Ticket, request: OffsetCommitRequest, clock: Clock) -> Effects {
        let group_id = request.group_id.clone();
        if !self.groups.contains_key(&group_id) {
            let error = if request.generation_id_or_member_epoch >= 0 {
                Some(ErrorCode::IllegalGeneration)
            } else {
                (self.groups.len() >= GROUPS_MAX).then_some(ErrorCode::CoordinatorNotAvailable)
            };
            if let Some(error) = error {
                return Effects::answer(ticket, GroupAnswer::Commit(commit_refused(&request, error)));
            }
            self.groups.insert(group_id.clone(), Group::new(clock.wall_ms));
        }
        self.turn(&group_id, Uuid::ZERO, clock, |group, turn| group.commit(ticket, request, turn))
    }

    /// Requests that only members of an existing group may send.
    fn ask_member(&mut self, ticket: Ticket, body: GroupBody, clock: Clock) -> Effects {
        let group_id = body.group_id().expect("every request but List names a group").to_owned();
        if !self.groups.contains_key(&group_id) {
            return Effects::answer(ticket, unknown_group(&body));
        }
        self.turn(&group_id, Uuid::ZERO, clock, |group, turn| match body {
            GroupBody::Sync(request) => group.sync(ticket, request, turn),
            GroupBody::Heartbeat(request) => {
                let error_code = group.heartbeat(&request, turn).code();
                turn.answer(ticket, GroupAnswer::Heartbeat(HeartbeatResponse { error_code, ..Default::default() }));
            }
            GroupBody::Leave { version, request } => {
                let answer = leave(group, version, &request, turn);
                turn.answer(ticket, GroupAnswer::Leave(answer));
            }
            other => turn.answer(ticket, other.refused(ErrorCode::InvalidRequest)),
        })
    }

    /// An append ended: its records are committed, or could not be.
    pub fn append_finished(&mut self, number: AppendNumber, stored: Result<(), ErrorCode>, clock: Clock) -> Effects {
        let Some((group_id, then)) = self.pending.take(number) else { return Effects::default() };
        if !self.groups.contains_key(&group_id) {
            // Deleted meanwhile: the tombstones stand behind these records.
            return answer_without_group(then, stored);
        }
        self.turn(&group_id, Uuid::ZERO, clock, |group, turn| match then {
            Then::Assign { generation, assignments } => {
                group.assigned(generation, assignments, stored.map_err(group_error), turn);
            }
            Then::Replace(then) => group.replaced(then, stored.map_err(group_error), turn),
            Then::Commit(then) => group.committed(then, stored.map_err(commit_error), turn),
            Then::Answer { ticket, answer, asked } => {
                let answer = stored.map_or_else(|error| asked.refused(group_error(error)), |()| answer);
                turn.answer(ticket, answer);
            }
            Then::Nothing => {}
        })
    }

    /// When [`Self::on_time`] has something to do at the earliest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.alarms.first().map(|(alarm, _)| *alarm)
    }

    /// Time passed.
    pub fn on_time(&mut self, clock: Clock) -> Effects {
        let mut effects = Effects::default();
        // Each group once per call, whatever it schedules for this very moment.
        let later = self.alarms.split_off(&(clock.now + Duration::from_nanos(1), String::new()));
        for (_, group_id) in std::mem::replace(&mut self.alarms, later) {
            if let Some(group) = self.groups.get_mut(&group_id) {
                group.alarm = None;
                let more = self.turn(&group_id, Uuid::ZERO, clock, Group::on_time);
                effects.answers.extend(more.answers);
                effects.appends.extend(more.appends);
            }
        }
        effects
    }

    /// The leadership of the partition ended: everybody who waits is told to look elsewhere.
    pub fn resign(mut self) -> Effects {
        let mut effects = Effects::default();
        let thens: Vec<Then> = self.pending.take_all().collect();
        for then in thens {
            effects.answers.extend(answer_without_group(then, Err(ErrorCode::NotCoordinator)).answers);
        }
        let mut pending = Pending::default();
        for (group_id, group) in std::mem::take(&mut self.groups) {
            let clock = Clock { now: Duration::ZERO, wall_ms: 0 };
            let mut turn = new_turn(&self.settings, &mut pending, group_id, Uuid::ZERO, clock);
            for (member_id, member) in group.members {
                let waiting = (member.waiting_join, member.waiting_sync);
                release_waiting(&member_id, waiting, ErrorCode::NotCoordinator, &mut turn);
            }
            effects.answers.extend(turn.effects.answers);
        }
        effects
    }

    /// Lets a group act, then schedules it anew, or forgets it.
    pub(super) fn turn(
        &mut self,
        group_id: &str,
        fresh: Uuid,
        clock: Clock,
        act: impl FnOnce(&mut Group, &mut Turn<'_>),
    ) -> Effects {
        let mut turn = new_turn(&self.settings, &mut self.pending, group_id.to_owned(), fresh, clock);
        let group = self.groups.get_mut(group_id).expect("the caller looked it up");
        act(group, &mut turn);
        let effects = turn.effects;
        if group.is_vacant() && !self.pending.concerns(group_id) {
            self.forget(group_id);
        } else if let Some(deadline) = group.next_deadline()
            && group.alarm.is_none_or(|alarm| deadline < alarm)
        {
            let earlier = group.alarm.replace(deadline);
            self.alarms.extend([(deadline, group_id.to_owned())]);
            earlier.map(|earlier| self.alarms.remove(&(earlier, group_id.to_owned())));
        }
        effects
    }

    pub(super) fn forget(&mut self, group_id: &str) {
        if let Some(alarm) = self.groups.remove(group_id).and_then(|group| group.alarm) {
            self.alarms.remove(&(alarm, group_id.to_owned()));
        }
    }

    pub(super) fn settings(&self) -> &GroupSettings {
        &self.settings
    }
}

pub(super) fn new_turn<'a>(
    settings: &'a GroupSettings,
    pending: &'a mut Pending,
    group_id: String,
    fresh: Uuid,
    clock: Clock,
) -> Turn<'a> {
    Turn { clock, settings, fresh, effects: Effects::default(), group_id, pending }
}

/// A group as it was stored: stable if it has members.
fn restored(kept: GroupState) -> Group {
    let mut group = Group::new(kept.state_since_ms.unwrap_or(0));
    group.generation = kept.generation;
    group.protocol_type = Some(kept.protocol_type).filter(|protocol_type| !protocol_type.is_empty());
    group.leader = kept.leader.filter(|leader| kept.members.iter().any(|member| member.member_id == *leader));
    group.state = if kept.members.is_empty() { State::Empty } else { State::Stable };
    for member in kept.members {
        group.order += 1;
        if let Some(instance) = &member.instance_id {
            group.static_members.insert(instance.clone(), member.member_id.clone());
        }
        let protocols = kept
            .protocol
            .iter()
            .map(|name| JoinGroupRequestProtocol { name: name.clone(), metadata: member.subscription.clone() });
        let restored = Member {
            order: group.order,
            instance_id: member.instance_id,
            client_id: member.client_id,
            client_host: member.client_host,
            rebalance_timeout: member.rebalance_timeout,
            session_timeout: member.session_timeout,
            protocols: protocols.collect(),
            assignment: member.assignment,
            deadline: None,
            waiting_join: None,
            waiting_sync: None,
            synced: true,
        };
        group.members.insert(member.member_id, restored);
    }
    group.protocol = kept.protocol;
    group
}

fn unknown_group(body: &GroupBody) -> GroupAnswer {
    match body {
        GroupBody::Leave { version: 3.., request } => {
            let members = request.members.iter().map(|who| left(who, ErrorCode::UnknownMemberId));
            GroupAnswer::Leave(LeaveGroupResponse { members: members.collect(), ..Default::default() })
        }
        body => body.refused(ErrorCode::UnknownMemberId),
    }
}

fn left(who: &MemberIdentity, error: ErrorCode) -> MemberResponse {
    MemberResponse {
        member_id: who.member_id.clone(),
        group_instance_id: who.group_instance_id.clone(),
        error_code: error.code(),
    }
}

fn leave(group: &mut Group, version: i16, request: &LeaveGroupRequest, turn: &mut Turn<'_>) -> LeaveGroupResponse {
    if version >= 3 {
        let members = request.members.iter().map(|who| left(who, group.leave(who, turn)));
        return LeaveGroupResponse { members: members.collect(), ..Default::default() };
    }
    let who = MemberIdentity { member_id: request.member_id.clone(), ..Default::default() };
    LeaveGroupResponse { error_code: group.leave(&who, turn).code(), ..Default::default() }
}

/// Answers whoever waits for an append when there is no group any more to act on.
fn answer_without_group(then: Then, stored: Result<(), ErrorCode>) -> Effects {
    match (then, stored) {
        (Then::Assign { .. } | Then::Nothing, _) => Effects::default(),
        (Then::Replace(then), stored) => {
            let error = stored.err().map_or(ErrorCode::UnknownMemberId, group_error);
            Effects::answer(then.ticket, GroupAnswer::Join(join_refused(then.version, then.new_id, error)))
        }
        (Then::Commit(then), Ok(())) => Effects::answer(then.ticket, GroupAnswer::Commit(then.answer)),
        (Then::Commit(then), Err(error)) => {
            Effects::answer(then.ticket, GroupAnswer::Commit(then.answer_failed(commit_error(error))))
        }
        (Then::Answer { ticket, answer, .. }, Ok(())) => Effects::answer(ticket, answer),
        (Then::Answer { ticket, asked, .. }, Err(error)) => Effects::answer(ticket, asked.refused(group_error(error))),
    }
}

/// What a client is told when the group's record could not be written.
fn group_error(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError | ErrorCode::NotCoordinator => {
            ErrorCode::NotCoordinator
        }
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => ErrorCode::UnknownServerError,
        ErrorCode::RequestTimedOut
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::NotEnoughReplicasAfterAppend
        | ErrorCode::UnknownTopicOrPartition => ErrorCode::CoordinatorNotAvailable,
        other => other,
    }
}

/// What a client is told when its offsets could not be written.
fn commit_error(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => ErrorCode::InvalidCommitOffsetSize,
        other => group_error(other),
    }
}
