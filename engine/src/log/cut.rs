//! Truncation: a follower gives up the end of its log because its leader's history parts from it there (R5).
//!
//! Path: called between two fetches. Waits for the write in flight, reads from disk what the shorter log needs (where the cut
//! lies, the partial block, producers), then switches the state at once, then makes the files follow: later segments go from the
//! last to the first, so that a crash midway leaves a longer or the right prefix, never a hole.
//! Invariant: memory that was lent stays as it is; what is appended after the cut goes to a fresh chunk.
//! Nothing may be appended meanwhile (asserted). A dropped truncation leaves the log offline.

use std::collections::BTreeSet;

use sakia_io::fs;
use sakia_protocol::batch::BatchHeader;
use sakia_protocol::ids::Offset;

use crate::log::checkpoint::read_or_warn;
use crate::log::epochs::{EPOCH_FILE, EpochCache};
use crate::log::index::SegmentIndex;
use crate::log::limits::SCAN_BYTES;
use crate::log::producers::Producers;
use crate::log::segment::{FileKind, Position, Segment, Stage, indexed};
use crate::log::state::State;
use crate::log::upkeep::{list_snapshots, remove_if_there, remove_segment};
use crate::log::walk::walk;
use crate::log::{AtLeastOne, Health, Log, LogError, snapshot};

/// Where the log ends after the cut, and what it needs there.
struct Cut {
    segment: Offset,
    position: Position,
    end: Offset,
    index: SegmentIndex,
    partial: Vec<u8>,
    producers: Producers,
}

impl Log {
    /// Gives up everything from `to` on, or from the start of the batch that holds `to`. Below the log's start: the log is empty then
    /// and starts at `to`. Lowers `recovery_point`: the owner writes that checkpoint before it appends again.
    ///
    /// # Errors
    /// `Unreadable`, `Damaged`: nothing was cut. `Closed`; `Offline`.
    pub async fn truncate(&self, to: Offset) -> Result<(), LogError> {
        if to < self.start() {
            return self.restart_empty(to).await;
        }
        let _upkeep = self.0.upkeep.take().await;
        let _pen = self.0.pen.take().await;
        self.check_open()?;
        if to >= self.appended() {
            return Ok(());
        }
        // The part below the cut that is only in memory goes to disk first; then the disk is the whole truth.
        while self.stored() < to {
            self.write_round_with_pen().await?;
        }
        let cutting = Cutting::begin(self);
        let cut = match self.plan_cut(to).await {
            Ok(cut) => cut,
            Err(error) => {
                cutting.end();
                return Err(error);
            }
        };
        let (base, position, end) = (cut.segment, cut.position, cut.end);
        let gone = self.0.state.borrow_mut().cut(cut);
        self.cut_files(base, position, end, &gone).await?;
        cutting.end();
        Ok(())
    }

    /// Gives up everything and starts again, empty, at `at`: a follower whose end lies below its leader's start.
    ///
    /// # Errors
    /// `Closed`; `Offline`.
    pub async fn restart_empty(&self, at: Offset) -> Result<(), LogError> {
        let _upkeep = self.0.upkeep.take().await;
        let _pen = self.0.pen.take().await;
        self.check_open()?;
        let cutting = Cutting::begin(self);
        let now_ms = sakia_io::wall_clock_ms();
        let old: Vec<Offset> = {
            let mut state = self.0.state.borrow_mut();
            let old = state.segments.iter().map(|segment| segment.base).collect();
            state.restart(at, now_ms);
            old
        };
        self.remove_snapshots_from(Offset::ZERO).await?;
        let file = self.writable(at).await?;
        file.truncate(0).await.map_err(|error| self.fail("cut", &self.segment_path(at), &error))?;
        self.sync_file(&file, at).await?;
        self.sync_folder().await?;
        self.written(fs::replace_file(&self.0.folder.join(EPOCH_FILE), self.epoch_text()).await)?;
        for base in old.into_iter().rev().filter(|base| *base != at) {
            self.written(remove_segment(&self.0.folder, base).await)?;
        }
        self.sync_folder().await?;
        cutting.end();
        Ok(())
    }

    async fn plan_cut(&self, to: Offset) -> Result<Cut, LogError> {
        let segment = {
            let state = self.0.state.borrow();
            // A cut at the base of a segment leaves nothing of it, so the one before is continued.
            let found = state.segments.partition_point(|segment| segment.base < to);
            state.segments[found.saturating_sub(1)].base
        };
        // Nothing of it may be written yet, then there is no file.
        self.writable(segment).await?;
        let (index, position, end) = self.find_cut(segment, to).await?;
        let file = self.readable(segment).await?;
        let block = position.block();
        let partial = self.read_bytes(&file, segment, block, position.since(block)).await?.to_vec();
        let producers = self.producers_at(end).await?;
        Ok(Cut { segment, position, end, index, partial, producers })
    }

    /// The index of the shorter segment, its length, and the log's end.
    async fn find_cut(&self, segment: Offset, to: Offset) -> Result<(SegmentIndex, Position, Offset), LogError> {
        let file = self.readable(segment).await?;
        let (mut index, limit) = {
            let state = self.0.state.borrow();
            let index = state.segment(segment).and_then(|segment| segment.index.clone());
            (index.unwrap_or_else(|| SegmentIndex::new(segment)), state.stored_end(segment))
        };
        // The entry itself stays: its batch ends below the cut.
        index.cut(index.position_before(Offset::new((to.get() - 1).max(0))).saturating_add(1));
        let mut at = index.last_entry().map_or(Position::ZERO, |(_, position)| Position::new(position));
        let mut len = SCAN_BYTES;
        while at < limit {
            let bytes = self.read_bytes(&file, segment, at, len.min(limit.since(at))).await?;
            let mut batches = walk(&bytes);
            for batch in batches.by_ref() {
                let here = at.advance(batch.position);
                if batch.header.next_offset() > to {
                    return Ok((index, here, batch.header.base_offset.min(to)));
                }
                index.add_again(indexed(&batch.header, here));
            }
            if batches.position() == 0 {
                let need = BatchHeader::parse(&bytes).map_or(0, |batch| batch.len);
                if need <= bytes.len() || need > limit.since(at) {
                    return Err(self.damaged(segment, at, "no whole batch"));
                }
                len = need;
            }
            at = at.advance(batches.position());
        }
        Ok((index, limit, to))
    }

    /// What a replay of the log up to `end` knows of producers.
    async fn producers_at(&self, end: Offset) -> Result<Producers, LogError> {
        let start = self.start();
        let listed = self.written(list_snapshots(&self.0.folder).await)?;
        let mut from = start;
        let mut producers = Producers::default();
        for offset in listed.into_iter().rev().filter(|offset| *offset <= end && *offset > start) {
            let path = FileKind::Snapshot.path(&self.0.folder, offset);
            if let Some(read) = self.written(read_or_warn(&path, snapshot::decode).await)? {
                (from, producers) = (offset, read);
                break;
            }
        }
        while from < end {
            let read = self.read(from, end, SCAN_BYTES, AtLeastOne::Yes).await?;
            if read.is_empty() {
                break;
            }
            for piece in &read.bytes {
                walk(piece)
                    .filter(|batch| batch.header.base_offset >= from)
                    .for_each(|batch| producers.record(&batch.header));
            }
            from = read.next;
        }
        Ok(producers)
    }

    async fn cut_files(&self, base: Offset, position: Position, end: Offset, gone: &[Offset]) -> Result<(), LogError> {
        self.remove_snapshots_from(end.next()).await?;
        for base in gone.iter().rev() {
            self.written(remove_segment(&self.0.folder, *base).await)?;
        }
        self.sync_folder().await?;
        let file = self.writable(base).await?;
        file.truncate(position.in_file()).await.map_err(|error| self.fail("cut", &self.segment_path(base), &error))?;
        self.sync_file(&file, base).await?;
        self.written(fs::replace_file(&self.0.folder.join(EPOCH_FILE), self.epoch_text()).await)
    }

    async fn remove_snapshots_from(&self, from: Offset) -> Result<(), LogError> {
        for offset in self.written(list_snapshots(&self.0.folder).await)?.into_iter().filter(|offset| *offset >= from) {
            self.written(remove_if_there(&FileKind::Snapshot.path(&self.0.folder, offset)).await)?;
        }
        Ok(())
    }

    fn epoch_text(&self) -> Vec<u8> {
        self.0.state.borrow().epochs.encode()
    }
}

impl State {
    /// Switches to the shorter log. Returns the segments that are gone.
    fn cut(&mut self, cut: Cut) -> Vec<Offset> {
        assert!(cut.segment <= cut.end && cut.end <= self.stored, "a cut lies inside the stored log");
        self.cuts += 1;
        // Only when the start lies inside the batch that goes.
        self.start = self.start.min(cut.end);
        self.tail.cut(cut.partial);
        let kept = self.segments.partition_point(|segment| segment.base <= cut.segment);
        let gone = self.segments.drain(kept..).map(|segment| segment.base).collect();
        let active = self.active_mut();
        active.stage = Stage::Active;
        active.end = cut.position;
        active.max_timestamp = cut.index.max_timestamp();
        active.max_timestamp_known = true;
        active.index = Some(cut.index);
        if cut.position == Position::ZERO {
            active.first_timestamp_ms = None;
        }
        self.epochs.cut_end(cut.end);
        self.producers = cut.producers;
        self.ends_are(cut.end, (cut.segment, cut.position));
        gone
    }

    fn restart(&mut self, at: Offset, now_ms: i64) {
        self.cuts += 1;
        self.tail.cut(Vec::new());
        self.segments = [Segment::begin(at, now_ms)].into();
        self.epochs = EpochCache::default();
        self.producers = Producers::default();
        self.start = at;
        self.recovery_point = at;
        self.synced = at;
        self.ends_are(at, (at, Position::ZERO));
    }

    fn ends_are(&mut self, end: Offset, at: (Offset, Position)) {
        self.stored = end;
        self.told = end;
        self.appended = end;
        self.stored_at = at;
        self.recovery_point = self.recovery_point.min(end);
        self.synced = self.synced.min(end);
        self.begun_epoch = None;
        let bases: BTreeSet<Offset> = self.segments.iter().map(|segment| segment.base).collect();
        let active = self.active().base;
        self.open_settled.retain(|base| bases.contains(base) && *base != active);
    }
}

/// Keeps appends away while the log is being cut; one that is dropped midway takes the log offline.
struct Cutting<'a> {
    log: &'a Log,
    ended: bool,
}

impl<'a> Cutting<'a> {
    fn begin(log: &'a Log) -> Self {
        log.0.state.borrow_mut().cutting = true;
        Self { log, ended: false }
    }

    fn end(mut self) {
        self.ended = true;
    }
}

impl Drop for Cutting<'_> {
    fn drop(&mut self) {
        self.log.0.state.borrow_mut().cutting = false;
        let mut health = self.log.0.health.borrow_mut();
        if !self.ended && *health == Health::Open {
            *health = Health::Offline("a truncation was abandoned".to_owned());
        }
    }
}
