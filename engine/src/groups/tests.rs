//! Claims about group coordination: each transition, each row of who may commit, and a storm of everything at once.

mod admin;
mod commits;
mod joins;
mod records;
mod static_members;
mod storm;
mod syncs;

use std::time::Duration;

use bytes::Bytes;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::Uuid;
use sakia_protocol::messages::heartbeat::HeartbeatRequest;
use sakia_protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use sakia_protocol::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use sakia_protocol::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse};

use super::coordinator::Coordinator;
use super::group::{Group, State};
use super::records::GroupRecord;
use super::request::{Append, Clock, Effects, GroupAnswer, GroupBody, GroupRequest, GroupSettings, Ticket};

const GROUP: &str = "g";

fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}

/// A consumer's subscription to these topics, version 1, nothing owned.
fn subscription(topics: &[&str]) -> Bytes {
    let mut bytes = vec![0, 1];
    bytes.extend(i32::try_from(topics.len()).expect("few").to_be_bytes());
    for topic in topics {
        bytes.extend(i16::try_from(topic.len()).expect("short").to_be_bytes());
        bytes.extend(topic.as_bytes());
    }
    bytes.extend([0xff; 4]);
    bytes.extend([0; 4]);
    Bytes::from(bytes)
}

fn protocols(names: &[&str]) -> Vec<JoinGroupRequestProtocol> {
    let protocol = |name: &&str| JoinGroupRequestProtocol { name: (*name).to_owned(), metadata: subscription(&["t"]) };
    names.iter().map(protocol).collect()
}

/// A coordinator with a log behind it that commits at once, or when told to.
struct Rig {
    coordinator: Coordinator,
    now: u64,
    ticket: u64,
    log: Vec<GroupRecord>,
    held: Option<Vec<Append>>,
    answers: Vec<(Ticket, GroupAnswer)>,
}

impl Rig {
    fn new() -> Self {
        Self::with(GroupSettings { initial_rebalance_delay: Duration::ZERO, ..GroupSettings::default() })
    }

    fn with(settings: GroupSettings) -> Self {
        let mut coordinator = Coordinator::new(settings);
        coordinator.loaded(Clock { now: Duration::ZERO, wall_ms: 1_000_000 });
        Self { coordinator, now: 0, ticket: 0, log: Vec::new(), held: None, answers: Vec::new() }
    }

    fn clock(&self) -> Clock {
        Clock { now: ms(self.now), wall_ms: 1_000_000 + i64::try_from(self.now).expect("small") }
    }

    fn take(&mut self, effects: Effects) {
        self.answers.extend(effects.answers);
        for append in effects.appends {
            match &mut self.held {
                Some(held) => held.push(append),
                None => self.finish(append, Ok(())),
            }
        }
    }

    fn finish(&mut self, append: Append, stored: Result<(), ErrorCode>) {
        if stored.is_ok() {
            self.log.extend(append.records);
        }
        let effects = self.coordinator.append_finished(append.number, stored, self.clock());
        self.take(effects);
    }

    /// From now on appends are not finished before [`Self::let_go`].
    fn hold(&mut self) {
        self.held = Some(Vec::new());
    }

    fn let_go(&mut self, stored: Result<(), ErrorCode>) {
        for append in self.held.take().expect("appends are held") {
            self.finish(append, stored);
        }
    }

    fn ask(&mut self, body: GroupBody) -> Ticket {
        self.ticket += 1;
        let mut fresh = [0; 16];
        fresh[8..].copy_from_slice(&self.ticket.to_be_bytes());
        let ticket = Ticket(self.ticket);
        let (client_id, client_host) = ("client".to_owned(), "/10.0.0.1".to_owned());
        let request = GroupRequest { client_id, client_host, fresh: Uuid::from_bytes(fresh), body };
        let effects = self.coordinator.handle(ticket, request, self.clock());
        self.take(effects);
        ticket
    }

    fn answer(&mut self, ticket: Ticket) -> Option<GroupAnswer> {
        let place = self.answers.iter().position(|(answered, _)| *answered == ticket)?;
        Some(self.answers.remove(place).1)
    }

    /// Time goes on to this moment, deadline by deadline.
    fn until(&mut self, now: u64) {
        while let Some(next) = self.coordinator.next_deadline().filter(|next| *next <= ms(now)) {
            self.now = self.now.max(u64::try_from(next.as_millis()).expect("small"));
            let effects = self.coordinator.on_time(self.clock());
            self.take(effects);
        }
        self.now = now;
    }

    fn group(&self) -> &Group {
        self.coordinator.group(GROUP).expect("the group is there")
    }

    fn state(&self) -> (State, i32) {
        (self.group().state(), self.group().generation())
    }

    fn join_with(&mut self, version: i16, request: JoinGroupRequest) -> Ticket {
        self.ask(GroupBody::Join { version, request })
    }

    /// A dynamic member without an id asks to join; its id comes from the answer if there is one at once.
    fn join_new(&mut self) -> Ticket {
        self.join_with(3, asking("", None))
    }

    fn join(&mut self, member_id: &str) -> Ticket {
        self.join_with(5, asking(member_id, None))
    }

    fn join_static(&mut self, member_id: &str, instance: &str) -> Ticket {
        self.join_with(9, asking(member_id, Some(instance)))
    }

    fn joined(&mut self, ticket: Ticket) -> JoinGroupResponse {
        match self.answer(ticket) {
            Some(GroupAnswer::Join(answer)) => answer,
            other => panic!("no answer to a join: {other:?}"),
        }
    }

    fn waits(&self, ticket: Ticket) -> bool {
        self.answers.iter().all(|(answered, _)| *answered != ticket)
    }

    fn sync(&mut self, member_id: &str, generation: i32, assignments: &[(&str, &'static str)]) -> Ticket {
        let row = |(member_id, assignment): &(&str, &'static str)| SyncGroupRequestAssignment {
            member_id: (*member_id).to_owned(),
            assignment: Bytes::from_static(assignment.as_bytes()),
        };
        self.ask(GroupBody::Sync(SyncGroupRequest {
            group_id: GROUP.to_owned(),
            generation_id: generation,
            member_id: member_id.to_owned(),
            assignments: assignments.iter().map(row).collect(),
            ..Default::default()
        }))
    }

    fn synced(&mut self, ticket: Ticket) -> SyncGroupResponse {
        match self.answer(ticket) {
            Some(GroupAnswer::Sync(answer)) => answer,
            other => panic!("no answer to a sync: {other:?}"),
        }
    }

    fn heartbeat(&mut self, member_id: &str, instance: Option<&str>, generation: i32) -> ErrorCode {
        let ticket = self.ask(GroupBody::Heartbeat(HeartbeatRequest {
            group_id: GROUP.to_owned(),
            generation_id: generation,
            member_id: member_id.to_owned(),
            group_instance_id: instance.map(str::to_owned),
        }));
        match self.answer(ticket) {
            Some(GroupAnswer::Heartbeat(answer)) => ErrorCode::from_wire(answer.error_code),
            other => panic!("no answer to a heartbeat: {other:?}"),
        }
    }

    fn leave(&mut self, member_id: &str, instance: Option<&str>) -> ErrorCode {
        let who = MemberIdentity {
            member_id: member_id.to_owned(),
            group_instance_id: instance.map(str::to_owned),
            reason: None,
        };
        let request = LeaveGroupRequest { group_id: GROUP.to_owned(), members: vec![who], ..Default::default() };
        let ticket = self.ask(GroupBody::Leave { version: 4, request });
        match self.answer(ticket) {
            Some(GroupAnswer::Leave(answer)) => ErrorCode::from_wire(answer.members[0].error_code),
            other => panic!("no answer to a leave: {other:?}"),
        }
    }

    /// Two dynamic members in a stable group of generation 2: (leader, other).
    fn stable_pair(&mut self) -> (String, String) {
        let first = self.join_new();
        let first = self.joined(first).member_id;
        let second = self.join_new();
        let again = self.join(&first);
        let second = self.joined(second);
        let leader = self.joined(again).leader;
        assert_eq!((second.generation_id, &leader), (2, &first));
        let leads = self.sync(&first, 2, &[(&first, "one"), (&second.member_id, "two")]);
        let follows = self.sync(&second.member_id, 2, &[]);
        assert_eq!(self.synced(leads).assignment, "one");
        assert_eq!(self.synced(follows).assignment, "two");
        assert_eq!(self.state(), (State::Stable, 2));
        (first, second.member_id)
    }

    /// The coordinator dies; another one replays its log.
    fn restart(&mut self) {
        let settings = GroupSettings { initial_rebalance_delay: Duration::ZERO, ..GroupSettings::default() };
        let mut coordinator = Coordinator::new(settings);
        for record in &self.log {
            let (key, value) = (record.key().expect("short"), record.value().expect("short"));
            coordinator.replay(&key, value.as_ref()).expect("it was just written");
        }
        coordinator.loaded(self.clock());
        self.coordinator = coordinator;
    }
}

fn asking(member_id: &str, instance: Option<&str>) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: GROUP.to_owned(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        member_id: member_id.to_owned(),
        group_instance_id: instance.map(str::to_owned),
        protocol_type: "consumer".to_owned(),
        protocols: protocols(&["range"]),
        reason: None,
    }
}

fn error(answer: &JoinGroupResponse) -> ErrorCode {
    ErrorCode::from_wire(answer.error_code)
}
