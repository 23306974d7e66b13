//! One partition on its owner shard: its log, its role, who waits for it.
//!
//! Path: reading order `lead` (produce, replicas' fetches, the ISR), `follow` (bytes and slices from a leader), `read`
//! (consumers, questions). This file: opening, changing roles, the writer.
//!
//! Invariant: one writer task per partition drives the log's writes; whatever an end that moved allows happens in
//! `after_stored`, in one place. Every change of role has a generation of its own (R7).

mod follow;
mod lead;
mod read;

pub(super) use lead::{Appending, ReplicaRow};
pub(super) use read::read_error;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use sakia_controller::image::PartitionImage;
use sakia_io::planted::{Planted, is_planted};
use sakia_io::{Class, Task, now, spawn};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{BrokerEpoch, BrokerId, Offset, PartitionKey};

use super::{Shard, WAL_METADATA_TOPIC};
use crate::counters::TopicCounters;
use crate::log::Log;
use crate::messages::FetcherMessage;
use crate::replication::follower::Following;
use crate::replication::leader::PartitionChange;
use crate::replication::{FollowerState, IndexedSlice, LeaderState, Leadership, UploadProgress};
use crate::settings::TopicSettings;
use crate::waiters::{Reached, Until, Waiters};
use crate::wake::Wake;

/// What a replica is at present.
enum Role {
    /// Neither: it has no leader, or its log folder failed.
    Idle,
    /// It leads.
    Leader(LeaderState),
    /// It follows.
    Follower(FollowerState),
}

/// A partition.
pub struct Partition {
    key: PartitionKey,
    topic: String,
    settings: RefCell<Rc<TopicSettings>>,
    log: Log,
    role: RefCell<Role>,
    upload: RefCell<Option<UploadProgress>>,
    /// Followers that get record bytes at present although references are the rule.
    takes_bytes: RefCell<BTreeSet<BrokerId>>,
    waiters: RefCell<Waiters>,
    counters: TopicCounters,
    high_watermark: Cell<Offset>,
    generation: Cell<u64>,
    is_dirty: Cell<bool>,
    /// The answer to a proposed ISR did not come: it is proposed again at the next look.
    isr_answer_lost: Cell<bool>,
    /// Slices that were read and are not all in the log yet. Bounded like the slices that wait (`WAITING_SLICES_MAX`).
    unindexed: RefCell<Vec<IndexedSlice>>,
    /// A slice that found no room in memory: it goes on when something was written.
    stalled: RefCell<Option<follow::Stalled>>,
    /// A truncation is under way: no role begins, nothing is appended.
    is_cutting: Cell<bool>,
    cut_over: Wake,
    writer: RefCell<Option<Task<()>>>,
    /// The writer has ended: nothing more will be stored.
    has_ended: Cell<bool>,
}

impl Partition {
    /// A partition over an open log, without a role.
    pub(super) fn new(
        shard: &Rc<Shard>,
        key: PartitionKey,
        topic: &str,
        settings: Rc<TopicSettings>,
        log: Log,
        high_watermark: Offset,
    ) -> Rc<Self> {
        let generation = shard.next_generation();
        let known = high_watermark.max(log.start()).min(log.stored());
        let partition = Rc::new(Self {
            key,
            topic: topic.to_owned(),
            settings: RefCell::new(settings),
            log,
            role: RefCell::new(Role::Idle),
            upload: RefCell::new(None),
            takes_bytes: RefCell::default(),
            waiters: RefCell::default(),
            counters: shard.counters.of_topic(topic),
            high_watermark: Cell::new(known),
            generation: Cell::new(generation),
            is_dirty: Cell::new(false),
            isr_answer_lost: Cell::new(false),
            unindexed: RefCell::default(),
            stalled: RefCell::new(None),
            is_cutting: Cell::new(false),
            cut_over: Wake::default(),
            writer: RefCell::new(None),
            has_ended: Cell::new(false),
        });
        shard.index.borrow_mut().open(key, generation);
        let writer = spawn(Class::Foreground, partition.clone().write(shard.clone()));
        partition.writer.replace(Some(writer));
        partition
    }

    /// What is counted of its topic.
    #[must_use]
    pub fn counters(&self) -> &TopicCounters {
        &self.counters
    }

    /// Which partition.
    #[must_use]
    pub fn key(&self) -> PartitionKey {
        self.key
    }

    /// Name of its topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// What is committed, as this replica knows it.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark.get()
    }

    /// Its topic's settings.
    #[must_use]
    pub fn settings(&self) -> Rc<TopicSettings> {
        self.settings.borrow().clone()
    }

    /// The topic's settings changed.
    pub(super) fn set_settings(&self, shard: &Rc<Shard>, settings: Rc<TopicSettings>) {
        if *self.settings.borrow() == settings {
            return;
        }
        self.log.change_settings(super::log_settings(&settings));
        let moved = match &mut *self.role.borrow_mut() {
            Role::Leader(leader) => leader.set_min_in_sync(settings.min_insync, clock()),
            Role::Idle | Role::Follower(_) => None,
        };
        self.settings.replace(settings);
        self.committed(shard, moved);
    }

    /// Writes what was appended, one write in flight, until the folder fails.
    async fn write(self: Rc<Self>, shard: Rc<Shard>) {
        loop {
            match self.log.write_next().await {
                Ok(stored) => self.after_stored(&shard, stored),
                Err(error) => {
                    self.has_ended.set(true);
                    self.resign();
                    shard.folder_failed(self.key, &error);
                    return;
                }
            }
        }
    }

    /// The stored end moved: high watermark, waiters, the follower's next fetch.
    fn after_stored(self: &Rc<Self>, shard: &Rc<Shard>, stored: Offset) {
        let (moved, followed) = match &mut *self.role.borrow_mut() {
            Role::Leader(leader) => {
                let counted = if is_planted(Planted::MemoryEndCounted) { self.log.appended() } else { stored };
                (leader.on_stored(counted, clock()), None)
            }
            Role::Follower(follower) => (follower.on_stored(stored.min(follower.appended())), Some(follower.leader())),
            Role::Idle => (None, None),
        };
        self.waiters.borrow_mut().stored(stored);
        self.committed(shard, moved);
        if let Some(leader) = followed {
            self.append_stalled(shard);
            self.report(shard, leader);
        } else if self.replicas_take_bytes() {
            self.waiters.borrow_mut().replicas_changed();
        }
    }

    /// The high watermark moved, if it did.
    fn committed(&self, _shard: &Rc<Shard>, moved: Option<Offset>) {
        if let Some(high_watermark) = moved {
            self.high_watermark.set(self.high_watermark.get().max(high_watermark));
            self.waiters.borrow_mut().high_watermark(high_watermark);
        }
    }

    /// Begins a leadership, or takes over what changed in it.
    pub(super) fn lead(&self, shard: &Rc<Shard>, record: &PartitionImage, my_epoch: BrokerEpoch) {
        if let Role::Leader(leader) = &mut *self.role.borrow_mut()
            && leader.leader_epoch() == record.leader_epoch
        {
            let change = PartitionChange {
                partition_epoch: record.partition_epoch,
                isr: members(record),
                replicas: record.replicas.clone(),
            };
            let moved = leader.on_partition_change(change, clock());
            self.committed(shard, moved);
            return;
        }
        self.leave_role(shard);
        let generation = self.begin_generation(shard);
        self.log.begin_epoch(record.leader_epoch);
        let stored = self.log.stored();
        let leadership = Leadership {
            me: shard.settings.node_id,
            my_epoch,
            leader_epoch: record.leader_epoch,
            epoch_start: self.log.appended(),
            partition_epoch: record.partition_epoch,
            generation,
            replicas: record.replicas.clone(),
            isr: members(record),
            live: shard.live_brokers(),
            min_in_sync: self.settings().min_insync,
            lag_max: shard.settings.replica.lag_max,
            high_watermark: self.high_watermark.get().min(stored),
            stored,
        };
        let state = LeaderState::new(leadership, clock());
        // Not above what is stored, whatever was committed once: acks=all must not be answered by an old mark.
        self.high_watermark.set(state.high_watermark());
        // The metadata topic tells of objects and is never in one (R24); a partition without followers needs none.
        let uploads = self.settings().wal
            && shard.outbox.has_combiner()
            && record.replicas.len() > 1
            && self.topic != WAL_METADATA_TOPIC;
        let upload = uploads.then(|| UploadProgress::new(self.log.appended(), shard.settings.wal.fallback_after));
        self.upload.replace(upload);
        self.role.replace(Role::Leader(state));
        self.waiters.borrow_mut().changed();
    }

    /// Begins to follow. The same leadership again changes nothing.
    pub(super) fn follow(&self, shard: &Rc<Shard>, record: &PartitionImage, leader: BrokerId) {
        if let Role::Follower(follower) = &*self.role.borrow()
            && follower.leader_epoch() == record.leader_epoch
            && follower.leader() == leader
        {
            return;
        }
        self.leave_role(shard);
        let generation = self.begin_generation(shard);
        let state = FollowerState::new(Following {
            leader,
            leader_epoch: record.leader_epoch,
            generation,
            appended: self.log.appended(),
            stored: self.log.stored(),
            high_watermark: self.high_watermark.get(),
        });
        self.high_watermark.set(state.high_watermark());
        self.role.replace(Role::Follower(state));
        self.report(shard, leader);
    }

    /// No role until the metadata says more: nobody leads, or the broker is fenced.
    pub(super) fn idle(&self, shard: &Rc<Shard>) {
        if !matches!(&*self.role.borrow(), Role::Idle) {
            self.leave_role(shard);
            self.begin_generation(shard);
        }
    }

    /// Ends whatever role there is: waiters are told, the fetcher forgets the partition.
    fn leave_role(&self, shard: &Rc<Shard>) {
        let role = self.role.replace(Role::Idle);
        self.upload.replace(None);
        self.forget_bytes(shard);
        if let Role::Follower(follower) = role {
            let message = FetcherMessage::Unfollow { key: self.key, generation: follower.generation() };
            shard.outbox.tell_fetcher(follower.leader(), message);
        }
        self.waiters.borrow_mut().leadership_lost();
    }

    fn begin_generation(&self, shard: &Shard) -> u64 {
        let generation = shard.next_generation();
        self.generation.set(generation);
        self.unindexed.take();
        self.stalled.take();
        self.isr_answer_lost.set(false);
        shard.index.borrow_mut().open(self.key, generation);
        generation
    }

    /// Brokers were registered, fenced, unfenced or removed: a leader's view of who may join.
    pub(super) fn brokers_changed(&self, live: &BTreeMap<BrokerId, BrokerEpoch>) {
        if let Role::Leader(leader) = &mut *self.role.borrow_mut() {
            let followers: Vec<BrokerId> = leader.followers().iter().map(|follower| follower.broker).collect();
            for broker in followers {
                leader.on_broker_change(broker, live.get(&broker).copied());
            }
        }
    }

    /// Acknowledges nothing more (R6).
    fn resign(&self) {
        self.role.replace(Role::Idle);
        self.upload.replace(None);
        self.waiters.borrow_mut().leadership_lost();
    }

    /// Whether it leads.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        matches!(&*self.role.borrow(), Role::Leader(_))
    }

    /// Whether it leads and its ISR lacks an assigned replica.
    #[must_use]
    pub fn is_under_replicated(&self) -> bool {
        match &*self.role.borrow() {
            Role::Leader(leader) => leader.isr().len() < leader.followers().len() + 1,
            Role::Idle | Role::Follower(_) => false,
        }
    }

    /// Waits for an end; at once if it is there.
    fn wait(&self, until: Until, end: Offset) -> Option<sakia_io::Answer<Reached>> {
        let reached = match until {
            Until::Stored => self.log.stored(),
            Until::HighWatermark => self.high_watermark.get(),
        };
        (reached < end).then(|| self.waiters.borrow_mut().wait(until, end))
    }

    /// Waits until everything appended is committed; `None` if it is, or if another broker leads.
    pub(super) fn everything_committed(&self) -> Option<sakia_io::Answer<Reached>> {
        self.is_leader().then(|| self.wait(Until::HighWatermark, self.log.appended())).flatten()
    }

    /// Stops the partition: no role, no writer. The log can then be closed or deleted.
    pub(super) fn stop(&self, shard: &Rc<Shard>) {
        self.leave_role(shard);
        self.begin_generation(shard);
        shard.index.borrow_mut().close(self.key);
    }

    /// Ends the writer once everything appended is stored, or nothing more will be: never in the middle of a write, which
    /// would take the log for failed.
    pub(super) async fn drain(&self) {
        self.cut_ended().await;
        let end = self.log.appended();
        if !self.has_ended.get()
            && let Some(answer) = self.wait(Until::Stored, end)
        {
            let _ = answer.await;
        }
        drop(self.writer.take());
    }

    /// Waits until no truncation is under way: a role begins only from an end that stands. One task waits: `reconcile`, and
    /// at the end of the shard whoever closes it.
    pub(super) async fn cut_ended(&self) {
        while self.is_cutting.get() {
            self.cut_over.wait().await;
        }
    }
}

/// What goes wrong with a partition that is not led here.
fn not_led_here() -> ErrorCode {
    ErrorCode::NotLeaderOrFollower
}

fn members(record: &PartitionImage) -> Vec<BrokerId> {
    record.isr.iter().map(|member| member.broker).collect()
}

/// Time as the rules of replication want it.
fn clock() -> Duration {
    now().as_duration()
}
