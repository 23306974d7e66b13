//! What keeps a log in order beside its path: rolling, settling, syncing, deleting, closing.
//!
//! Path: called by the owner now and then, and in the background after a roll. Nothing here stands between an append and its answer.
//! Settling a segment: sync, index files, producer snapshot, epoch file; then the recovery point moves to the segment's end.
//! Invariant: everything below the recovery point is on stable storage together with the state files that a recovery
//! from there needs. Invariant: before a segment is deleted, the file of the one behind it stands.
//! Dropped midway, a call leaves files that the next call or the next start writes again.

use std::io;
use std::path::Path;
use std::time::Duration;

use sakia_io::{File, fs, now};
use sakia_protocol::ids::Offset;

use crate::log::epochs::EPOCH_FILE;
use crate::log::limits::PRODUCER_SNAPSHOTS_KEPT;
use crate::log::reader::write_index;
use crate::log::retention::{Retention, SegmentFacts, decide};
use crate::log::segment::{FileKind, Position, Stage};
use crate::log::snapshot;
use crate::log::state::State;
use crate::log::{Health, Log, LogError};

impl Log {
    /// Rolls the active segment if its first record is older than `segment.ms`, also when nothing is appended.
    pub fn roll_if_due(&self, now_ms: i64) {
        let roll = self.0.settings.get().roll;
        let mut state = self.0.state.borrow_mut();
        if !state.cutting && state.active().is_old(roll, now_ms) {
            state.roll(now_ms);
        }
    }

    /// Forgets producers that are older than `producer.id.expiration.ms`. Kafka looks every ten minutes.
    pub fn expire_producers(&self, now_ms: i64) {
        let after_ms = i64::try_from(self.0.settings.get().producer_expiry.as_millis()).unwrap_or(i64::MAX);
        self.0.state.borrow_mut().producers.expire(now_ms, after_ms);
    }

    /// Lets go of memory and file of a log that nothing was appended to for `idle`; keeps the last partial block. Returns whether
    /// the log holds no chunk now.
    pub fn release_if_idle(&self, idle: Duration) -> bool {
        let mut state = self.0.state.borrow_mut();
        if state.stored < state.appended || state.cutting || now() - state.last_append < idle {
            return state.tail.first().is_none();
        }
        let end = state.end();
        state.tail.let_go(end);
        state.active_mut().file = None;
        while let Some(base) = state.open_settled.pop_front() {
            if let Some(segment) = state.segment_mut(base) {
                segment.file = None;
                segment.index = None;
            }
        }
        true
    }

    /// Everything appended so far survives a power loss when this returns, with the recovery point behind it.
    ///
    /// # Errors
    /// `Closed`; `Offline`.
    pub async fn flush(&self) -> Result<Offset, LogError> {
        let _upkeep = self.0.upkeep.take().await;
        self.check_open()?;
        let (target, position, base, producers) = {
            let state = self.0.state.borrow();
            (state.appended, state.active().end, state.active().base, snapshot::encode(&state.producers))
        };
        while self.stored() < target {
            self.write_round().await?;
        }
        self.settle_cut_below(target).await?;
        let still_active = self.0.state.borrow().active().base == base;
        if still_active && self.recovery_point() < target {
            let file = self.writable(base).await?;
            self.sync_file(&file, base).await?;
            let index = self.0.state.borrow().active().index.clone();
            let mut index = index.expect("an active segment has its index in memory");
            index.cut(position.get());
            self.written(write_index(&self.0.folder, base, &index).await)?;
            self.write_state_files(target, producers).await?;
        }
        Ok(self.recovery_point())
    }

    /// Flushes if `flush.ms` has passed since the last sync and something is stored but not synced.
    ///
    /// # Errors
    /// As `flush`.
    pub async fn flush_if_due(&self) -> Result<(), LogError> {
        let due = {
            let state = self.0.state.borrow();
            let age = self.0.settings.get().flush_age;
            state.synced < state.stored && age.is_some_and(|age| now() - state.synced_at >= age)
        };
        if due {
            self.flush().await?;
        }
        Ok(())
    }

    /// Moves the start of the log to `to`, which is stored (DeleteRecords, or the leader's log start). Segments go at the next
    /// `apply_retention`.
    pub fn advance_start(&self, to: Offset) {
        let mut state = self.0.state.borrow_mut();
        assert!(to <= state.stored, "the log start does not pass the stored end");
        if to > state.start {
            state.start = to;
        }
    }

    /// Deletes the oldest segments as retention says, none above `high_watermark`. Returns the start of the log.
    ///
    /// # Errors
    /// `Closed`; `Offline`; `Unreadable`: an index that decides about an age cannot be read.
    pub async fn apply_retention(&self, now_ms: i64, high_watermark: Offset) -> Result<Offset, LogError> {
        let _upkeep = self.0.upkeep.take().await;
        self.check_open()?;
        let decided = self.decide_retention(now_ms, high_watermark.min(self.stored())).await?;
        if let Some(timestamp_ms) = decided.future {
            let (topic, partition) = (&self.0.topic, self.0.key.partition);
            tracing::warn!(%topic, %partition, timestamp_ms, "a timestamp from the future keeps the oldest segment from ageing");
        }
        if decided.segments > 0 {
            self.delete_oldest(decided.segments, now_ms).await?;
        }
        Ok(self.start())
    }

    async fn decide_retention(&self, now_ms: i64, high_watermark: Offset) -> Result<Retention, LogError> {
        loop {
            let settings = self.0.settings.get().retention;
            let (decided, unknown) = {
                let state = self.0.state.borrow();
                let decided = decide(&facts(&state), settings, state.start, high_watermark, now_ms);
                let stops_at = state.segments.get(decided.segments);
                let unknown = stops_at.filter(|segment| !segment.max_timestamp_known && settings.age.is_some());
                (decided, unknown.map(|segment| segment.base))
            };
            // Only the segment at which the decision stops has to be known.
            match unknown {
                Some(base) => self.max_timestamp_of(base).await?,
                None => return Ok(decided),
            };
        }
    }

    async fn delete_oldest(&self, count: usize, now_ms: i64) -> Result<(), LogError> {
        let _pen = self.0.pen.take().await;
        let next = {
            let mut state = self.0.state.borrow_mut();
            if count == state.segments.len() {
                if state.stored < state.appended {
                    return Ok(());
                }
                state.roll(now_ms);
            }
            state.segments[count].base
        };
        self.ensure_on_disk(next).await?;
        let gone: Vec<Offset> = {
            let mut state = self.0.state.borrow_mut();
            assert!(next <= state.stored, "only stored segments are deleted");
            state.start = state.start.max(next);
            state.recovery_point = state.recovery_point.max(next);
            state.synced = state.synced.max(next);
            // Not up to the log start: that may be forgotten by a crash, while these segments are gone for good.
            state.epochs.cut_start(next);
            state.open_settled.retain(|base| *base >= next);
            state.segments.drain(..count).map(|segment| segment.base).collect()
        };
        for base in gone {
            tracing::info!(topic = %self.0.topic, partition = %self.0.key.partition, %base, "segment deleted");
            self.written(remove_segment(&self.0.folder, base).await)?;
            // One by one, oldest first: a power loss that undid some of several removals would leave a hole.
            self.sync_folder().await?;
        }
        Ok(())
    }

    /// Clean stop: writes and syncs everything, cuts the last file to its real length and leaves all state files. Every later
    /// call but the questions fails with `Closed`.
    ///
    /// # Errors
    /// `Offline`: the stop was not clean.
    pub async fn close(&self) -> Result<(), LogError> {
        let _upkeep = self.0.upkeep.take().await;
        self.check_open()?;
        let pen = loop {
            let pen = self.0.pen.take().await;
            while self.write_round_with_pen().await?.is_some() {}
            if self.stored() == self.appended() {
                break pen;
            }
        };
        *self.0.health.borrow_mut() = Health::Closed;
        self.0.appended.ring();
        self.finish_rolled(self.appended()).await?;
        self.settle_cut_below(self.appended()).await?;
        drop(pen);
        let (base, end, target) = {
            let state = self.0.state.borrow();
            (state.active().base, state.active().end, state.appended)
        };
        if end > Position::ZERO {
            let file = self.writable(base).await?;
            file.truncate(end.in_file()).await.map_err(|error| self.fail("cut", &self.segment_path(base), &error))?;
            self.sync_file(&file, base).await?;
            let index = self.0.state.borrow().active().index.clone();
            let index = index.expect("an active segment has its index in memory");
            self.written(write_index(&self.0.folder, base, &index).await)?;
        }
        // A log that never held anything has no epochs, no producers and nothing to recover.
        if target > Offset::ZERO {
            let producers = snapshot::encode(&self.0.state.borrow().producers);
            self.write_state_files(target, producers).await?;
        }
        let mut state = self.0.state.borrow_mut();
        for segment in &mut state.segments {
            segment.file = None;
        }
        Ok(())
    }

    /// Settles what was cut, in the background. Others get their turn after each segment.
    pub(super) async fn settle_cut_segments(&self) -> Result<(), LogError> {
        loop {
            let _upkeep = self.0.upkeep.take().await;
            if *self.0.health.borrow() == Health::Closed || !self.settle_next(Offset::new(i64::MAX)).await? {
                return Ok(());
            }
        }
    }

    /// Settles all segments that begin below `below` and are cut. The upkeep turn is held.
    async fn settle_cut_below(&self, below: Offset) -> Result<(), LogError> {
        while self.settle_next(below).await? {}
        Ok(())
    }

    /// Settles the oldest cut segment that begins below `below`; returns whether there was one.
    async fn settle_next(&self, below: Offset) -> Result<bool, LogError> {
        let cut = {
            let state = self.0.state.borrow();
            let cut =
                state.segments.iter().take_while(|segment| segment.base < below).find_map(|segment| {
                    match &segment.stage {
                        Stage::Cut(producers) => Some((segment.base, producers.clone())),
                        _ => None,
                    }
                });
            cut.map(|(base, producers)| (base, producers, state.next_segment(base)))
        };
        let Some((base, producers, next)) = cut else { return Ok(false) };
        self.settle(base, next.expect("a cut segment is not the active one"), producers).await?;
        Ok(true)
    }

    async fn settle(&self, base: Offset, next: Offset, producers: Vec<u8>) -> Result<(), LogError> {
        let file = self.writable(base).await?;
        self.sync_file(&file, base).await?;
        let index = self.0.state.borrow().segment(base).and_then(|segment| segment.index.clone());
        let index = index.expect("a segment keeps its index until it is settled");
        self.written(write_index(&self.0.folder, base, &index).await)?;
        self.write_state_files(next, producers).await?;
        if let Some(segment) = self.0.state.borrow_mut().segment_mut(base) {
            segment.stage = Stage::Settled;
        }
        self.touch(base);
        Ok(())
    }

    /// Producer snapshot and epoch file that belong to a recovery from `end`; then that is the recovery point. Everything below
    /// was synced.
    async fn write_state_files(&self, end: Offset, producers: Vec<u8>) -> Result<(), LogError> {
        let folder = &self.0.folder;
        self.written(fs::replace_file(&FileKind::Snapshot.path(folder, end), producers).await)?;
        let epochs = self.0.state.borrow().epochs.encode();
        self.written(fs::replace_file(&folder.join(EPOCH_FILE), epochs).await)?;
        self.synced(end);
        {
            let mut state = self.0.state.borrow_mut();
            assert!(end <= state.stored, "only stored bytes are synced");
            state.recovery_point = state.recovery_point.max(end);
        }
        self.remove_old_snapshots(end).await
    }

    /// Keeps the snapshots that belong to a segment (tiering takes them along) and the newest ones at or below `end`.
    async fn remove_old_snapshots(&self, end: Offset) -> Result<(), LogError> {
        let listed = self.written(list_snapshots(&self.0.folder).await)?;
        let below: Vec<Offset> = listed.into_iter().filter(|offset| *offset <= end).collect();
        let old = below.len().saturating_sub(PRODUCER_SNAPSHOTS_KEPT);
        for offset in &below[..old] {
            if self.0.state.borrow().segment(*offset).is_none() {
                self.written(remove_if_there(&FileKind::Snapshot.path(&self.0.folder, *offset)).await)?;
            }
        }
        Ok(())
    }

    pub(super) async fn sync_file(&self, file: &File, base: Offset) -> Result<(), LogError> {
        file.sync().await.map_err(|error| self.fail("sync", &self.segment_path(base), &error))
    }

    /// A write of a state file, or a removal, that failed takes the log offline like any other (R6).
    pub(super) fn written<T>(&self, result: io::Result<T>) -> Result<T, LogError> {
        result.map_err(|error| self.fail("write of a state file", &self.0.folder, &error))
    }
}

/// What retention needs to know; a timestamp that is not known yet counts as none.
fn facts(state: &State) -> Vec<SegmentFacts> {
    let nexts = state.segments.iter().skip(1).map(|segment| segment.base).chain([state.appended]);
    let facts = state.segments.iter().zip(nexts).map(|(segment, next)| SegmentFacts {
        next,
        bytes: segment.end.in_file(),
        max_timestamp_ms: segment.max_timestamp.map(|max| max.timestamp_ms),
    });
    facts.collect()
}

/// Removes all files of one segment, with the producer snapshot of its start; those that are not there do not matter.
pub(super) async fn remove_segment(folder: &Path, base: Offset) -> io::Result<()> {
    let beside = [FileKind::OffsetIndex, FileKind::TimeIndex, FileKind::TransactionIndex, FileKind::Snapshot];
    for kind in [FileKind::Log].into_iter().chain(beside) {
        remove_if_there(&kind.path(folder, base)).await?;
    }
    Ok(())
}

pub(super) async fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The offsets of the producer snapshots in a folder, rising.
pub(super) async fn list_snapshots(folder: &Path) -> io::Result<Vec<Offset>> {
    let entries = fs::list_dir(folder).await?;
    let parsed = entries.iter().filter_map(|entry| FileKind::parse(&entry.name));
    let mut offsets: Vec<Offset> =
        parsed.filter(|(_, kind)| *kind == FileKind::Snapshot).map(|(offset, _)| offset).collect();
    offsets.sort_unstable();
    Ok(offsets)
}
