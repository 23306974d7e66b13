//! One local file of a log, `<base offset, 20 digits>.log`, with its indexes.
//!
//! Path: bytes come from the tail chunk (`writer`), go to cold readers (`reader`). A segment is *active* while batches are
//! appended to it, then *settled*: first its file is cut to its real length (direct writes leave zeros up to the block's
//! end), then it is synced and its index files stand; from then on it never changes, and its index is in memory only while
//! somebody reads.
//! Invariant: `end` counts whole batches only. Offsets of a segment lie in `base..base of the next one`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sakia_io::{BLOCK, File};
use sakia_protocol::batch::BatchHeader;
use sakia_protocol::ids::Offset;

use crate::log::index::{IndexedBatch, MaxTimestamp, SegmentIndex};

/// A byte of a segment, counted from its start. Below 2^31, so that an index entry can hold it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Position(u32);

impl Position {
    /// The first byte.
    pub const ZERO: Self = Self(0);
    /// No segment reaches further.
    pub const MAX: Self = Self(i32::MAX.unsigned_abs());

    /// Wraps a number below 2^31; panics otherwise.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        assert!(value <= Self::MAX.0, "a segment is below 2 GiB");
        Self(value)
    }

    /// A length read from the disk; `None` if no segment can be so long.
    #[must_use]
    pub fn from_len(len: u64) -> Option<Self> {
        u32::try_from(len).ok().filter(|value| *value <= Self::MAX.0).map(Self)
    }

    /// The plain number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// As a file position.
    #[must_use]
    pub fn in_file(self) -> u64 {
        u64::from(self.0)
    }

    /// The byte `len` further on.
    #[must_use]
    pub fn advance(self, len: usize) -> Self {
        let len = u32::try_from(len).expect("a batch is below 2 GiB");
        Self::new(self.0.checked_add(len).expect("a segment is below 2 GiB"))
    }

    /// Bytes from `earlier` to here.
    #[must_use]
    pub fn since(self, earlier: Self) -> usize {
        let len = self.0.checked_sub(earlier.0).expect("the earlier position is not behind");
        usize::try_from(len).expect("32 bits fit")
    }

    /// The start of the block it lies in.
    #[must_use]
    pub fn block(self) -> Self {
        let in_block = u32::try_from(self.in_block()).expect("below a block");
        Self(self.0 - in_block)
    }

    /// Bytes of its block that lie before it.
    #[must_use]
    pub fn in_block(self) -> usize {
        usize::try_from(self.0).expect("32 bits fit") % BLOCK
    }
}

/// How far a segment is from being unchangeable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Batches are appended.
    Active,
    /// Rolled; the file still ends with zeros, or is not written yet. Holds the producer snapshot of the roll.
    Rolled(Vec<u8>),
    /// Cut to its length; not synced, index files not written.
    Cut(Vec<u8>),
    /// On stable storage with its index files.
    Settled,
}

/// When a segment is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RollSettings {
    /// `segment.bytes`: a batch that would reach beyond starts the next segment.
    pub bytes: u32,
    /// `segment.ms`: from the first batch's timestamp to the next batch's.
    pub age: Duration,
}

pub(super) struct Segment {
    pub(super) base: Offset,
    pub(super) end: Position,
    pub(super) stage: Stage,
    /// In memory for the active segment and while a settled one is read.
    pub(super) index: Option<SegmentIndex>,
    /// Known from the index once it was loaded.
    pub(super) max_timestamp: Option<MaxTimestamp>,
    pub(super) max_timestamp_known: bool,
    /// Timestamp of the first batch (ms), the clock of `segment.ms`.
    pub(super) first_timestamp_ms: Option<i64>,
    /// When the segment was begun, for batches without timestamps.
    pub(super) begun_ms: i64,
    pub(super) file: Option<File>,
}

impl Segment {
    /// A segment that nothing was appended to yet; its file comes with the first write.
    pub(super) fn begin(base: Offset, now_ms: i64) -> Self {
        Self {
            base,
            end: Position::ZERO,
            stage: Stage::Active,
            index: Some(SegmentIndex::new(base)),
            max_timestamp: None,
            max_timestamp_known: true,
            first_timestamp_ms: None,
            begun_ms: now_ms,
            file: None,
        }
    }

    /// A settled segment found in the folder.
    pub(super) fn found(base: Offset, end: Position, now_ms: i64) -> Self {
        Self { end, stage: Stage::Settled, index: None, max_timestamp_known: false, ..Self::begin(base, now_ms) }
    }

    /// Takes note of a batch that now stands at the segment's end.
    pub(super) fn add(&mut self, batch: &BatchHeader) {
        assert!(self.base <= batch.base_offset, "a batch lies in its segment");
        let indexed = indexed(batch, self.end);
        self.index.as_mut().expect("an active segment has its index in memory").add(indexed);
        if self.end == Position::ZERO && batch.max_timestamp_ms >= 0 {
            self.first_timestamp_ms = Some(batch.max_timestamp_ms);
        }
        self.end = self.end.advance(batch.len);
        self.max_timestamp = self.index.as_ref().and_then(SegmentIndex::max_timestamp);
    }

    /// Whether the batch must go to a new segment (Kafka's rule).
    pub(super) fn is_full_for(&self, batch: &BatchHeader, settings: RollSettings, now_ms: i64) -> bool {
        if self.end == Position::ZERO {
            return false;
        }
        let len = u32::try_from(batch.len).expect("a batch is below 2 GiB");
        let too_long = self.end.get().checked_add(len).is_none_or(|end| end > settings.bytes.min(Position::MAX.get()));
        let spread = batch.last_offset().since(self.base).map_or(i64::MAX, |delta| delta.get());
        let waited_ms = match self.first_timestamp_ms {
            Some(first) if batch.max_timestamp_ms >= 0 => batch.max_timestamp_ms.saturating_sub(first),
            _ => now_ms.saturating_sub(self.begun_ms),
        };
        too_long || spread > i64::from(i32::MAX) || waited_ms > millis(settings.age)
    }

    /// Whether an idle segment is old enough to be rolled.
    pub(super) fn is_old(&self, settings: RollSettings, now_ms: i64) -> bool {
        let since_ms = self.first_timestamp_ms.unwrap_or(self.begun_ms);
        self.end != Position::ZERO && now_ms.saturating_sub(since_ms) > millis(settings.age)
    }
}

/// What the index needs of a batch at `position`.
pub(super) fn indexed(batch: &BatchHeader, position: Position) -> IndexedBatch {
    IndexedBatch {
        last: batch.last_offset(),
        position: position.get(),
        len: u32::try_from(batch.len).expect("a batch is below 2 GiB"),
        max_timestamp_ms: batch.max_timestamp_ms,
    }
}

fn millis(age: Duration) -> i64 {
    i64::try_from(age.as_millis()).unwrap_or(i64::MAX)
}

/// Kinds of files that carry an offset in their name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// Batches.
    Log,
    /// Offset index.
    OffsetIndex,
    /// Time index.
    TimeIndex,
    /// Aborted transactions.
    TransactionIndex,
    /// Producer state when the log ended at the offset.
    Snapshot,
}

impl FileKind {
    const ALL: [Self; 5] = [Self::Log, Self::OffsetIndex, Self::TimeIndex, Self::TransactionIndex, Self::Snapshot];

    /// Kafka's ending.
    #[must_use]
    pub fn ending(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::OffsetIndex => "index",
            Self::TimeIndex => "timeindex",
            Self::TransactionIndex => "txnindex",
            Self::Snapshot => "snapshot",
        }
    }

    /// The file of this kind for `offset` in the partition's folder.
    #[must_use]
    pub fn path(self, folder: &Path, offset: Offset) -> PathBuf {
        folder.join(format!("{offset:020}.{}", self.ending()))
    }

    /// Reads a file's name; `None` if it is none of these.
    #[must_use]
    pub fn parse(name: &str) -> Option<(Offset, Self)> {
        let (digits, ending) = name.split_once('.')?;
        let kind = Self::ALL.into_iter().find(|kind| kind.ending() == ending)?;
        let all_digits = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let offset = digits.parse().ok().filter(|_| all_digits).and_then(Offset::from_wire)?;
        Some((offset, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_kafkas() {
        let path = FileKind::TimeIndex.path(Path::new("/data/orders-0"), Offset::new(4500));
        assert_eq!(path, Path::new("/data/orders-0/00000000000000004500.timeindex"));
        assert_eq!(FileKind::parse("00000000000000004500.log"), Some((Offset::new(4500), FileKind::Log)));
        for name in
            ["4500.log", "00000000000000004500.log.deleted", "0000000000000000450x.log", "leader-epoch-checkpoint"]
        {
            assert_eq!(FileKind::parse(name), None, "{name}");
        }
    }

    #[test]
    fn positions_know_their_block() {
        let position = Position::new(8200);
        assert_eq!((position.block(), position.in_block()), (Position::new(8192), 8));
        assert_eq!(position.advance(10).since(Position::new(8192)), 18);
    }
}
