//! R11: the high watermark against a model of brokers, controller and network in which everything may be late, lost or
//! overtaken.

use std::collections::BTreeMap;

use super::super::leader::{AcksAll, IsrProposal, PartitionChange};
use super::super::progress::FetchVerdict;
use super::*;

#[test]
fn the_watermark_waits_for_every_member_and_for_unknown_ends() {
    let mut leader = LeaderState::new(leadership(&[OTHER, THIRD], 100), ms(0));
    let taken = checked(fetch(OTHER, (1, 1), 80), &leader, 100);
    assert_eq!(leader.on_follower_fetch(&taken, ms(1)), FetchVerdict::Taken { high_watermark: None });
    let taken = checked(fetch(THIRD, (1, 1), 60), &leader, 100);
    let verdict = leader.on_follower_fetch(&taken, ms(2));
    assert_eq!(verdict, FetchVerdict::Taken { high_watermark: Some(at(60)) });
    assert_eq!(leader.acks_all(at(60)), AcksAll::Ready);
    assert_eq!(leader.acks_all(at(61)), AcksAll::Waiting);
}

#[test]
fn a_follower_may_hold_more_than_its_leader_has_stored() {
    let mut leader = LeaderState::new(leadership(&[OTHER], 100), ms(0));
    let taken = checked(fetch(OTHER, (1, 1), 120), &leader, 120);
    let verdict = leader.on_follower_fetch(&taken, ms(1));
    assert_eq!(verdict, FetchVerdict::Taken { high_watermark: Some(at(100)) });
    assert_eq!(leader.on_stored(at(120), ms(2)), Some(at(120)));
}

#[test]
fn fetches_that_were_overtaken_change_nothing() {
    let mut leader = LeaderState::new(leadership(&[OTHER], 100), ms(0));
    let older = checked(fetch(OTHER, (1, 1), 90), &leader, 100);
    let newer = checked(fetch(OTHER, (1, 2), 50), &leader, 100);
    leader.on_follower_fetch(&newer, ms(1));
    assert_eq!(leader.on_follower_fetch(&older, ms(2)), FetchVerdict::Stale);
    assert_eq!(leader.high_watermark(), at(50));
    // A new process of that broker: whatever the old one sent is stale, also from a session with a larger number.
    let mut reborn = fetch(OTHER, (1, 0), 50);
    reborn.broker_epoch = Some(BrokerEpoch::new(500));
    let reborn = checked(reborn, &leader, 100);
    assert!(matches!(leader.on_follower_fetch(&reborn, ms(3)), FetchVerdict::Taken { .. }));
    let late = checked(fetch(OTHER, (9, 9), 100), &leader, 100);
    assert_eq!(leader.on_follower_fetch(&late, ms(4)), FetchVerdict::Stale);
    assert_eq!(leader.high_watermark(), at(50));
}

#[test]
fn too_few_in_sync_replicas_stop_the_watermark_and_acks_all() {
    let mut start = leadership(&[OTHER], 100);
    start.min_in_sync = 2;
    start.isr = vec![ME];
    let mut leader = LeaderState::new(start, ms(0));
    assert!(!leader.has_enough_replicas());
    assert_eq!(leader.high_watermark(), Offset::ZERO);
    let taken = checked(fetch(OTHER, (1, 1), 100), &leader, 100);
    leader.on_follower_fetch(&taken, ms(1));
    let proposal = leader.isr_expand(ms(1)).expect("it reached the watermark");
    assert_eq!(leader.high_watermark(), Offset::ZERO, "a proposal is not yet a member");
    let change = PartitionChange {
        partition_epoch: proposal.partition_epoch.next(),
        isr: vec![ME, OTHER],
        replicas: vec![ME, OTHER],
    };
    assert_eq!(leader.on_partition_change(change, ms(2)), Some(at(100)));
    assert!(leader.has_enough_replicas());
}

#[test]
fn acks_all_of_an_isr_that_shrank_below_the_minimum_is_too_few() {
    let mut start = leadership(&[OTHER], 100);
    start.min_in_sync = 2;
    let mut leader = LeaderState::new(start, ms(0));
    let taken = checked(fetch(OTHER, (1, 1), 100), &leader, 100);
    leader.on_follower_fetch(&taken, ms(1));
    let change = PartitionChange { partition_epoch: PartitionEpoch::new(11), isr: vec![ME], replicas: vec![ME, OTHER] };
    leader.on_partition_change(change, ms(2));
    assert_eq!(leader.acks_all(at(100)), AcksAll::TooFew);
}

#[test]
fn the_minimum_is_never_more_than_there_are_replicas() {
    let mut start = leadership(&[], 100);
    start.min_in_sync = 2;
    let leader = LeaderState::new(start, ms(0));
    assert!(leader.has_enough_replicas());
    assert_eq!(leader.high_watermark(), at(100));
}

#[test]
fn joiners_need_the_watermark_the_start_of_the_epoch_and_a_live_registration() {
    let mut start = leadership(&[OTHER], 100);
    start.isr = vec![ME];
    start.high_watermark = at(40);
    start.epoch_start = at(100);
    let mut leader = LeaderState::new(start, ms(0));
    assert_eq!(leader.high_watermark(), at(100));
    leader.on_stored(at(150), ms(1));
    for (end, joins) in [(99, false), (149, false), (150, true)] {
        let epochs = epochs(&[(2, 0), (3, 100)]);
        let log = LeaderLog { start: Offset::ZERO, appended: at(150), epochs: &epochs };
        let mut asked = fetch(OTHER, (1, u64::try_from(end).expect("positive")), end);
        asked.last_epoch = Some(LeaderEpoch::new(if end > 100 { 3 } else { 2 }));
        let taken = check_fetch(asked, &leader, log).expect("it fits");
        leader.on_follower_fetch(&taken, ms(2));
        leader.on_broker_change(OTHER, None);
        assert_eq!(leader.isr_expand(ms(2)), None, "a fenced broker does not join");
        leader.on_broker_change(OTHER, Some(BrokerEpoch::new(999)));
        assert_eq!(leader.isr_expand(ms(2)), None, "another process of it is registered");
        leader.on_broker_change(OTHER, Some(registration(OTHER)));
        assert_eq!(leader.isr_expand(ms(2)).is_some(), joins, "end {end}");
    }
}

#[test]
fn the_watermark_waits_for_a_proposed_member_until_a_partition_epoch_is_seen() {
    let mut start = leadership(&[OTHER], 100);
    start.isr = vec![ME];
    let mut leader = LeaderState::new(start, ms(0));
    let taken = checked(fetch(OTHER, (1, 1), 100), &leader, 100);
    leader.on_follower_fetch(&taken, ms(1));
    let proposal = leader.isr_expand(ms(1)).expect("it holds everything");
    leader.on_broker_change(OTHER, None);
    assert_eq!(leader.on_stored(at(200), ms(100_000)), None, "it may be a member by now");
    let again = leader.isr_retry();
    assert_eq!(again, None, "a fenced broker cannot be proposed");
    let confirm = leader.isr_confirm(ms(100_000)).expect("nothing was heard for too long");
    assert_eq!(confirm.isr, [(ME, registration(ME))]);
    // The proposal was lost, the confirmation was applied: the partition epoch ends both.
    let change =
        PartitionChange { partition_epoch: confirm.partition_epoch.next(), isr: vec![ME], replicas: vec![ME, OTHER] };
    assert_eq!(leader.on_partition_change(change, ms(100_001)), Some(at(200)));
    assert!(!leader.is_isr_pending());
    assert_eq!(leader.on_refused(&proposal, ms(100_002)), None);
}

#[test]
fn a_refusal_ends_a_proposal_only_if_no_second_copy_is_under_way() {
    for copies in [1, 2] {
        let mut start = leadership(&[OTHER], 100);
        start.isr = vec![ME];
        let mut leader = LeaderState::new(start, ms(0));
        let taken = checked(fetch(OTHER, (1, 1), 100), &leader, 100);
        leader.on_follower_fetch(&taken, ms(1));
        let proposal = leader.isr_expand(ms(1)).expect("it holds everything");
        if copies == 2 {
            assert_eq!(leader.isr_retry().as_ref(), Some(&proposal));
        }
        leader.on_refused(&proposal, ms(2));
        assert_eq!(leader.is_isr_pending(), copies == 2);
    }
}

/// The world around one leader, in which everything is as it really is.
struct World {
    dice: Dice,
    now: u64,
    leader: LeaderState,
    appended: i64,
    /// What each follower has really stored, and its live registration.
    followers: BTreeMap<BrokerId, (i64, BrokerEpoch)>,
    sessions: u64,
    fetches: Vec<ReplicaFetch>,
    proposals: Vec<IsrProposal>,
    refusals: Vec<IsrProposal>,
    /// The controller's truth.
    isr: Vec<BrokerId>,
    partition_epoch: PartitionEpoch,
    fenced: Vec<BrokerId>,
    events: Vec<Event>,
    high_watermark: Offset,
}

enum Event {
    Partition(PartitionChange),
    Broker(BrokerId, Option<BrokerEpoch>),
}

impl World {
    fn new(seed: u64) -> Self {
        let mut start = leadership(&[OTHER, THIRD], 0);
        start.min_in_sync = 1 + usize::from(seed.is_multiple_of(2));
        Self {
            dice: Dice::new(seed),
            now: 0,
            leader: LeaderState::new(start, ms(0)),
            appended: 0,
            followers: [OTHER, THIRD].map(|broker| (broker, (0, registration(broker)))).into(),
            sessions: 0,
            fetches: Vec::new(),
            proposals: Vec::new(),
            refusals: Vec::new(),
            isr: vec![ME, OTHER, THIRD],
            partition_epoch: PartitionEpoch::new(10),
            fenced: Vec::new(),
            events: Vec::new(),
            high_watermark: Offset::ZERO,
        }
    }

    fn follower(&mut self) -> BrokerId {
        [OTHER, THIRD][self.dice.roll(2)]
    }

    fn step(&mut self) {
        self.now += u64::try_from(self.dice.roll(3)).expect("small") * 200;
        let now = ms(self.now);
        match self.dice.roll(16) {
            0 | 1 => self.appended += 1 + i64::try_from(self.dice.roll(3)).expect("small"),
            2 | 3 => {
                self.leader.on_stored(at(self.appended), now);
            }
            4 | 5 => self.replicate(),
            6 | 7 => self.send_fetch(),
            8 | 9 => self.deliver_fetch(),
            10 => self.propose(),
            11 => self.control(),
            12 => self.deliver_event(),
            13 => self.deliver_refusal(),
            14 => self.restart(),
            _ => self.fence(),
        }
        self.check();
    }

    /// A follower stores some of what the leader has appended.
    fn replicate(&mut self) {
        let broker = self.follower();
        let room = usize::try_from(self.appended - self.followers[&broker].0).expect("not ahead");
        let more = i64::try_from(self.dice.roll(room + 1)).expect("small");
        self.followers.get_mut(&broker).expect("known").0 += more;
    }

    fn send_fetch(&mut self) {
        let broker = self.follower();
        let (end, epoch) = self.followers[&broker];
        self.sessions += 1;
        let mut fetch = fetch(broker, (1, self.sessions), end);
        fetch.broker_epoch = Some(epoch);
        self.fetches.push(fetch);
    }

    /// Any fetch of those under way arrives, or is lost.
    fn deliver_fetch(&mut self) {
        if self.fetches.is_empty() {
            return;
        }
        let fetch = self.fetches.swap_remove(self.dice.roll(self.fetches.len()));
        if self.dice.roll(8) == 0 {
            return;
        }
        let taken = checked(fetch, &self.leader, self.appended);
        self.leader.on_follower_fetch(&taken, ms(self.now));
    }

    fn propose(&mut self) {
        let now = ms(self.now);
        let proposal = match self.dice.roll(5) {
            0 | 1 => self.leader.isr_shrink(now),
            2 | 3 => self.leader.isr_expand(now),
            _ => self.leader.isr_confirm(now).or_else(|| self.leader.isr_retry()),
        };
        self.proposals.extend(proposal);
    }

    /// Any proposal reaches the controller, which applies it or refuses it.
    fn control(&mut self) {
        if self.proposals.is_empty() {
            return;
        }
        let proposal = self.proposals.swap_remove(self.dice.roll(self.proposals.len()));
        if self.dice.roll(6) == 0 {
            return;
        }
        let live = |(broker, epoch): &(BrokerId, BrokerEpoch)| {
            *broker == ME || (!self.fenced.contains(broker) && self.followers[broker].1 == *epoch)
        };
        if proposal.partition_epoch != self.partition_epoch || !proposal.isr.iter().all(live) {
            self.refusals.push(proposal);
            return;
        }
        self.isr = proposal.isr.iter().map(|(broker, _)| *broker).collect();
        self.change_partition();
    }

    fn change_partition(&mut self) {
        self.partition_epoch = self.partition_epoch.next();
        self.events.push(Event::Partition(PartitionChange {
            partition_epoch: self.partition_epoch,
            isr: self.isr.clone(),
            replicas: vec![ME, OTHER, THIRD],
        }));
    }

    /// The metadata log reaches the leader in order, at some time.
    fn deliver_event(&mut self) {
        if self.events.is_empty() {
            return;
        }
        match self.events.remove(0) {
            Event::Partition(change) => {
                self.leader.on_partition_change(change, ms(self.now));
            }
            Event::Broker(broker, epoch) => self.leader.on_broker_change(broker, epoch),
        }
    }

    fn deliver_refusal(&mut self) {
        if let Some(refused) = self.refusals.pop() {
            self.leader.on_refused(&refused, ms(self.now));
        }
    }

    /// A follower's process dies; half of the time its machine loses what was not synced, and it leaves the ISR (R3).
    fn restart(&mut self) {
        if self.dice.roll(4) != 0 {
            return;
        }
        let broker = self.follower();
        let unclean = self.dice.roll(2) == 0;
        if unclean {
            let kept = self.followers[&broker].0;
            let lost = i64::try_from(self.dice.roll(usize::try_from(kept + 1).expect("positive"))).expect("small");
            self.followers.get_mut(&broker).expect("known").0 -= lost;
            self.isr.retain(|member| *member != broker);
        }
        let state = self.followers.get_mut(&broker).expect("known");
        state.1 = BrokerEpoch::new(state.1.get() + 1000);
        let epoch = state.1;
        self.fenced.retain(|fenced| *fenced != broker);
        self.change_partition();
        self.events.push(Event::Broker(broker, Some(epoch)));
    }

    fn fence(&mut self) {
        let broker = self.follower();
        if self.fenced.contains(&broker) {
            self.fenced.retain(|fenced| *fenced != broker);
            let epoch = self.followers[&broker].1;
            self.events.push(Event::Broker(broker, Some(epoch)));
        } else if self.dice.roll(3) == 0 {
            self.fenced.push(broker);
            self.isr.retain(|member| *member != broker);
            self.change_partition();
            self.events.push(Event::Broker(broker, None));
        }
    }

    /// What may never be otherwise.
    fn check(&mut self) {
        let high_watermark = self.leader.high_watermark();
        assert!(high_watermark >= self.high_watermark, "the watermark fell");
        self.high_watermark = high_watermark;
        assert!(high_watermark <= self.leader.stored(), "not stored here");
        for member in self.isr.iter().filter(|member| **member != ME) {
            assert!(high_watermark.get() <= self.followers[member].0, "{member} is in sync and does not hold it");
        }
    }

    /// Nothing is lost any more, everybody fetches: the watermark must reach the end.
    fn settle(&mut self) {
        self.fetches.clear();
        for broker in [OTHER, THIRD] {
            if self.fenced.contains(&broker) {
                self.fenced.retain(|fenced| *fenced != broker);
                self.events.push(Event::Broker(broker, Some(self.followers[&broker].1)));
            }
        }
        for _ in 0..100 {
            self.now += 1000;
            self.leader.on_stored(at(self.appended), ms(self.now));
            for state in self.followers.values_mut() {
                state.0 = self.appended;
            }
            for (broker, (end, epoch)) in self.followers.clone() {
                self.sessions += 1;
                let mut fetch = fetch(broker, (1, self.sessions), end);
                fetch.broker_epoch = Some(epoch);
                let taken = checked(fetch, &self.leader, self.appended);
                self.leader.on_follower_fetch(&taken, ms(self.now));
            }
            while !self.refusals.is_empty() {
                self.deliver_refusal();
            }
            while !self.events.is_empty() {
                self.deliver_event();
            }
            let now = ms(self.now);
            let proposal = self.leader.isr_expand(now).or_else(|| self.leader.isr_confirm(now));
            let proposal = proposal.or_else(|| self.leader.isr_retry());
            self.proposals.extend(proposal);
            while !self.proposals.is_empty() {
                self.control();
            }
            self.check();
        }
        assert_eq!(self.leader.high_watermark(), at(self.appended), "the watermark is stuck");
        assert_eq!(self.leader.isr(), [ME, OTHER, THIRD]);
    }
}

#[test]
fn the_watermark_never_passes_a_member_of_the_committed_isr_whatever_is_late_or_lost() {
    for seed in 0..600 {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..600 {
                world.step();
            }
            world.settle();
        });
        assert!(run.is_ok(), "seed {seed}");
    }
}
