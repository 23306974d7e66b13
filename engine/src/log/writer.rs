//! Putting the tail on disk: one write at a time, each covers everything that is unwritten of one chunk.
//!
//! Path: batches that arrive while a write is in flight go together in the next one; when a write is done, `stored` moves and
//! the answers that wait for it can go. A rolled segment is cut to its real length when its last byte is written, and
//! then settled in the background.
//! Invariant: at most one write of this log is in flight, so two writes of the same block never race; a block is written again
//! only with the same bytes below the old end (R5).
//! A dropped `write_next` leaves a write that nobody knows the end of; the log is then offline.

use std::cell::Cell;
use std::io;

use sakia_io::{Class, File, OpenOptions, now, spawn};
use sakia_protocol::ids::Offset;

use crate::log::segment::Stage;
use crate::log::tail::Round;
use crate::log::{FileIo, Health, Log, LogError};

impl Log {
    /// Waits until something is unwritten, writes one round of it and returns the new stored end; also when somebody else (a
    /// flush) wrote it. Called in a loop by the one writer task of the partition.
    ///
    /// # Errors
    /// `Closed`: the log was closed, the task ends. `Offline` (R6): the write or sync failed, and so does all that follows.
    pub async fn write_next(&self) -> Result<Offset, LogError> {
        loop {
            let seen = self.0.appended.rings();
            self.check_open()?;
            self.write_round().await?;
            if let Some(stored) = self.untold() {
                return Ok(stored);
            }
            self.0.appended.after(seen).await;
        }
    }

    /// The stored end, if it moved since this was last asked.
    fn untold(&self) -> Option<Offset> {
        let mut state = self.0.state.borrow_mut();
        let stored = state.stored;
        (std::mem::replace(&mut state.told, stored) != stored).then_some(stored)
    }

    /// Writes one round if there is something to write.
    pub(super) async fn write_round(&self) -> Result<Option<Offset>, LogError> {
        if self.stored() == self.appended() {
            return Ok(None);
        }
        let _pen = self.0.pen.take().await;
        self.write_round_with_pen().await
    }

    pub(super) async fn write_round_with_pen(&self) -> Result<Option<Offset>, LogError> {
        self.check_open()?;
        let round = self.0.state.borrow().tail.next_round();
        let Some((round, blocks)) = round else { return Ok(None) };
        self.finish_rolled(round.segment).await?;
        let file = self.writable(round.segment).await?;
        let next = round.next;
        let watch = Watch { log: self, done: Cell::new(false) };
        let written = file.write_range(blocks, round.position).await;
        watch.done.set(true);
        written.map_err(|error| self.fail("write", &self.segment_path(round.segment), &error))?;
        if self.must_sync_before(next) {
            file.sync().await.map_err(|error| self.fail("sync", &self.segment_path(round.segment), &error))?;
            self.synced(next);
        }
        self.complete(&round);
        // A segment that was rolled meanwhile and is now whole is cut at once, not at the next write.
        self.finish_rolled(round.next).await?;
        Ok(Some(next))
    }

    fn complete(&self, round: &Round) {
        let mut state = self.0.state.borrow_mut();
        state.tail.complete(round);
        assert!(state.stored <= round.next && round.next <= state.appended, "stored follows appended");
        state.stored = round.next;
        state.stored_at = (round.segment, round.end);
        drop(state);
        self.0.appended.ring();
    }

    /// `flush.messages`: stored records that are not synced stay below it.
    fn must_sync_before(&self, next: Offset) -> bool {
        let Some(messages) = self.0.settings.get().flush_messages else { return false };
        let unsynced = next.since(self.0.state.borrow().synced).map_or(0, |delta| delta.get());
        u64::try_from(unsynced).is_ok_and(|unsynced| unsynced >= messages)
    }

    /// Cuts rolled segments below `below` whose bytes are all written to their real length, and has them settled. The pen is held.
    pub(super) async fn finish_rolled(&self, below: Offset) -> Result<(), LogError> {
        loop {
            let next = {
                let state = self.0.state.borrow();
                let rolled = state.segments.iter().find(|segment| matches!(segment.stage, Stage::Rolled(_)));
                rolled.filter(|segment| segment.base < below).map(|segment| (segment.base, segment.end))
            };
            let Some((base, end)) = next else { return Ok(()) };
            if self.0.state.borrow().stored_end(base) < end {
                return Ok(());
            }
            let file = self.writable(base).await?;
            file.truncate(end.in_file()).await.map_err(|error| self.fail("cut", &self.segment_path(base), &error))?;
            if let Some(segment) = self.0.state.borrow_mut().segment_mut(base)
                && let Stage::Rolled(at_roll) = segment.stage.clone()
            {
                segment.stage = Stage::Cut(at_roll);
            }
            self.settle_in_background();
        }
    }

    fn settle_in_background(&self) {
        if self.0.settling.replace(true) {
            return;
        }
        let log = self.clone();
        spawn(Class::Background, async move {
            // A failure has been said aloud and has taken the log offline.
            let _ = log.settle_cut_segments().await;
            log.0.settling.set(false);
        })
        .detach();
    }

    /// The file of a segment for writing; creates it at the first write.
    pub(super) async fn writable(&self, base: Offset) -> Result<File, LogError> {
        let open = self.0.state.borrow().segment(base).and_then(|segment| segment.file.clone());
        if let Some(file) = open {
            return Ok(file);
        }
        let direct = self.0.settings.get().io == FileIo::Direct;
        let path = self.segment_path(base);
        let opened = File::open(&path, OpenOptions { create: true, direct, write: true }).await;
        let opened = opened.map_err(|error| self.fail("open", &path, &error))?;
        let mut state = self.0.state.borrow_mut();
        let segment = state.segment_mut(base).expect("a segment with unwritten bytes is not removed");
        Ok(segment.file.get_or_insert(opened).clone())
    }

    /// Makes sure that the file of a segment stands, also over a power loss: what lies before it may then go.
    pub(super) async fn ensure_on_disk(&self, base: Offset) -> Result<(), LogError> {
        self.writable(base).await?;
        self.sync_folder().await
    }

    /// Everything below `end` was synced just now.
    pub(super) fn synced(&self, end: Offset) {
        let mut state = self.0.state.borrow_mut();
        state.synced = state.synced.max(end);
        state.synced_at = now();
    }

    pub(super) async fn sync_folder(&self) -> Result<(), LogError> {
        let synced: io::Result<()> = sakia_io::fs::sync_dir(&self.0.folder).await;
        synced.map_err(|error| self.fail("sync", &self.0.folder, &error))
    }
}

/// Notices a write that was dropped midway.
struct Watch<'a> {
    log: &'a Log,
    done: Cell<bool>,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !self.done.get() {
            let cause = "a write was abandoned".to_owned();
            *self.log.0.health.borrow_mut() = Health::Offline(cause);
        }
    }
}
