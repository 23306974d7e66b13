//! Everything at once, in any order: clients that forget, restart and vanish, appends that are late or fail.

use std::collections::{BTreeMap, BTreeSet};

use sakia_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};

use super::*;

struct Client {
    instance: Option<String>,
    member_id: String,
    generation: i32,
    leads: Vec<String>,
}

struct Storm {
    rig: Rig,
    seed: u64,
    clients: Vec<Client>,
    open: BTreeMap<Ticket, usize>,
    answered: BTreeSet<Ticket>,
    generation: i32,
    waiting: Vec<Append>,
}

impl Storm {
    fn new(seed: u64) -> Self {
        let client = |number: usize| Client {
            instance: number.is_multiple_of(2).then(|| format!("i{number}")),
            member_id: String::new(),
            generation: -1,
            leads: Vec::new(),
        };
        let mut rig = Rig::new();
        rig.hold();
        Self {
            rig,
            seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            clients: (0..5).map(client).collect(),
            open: BTreeMap::new(),
            answered: BTreeSet::new(),
            generation: 0,
            waiting: Vec::new(),
        }
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        usize::try_from((self.seed >> 11) % u64::try_from(sides).expect("few")).expect("below sides")
    }

    fn step(&mut self) {
        let number = self.roll(self.clients.len());
        match self.roll(14) {
            0..=3 => self.join(number),
            4..=6 => self.sync(number),
            7 => self.heartbeat(number),
            8 => self.commit(number),
            9 => {
                // A process that was restarted knows nothing any more.
                self.clients[number].member_id.clear();
            }
            10 if self.roll(3) == 0 => {
                let (member_id, instance) = self.who(number);
                self.rig.leave(&member_id, instance.as_deref());
            }
            11 => {
                let pause = u64::try_from(self.roll(4000)).expect("small");
                self.rig.until(self.rig.now + pause);
            }
            _ => self.finish_append(),
        }
        self.collect();
    }

    fn who(&self, number: usize) -> (String, Option<String>) {
        (self.clients[number].member_id.clone(), self.clients[number].instance.clone())
    }

    fn join(&mut self, number: usize) {
        let (member_id, instance) = self.who(number);
        let mut request = asking(&member_id, instance.as_deref());
        request.rebalance_timeout_ms = 8_000;
        let ticket = self.rig.join_with(9, request);
        self.open.insert(ticket, number);
    }

    fn sync(&mut self, number: usize) {
        let (member_id, _) = self.who(number);
        let client = &self.clients[number];
        let rows: Vec<(String, &'static str)> = client.leads.iter().map(|id| (id.clone(), "part")).collect();
        let rows: Vec<(&str, &'static str)> = rows.iter().map(|(id, part)| (id.as_str(), *part)).collect();
        let ticket = self.rig.sync(&member_id, client.generation, &rows);
        self.open.insert(ticket, number);
    }

    fn heartbeat(&mut self, number: usize) {
        let (member_id, instance) = self.who(number);
        let generation = self.clients[number].generation;
        self.rig.heartbeat(&member_id, instance.as_deref(), generation);
    }

    fn commit(&mut self, number: usize) {
        let (member_id, _) = self.who(number);
        let row = OffsetCommitRequestPartition {
            partition_index: i32::try_from(self.roll(3)).expect("small"),
            committed_offset: i64::try_from(self.roll(100)).expect("small"),
            ..Default::default()
        };
        let topic = OffsetCommitRequestTopic { name: "t".to_owned(), partitions: vec![row], ..Default::default() };
        let ticket = self.rig.ask(GroupBody::Commit(OffsetCommitRequest {
            group_id: GROUP.to_owned(),
            generation_id_or_member_epoch: self.clients[number].generation,
            member_id,
            topics: vec![topic],
            ..Default::default()
        }));
        self.open.insert(ticket, number);
    }

    /// Appends end in the order in which they were made, as in a log.
    fn finish_append(&mut self) {
        self.waiting.append(self.rig.held.as_mut().expect("appends are held"));
        if self.waiting.is_empty() {
            return;
        }
        let append = self.waiting.remove(0);
        let stored = if self.roll(10) == 0 { Err(ErrorCode::NotEnoughReplicas) } else { Ok(()) };
        self.rig.finish(append, stored);
    }

    fn collect(&mut self) {
        for (ticket, answer) in std::mem::take(&mut self.rig.answers) {
            assert!(self.answered.insert(ticket), "answered twice: {answer:?}");
            let Some(number) = self.open.remove(&ticket) else { continue };
            if let GroupAnswer::Join(answer) = answer {
                self.joined(number, answer);
            }
        }
        let Some(group) = self.rig.coordinator.group(GROUP) else {
            self.generation = 0;
            return;
        };
        assert!(group.generation() >= self.generation, "the generation fell");
        self.generation = group.generation();
        for (instance, member_id) in &group.static_members {
            let member = group.members.get(member_id).expect("a static member is a member");
            assert_eq!(member.instance_id.as_ref(), Some(instance));
        }
        match group.state() {
            State::Empty => assert_eq!(group.size(), 0),
            // Everybody may be gone while an id that was given out is awaited.
            State::PreparingRebalance => {}
            State::CompletingRebalance | State::Stable => assert!(group.size() > 0),
        }
        if group.state() == State::Stable {
            assert!(group.members.values().all(|m| m.waiting_join.is_none() && m.waiting_sync.is_none()));
            let leader = group.leader.as_ref().expect("a stable group has a leader");
            assert!(group.members.contains_key(leader));
        }
        if let Some(deadline) = group.next_deadline() {
            let scheduled = self.rig.coordinator.next_deadline().expect("scheduled");
            assert!(scheduled <= deadline, "a deadline is not scheduled");
        }
    }

    fn joined(&mut self, number: usize, answer: JoinGroupResponse) {
        let client = &mut self.clients[number];
        match error(&answer) {
            ErrorCode::None => {
                client.member_id = answer.member_id;
                client.generation = answer.generation_id;
                client.leads = answer.members.into_iter().map(|member| member.member_id).collect();
            }
            ErrorCode::MemberIdRequired => client.member_id = answer.member_id,
            ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId => client.member_id.clear(),
            _ => {}
        }
    }

    /// What a new coordinator reads from the log is what this one kept.
    fn compare_with_replay(&mut self) {
        while !self.waiting.is_empty() || self.rig.held.as_ref().is_some_and(|held| !held.is_empty()) {
            self.finish_append();
        }
        self.collect();
        let kept = self.rig.coordinator.group(GROUP).cloned();
        let mut replayed = Rig::new();
        replayed.log = std::mem::take(&mut self.rig.log);
        replayed.restart();
        let again = replayed.coordinator.group(GROUP);
        if let Some(kept) = kept.as_ref().filter(|kept| !kept.offsets.is_empty()) {
            let offsets: Vec<_> = kept.offsets.iter().collect();
            assert_eq!(offsets, again.expect("it has offsets").offsets.iter().collect::<Vec<_>>());
        }
        self.rig.log = replayed.log;
    }
}

#[test]
fn every_request_is_answered_exactly_once_and_the_group_stays_whole() {
    let mut stable = 0;
    for seed in 0..400 {
        let run = std::panic::catch_unwind(|| {
            let mut storm = Storm::new(seed);
            let mut stable = 0;
            for step in 0..500 {
                storm.step();
                stable += usize::from(storm.rig.coordinator.group(GROUP).is_some_and(|g| g.state() == State::Stable));
                if step % 100 == 99 {
                    storm.compare_with_replay();
                }
            }
            let coordinator = std::mem::replace(&mut storm.rig.coordinator, Coordinator::new(GroupSettings::default()));
            let effects = coordinator.resign();
            storm.rig.answers.extend(effects.answers);
            storm.collect();
            assert!(storm.open.is_empty(), "never answered: {:?}", storm.open);
            stable
        });
        stable += run.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    assert!(stable > 5_000, "the storm hardly lets a group become stable: {stable}");
}
