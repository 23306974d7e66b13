//! What one log knows in memory, and the steps that change it without waiting: append, lend, roll.
//!
//! Path: from the checked batch to the tail chunk. Everything here is synchronous, so no other task sees it halfway.
//! Invariant: recovery point ≤ synced ≤ stored ≤ appended and start ≤ stored; the last segment is the active one, and segments
//! are in the order of their base offsets.
//! Cost of an append: one copy of the batch; allocations only for a fresh chunk, a roll, or an index that grows.

use std::collections::VecDeque;

use sakia_io::{Arena, Lease, Moment};
use sakia_protocol::batch::{BatchHeader, HEADER_LEN, headers};
use sakia_protocol::ids::{LeaderEpoch, Offset};

use crate::log::epochs::EpochCache;
use crate::log::index::SegmentIndex;
use crate::log::producers::Producers;
use crate::log::segment::{Position, RollSettings, Segment, Stage};
use crate::log::snapshot;
use crate::log::tail::{End, Tail, TailFull};

/// Bytes lent to the combiner: whole batches of one leader epoch.
#[derive(Debug, Clone)]
pub struct Lent {
    /// Offset of the first record.
    pub base: Offset,
    /// Offset behind the last.
    pub next: Offset,
    /// The one leader epoch of all batches (R5).
    pub leader_epoch: LeaderEpoch,
    /// Largest timestamp (ms), -1 if there is none.
    pub max_timestamp_ms: i64,
    /// CRC-32C of `bytes`, combined from the batches' own sums.
    pub crc32c: u32,
    /// The batches.
    pub bytes: Lease,
}

pub(super) struct State {
    pub(super) start: Offset,
    pub(super) recovery_point: Offset,
    /// Everything below was synced, at that moment; state files may be older.
    pub(super) synced: Offset,
    pub(super) synced_at: Moment,
    pub(super) stored: Offset,
    /// The stored end that the writer task has told: a flush writes too, and its end must not stay unsaid.
    pub(super) told: Offset,
    pub(super) appended: Offset,
    /// Where `stored` lies: base of its segment and position in it.
    pub(super) stored_at: (Offset, Position),
    pub(super) segments: VecDeque<Segment>,
    pub(super) tail: Tail,
    pub(super) epochs: EpochCache,
    /// Leadership that has not written yet.
    pub(super) begun_epoch: Option<LeaderEpoch>,
    pub(super) producers: Producers,
    /// Settled segments whose file or index is open, the one used last at the back.
    pub(super) open_settled: VecDeque<Offset>,
    /// Grows with each truncation; what was read across one is read again.
    pub(super) cuts: u64,
    pub(super) cutting: bool,
    pub(super) last_append: Moment,
}

/// What an append needs from outside.
pub(super) struct Surroundings<'a> {
    pub(super) arena: &'a Arena,
    pub(super) roll: RollSettings,
    pub(super) now_ms: i64,
    pub(super) now: Moment,
}

impl State {
    pub(super) fn active(&self) -> &Segment {
        self.segments.back().expect("a log has an active segment")
    }

    pub(super) fn active_mut(&mut self) -> &mut Segment {
        self.segments.back_mut().expect("a log has an active segment")
    }

    pub(super) fn end(&self) -> End {
        let active = self.active();
        End { segment: active.base, position: active.end, offset: self.appended }
    }

    /// Appends one batch, given in two parts, with its final header.
    pub(super) fn append(
        &mut self,
        batch: &BatchHeader,
        head: &[u8; HEADER_LEN],
        body: &[u8],
        around: &Surroundings<'_>,
    ) -> Result<(), TailFull> {
        assert!(!self.cutting, "nothing is appended while the log is being truncated");
        assert!(batch.base_offset >= self.appended, "offsets never go back");
        assert_eq!(batch.len, HEADER_LEN + body.len(), "a batch is as long as its header says");
        let epoch = batch.leader_epoch.expect("a stored batch carries its leader epoch");
        if self.active().is_full_for(batch, around.roll, around.now_ms) {
            self.roll(around.now_ms);
        }
        let end = self.end();
        self.tail.make_room(around.arena, end, batch.len, around.now)?;
        self.tail.append(head, body, end, batch.next_offset());
        let _ = self.epochs.assign(epoch, batch.base_offset);
        self.active_mut().add(batch);
        self.producers.record(batch);
        self.appended = batch.next_offset();
        self.last_append = around.now;
        assert!(self.stored <= self.appended, "what is stored was appended");
        Ok(())
    }

    /// Ends the active segment and begins the next one at the end of the log.
    pub(super) fn roll(&mut self, now_ms: i64) {
        let next = Segment::begin(self.appended, now_ms);
        let at_roll = snapshot::encode(&self.producers);
        let active = self.active_mut();
        assert!(active.end > Position::ZERO && active.base < next.base, "an empty segment is not rolled");
        assert_eq!(active.stage, Stage::Active, "the last segment is the active one");
        active.stage = Stage::Rolled(at_roll);
        self.segments.push_back(next);
    }

    /// Whole batches from `from` on that lie in one chunk and have one leader epoch: at most `bytes_max` bytes, but at least
    /// one batch. `None` if nothing was appended there, or if it is no longer in memory.
    pub(super) fn lend(&self, from: Offset, bytes_max: usize) -> Option<Lent> {
        if from >= self.appended {
            return None;
        }
        let held = self.tail.held(from)?;
        let skipped = self.position_in(held.segment, held.position, &held.bytes, from);
        let wanted = held.bytes.slice(skipped..);
        let first = BatchHeader::parse(&wanted).expect("appended bytes are whole batches");
        assert_eq!(first.base_offset, from, "a lease begins at a batch");
        let leader_epoch = first.leader_epoch.expect("a stored batch carries its leader epoch");
        let mut walk = headers(&wanted);
        let mut lent =
            Lent { base: from, next: from, leader_epoch, max_timestamp_ms: -1, crc32c: 0, bytes: Lease::new() };
        let mut len = 0;
        while let Some(batch) = walk.next() {
            let end = batch.position + batch.header.len;
            if batch.header.leader_epoch != Some(leader_epoch) || (len > 0 && end > bytes_max) {
                break;
            }
            lent.next = batch.header.next_offset();
            lent.max_timestamp_ms = lent.max_timestamp_ms.max(batch.header.max_timestamp_ms);
            lent.crc32c = walk.crc32c();
            len = end;
        }
        lent.bytes = wanted.slice(..len);
        Some(lent)
    }

    /// Where the batch that holds `offset`, or else the next one, begins in `bytes`, which start at `position` of a segment.
    pub(super) fn position_in(&self, segment: Offset, position: Position, bytes: &[u8], offset: Offset) -> usize {
        let index = self.segment(segment).and_then(|segment| segment.index.as_ref());
        let hint = index.map_or(Position::ZERO, |index: &SegmentIndex| Position::new(index.position_before(offset)));
        let mut at = if hint > position { hint.since(position) } else { 0 };
        loop {
            let batch = BatchHeader::parse(&bytes[at..]).expect("appended bytes are whole batches");
            if batch.last_offset() >= offset {
                return at;
            }
            at += batch.len;
        }
    }

    pub(super) fn segment(&self, base: Offset) -> Option<&Segment> {
        let at = self.segments.binary_search_by_key(&base, |segment| segment.base).ok()?;
        self.segments.get(at)
    }

    pub(super) fn segment_mut(&mut self, base: Offset) -> Option<&mut Segment> {
        let at = self.segments.binary_search_by_key(&base, |segment| segment.base).ok()?;
        self.segments.get_mut(at)
    }

    /// The segment whose range holds `offset`; the first one for an offset below all.
    pub(super) fn segment_at(&self, offset: Offset) -> &Segment {
        let found = self.segments.partition_point(|segment| segment.base <= offset);
        &self.segments[found.saturating_sub(1)]
    }

    /// Base of the segment behind the one that begins at `base`.
    pub(super) fn next_segment(&self, base: Offset) -> Option<Offset> {
        let found = self.segments.partition_point(|segment| segment.base <= base);
        self.segments.get(found).map(|segment| segment.base)
    }

    /// Bytes of a segment that are on disk and belong to whole batches.
    pub(super) fn stored_end(&self, base: Offset) -> Position {
        let (segment, position) = self.stored_at;
        match base.cmp(&segment) {
            std::cmp::Ordering::Less => self.segment(base).map_or(Position::ZERO, |segment| segment.end),
            std::cmp::Ordering::Equal => position,
            std::cmp::Ordering::Greater => Position::ZERO,
        }
    }

    /// Bytes of all batches.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.end.in_file()).sum()
    }
}
