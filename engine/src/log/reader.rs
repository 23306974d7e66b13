//! Reading: the tail from memory, the rest from disk, always whole batches.
//!
//! Path: a fetch asks for an offset and gets the batches from the one that holds it (or the next one, where compaction left
//! a gap) up to a bound. Tail bytes are leases of the tail chunk, no copy; cold bytes come by one index lookup and one read per step.
//! Invariant: nothing at or above `stored` is read (R1), and nothing across a truncation: such a read starts again.
//! A dropped read leaves nothing behind but an open file.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use bytes::Bytes;
use sakia_io::{File, OpenOptions, fs};
use sakia_protocol::batch::{BatchHeader, HEADER_LEN, HeaderError};
use sakia_protocol::ids::Offset;

use crate::log::index::SegmentIndex;
use crate::log::limits::{INDEX_INTERVAL_BYTES, SCAN_BYTES, SETTLED_SEGMENTS_OPEN_MAX};
use crate::log::segment::{FileKind, Position, Stage, indexed};
use crate::log::state::State;
use crate::log::{FileIo, Log, LogError};

/// Whether the first batch is given even if it is larger than the bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtLeastOne {
    /// It is: a consumer with a small bound gets on.
    Yes,
    /// It is not: another partition of the fetch has used the bound.
    No,
}

/// What a read gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogRead {
    /// Whole batches, in pieces that follow one another. The first may begin below the offset asked for.
    pub bytes: Vec<Bytes>,
    /// Offset behind the last batch; the offset asked for if there is none.
    pub next: Offset,
}

impl LogRead {
    /// Bytes of all pieces.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.iter().map(Bytes::len).sum()
    }

    /// Whether no batch was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Where the next piece comes from.
enum Source {
    Memory(Bytes),
    Disk { segment: Offset },
    End,
}

/// Which bytes to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wanted {
    from: Offset,
    below: Offset,
    bytes_max: usize,
    at_least_one: AtLeastOne,
}

#[derive(PartialEq, Eq, Debug)]
struct Selection {
    range: Range<usize>,
    next: Offset,
    stop: Stop,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    /// A bound is reached.
    Bound,
    /// All bytes were looked at.
    Exhausted,
    /// The batch at this place has `need` bytes, as far as they are known.
    Torn { at: usize, need: usize },
}

impl Log {
    /// Reads batches from the one that holds `from` on, of those that end at or below `below`: at most `bytes_max` bytes, and the
    /// first batch even if it is larger when `at_least_one` says so. At the end of the log: no bytes, no error.
    ///
    /// # Errors
    /// `OutOfRange` below the start and above the end in memory; `Damaged`, `Unreadable`; `Closed`, `Offline`.
    pub async fn read(
        &self,
        from: Offset,
        below: Offset,
        bytes_max: usize,
        at_least_one: AtLeastOne,
    ) -> Result<LogRead, LogError> {
        loop {
            let cuts = self.0.state.borrow().cuts;
            let wanted = Wanted { from, below, bytes_max, at_least_one };
            if let Some(read) = self.read_once(wanted, cuts).await? {
                return Ok(read);
            }
        }
    }

    /// `None` if the log was truncated meanwhile.
    async fn read_once(&self, mut wanted: Wanted, cuts: u64) -> Result<Option<LogRead>, LogError> {
        let mut read = LogRead { bytes: Vec::new(), next: wanted.from };
        // A segment may end in a gap: then the cursor goes on in the next one while `wanted.from` stays.
        let mut segment = None;
        loop {
            self.check_open()?;
            wanted.below = wanted.below.min(self.stored());
            let source = plan(&self.0.state.borrow(), wanted, segment)?;
            let (bytes, selection) = match source {
                Source::End => return Ok(Some(read)),
                Source::Memory(bytes) => {
                    let selection = select(&bytes, wanted).expect("appended bytes are whole batches");
                    (bytes, selection)
                }
                Source::Disk { segment: base } => {
                    let found = self.read_segment(base, wanted).await?;
                    if self.0.state.borrow().cuts != cuts {
                        return Ok(None);
                    }
                    segment = self.0.state.borrow().next_segment(base);
                    match found {
                        Some(found) => found,
                        None if segment.is_some() => continue,
                        None => return Ok(Some(read)),
                    }
                }
            };
            let took = selection.range.len();
            if took > 0 {
                read.bytes.push(bytes.slice(selection.range));
                read.next = selection.next;
                wanted.from = selection.next;
                wanted.bytes_max = wanted.bytes_max.saturating_sub(took);
                wanted.at_least_one = AtLeastOne::No;
                // What follows lies where the offset says, be it the same segment.
                segment = None;
            }
            if selection.stop == Stop::Bound || (took == 0 && segment.is_none()) || wanted.bytes_max == 0 {
                return Ok(Some(read));
            }
        }
    }

    /// Batches of one segment on disk. `None`: none of them ends behind `wanted.from`.
    async fn read_segment(&self, base: Offset, wanted: Wanted) -> Result<Option<(Bytes, Selection)>, LogError> {
        let file = self.readable(base).await?;
        let (start, limit) = {
            let state = self.0.state.borrow();
            let index = state.segment(base).and_then(|segment| segment.index.as_ref());
            let start = index.map_or(0, |index| index.position_before(wanted.from));
            (Position::new(start), state.stored_end(base))
        };
        if start >= limit {
            return Ok(None);
        }
        let ahead = usize::try_from(INDEX_INTERVAL_BYTES).expect("32 bits fit") * 2;
        let mut at = start;
        let mut len = wanted.bytes_max.min(SCAN_BYTES).saturating_add(ahead);
        loop {
            let bytes = self.read_bytes(&file, base, at, len.min(limit.since(at))).await?;
            let selection = select(&bytes, wanted).map_err(|error| self.damaged(base, at, &error.to_string()))?;
            match selection.stop {
                // The wanted batch reaches beyond what was read, or lies further on: read from it, and whole.
                Stop::Torn { at: torn, need } if selection.range.is_empty() => {
                    let next = at.advance(torn);
                    if next == limit {
                        return Ok(None);
                    }
                    if next.in_file() + u64::try_from(need).unwrap_or(u64::MAX) > limit.in_file() {
                        return Err(self.damaged(base, next, "a batch reaches behind the end of the segment"));
                    }
                    len = need.max(len);
                    at = next;
                }
                Stop::Exhausted if selection.range.is_empty() => {
                    at = at.advance(bytes.len());
                    if at >= limit {
                        return Ok(None);
                    }
                }
                _ => return Ok(Some((bytes, selection))),
            }
        }
    }

    pub(super) async fn read_bytes(
        &self,
        file: &File,
        base: Offset,
        at: Position,
        len: usize,
    ) -> Result<Bytes, LogError> {
        let bytes = file.read(at.in_file(), len).await.map_err(|error| self.unreadable(base, &error))?;
        if bytes.len() < len {
            return Err(self.damaged(base, at.advance(bytes.len()), "the file is shorter than the log"));
        }
        Ok(bytes)
    }

    /// The file of a segment, open, with its index in memory.
    pub(super) async fn readable(&self, base: Offset) -> Result<File, LogError> {
        let file = match self.file_of(base)? {
            Some(file) => file,
            None => self.open_segment(base).await?,
        };
        let indexed = self.0.state.borrow().segment(base).is_some_and(|segment| segment.index.is_some());
        if !indexed {
            self.load_index(base, &file).await?;
        }
        self.touch(base);
        Ok(file)
    }

    fn file_of(&self, base: Offset) -> Result<Option<File>, LogError> {
        let state = self.0.state.borrow();
        match state.segment(base) {
            Some(segment) => Ok(segment.file.clone()),
            None => Err(LogError::OutOfRange { asked: base, start: state.start, end: state.appended }),
        }
    }

    async fn open_segment(&self, base: Offset) -> Result<File, LogError> {
        let direct = self.0.settings.get().io == FileIo::Direct;
        let options = OpenOptions { create: false, direct, write: true };
        let opened =
            File::open(&self.segment_path(base), options).await.map_err(|error| self.unreadable(base, &error))?;
        let mut state = self.0.state.borrow_mut();
        if let Some(segment) = state.segment_mut(base) {
            return Ok(segment.file.get_or_insert(opened).clone());
        }
        Ok(opened)
    }

    /// Reads the index files of a settled segment; builds them again if they are missing or damaged.
    async fn load_index(&self, base: Offset, file: &File) -> Result<(), LogError> {
        let end = self.0.state.borrow().segment(base).map_or(Position::ZERO, |segment| segment.end);
        let read = read_index(&self.0.folder, base, end).await.map_err(|error| self.unreadable(base, &error))?;
        let index = match read {
            Some(index) => index,
            None => {
                let rebuilt = self.rebuild_index(base, file, end).await?;
                write_index(&self.0.folder, base, &rebuilt)
                    .await
                    .map_err(|error| self.fail("write of the index", &self.segment_path(base), &error))?;
                rebuilt
            }
        };
        if let Some(segment) = self.0.state.borrow_mut().segment_mut(base) {
            segment.max_timestamp = index.max_timestamp();
            segment.max_timestamp_known = true;
            if segment.index.is_none() {
                segment.index = Some(index);
            }
        }
        Ok(())
    }

    async fn rebuild_index(&self, base: Offset, file: &File, end: Position) -> Result<SegmentIndex, LogError> {
        let mut index = SegmentIndex::new(base);
        let mut at = Position::ZERO;
        let mut len = SCAN_BYTES;
        while at < end {
            let bytes = self.read_bytes(file, base, at, len.min(end.since(at))).await?;
            let mut taken = 0;
            while let Some(rest) = bytes.get(taken..).filter(|rest| rest.len() >= HEADER_LEN) {
                let batch = BatchHeader::parse(rest)
                    .map_err(|error| self.damaged(base, at.advance(taken), &error.to_string()))?;
                if batch.len > rest.len() {
                    len = len.max(batch.len);
                    break;
                }
                index.add(indexed(&batch, at.advance(taken)));
                taken += batch.len;
            }
            if taken == 0 && bytes.len() == end.since(at) {
                return Err(self.damaged(base, at, "a batch reaches behind the end of the segment"));
            }
            at = at.advance(taken);
        }
        Ok(index)
    }

    /// Remembers that a settled segment was read; closes the one not read for longest at the bound.
    pub(super) fn touch(&self, base: Offset) {
        let mut state = self.0.state.borrow_mut();
        if state.segment(base).is_none_or(|segment| segment.stage != Stage::Settled) {
            return;
        }
        state.open_settled.retain(|open| *open != base);
        state.open_settled.push_back(base);
        if state.open_settled.len() > SETTLED_SEGMENTS_OPEN_MAX
            && let Some(oldest) = state.open_settled.pop_front()
            && let Some(segment) = state.segment_mut(oldest)
        {
            segment.file = None;
            segment.index = None;
        }
    }

    pub(super) fn segment_path(&self, base: Offset) -> PathBuf {
        FileKind::Log.path(&self.0.folder, base)
    }

    fn unreadable(&self, base: Offset, error: &io::Error) -> LogError {
        LogError::Unreadable { file: self.segment_path(base), what: error.to_string() }
    }

    pub(super) fn damaged(&self, base: Offset, at: Position, what: &str) -> LogError {
        let file = self.segment_path(base);
        tracing::error!(file = %file.display(), position = at.get(), what, "damaged bytes in a log");
        LogError::Damaged { file, position: at.in_file(), what: what.to_owned() }
    }
}

/// The index files of a segment; `None`, with a warning naming the file, if they are missing or damaged.
pub(super) async fn read_index(
    folder: &std::path::Path,
    base: Offset,
    end: Position,
) -> io::Result<Option<SegmentIndex>> {
    let path = FileKind::OffsetIndex.path(folder, base);
    let mut files = Vec::with_capacity(2);
    for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
        match fs::read_file(&kind.path(folder, base)).await {
            Ok(bytes) => files.push(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::warn!(file = %kind.path(folder, base).display(), "an index file is missing and is rebuilt");
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    match SegmentIndex::decode(base, end.get(), &files[0], &files[1]) {
        Ok(index) => Ok(Some(index)),
        Err(damage) => {
            tracing::warn!(file = %path.display(), %damage, "an index file is damaged and is rebuilt");
            Ok(None)
        }
    }
}

/// Replaces the index files of a segment.
pub(super) async fn write_index(folder: &std::path::Path, base: Offset, index: &SegmentIndex) -> io::Result<()> {
    fs::replace_file(&FileKind::OffsetIndex.path(folder, base), index.encode_offsets()).await?;
    fs::replace_file(&FileKind::TimeIndex.path(folder, base), index.encode_times()).await
}

/// Decides where the next piece comes from.
fn plan(state: &State, wanted: Wanted, segment: Option<Offset>) -> Result<Source, LogError> {
    let Wanted { from, below, .. } = wanted;
    if from < state.start || from > state.appended {
        return Err(LogError::OutOfRange { asked: from, start: state.start, end: state.appended });
    }
    if from >= below {
        return Ok(Source::End);
    }
    if let Some(held) = state.tail.held(from) {
        let skipped = state.position_in(held.segment, held.position, &held.bytes, from);
        return Ok(Source::Memory(held.bytes.slice(skipped..)));
    }
    let base = segment.unwrap_or_else(|| state.segment_at(from).base);
    Ok(Source::Disk { segment: base })
}

/// Decides which of the batches in `bytes`, which begin at a batch, are taken.
fn select(bytes: &[u8], wanted: Wanted) -> Result<Selection, HeaderError> {
    let mut at = 0;
    let mut taken = 0..0;
    let mut next = wanted.from;
    let stop = loop {
        let rest = &bytes[at..];
        if rest.is_empty() {
            break Stop::Exhausted;
        }
        if rest.len() < HEADER_LEN {
            break Stop::Torn { at, need: HEADER_LEN };
        }
        let batch = BatchHeader::parse(rest)?;
        if batch.last_offset() < wanted.from {
            at += batch.len;
            if at > bytes.len() {
                break Stop::Torn { at, need: HEADER_LEN };
            }
            taken = at..at;
            continue;
        }
        let fits = taken.len() + batch.len <= wanted.bytes_max;
        let allowed = fits || (taken.is_empty() && wanted.at_least_one == AtLeastOne::Yes);
        if batch.next_offset() > wanted.below || !allowed {
            break Stop::Bound;
        }
        if batch.len > rest.len() {
            break Stop::Torn { at, need: batch.len };
        }
        at += batch.len;
        taken.end = at;
        next = batch.next_offset();
    };
    Ok(Selection { range: taken, next, stop })
}
