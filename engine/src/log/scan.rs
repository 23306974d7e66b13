//! Reading segments batch by batch while a log is opened: verifies, indexes, learns epochs and producers.
//!
//! Path: `recovery` says where to begin; this says where the good bytes end and why.
//! Invariant: a batch is taken only if it is whole, its checksum fits, it begins at or behind the end of the one before it, and its
//! leader epoch does not go back. The first that fails ends the log, whatever follows.

use std::io;
use std::ops::Range;
use std::path::Path;

use sakia_io::File;
use sakia_protocol::batch::{BatchHeader, ScanEnd, scan};
use sakia_protocol::ids::Offset;

use crate::log::epochs::EpochCache;
use crate::log::index::SegmentIndex;
use crate::log::limits::{BATCH_BYTES_MAX, SCAN_BYTES};
use crate::log::producers::Producers;
use crate::log::segment::{FileKind, Position, indexed};
use crate::log::snapshot;
use crate::log::walk::walk;

/// Why the scan of a segment ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stopped {
    /// The file ends with a whole batch, or with zeros behind it.
    AtEnd,
    /// Something else follows the last whole batch.
    AtDamage,
    /// The first batch does not fit what the state files say.
    AgainstState,
}

/// Whether a scan began at the very start of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Complete {
    Yes,
    No,
}

/// One segment as it was found.
pub(super) struct Scanned {
    pub(super) base: Offset,
    pub(super) file: File,
    /// Bytes in the file.
    pub(super) file_len: u64,
    /// Bytes of whole batches.
    pub(super) end: Position,
    pub(super) index: SegmentIndex,
    pub(super) batches: u64,
    pub(super) stopped: Stopped,
    /// Producer snapshot of its end, if another segment follows and the producers were known there.
    pub(super) snapshot_at_end: Option<Vec<u8>>,
}

/// What is learnt on the way through the segments.
pub(super) struct Scanner<'a> {
    folder: &'a Path,
    epochs: EpochCache,
    /// Offset of the first batch seen.
    begin: Option<Offset>,
    end: Option<Offset>,
    /// A snapshot, brought forward by the batches from its offset on.
    known: Option<(Offset, Producers)>,
    /// All batches seen, alone: they refill the windows that a snapshot cannot hold.
    recent: Producers,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(folder: &'a Path, epochs: EpochCache, known: Option<(Offset, Producers)>) -> Self {
        Self { folder, epochs, begin: None, end: None, known, recent: Producers::default() }
    }

    /// Whether there are producers whose windows may be refilled.
    pub(super) fn knows_producers(&self) -> bool {
        self.known.as_ref().is_some_and(|(_, producers)| !producers.is_empty())
    }

    /// Takes the producers of the batches before the scan.
    pub(super) fn recall(&mut self, producers: Producers) {
        self.recent = producers;
    }

    /// Offset behind the last batch that was taken.
    pub(super) fn end(&self) -> Option<Offset> {
        self.end
    }

    /// Offset of the first batch that was seen.
    pub(super) fn begin(&self) -> Option<Offset> {
        self.begin
    }

    /// Verifies one segment from the last entry of `index` on.
    pub(super) async fn segment(&mut self, file: File, mut index: SegmentIndex, file_len: u64) -> io::Result<Scanned> {
        let base = index.base();
        let mut at = index.last_entry().map_or(Position::ZERO, |(_, position)| Position::new(position));
        let limit = Position::from_len(file_len).unwrap_or(Position::MAX);
        let mut len = SCAN_BYTES;
        let mut batches = 0;
        let stopped = loop {
            let bytes = file.read(at.in_file(), len.min(limit.since(at))).await?;
            let (taken, end) = self.take(&bytes, base, at, &mut index, &mut batches);
            at = at.advance(taken);
            match end {
                Ok(ScanEnd::Complete) if at >= limit => break Stopped::AtEnd,
                Ok(ScanEnd::Complete) if !bytes.is_empty() => len = SCAN_BYTES,
                Ok(ScanEnd::Torn { need, .. }) if need <= limit.since(at) && need <= BATCH_BYTES_MAX => {
                    assert!(taken > 0 || need > bytes.len(), "a torn batch needs more bytes");
                    len = need.max(SCAN_BYTES);
                }
                Ok(ScanEnd::Zeros) if limit.since(at) < sakia_io::BLOCK => break Stopped::AtEnd,
                Ok(reason) => {
                    self.warn(base, at, file_len, &reason.to_string());
                    break Stopped::AtDamage;
                }
                Err(stopped) => break stopped,
            }
        };
        Ok(Scanned { base, file, file_len, end: at, index, batches, stopped, snapshot_at_end: None })
    }

    /// Takes the whole, fitting batches at the start of `bytes`. Returns how many bytes they have and why there are no more.
    fn take(
        &mut self,
        bytes: &[u8],
        base: Offset,
        at: Position,
        index: &mut SegmentIndex,
        batches: &mut u64,
    ) -> (usize, Result<ScanEnd, Stopped>) {
        let mut walk = scan(bytes);
        let mut taken = 0;
        for batch in walk.by_ref() {
            let header = &batch.header;
            if self.begin.is_none() {
                self.epochs.cut_end(header.base_offset);
                if self.epochs.latest().is_some_and(|latest| header.leader_epoch < Some(latest.epoch)) {
                    return (taken, Err(Stopped::AgainstState));
                }
            }
            if let Some(wrong) = self.misplaced(header, base) {
                self.warn(base, at.advance(taken), 0, wrong);
                return (taken, Err(Stopped::AtDamage));
            }
            index.add_again(indexed(header, at.advance(taken)));
            self.learn(header);
            *batches += 1;
            taken += header.len;
        }
        (taken, Ok(walk.end().expect("the walk has ended")))
    }

    /// Why a whole batch does not belong here.
    fn misplaced(&self, batch: &BatchHeader, base: Offset) -> Option<&'static str> {
        let latest = self.epochs.latest().map(|latest| latest.epoch);
        let spread = batch.last_offset().since(base).map(|delta| delta.get());
        if batch.base_offset < base || self.end.is_some_and(|end| batch.base_offset < end) {
            Some("an offset goes back")
        } else if batch.leader_epoch.is_none() || batch.leader_epoch < latest {
            Some("a leader epoch goes back")
        } else if spread.is_none_or(|spread| spread > i64::from(i32::MAX)) {
            Some("an offset lies too far from the base of the segment")
        } else {
            None
        }
    }

    fn learn(&mut self, batch: &BatchHeader) {
        self.begin.get_or_insert(batch.base_offset);
        self.end = Some(batch.next_offset());
        let epoch = batch.leader_epoch.expect("looked at before");
        let _ = self.epochs.assign(epoch, batch.base_offset);
        if let Some((offset, producers)) = &mut self.known
            && batch.base_offset >= *offset
        {
            producers.record(batch);
        }
        self.recent.record(batch);
    }

    /// The producer snapshot of `end`, where the scan is now.
    pub(super) fn snapshot(&self, end: Offset, complete: Complete) -> Option<Vec<u8>> {
        if complete == Complete::Yes {
            return Some(snapshot::encode(&self.recent));
        }
        let (offset, producers) = self.known.as_ref()?;
        self.meets(*offset, end).then(|| snapshot::encode(producers))
    }

    /// Whether a snapshot of `offset` and what was seen leave no gap up to `end`.
    fn meets(&self, offset: Offset, end: Offset) -> bool {
        offset == end || self.begin.is_some_and(|begin| begin <= offset && offset <= end)
    }

    /// The producers at `end`, if the snapshot and what was seen meet; the windows refilled from what was seen.
    pub(super) fn producers(&mut self, end: Offset) -> Option<Producers> {
        let (offset, _) = self.known.as_ref()?;
        if !self.meets(*offset, end) {
            return None;
        }
        let (_, mut producers) = self.known.take()?;
        producers.refill(&self.recent);
        Some(producers)
    }

    /// What the batches alone say of producers: all there is, if the scan began at the start of the log.
    pub(super) fn take_recent(&mut self) -> Producers {
        std::mem::take(&mut self.recent)
    }

    /// The epochs of a log that ends at `end`. The file may have known one whose records were lost.
    pub(super) fn into_epochs(mut self, end: Offset) -> EpochCache {
        self.epochs.cut_end(end);
        self.epochs
    }

    fn warn(&self, base: Offset, at: Position, file_len: u64, reason: &str) {
        let file = FileKind::Log.path(self.folder, base);
        tracing::warn!(file = %file.display(), position = at.get(), file_len, reason, "the log ends before its file does");
    }
}

/// Records the producers of the batches in a part of a segment that begins at a batch, those that begin in `range`, by their
/// headers alone.
pub(super) async fn replay_headers(
    file: &File,
    part: Range<Position>,
    range: Range<Offset>,
    producers: &mut Producers,
) -> io::Result<()> {
    let mut at = part.start;
    let mut read_len = SCAN_BYTES;
    while at < part.end {
        let bytes = file.read(at.in_file(), read_len.min(part.end.since(at))).await?;
        let mut batches = walk(&bytes);
        for batch in batches.by_ref().filter(|batch| range.contains(&batch.header.base_offset)) {
            producers.record(&batch.header);
        }
        if batches.position() == 0 {
            match BatchHeader::parse(&bytes) {
                Ok(batch) if batch.len > bytes.len() && batch.len <= part.end.since(at) => read_len = batch.len,
                // Not verified here; a reader will meet it and say so.
                _ => return Ok(()),
            }
        }
        at = at.advance(batches.position());
    }
    Ok(())
}
