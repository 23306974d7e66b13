//! What a follower does: takes what comes from its leader or from the bucket, in order, and truncates where it must.
//!
//! Path: fetcher (rows) and combiner (slices) → `replicated` → the log → `after_stored` → `report` → the next fetch.
//!
//! Invariant: only bytes asked for in this generation are taken (R7); a gap is never appended over, except by record
//! bytes of a leader, where compaction took the offsets (R9).

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use sakia_io::planted::{Planted, is_planted};
use sakia_io::{Class, oneshot, sleep, spawn};
use sakia_protocol::batch::{StoredBatch, check_replicated};
use sakia_protocol::ids::{BrokerId, LeaderEpoch, Offset};
use sakia_remote::ObjectReference;
use sakia_remote::object::SliceHeader;
use tracing::{debug, error, info, warn};

use super::{Partition, Role};
use crate::log::{Continuation, LogError};
use crate::messages::{FetcherMessage, Followed, Replicated, ReplicatedBytes};
use crate::replication::follower::{BatchSpan, first_needed};
use crate::replication::limits::WAITING_SLICES_MAX;
use crate::replication::truncation::{EpochEnd, truncate_to};
use crate::replication::{FetchedSlice, GetFailure, IndexedSlice, Offer};
use crate::shard::Shard;

/// How often a replica whose log is to be replaced looks whether it may be elected.
const REPLACE_LOOK: Duration = Duration::from_millis(200);

/// Between two lines about a replica that waits for that.
const REPLACE_REMINDER: Duration = Duration::from_mins(1);

/// Where record bytes came from.
#[derive(Clone, Copy)]
enum Origin {
    Leader,
    Bucket,
}

/// A slice of which not all found room in memory.
pub(super) struct Stalled {
    slice: FetchedSlice,
    origin: Origin,
}

/// What became of a slice that continues the log.
enum Stored {
    /// The log holds all of it.
    Whole,
    /// Memory ran out: the rest goes on when something was written.
    NoRoom,
    /// It does not fit, and is asked for again.
    GivenUp,
}

impl Partition {
    /// Takes what came for this partition, if it was asked for in this generation.
    pub(in crate::shard) fn replicated(self: &Rc<Self>, shard: &Rc<Shard>, row: Replicated) {
        let (leader, current) = match &*self.role.borrow() {
            Role::Follower(follower) => (follower.leader(), follower.generation()),
            Role::Idle | Role::Leader(_) => return,
        };
        // While the log is cut its generation is ahead of the follower's: nothing of either is taken.
        let is_current = row.generation == current && current == self.generation.get();
        if !is_current && !is_planted(Planted::OldResultApplied) {
            return;
        }
        match row.what {
            ReplicatedBytes::Row { records, high_watermark, log_start } => {
                self.take_row(shard, leader, records, high_watermark, log_start);
            }
            ReplicatedBytes::Slice { object, header, bytes } => self.take_slice(shard, leader, object, header, bytes),
            ReplicatedBytes::Diverging { epoch, end } => self.truncate_to(shard, leader, EpochEnd { epoch, end }),
            ReplicatedBytes::OutOfRange { leader_start, leader_end } => {
                self.begin_anew(shard, leader, leader_start, leader_end);
            }
            ReplicatedBytes::ObjectFailed { object, failure } => self.object_failed(shard, leader, object, failure),
        }
    }

    /// A row of the leader's reply: its high watermark, and record bytes if it sent any.
    fn take_row(
        self: &Rc<Self>,
        shard: &Rc<Shard>,
        leader: BrokerId,
        records: Bytes,
        high_watermark: Option<Offset>,
        log_start: Option<Offset>,
    ) {
        let (moved, serves_more) = match &mut *self.role.borrow_mut() {
            Role::Follower(follower) => {
                let before = follower.served_below();
                let moved = high_watermark.and_then(|hw| follower.on_leader(hw, log_start));
                (moved, follower.served_below() > before)
            }
            Role::Idle | Role::Leader(_) => (None, false),
        };
        self.committed(shard, moved);
        if serves_more {
            self.waiters.borrow_mut().changed();
        }
        if let Some(start) = log_start.filter(|start| *start > self.log.start()) {
            self.log.advance_start(start.min(self.high_watermark.get()));
        }
        if records.is_empty() {
            return;
        }
        let len = u64::try_from(records.len()).unwrap_or(u64::MAX);
        let spans = match spans(&records) {
            Ok(spans) => spans,
            Err(why) => {
                warn!(topic = %self.topic, partition = %self.key.partition, "record bytes from the leader are bad: {why}");
                self.ask_anew(shard, leader);
                return;
            }
        };
        let (Some(first), Some(last)) = (spans.first(), spans.last()) else { return };
        self.counters.replication_bytes_in.add(len);
        let slice = FetchedSlice {
            generation: self.generation.get(),
            slice_epoch: None,
            // Record bytes may begin above the end where compaction took the offsets between.
            base: first.base.min(self.log.appended()),
            next: last.next,
            bytes: records,
        };
        self.offer(shard, leader, slice, Origin::Leader);
    }

    fn take_slice(
        self: &Rc<Self>,
        shard: &Rc<Shard>,
        leader: BrokerId,
        object: ObjectReference,
        header: SliceHeader,
        bytes: Bytes,
    ) {
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.counters.wal_bytes_in.add(len);
        let slice = FetchedSlice {
            generation: self.generation.get(),
            slice_epoch: Some(header.leader_epoch),
            base: header.base,
            next: header.next,
            bytes,
        };
        self.remember_reference(object, &header);
        self.offer(shard, leader, slice, Origin::Bucket);
        self.index_references(shard);
    }

    fn offer(self: &Rc<Self>, shard: &Rc<Shard>, leader: BrokerId, slice: FetchedSlice, origin: Origin) {
        let offered = match &mut *self.role.borrow_mut() {
            Role::Follower(follower) => follower.offer(slice),
            Role::Idle | Role::Leader(_) => return,
        };
        match offered {
            Offer::Append(slice) => self.append_all(shard, leader, Stalled { slice, origin }),
            Offer::Waits | Offer::Dropped(_) => {}
            Offer::NoRoom => shard.outbox.tell_fetcher(leader, FetcherMessage::NewSession),
        }
    }

    /// Appends a slice, and what waited for it.
    fn append_all(&self, shard: &Rc<Shard>, leader: BrokerId, first: Stalled) {
        let mut next = Some(first);
        while let Some(Stalled { slice, origin }) = next {
            match self.append(shard, leader, &slice, origin) {
                Stored::Whole => {}
                Stored::NoRoom => {
                    self.stalled.replace(Some(Stalled { slice, origin }));
                    return;
                }
                Stored::GivenUp => return,
            }
            let ready = match &mut *self.role.borrow_mut() {
                Role::Follower(follower) => follower.take_ready(),
                Role::Idle | Role::Leader(_) => None,
            };
            next = ready.map(|slice| Stalled { slice, origin: Origin::Bucket });
        }
    }

    /// Goes on with what found no room in memory.
    pub(super) fn append_stalled(&self, shard: &Rc<Shard>) {
        let leader = match &*self.role.borrow() {
            Role::Follower(follower) => follower.leader(),
            Role::Idle | Role::Leader(_) => return,
        };
        let stalled = self.stalled.take();
        if let Some(stalled) = stalled.filter(|stalled| stalled.slice.generation == self.generation.get()) {
            self.append_all(shard, leader, stalled);
            self.index_references(shard);
        }
    }

    /// Appends what of a slice is not held yet.
    fn append(&self, shard: &Rc<Shard>, leader: BrokerId, slice: &FetchedSlice, origin: Origin) -> Stored {
        let end = self.log.appended();
        let (epoch, continuation) = match origin {
            Origin::Bucket => (slice.slice_epoch, Continuation::Exact),
            Origin::Leader => (None, Continuation::OverGaps),
        };
        let result = self.needed(&slice.bytes, end, epoch, origin).and_then(|bytes| {
            if bytes.is_empty() {
                return Ok(end);
            }
            match self.log.append_as_follower(&bytes, continuation) {
                Err(LogError::Busy(_)) => Ok(end),
                appended => appended.map_err(|error| error.to_string()),
            }
        });
        match result {
            Ok(appended) => {
                if let Role::Follower(follower) = &mut *self.role.borrow_mut() {
                    follower.on_appended(appended);
                }
                if appended >= slice.next { Stored::Whole } else { Stored::NoRoom }
            }
            Err(why) => {
                warn!(topic = %self.topic, partition = %self.key.partition, %end, "bytes do not fit, asking again: {why}");
                if let Role::Follower(follower) = &mut *self.role.borrow_mut() {
                    follower.ask_bytes(None);
                }
                self.ask_anew(shard, leader);
                Stored::GivenUp
            }
        }
    }

    /// The batches of a slice from the end of the log on. Those before it are skipped only if the log holds them at the same
    /// epoch: one offset has one value in one epoch. Slices of the bucket were checked when they were read.
    fn needed(&self, bytes: &Bytes, end: Offset, epoch: Option<LeaderEpoch>, origin: Origin) -> Result<Bytes, String> {
        let mut batches = Vec::new();
        for batch in sakia_protocol::batch::headers(bytes) {
            batches.push((batch.position, span(&batch)?));
        }
        let held = match origin {
            Origin::Bucket => {
                first_needed(batches.iter().map(|(_, span)| *span), end, epoch).map_err(|misfit| misfit.to_string())?
            }
            Origin::Leader => batches.iter().take_while(|(_, span)| span.next <= end).count(),
        };
        for (_, span) in &batches[..held] {
            let last = span.next.get().checked_sub(1).and_then(Offset::from_wire);
            let known = last.and_then(|last| self.log.epoch_at(last));
            if known.is_some_and(|known| known != span.leader_epoch) {
                return Err(format!("{} is held at epoch {known:?}, not {}", span.base, span.leader_epoch));
            }
        }
        Ok(batches.get(held).map_or_else(Bytes::new, |(position, _)| bytes.slice(*position..)))
    }

    /// What was handed out in this session is void: a new session gives it again from the stored end.
    fn ask_anew(&self, shard: &Shard, leader: BrokerId) {
        self.report(shard, leader);
        shard.outbox.tell_fetcher(leader, FetcherMessage::NewSession);
    }

    /// R12: the object cannot be read, the leader must send bytes.
    fn object_failed(&self, shard: &Shard, leader: BrokerId, object: ObjectReference, failure: GetFailure) {
        debug!(topic = %self.topic, partition = %self.key.partition, ?object, ?failure, "asking the leader for bytes");
        shard.counters.fallbacks.with(&["object_unreadable"]).increment();
        if let Role::Follower(follower) = &mut *self.role.borrow_mut() {
            follower.ask_bytes(None);
        }
        self.report(shard, leader);
    }

    /// Tells the fetcher where this replica stands: what its next fetch says.
    pub(super) fn report(&self, shard: &Shard, leader: BrokerId) {
        let Role::Follower(follower) = &*self.role.borrow() else { return };
        if follower.generation() != self.generation.get() || !follower.may_ask() {
            // The log is being cut, or has an unwritten tail of an earlier leadership: what is true afterwards is told then.
            return;
        }
        let stored = if is_planted(Planted::MemoryEndReported) { follower.appended() } else { follower.stored() };
        let followed = Followed {
            key: self.key,
            topic: self.topic.clone(),
            shard: shard.id,
            generation: follower.generation(),
            leader_epoch: follower.leader_epoch(),
            stored,
            last_epoch: stored
                .get()
                .checked_sub(1)
                .and_then(Offset::from_wire)
                .and_then(|last| self.log.epoch_at(last)),
            log_start: self.log.start(),
            bytes_until: follower.bytes_until(),
        };
        shard.outbox.tell_fetcher(leader, FetcherMessage::Follow(followed));
    }

    /// The leader's log parts from this one: cut back, in a new generation, and ask again.
    fn truncate_to(self: &Rc<Self>, shard: &Rc<Shard>, leader: BrokerId, parting: EpochEnd) {
        let end = self.log.appended();
        let Some(target) = self.log.with_epochs(|epochs| truncate_to(epochs, end, parting)) else {
            self.report(shard, leader);
            return;
        };
        info!(topic = %self.topic, partition = %self.key.partition, from = %end, to = %target, "truncating to the leader's log");
        self.cut(shard, leader, Cut::To(target));
    }

    /// The leader's log and this one do not meet: begin at the leader's start, or cut what it does not have.
    fn begin_anew(self: &Rc<Self>, shard: &Rc<Shard>, leader: BrokerId, start: Offset, end: Offset) {
        if start > self.log.appended() {
            self.cut(shard, leader, Cut::Anew(start));
        } else if end < self.log.appended() {
            // Below the own start as well: the leader lost more than this replica kept, by an unclean election.
            self.cut(shard, leader, Cut::To(end));
        } else {
            self.report(shard, leader);
        }
    }

    /// Cuts the log. Until it is done nothing is taken: the fetcher has let the partition go.
    fn cut(self: &Rc<Self>, shard: &Rc<Shard>, leader: BrokerId, cut: Cut) {
        let old = self.generation.get();
        let generation = self.begin_generation(shard);
        shard.outbox.tell_fetcher(leader, FetcherMessage::Unfollow { key: self.key, generation: old });
        self.is_cutting.set(true);
        let (partition, shard) = (self.clone(), shard.clone());
        spawn(Class::Foreground, async move {
            let outcome = partition.cut_log(&shard, cut).await;
            if outcome.is_ok() {
                partition.after_cut(&shard, cut, generation);
            }
            partition.is_cutting.set(false);
            partition.cut_over.wake();
            match outcome {
                Ok(()) => {}
                Err(error @ (LogError::Closed | LogError::Offline(_))) => shard.folder_failed(partition.key, &error),
                Err(error) => partition.replace_log(&shard, leader, generation, &error).await,
            }
        })
        .detach();
    }

    /// The log cannot be cut, because what lies below the cut cannot be read: nothing was cut, and nothing that the leader
    /// sends may go behind the parting. The replica begins anew, empty, and gets everything from its leader again: but only once
    /// it may not be elected, since an empty log must not lead while it counts as one that holds what was acknowledged. The
    /// leader takes it out of the ISR when it has not fetched for `replica.lag.time.max.ms`. Ends with the generation: the next
    /// role meets the same damage and says so.
    async fn replace_log(self: &Rc<Self>, shard: &Rc<Shard>, leader: BrokerId, generation: u64, damage: &LogError) {
        let (topic, partition) = (&self.topic, self.key.partition);
        error!(%topic, %partition, "the log cannot be cut to the leader's; it is replaced when this replica is out of sync: {damage}");
        let mut waited = Duration::ZERO;
        loop {
            if generation != self.generation.get() || shard.stopping.get() {
                return;
            }
            if !self.may_be_elected(shard) {
                break;
            }
            if waited >= REPLACE_REMINDER {
                waited = Duration::ZERO;
                warn!(%topic, %partition, "a damaged replica still counts as eligible to lead, so it is not replaced: {damage}");
            }
            sleep(REPLACE_LOOK).await;
            waited += REPLACE_LOOK;
        }
        info!(%topic, %partition, "the damaged log is given up, everything comes from the leader again");
        self.cut(shard, leader, Cut::Anew(self.log.start()));
    }

    /// Whether the controller may take this replica for one that holds everything that was acknowledged.
    fn may_be_elected(&self, shard: &Shard) -> bool {
        let me = shard.settings.node_id;
        shard.with_image(|image| {
            image.partition(&self.key).is_none_or(|record| record.in_isr(me) || record.elr.contains(&me))
        })
    }

    async fn cut_log(&self, shard: &Rc<Shard>, cut: Cut) -> Result<(), LogError> {
        match cut {
            Cut::To(target) => self.log.truncate(target).await?,
            Cut::Anew(start) => self.log.restart_empty(start).await?,
        }
        // The recovery point was lowered with the log: it is on disk before anything is appended above the cut.
        let (reply, written) = oneshot();
        if shard.checkpoint.send(reply).await.is_ok() {
            let _ = written.await;
        }
        Ok(())
    }

    fn after_cut(&self, shard: &Rc<Shard>, cut: Cut, generation: u64) {
        let end = self.log.appended();
        if !is_planted(Planted::IndexNotCut) {
            shard.index.borrow_mut().cut_end(self.key, end);
        }
        // Also if the role is another one by now: the next begins with this mark.
        self.high_watermark.set(self.high_watermark.get().min(end).max(self.log.start()));
        if generation != self.generation.get() {
            return;
        }
        let (leader, moved) = match &mut *self.role.borrow_mut() {
            Role::Follower(follower) => {
                let moved = match cut {
                    Cut::To(_) => {
                        follower.on_truncated(end, generation);
                        None
                    }
                    Cut::Anew(start) => follower.on_restarted(start, generation),
                };
                (follower.leader(), moved)
            }
            Role::Idle | Role::Leader(_) => return,
        };
        self.committed(shard, moved);
        self.report(shard, leader);
    }

    /// A slice that was read may be handed on once the log holds it (R8).
    fn remember_reference(&self, object: ObjectReference, header: &SliceHeader) {
        let position = |at: u64| u32::try_from(at).expect("positions in an object are below OBJECT_LENGTH_MAX");
        let mut unindexed = self.unindexed.borrow_mut();
        if unindexed.len() >= WAITING_SLICES_MAX {
            unindexed.remove(0);
        }
        unindexed.push(IndexedSlice {
            object,
            slice: 0,
            start: position(header.start),
            end: position(header.end),
            base: header.base,
            next: header.next,
            leader_epoch: header.leader_epoch,
        });
    }

    fn index_references(&self, shard: &Shard) {
        let end = self.log.appended();
        let slices = self.unindexed.take();
        let (held, waiting): (Vec<_>, Vec<_>) = slices.into_iter().partition(|slice| slice.next <= end);
        for slice in held {
            self.index_slice(shard, self.generation.get(), slice);
        }
        self.unindexed.replace(waiting);
    }
}

#[derive(Clone, Copy)]
enum Cut {
    To(Offset),
    Anew(Offset),
}

/// Offsets and epochs of checked batches.
fn spans(bytes: &Bytes) -> Result<Vec<BatchSpan>, String> {
    check_replicated(bytes).map(|batch| batch.map_err(|end| end.to_string()).and_then(|batch| span(&batch))).collect()
}

fn span(batch: &StoredBatch<'_>) -> Result<BatchSpan, String> {
    let leader_epoch: LeaderEpoch = batch.header.leader_epoch.ok_or_else(|| "a batch without epoch".to_owned())?;
    Ok(BatchSpan { base: batch.header.base_offset, next: batch.header.next_offset(), leader_epoch })
}
