//! A followed partition: what to append of what comes, in which order, and what to ask for.
//!
//! Pure. Path: fetch reply or object → [`FollowerState::offer`] → append → [`FollowerState::on_appended`] →
//! [`FollowerState::take_ready`]; stored → [`FollowerState::on_stored`] → next fetch.
//! Rule: R7, R9. Only what was asked for in this leadership and generation is taken; it continues the log exactly.
//! Invariant: the high watermark never lies above what is stored here, and in one leader epoch it does not fall.

use std::collections::BTreeMap;

use bytes::Bytes;
use sakia_io::planted::{Planted, is_planted};
use sakia_protocol::ids::{BrokerId, LeaderEpoch, Offset};

use super::limits::{WAITING_BYTES_MAX, WAITING_SLICES_MAX};

/// Record bytes that came for this partition, whole batches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchedSlice {
    /// Generation under which it was asked for.
    pub generation: u64,
    /// For a slice of an object the epoch of all its batches, as the manifest says; the batches are checked against it when
    /// they are appended (R5). `None` for record bytes of a fetch reply, which may be of several epochs.
    pub slice_epoch: Option<LeaderEpoch>,
    /// First offset.
    pub base: Offset,
    /// Offset after its last record.
    pub next: Offset,
    /// The batches.
    pub bytes: Bytes,
}

/// What to do with a slice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Offer {
    /// Append it now; batches below the end are skipped ([`first_needed`]).
    Append(FetchedSlice),
    /// Kept until its predecessor is appended.
    Waits,
    /// Dropped, nothing is lost.
    Dropped(Dropped),
    /// Dropped for want of room: its references must be asked for again, by a new session.
    NoRoom,
}

/// Why a slice was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// Of another generation (Rule: R7).
    Stale,
    /// Of another leadership: an object may hold slices that are not in the leader's log. Those of the current epoch are.
    OtherEpoch,
    /// The log holds all of it.
    Held,
    /// The same slice waits already.
    Waits,
}

/// State of one followed leadership.
#[derive(Clone, Debug)]
pub struct FollowerState {
    leader: BrokerId,
    leader_epoch: LeaderEpoch,
    generation: u64,
    appended: Offset,
    stored: Offset,
    /// What was appended under earlier leaders ends here.
    inherited: Offset,
    high_watermark: Offset,
    leader_high_watermark: Offset,
    /// The highest that the leader told in this leadership.
    told: Option<Offset>,
    leader_log_start: Option<Offset>,
    bytes_until: Option<Offset>,
    waiting: BTreeMap<Offset, FetchedSlice>,
    waiting_bytes: usize,
}

/// What following begins with.
#[derive(Clone, Copy, Debug)]
pub struct Following {
    /// The leader.
    pub leader: BrokerId,
    /// Its leadership.
    pub leader_epoch: LeaderEpoch,
    /// Generation of the owner's state.
    pub generation: u64,
    /// Offset after the last appended record.
    pub appended: Offset,
    /// Offset after the last stored record.
    pub stored: Offset,
    /// High watermark as this replica knows it.
    pub high_watermark: Offset,
}

impl FollowerState {
    /// Begins to follow.
    #[must_use]
    pub fn new(following: Following) -> Self {
        assert!(following.stored <= following.appended, "what is stored was appended");
        let high_watermark = following.high_watermark.min(following.stored);
        Self {
            leader: following.leader,
            leader_epoch: following.leader_epoch,
            generation: following.generation,
            appended: following.appended,
            stored: following.stored,
            inherited: following.appended,
            high_watermark,
            leader_high_watermark: high_watermark,
            told: None,
            leader_log_start: None,
            bytes_until: None,
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
        }
    }

    /// The leader.
    #[must_use]
    pub fn leader(&self) -> BrokerId {
        self.leader
    }

    /// Its leadership.
    #[must_use]
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// Generation of this state.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Stored end: the offset of the next fetch (R1).
    #[must_use]
    pub fn stored(&self) -> Offset {
        self.stored
    }

    /// Whether the leader may be asked: not before everything that was appended under earlier leaders is stored. A fetch from
    /// below its end would compare only a part of this log with the leader's lineage, and what came would go behind a tail
    /// that the leader may never have had.
    #[must_use]
    pub fn may_ask(&self) -> bool {
        self.stored >= self.inherited
    }

    /// Appended end.
    #[must_use]
    pub fn appended(&self) -> Offset {
        self.appended
    }

    /// What is committed, as this replica knows it, whoever said so.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// What consumers may read here: nothing above what the leader of this epoch has told, since what an earlier one committed
    /// may be gone by an unclean election (Rule: R25).
    #[must_use]
    pub fn served_below(&self) -> Option<Offset> {
        self.told.map(|told| told.min(self.stored))
    }

    /// First offset of the leader's log, once told.
    #[must_use]
    pub fn leader_log_start(&self) -> Option<Offset> {
        self.leader_log_start
    }

    /// Bytes wanted below this offset: goes with every fetch until it is stored.
    #[must_use]
    pub fn bytes_until(&self) -> Option<Offset> {
        self.bytes_until
    }

    /// Bytes of slices that wait for their predecessor.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// The leader told its high watermark and log start. Returns the own high watermark if it moved.
    pub fn on_leader(&mut self, high_watermark: Offset, log_start: Option<Offset>) -> Option<Offset> {
        self.told = self.told.max(Some(high_watermark));
        self.leader_high_watermark = self.leader_high_watermark.max(high_watermark);
        self.leader_log_start = self.leader_log_start.max(log_start);
        self.advance()
    }

    /// Record bytes came, by whichever way.
    pub fn offer(&mut self, slice: FetchedSlice) -> Offer {
        assert!(slice.base < slice.next, "a slice holds at least one record");
        let any = is_planted(Planted::OldResultApplied);
        if slice.generation != self.generation && !any {
            return Offer::Dropped(Dropped::Stale);
        }
        if slice.slice_epoch.is_some_and(|epoch| epoch != self.leader_epoch) && !any {
            return Offer::Dropped(Dropped::OtherEpoch);
        }
        if slice.next <= self.appended {
            return Offer::Dropped(Dropped::Held);
        }
        if slice.base <= self.appended {
            return Offer::Append(slice);
        }
        self.keep(slice)
    }

    fn keep(&mut self, slice: FetchedSlice) -> Offer {
        if self.waiting.get(&slice.base).is_some_and(|held| held.next >= slice.next) {
            return Offer::Dropped(Dropped::Waits);
        }
        let full = self.waiting_bytes + slice.bytes.len() > WAITING_BYTES_MAX;
        if full || self.waiting.len() >= WAITING_SLICES_MAX {
            return Offer::NoRoom;
        }
        self.waiting_bytes += slice.bytes.len();
        if let Some(shorter) = self.waiting.insert(slice.base, slice) {
            self.waiting_bytes -= shorter.bytes.len();
        }
        Offer::Waits
    }

    /// The log grew.
    pub fn on_appended(&mut self, appended: Offset) {
        assert!(appended >= self.appended, "a log grows: {appended} after {}", self.appended);
        self.appended = appended;
    }

    /// A slice that waited and can be appended now. Call until `None` after each append.
    pub fn take_ready(&mut self) -> Option<FetchedSlice> {
        while let Some(first) = self.waiting.first_entry().filter(|first| *first.key() <= self.appended) {
            let slice = first.remove();
            self.waiting_bytes -= slice.bytes.len();
            if slice.next > self.appended {
                return Some(slice);
            }
        }
        None
    }

    /// A write was completed. Returns the high watermark if it moved.
    pub fn on_stored(&mut self, stored: Offset) -> Option<Offset> {
        assert!(stored >= self.stored, "a stored end does not fall: {stored} after {}", self.stored);
        assert!(stored <= self.appended, "what is stored was appended");
        self.stored = stored;
        if self.bytes_until.is_some_and(|until| stored >= until) {
            self.bytes_until = None;
        }
        self.advance()
    }

    /// The object with the next records cannot be read (Rule: R12): the leader must send bytes up to `until`, or, where the
    /// range of the slice is not known, for at least the next batch. Later objects are taken as before: that is the way back.
    pub fn ask_bytes(&mut self, until: Option<Offset>) {
        let until = until.unwrap_or_else(|| self.appended.next());
        if until > self.stored {
            self.bytes_until = self.bytes_until.max(Some(until));
        }
    }

    /// The log was truncated, or begun anew, and ends at `end` now, in a new generation: everything asked for is void.
    pub fn on_truncated(&mut self, end: Offset, generation: u64) {
        assert!(generation > self.generation, "a truncation begins a new generation");
        self.generation = generation;
        self.appended = end;
        self.stored = end;
        self.inherited = end;
        self.high_watermark = self.high_watermark.min(end);
        self.told = None;
        self.bytes_until = None;
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// The log was begun anew at the leader's log start, above its old end.
    pub fn on_restarted(&mut self, start: Offset, generation: u64) -> Option<Offset> {
        self.on_truncated(start, generation);
        self.advance()
    }

    fn advance(&mut self) -> Option<Offset> {
        let reached = self.leader_high_watermark.min(self.stored);
        if reached <= self.high_watermark {
            return None;
        }
        self.high_watermark = reached;
        Some(reached)
    }
}

/// Offsets of one batch of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchSpan {
    /// First offset.
    pub base: Offset,
    /// Offset after its last record.
    pub next: Offset,
    /// Its epoch.
    pub leader_epoch: LeaderEpoch,
}

/// Why a slice cannot be appended although its manifest said so: the object is damaged in a way that no checksum shows, or
/// one of two brokers is wrong. The partition asks for bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Misfit {
    /// A batch reaches over the end of the log.
    #[error("a batch {base}..{next} does not begin at the end of the log {end}")]
    Base { base: Offset, next: Offset, end: Offset },
    /// A batch has another epoch than its slice (Rule: R5).
    #[error("a batch at {base} has epoch {found}, its slice has {slice}")]
    Epoch { base: Offset, found: LeaderEpoch, slice: LeaderEpoch },
}

/// How many batches of a slice the log holds already; the first one behind them begins exactly at `end` (Rule: R9).
/// `slice_epoch`: the epoch that the manifest gives; `None` for record bytes, whose batches may be of several.
pub fn first_needed(
    batches: impl IntoIterator<Item = BatchSpan>,
    end: Offset,
    slice_epoch: Option<LeaderEpoch>,
) -> Result<usize, Misfit> {
    let mut expected = end;
    let mut held = 0;
    for batch in batches {
        if let Some(slice) = slice_epoch.filter(|epoch| *epoch != batch.leader_epoch) {
            return Err(Misfit::Epoch { base: batch.base, found: batch.leader_epoch, slice });
        }
        if batch.next <= end {
            held += 1;
        } else if batch.base == expected {
            expected = batch.next;
        } else {
            return Err(Misfit::Base { base: batch.base, next: batch.next, end: expected });
        }
    }
    Ok(held)
}
