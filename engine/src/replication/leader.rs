//! A led partition: in-sync replicas, high watermark, who may be acknowledged.
//!
//! Pure. Path: stored ends (own writes, followers' fetches) → high watermark → acks=all and consumers.
//! Rule: R11. High watermark = the smallest stored end over the largest ISR that may be committed, plus eligible joiners.
//! Invariant: in one leader epoch the high watermark never falls, and never lies above the stored end of any member of
//! the committed ISR, whichever of the proposed ISRs gets committed.

use std::time::Duration;

use sakia_io::planted::{Planted, is_planted};
use sakia_protocol::ids::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch};

use super::fetch_plan::CheckedFetch;
use super::limits::{ISR_CONFIRM_AFTER, PENDING_ISR_MAX};
use super::progress::{FetchVerdict, HandedBy, Progress, SessionStamp, Taken};

/// What a leadership begins with.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// This broker.
    pub me: BrokerId,
    /// Its registration.
    pub my_epoch: BrokerEpoch,
    /// The leadership.
    pub leader_epoch: LeaderEpoch,
    /// End of the log at its start.
    pub epoch_start: Offset,
    /// Version of the partition's record.
    pub partition_epoch: PartitionEpoch,
    /// Generation of the owner's state (R7).
    pub generation: u64,
    /// Assigned replicas, this broker among them.
    pub replicas: Vec<BrokerId>,
    /// Committed in-sync replicas.
    pub isr: Vec<BrokerId>,
    /// Registrations of brokers that are neither fenced nor shutting down.
    pub live: Vec<(BrokerId, BrokerEpoch)>,
    /// `min.insync.replicas`.
    pub min_in_sync: usize,
    /// `replica.lag.time.max.ms`.
    pub lag_max: Duration,
    /// High watermark as this replica knew it.
    pub high_watermark: Offset,
    /// Stored end of the own log.
    pub stored: Offset,
}

/// Whether something that was produced with acks=all may be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcksAll {
    /// Not all in-sync replicas have it.
    Waiting,
    /// They have it.
    Ready,
    /// They have it, and are too few by now: NOT_ENOUGH_REPLICAS_AFTER_APPEND 20.
    TooFew,
}

/// A change of the ISR to be proposed by AlterPartition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IsrProposal {
    /// Leadership under which it is proposed.
    pub leader_epoch: LeaderEpoch,
    /// Partition epoch it builds on; the controller refuses any other.
    pub partition_epoch: PartitionEpoch,
    /// The new members, ascending, with their registrations.
    pub isr: Vec<(BrokerId, BrokerEpoch)>,
}

#[derive(Clone, Debug)]
struct PendingIsr {
    members: Vec<BrokerId>,
    sent: u32,
    since: Duration,
}

/// State of one leadership.
#[derive(Clone, Debug)]
pub struct LeaderState {
    me: BrokerId,
    my_epoch: BrokerEpoch,
    leader_epoch: LeaderEpoch,
    epoch_start: Offset,
    partition_epoch: PartitionEpoch,
    generation: u64,
    isr: Vec<BrokerId>,
    pending: Vec<PendingIsr>,
    followers: Vec<Progress>,
    min_in_sync: usize,
    lag_max: Duration,
    stored: Offset,
    high_watermark: Offset,
}

impl LeaderState {
    /// Begins a leadership. Nothing is known of any follower's end, so the high watermark stands still until all members of the
    /// ISR have fetched.
    #[must_use]
    pub fn new(leadership: Leadership, now: Duration) -> Self {
        let me = leadership.me;
        assert!(leadership.isr.contains(&me), "a leader is in the ISR");
        assert!(leadership.replicas.contains(&me), "a leader is a replica");
        let mut state = Self {
            me,
            my_epoch: leadership.my_epoch,
            leader_epoch: leadership.leader_epoch,
            epoch_start: leadership.epoch_start,
            partition_epoch: leadership.partition_epoch,
            generation: leadership.generation,
            isr: sorted(leadership.isr),
            pending: Vec::new(),
            followers: Vec::new(),
            min_in_sync: leadership.min_in_sync,
            lag_max: leadership.lag_max,
            stored: leadership.stored,
            // After a power loss the log may be shorter than what a checkpoint remembers.
            high_watermark: leadership.high_watermark.min(leadership.stored),
        };
        state.set_replicas(&leadership.replicas, now);
        for (broker, epoch) in leadership.live {
            state.on_broker_change(broker, Some(epoch));
        }
        state.advance(now);
        state
    }

    /// The leadership.
    #[must_use]
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// End of the log at its start.
    #[must_use]
    pub fn epoch_start(&self) -> Offset {
        self.epoch_start
    }

    /// Newest partition epoch seen.
    #[must_use]
    pub fn partition_epoch(&self) -> PartitionEpoch {
        self.partition_epoch
    }

    /// Generation of the owner's state.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Committed in-sync replicas, ascending.
    #[must_use]
    pub fn isr(&self) -> &[BrokerId] {
        &self.isr
    }

    /// Stored end of the own log.
    #[must_use]
    pub fn stored(&self) -> Offset {
        self.stored
    }

    /// What is committed: consumers read below it.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// Every replica but this one.
    #[must_use]
    pub fn followers(&self) -> &[Progress] {
        &self.followers
    }

    /// What is known of one follower.
    #[must_use]
    pub fn progress(&self, broker: BrokerId) -> Option<&Progress> {
        self.followers.iter().find(|follower| follower.broker == broker)
    }

    /// Smallest log start over this replica (`own`) and the followers that are alive: what DeleteRecords waits for.
    #[must_use]
    pub fn low_watermark(&self, own: Offset) -> Offset {
        let alive = self.followers.iter().filter(|follower| follower.registered.is_some());
        alive.map(|follower| follower.log_start().unwrap_or(Offset::ZERO)).fold(own, Offset::min)
    }

    /// A write was completed. Returns the high watermark if it moved.
    pub fn on_stored(&mut self, stored: Offset, now: Duration) -> Option<Offset> {
        assert!(stored >= self.stored, "a leader's stored end does not fall: {stored} after {}", self.stored);
        self.stored = stored;
        self.advance(now)
    }

    /// Takes the state that a checked fetch reports, unless it is stale (Rule: R11).
    pub fn on_follower_fetch(&mut self, fetch: &CheckedFetch, now: Duration) -> FetchVerdict {
        assert_eq!(fetch.fetch().leader_epoch, Some(self.leader_epoch), "a checked fetch is of this leadership");
        let (broker, stored) = (fetch.fetch().broker, self.stored);
        let Some(follower) = self.followers.iter_mut().find(|follower| follower.broker == broker) else {
            return FetchVerdict::NotAReplica;
        };
        match follower.take(fetch, stored, now) {
            Taken::Stale => FetchVerdict::Stale,
            Taken::Taken => FetchVerdict::Taken { high_watermark: self.advance(now) },
        }
    }

    /// A fetch was answered: the follower was told this high watermark and given everything below the offset. Ignored if a
    /// younger fetch of that follower was seen meanwhile.
    pub fn on_answered(
        &mut self,
        broker: BrokerId,
        stamp: SessionStamp,
        given: Option<(Offset, HandedBy)>,
        now: Duration,
    ) {
        let high_watermark = self.high_watermark;
        let follower = self.followers.iter_mut().find(|follower| follower.broker == broker);
        if let Some(follower) = follower.filter(|follower| follower.stamp() == Some(stamp)) {
            follower.told(given, high_watermark, now);
        }
    }

    /// What the metadata says of a broker: its registration, or `None` when it is fenced, shutting down or gone.
    pub fn on_broker_change(&mut self, broker: BrokerId, registered: Option<BrokerEpoch>) {
        if let Some(follower) = self.followers.iter_mut().find(|follower| follower.broker == broker) {
            follower.registered = registered;
        }
    }

    /// The partition's record changed, same leader epoch. Ends every pending proposal: each was built on an older partition
    /// epoch, so it is either this change or will be refused. Returns the high watermark if it moved.
    pub fn on_partition_change(&mut self, change: PartitionChange, now: Duration) -> Option<Offset> {
        if change.partition_epoch <= self.partition_epoch {
            return None;
        }
        assert!(change.isr.contains(&self.me), "a leader stays in the ISR while it leads");
        self.partition_epoch = change.partition_epoch;
        self.isr = sorted(change.isr);
        self.pending.clear();
        self.set_replicas(&change.replicas, now);
        self.advance(now)
    }

    /// `min.insync.replicas` changed.
    pub fn set_min_in_sync(&mut self, min_in_sync: usize, now: Duration) -> Option<Offset> {
        self.min_in_sync = min_in_sync;
        self.advance(now)
    }

    /// Time passed: a joiner that everything waited for may have fallen behind. Returns the high watermark if it moved.
    pub fn on_time(&mut self, now: Duration) -> Option<Offset> {
        self.advance(now)
    }

    /// Whether acks=all may be appended at all; `false`: NOT_ENOUGH_REPLICAS 19.
    #[must_use]
    pub fn has_enough_replicas(&self) -> bool {
        self.isr.len() >= self.min_in_sync.min(self.followers.len() + 1)
    }

    /// Whether everything below `end` may be acknowledged to acks=all.
    #[must_use]
    pub fn acks_all(&self, end: Offset) -> AcksAll {
        match self.high_watermark >= end {
            false => AcksAll::Waiting,
            true if self.has_enough_replicas() => AcksAll::Ready,
            true => AcksAll::TooFew,
        }
    }

    /// Members that fell behind for longer than the lag time are to leave. `None` while a proposal is pending.
    pub fn isr_shrink(&mut self, now: Duration) -> Option<IsrProposal> {
        let (stored, lag_max) = (self.stored, self.lag_max);
        let stays = |broker: &BrokerId| {
            *broker == self.me || self.progress(*broker).is_some_and(|f| f.is_caught_up(stored, now, lag_max))
        };
        let members: Vec<BrokerId> = self.isr.iter().copied().filter(stays).collect();
        (members.len() < self.isr.len()).then(|| self.propose(members, now)).flatten()
    }

    /// Followers that reached the high watermark and the start of this epoch, and are alive under the registration by which
    /// they fetch, are to join. `None` while a proposal is pending.
    pub fn isr_expand(&mut self, now: Duration) -> Option<IsrProposal> {
        let goal = self.high_watermark.max(self.epoch_start);
        let joins = |follower: &&Progress| {
            !self.isr.contains(&follower.broker)
                && follower.live_epoch().is_some()
                && follower.end().is_some_and(|end| end >= goal)
        };
        let joiners: Vec<BrokerId> = self.followers.iter().filter(joins).map(|follower| follower.broker).collect();
        if joiners.is_empty() {
            return None;
        }
        self.propose(self.isr.iter().copied().chain(joiners).collect(), now)
    }

    /// A pending proposal again, for when its answer was lost: the latest whose members are all alive. Whether it was applied
    /// shows only in a partition epoch.
    pub fn isr_retry(&mut self) -> Option<IsrProposal> {
        let candidates = self.pending.iter().enumerate().rev();
        let (place, proposal) =
            candidates.filter_map(|(place, pending)| Some((place, self.proposal(&pending.members)?))).next()?;
        self.pending[place].sent += 1;
        Some(proposal)
    }

    /// The committed ISR itself as a proposal: it changes nothing but the partition epoch, and so ends proposals whose fate is
    /// unknown for longer than [`ISR_CONFIRM_AFTER`]. `None` if there are none.
    pub fn isr_confirm(&mut self, now: Duration) -> Option<IsrProposal> {
        let overdue = self.pending.last().is_some_and(|last| now.saturating_sub(last.since) > ISR_CONFIRM_AFTER);
        if !overdue || self.pending.len() >= PENDING_ISR_MAX {
            return None;
        }
        let members = self.isr.clone();
        let proposal = self.proposal(&members)?;
        self.pending.push(PendingIsr { members, sent: 1, since: now });
        Some(proposal)
    }

    /// The controller refused a proposal for good (not: it could not be reached). That ends it only if it was sent once; of
    /// two copies the other one may still be applied (Rule: R11).
    pub fn on_refused(&mut self, proposal: &IsrProposal, now: Duration) -> Option<Offset> {
        if proposal.partition_epoch != self.partition_epoch || proposal.leader_epoch != self.leader_epoch {
            return None;
        }
        let members: Vec<BrokerId> = proposal.isr.iter().map(|(broker, _)| *broker).collect();
        self.pending.retain(|pending| pending.members != members || pending.sent > 1);
        self.advance(now)
    }

    /// Whether a proposal waits for its partition epoch.
    #[must_use]
    pub fn is_isr_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    fn propose(&mut self, members: Vec<BrokerId>, now: Duration) -> Option<IsrProposal> {
        if !self.pending.is_empty() {
            return None;
        }
        let members = sorted(members);
        let proposal = self.proposal(&members)?;
        self.pending.push(PendingIsr { members, sent: 1, since: now });
        Some(proposal)
    }

    /// `None` if the registration of a member is not known: it is fenced, and the controller is about to remove it.
    fn proposal(&self, members: &[BrokerId]) -> Option<IsrProposal> {
        let with_epoch = |broker: &BrokerId| {
            let epoch = if *broker == self.me { Some(self.my_epoch) } else { self.progress(*broker)?.registered };
            Some((*broker, epoch?))
        };
        let isr = members.iter().map(with_epoch).collect::<Option<Vec<_>>>()?;
        Some(IsrProposal { leader_epoch: self.leader_epoch, partition_epoch: self.partition_epoch, isr })
    }

    fn set_replicas(&mut self, replicas: &[BrokerId], now: Duration) {
        self.followers.retain(|follower| replicas.contains(&follower.broker));
        for broker in replicas.iter().copied().filter(|broker| *broker != self.me) {
            if self.progress(broker).is_none() {
                let caught_up = self.isr.contains(&broker).then_some(now);
                self.followers.push(Progress::unknown(broker, None, caught_up));
            }
        }
    }

    /// Whether the high watermark waits for this follower.
    fn counts(&self, follower: &Progress, now: Duration) -> bool {
        let broker = follower.broker;
        if is_planted(Planted::PendingMemberIgnored) {
            return self.isr.contains(&broker);
        }
        let may_be_member =
            self.isr.contains(&broker) || self.pending.iter().any(|pending| pending.members.contains(&broker));
        let joins_soon = || follower.live_epoch().is_some() && follower.is_caught_up(self.stored, now, self.lag_max);
        may_be_member || joins_soon()
    }

    fn advance(&mut self, now: Duration) -> Option<Offset> {
        if !self.has_enough_replicas() {
            return None;
        }
        let mut reached = self.stored;
        for follower in self.followers.iter().filter(|follower| self.counts(follower, now)) {
            // Unknown in this epoch: nothing can be said of what it holds.
            reached = reached.min(follower.end()?);
        }
        if reached <= self.high_watermark {
            return None;
        }
        self.high_watermark = reached;
        Some(reached)
    }
}

/// The partition's record as the metadata has it now.
#[derive(Clone, Debug)]
pub struct PartitionChange {
    /// Its version.
    pub partition_epoch: PartitionEpoch,
    /// Committed in-sync replicas.
    pub isr: Vec<BrokerId>,
    /// Assigned replicas.
    pub replicas: Vec<BrokerId>,
}

fn sorted(mut brokers: Vec<BrokerId>) -> Vec<BrokerId> {
    brokers.sort_unstable();
    brokers.dedup();
    brokers
}
