//! Opening a log: what is in the folder becomes a state that continues exactly there.
//!
//! Path: list the folder, decide how far back the end must be checked, read and verify from there (`scan`), cut off what is
//! not whole, bring producers up to the end, and begin with the last partial block in memory.
//! After a clean stop only the end is read again. After a crash everything behind the recovery point is verified byte by byte:
//! a torn batch, zeros, or anything that is no batch ends the log there, and later segments go. State files are believed only if
//! they are whole; otherwise they are rebuilt from the log, with a warning naming the file (`log-1` of the field cases).
//! Invariant: the state that comes out holds a prefix of what was written, in whole batches, with rising offsets and epochs.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::Path;

use sakia_io::{Arena, BLOCK, File, OpenOptions, fs, now, wall_clock_ms};
use sakia_protocol::batch::{BatchHeader, HEADER_LEN};
use sakia_protocol::ids::{Offset, PartitionKey};

use crate::log::checkpoint::{PARTITION_FILE, decode_topic_id, encode_topic_id, read_or_warn};
use crate::log::epochs::{EPOCH_FILE, EpochCache};
use crate::log::index::SegmentIndex;
use crate::log::limits::{PRODUCER_RECALL_BYTES, SCAN_BYTES};
use crate::log::producers::Producers;
use crate::log::reader::{read_index, write_index};
use crate::log::scan::{Complete, Scanned, Scanner, Stopped, replay_headers};
use crate::log::segment::{FileKind, Position, Segment, Stage};
use crate::log::state::State;
use crate::log::tail::Tail;
use crate::log::upkeep::{remove_if_there, remove_segment};
use crate::log::{FileIo, LastRun, LogError, LogSettings, Opening, snapshot};

const BLOCK_BYTES: u64 = 4096;
const _: () = assert!(sakia_io::BLOCK == 4096);

/// What the folder holds, rising.
struct Found {
    /// Base and length in bytes.
    segments: Vec<(Offset, u64)>,
    snapshots: Vec<Offset>,
}

/// How far back the end of the log is verified. Doubt about a state file leads to the next one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Depth {
    /// From an entry of an index that is believed.
    Resume,
    /// From the start of the segment that holds the recovery point.
    Segment,
    /// From the first segment.
    All,
}

/// Where a scan begins.
struct Begin {
    /// Number of the segment.
    at: usize,
    /// What is known of its index; the scan begins at its last entry.
    index: SegmentIndex,
}

/// A scan that is believed.
struct Verified {
    /// The segments that were scanned, from `first` on, each with its length, index and first timestamp.
    first: usize,
    scanned: Vec<Scanned>,
    end: Offset,
    epochs: EpochCache,
    producers: Producers,
}

struct Recovery<'a> {
    folder: &'a Path,
    topic: &'a str,
    key: PartitionKey,
    io: FileIo,
    how: Opening,
    found: Found,
}

/// Opens what the folder holds.
pub(super) async fn recover(
    folder: &Path,
    topic: &str,
    key: PartitionKey,
    settings: LogSettings,
    how: Opening,
) -> Result<State, LogError> {
    let failed = |error: io::Error| LogError::at_opening(folder, &error);
    if !fs::exists(folder).await.map_err(failed)? {
        create_folder(folder).await.map_err(failed)?;
    }
    check_topic(folder, key).await?;
    let found = look_around(folder).await.map_err(failed)?;
    let recovery = Recovery { folder, topic, key, io: settings.io, how, found };
    recovery.run().await.map_err(failed)
}

/// Its name must outlive a power loss, else what is synced inside would be gone with it.
pub(super) async fn create_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder).await?;
    sync_name(folder).await
}

async fn sync_name(folder: &Path) -> io::Result<()> {
    match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => fs::sync_dir(parent).await,
        _ => Ok(()),
    }
}

/// The folder belongs to the topic; a new or damaged `partition.metadata` is written.
async fn check_topic(folder: &Path, key: PartitionKey) -> Result<(), LogError> {
    let failed = |error: io::Error| LogError::at_opening(folder, &error);
    let path = folder.join(PARTITION_FILE);
    match read_or_warn(&path, decode_topic_id).await.map_err(failed)? {
        Some(found) if found != key.topic_id => {
            Err(LogError::OtherTopic { folder: folder.to_owned(), found, wanted: key.topic_id })
        }
        Some(_) => Ok(()),
        None => fs::replace_file(&path, encode_topic_id(key.topic_id)).await.map_err(failed),
    }
}

/// Lists segments and snapshots; removes what a crash left half done.
async fn look_around(folder: &Path) -> io::Result<Found> {
    let mut found = Found { segments: Vec::new(), snapshots: Vec::new() };
    let mut indexes = Vec::new();
    for entry in fs::list_dir(folder).await? {
        let name = entry.name.as_str();
        match FileKind::parse(name) {
            Some((base, FileKind::Log)) => found.segments.push((base, entry.len)),
            Some((offset, FileKind::Snapshot)) => found.snapshots.push(offset),
            Some((base, _)) => indexes.push((base, entry.name)),
            None if [".new", ".deleted", ".cleaned", ".swap"].iter().any(|ending| name.ends_with(ending)) => {
                remove_if_there(&folder.join(name)).await?;
            }
            None => {}
        }
    }
    found.segments.sort_unstable();
    found.snapshots.sort_unstable();
    for (base, name) in indexes {
        if found.segments.binary_search_by_key(&base, |(base, _)| *base).is_err() {
            remove_if_there(&folder.join(name)).await?;
        }
    }
    Ok(found)
}

impl Recovery<'_> {
    async fn run(self) -> io::Result<State> {
        let log_start = self.how.log_start;
        if self.found.segments.is_empty() {
            return self.begin_at(log_start.unwrap_or(Offset::ZERO)).await;
        }
        let verified = self.verify().await?;
        if log_start.is_some_and(|start| verified.end < start) {
            let start = log_start.expect("it is some");
            tracing::warn!(folder = %self.folder.display(), end = %verified.end, %start, "the log ends below its start and begins again, empty");
            self.remove_all_but(start).await?;
            return self.begin_at(start).await;
        }
        self.adopt(verified).await
    }

    /// An empty log at `start`. Its file stands when it does not begin at 0: the number must survive.
    async fn begin_at(&self, start: Offset) -> io::Result<State> {
        let mut segment = Segment::begin(start, wall_clock_ms());
        if start > Offset::ZERO {
            let file = self.open(start, Create::Yes).await?;
            file.truncate(0).await?;
            file.sync().await?;
            fs::sync_dir(self.folder).await?;
            segment.file = Some(file);
        }
        Ok(new_state(start, start, start, [segment].into(), Vec::new()))
    }

    async fn remove_all_but(&self, start: Offset) -> io::Result<()> {
        // The new file stands before the old ones go, else a crash between would forget where the log starts.
        self.open(start, Create::Yes).await?;
        fs::sync_dir(self.folder).await?;
        for (base, _) in self.found.segments.iter().rev().filter(|(base, _)| *base != start) {
            remove_segment(self.folder, *base).await?;
        }
        for offset in &self.found.snapshots {
            remove_if_there(&FileKind::Snapshot.path(self.folder, *offset)).await?;
        }
        remove_if_there(&self.folder.join(EPOCH_FILE)).await
    }

    async fn verify(&self) -> io::Result<Verified> {
        let epochs = read_or_warn(&self.folder.join(EPOCH_FILE), EpochCache::decode).await?;
        let mut depth = if epochs.is_some() { Depth::Resume } else { Depth::All };
        loop {
            let epochs = epochs.clone().filter(|_| depth < Depth::All).unwrap_or_default();
            match self.attempt(depth, epochs).await? {
                Some(verified) => return Ok(verified),
                None => {
                    depth = if depth == Depth::Resume { Depth::Segment } else { Depth::All };
                    tracing::warn!(folder = %self.folder.display(), ?depth, "state files do not fit the log, more of it is read");
                }
            }
        }
    }

    /// `None`: what was taken from state files does not fit the log.
    async fn attempt(&self, depth: Depth, epochs: EpochCache) -> io::Result<Option<Verified>> {
        let Begin { at: first, index } = self.begin(depth).await?;
        let resumed = index.last_entry().is_some();
        let snapshot = self.snapshot_for(depth, first).await?;
        let mut scanner = Scanner::new(self.folder, epochs, snapshot.as_ref().map(|(at, known)| (*at, known.clone())));
        let complete = if first == 0 && !resumed { Complete::Yes } else { Complete::No };
        if complete == Complete::No && scanner.knows_producers() {
            scanner.recall(self.before(first).await?);
        }
        let mut scanned: Vec<Scanned> = Vec::new();
        let mut index = Some(index);
        for (base, len) in &self.found.segments[first..] {
            // A gap between segments is lost data: what lies behind it is no prefix any more.
            if scanned.last().is_some_and(|last| scanner.end().unwrap_or(last.base) != *base) {
                break;
            }
            if let Some(last) = scanned.last_mut() {
                last.snapshot_at_end = scanner.snapshot(*base, complete);
            }
            let index = index.take().unwrap_or_else(|| SegmentIndex::new(*base));
            let doubt_if_empty = index.last_entry().is_some();
            let file = self.open(*base, Create::No).await?;
            let segment = scanner.segment(file, index, *len).await?;
            let doubtful = segment.stopped == Stopped::AgainstState || (doubt_if_empty && segment.batches == 0);
            if doubtful && depth < Depth::All {
                return Ok(None);
            }
            scanned.push(segment);
        }
        let last = scanned.last().expect("there is a segment");
        let end = scanner.end().unwrap_or(last.base).max(last.base);
        let producers = match scanner.producers(end) {
            _ if complete == Complete::Yes => scanner.take_recent(),
            Some(producers) => producers,
            None => self.replay(&scanned, scanner.begin().unwrap_or(end)..end).await?,
        };
        Ok(Some(Verified { first, scanned, end, epochs: scanner.into_epochs(end), producers }))
    }

    /// Decides where the scan begins.
    async fn begin(&self, depth: Depth) -> io::Result<Begin> {
        let segments = &self.found.segments;
        let last = segments.len() - 1;
        let point = self.how.recovery_point;
        let at = match (depth, self.how.last_run, point) {
            (Depth::All, ..) | (_, LastRun::Crashed, None) => 0,
            (_, LastRun::Closed, _) => last,
            // A point at the base of a segment may have been reached while the one before was active: then that one's file was
            // synced, but not the cut to its real length.
            (_, LastRun::Crashed, Some(point)) => segments.partition_point(|(base, _)| *base < point).saturating_sub(1),
        };
        let (base, len) = segments[at];
        let fresh = Begin { at, index: SegmentIndex::new(base) };
        let closed = self.how.last_run == LastRun::Closed;
        // A recovery point inside a segment is believed only with the snapshot that was written with it.
        let inside = point.filter(|point| *point > base && self.found.snapshots.binary_search(point).is_ok());
        let Some(end) = Position::from_len(len).filter(|_| depth == Depth::Resume && (closed || inside.is_some()))
        else {
            return Ok(fresh);
        };
        let Some(mut index) = read_index(self.folder, base, end).await? else { return Ok(fresh) };
        let known_end = match (closed, inside) {
            (true, _) | (_, None) => end.get(),
            (false, Some(point)) => index.position_before(point),
        };
        let from = known_end.saturating_sub(PRODUCER_RECALL_BYTES);
        index.cut(index.entry_at_or_below(from).map_or(0, |(_, position)| position).saturating_add(1));
        Ok(Begin { at, index })
    }

    /// The newest snapshot that is believed: at most the recovery point after a crash.
    async fn snapshot_for(&self, depth: Depth, first: usize) -> io::Result<Option<(Offset, Producers)>> {
        let base = self.found.segments[first].0;
        let newest = match (depth, self.how.last_run) {
            (Depth::All, _) => return Ok(None),
            (_, LastRun::Closed) => None,
            (_, LastRun::Crashed) => Some(self.how.recovery_point.map_or(base, |point| point.max(base))),
        };
        for offset in self.found.snapshots.iter().rev().filter(|offset| newest.is_none_or(|newest| **offset <= newest))
        {
            if let Some(producers) = self.read_snapshot(*offset).await? {
                return Ok(Some((*offset, producers)));
            }
        }
        Ok(None)
    }

    async fn read_snapshot(&self, offset: Offset) -> io::Result<Option<Producers>> {
        read_or_warn(&FileKind::Snapshot.path(self.folder, offset), snapshot::decode).await
    }

    /// Producers from a snapshot at or below `scanned.start`, or from the start of the log, up to the end of the log.
    async fn replay(&self, scanned: &[Scanned], range: Range<Offset>) -> io::Result<Producers> {
        let mut from = self.found.segments[0].0;
        let mut producers = Producers::default();
        for offset in self.found.snapshots.iter().rev().filter(|offset| **offset <= range.start) {
            if let Some(read) = self.read_snapshot(*offset).await? {
                (from, producers) = (*offset, read);
                break;
            }
        }
        for (at, (base, len)) in self.found.segments.iter().enumerate().filter(|(_, (base, _))| *base < range.end) {
            if self.found.segments.get(at + 1).is_some_and(|(next, _)| *next <= from) {
                continue;
            }
            let end = scanned.iter().find(|segment| segment.base == *base).map(|segment| segment.end);
            let end = end.or_else(|| Position::from_len(*len)).ok_or_else(|| too_long(*base, *len))?;
            let file = self.open(*base, Create::No).await?;
            replay_headers(&file, Position::ZERO..end, from..range.end, &mut producers).await?;
        }
        Ok(producers)
    }

    /// Producers of the end of the segment before the one where the scan begins, which refill their windows.
    async fn before(&self, first: usize) -> io::Result<Producers> {
        let mut producers = Producers::default();
        let Some((base, len)) = first.checked_sub(1).map(|before| self.found.segments[before]) else {
            return Ok(producers);
        };
        let Some(end) = Position::from_len(len) else { return Ok(producers) };
        let index = read_index(self.folder, base, end).await?;
        let from = end.get().saturating_sub(PRODUCER_RECALL_BYTES);
        let from = index
            .and_then(|index| index.entry_at_or_below(from))
            .map_or(Position::ZERO, |(_, position)| Position::new(position));
        // Without an index this is the whole segment; its windows are worth less than that.
        if end.since(from) <= 2 * usize::try_from(PRODUCER_RECALL_BYTES).expect("a constant below 4 GiB") {
            let file = self.open(base, Create::No).await?;
            replay_headers(&file, from..end, base..Offset::new(i64::MAX), &mut producers).await?;
        }
        Ok(producers)
    }

    /// Makes files and state agree with what was verified.
    async fn adopt(self, mut verified: Verified) -> io::Result<State> {
        let first = verified.first;
        let active = verified.scanned.pop().expect("there is a segment");
        let kept = first + verified.scanned.len() + 1;
        for (base, _) in self.found.segments[kept..].iter().rev() {
            tracing::warn!(folder = %self.folder.display(), %base, "a segment behind the end of the log is removed");
            remove_segment(self.folder, *base).await?;
        }
        for offset in self.found.snapshots.iter().filter(|offset| **offset > verified.end) {
            tracing::warn!(folder = %self.folder.display(), %offset, "a producer snapshot behind the end of the log is removed");
            remove_if_there(&FileKind::Snapshot.path(self.folder, *offset)).await?;
        }
        if kept < self.found.segments.len() || self.found.snapshots.last().is_some_and(|offset| *offset > verified.end)
        {
            // They must not come back behind what is appended from now on.
            fs::sync_dir(self.folder).await?;
        }
        if self.how.has_failed {
            self.write_again(verified.scanned.iter().chain([&active])).await?;
        }
        self.cut_to_length(&active).await?;
        for settled in &verified.scanned {
            self.cut_to_length(settled).await?;
            if self.how.last_run == LastRun::Closed {
                settled.file.sync().await?;
            }
            write_index(self.folder, settled.base, &settled.index).await?;
        }
        self.write_state_files(&verified, active.base).await?;
        let now_ms = wall_clock_ms();
        let mut segments: VecDeque<Segment> = VecDeque::new();
        for (base, len) in &self.found.segments[..kept - 1] {
            let end = Position::from_len(*len).ok_or_else(|| too_long(*base, *len))?;
            segments.push_back(Segment::found(*base, end, now_ms));
        }
        for settled in &verified.scanned {
            let at = segments.binary_search_by_key(&settled.base, |segment| segment.base).expect("it was just added");
            segments[at].end = settled.end;
        }
        let synced = match (self.how.last_run, verified.scanned.is_empty()) {
            (LastRun::Closed, _) => verified.end,
            (LastRun::Crashed, false) => active.base,
            (LastRun::Crashed, true) => self
                .how
                .recovery_point
                .map_or(segments.front().map_or(active.base, |s| s.base), |p| p.min(verified.end)),
        };
        self.finish(verified, active, segments, synced, now_ms).await
    }

    /// What a recovery from the active segment's start needs, before that becomes the recovery point.
    async fn write_state_files(&self, verified: &Verified, active: Offset) -> io::Result<()> {
        let ends = verified.scanned.iter().skip(1).map(|segment| segment.base).chain([active]);
        for (settled, end) in verified.scanned.iter().zip(ends) {
            if let Some(snapshot) = &settled.snapshot_at_end {
                fs::replace_file(&FileKind::Snapshot.path(self.folder, end), snapshot.clone()).await?;
            }
        }
        let epochs = verified.epochs.encode();
        let path = self.folder.join(EPOCH_FILE);
        match fs::read_file(&path).await {
            Ok(standing) if standing == epochs => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::replace_file(&path, epochs).await,
        }
    }

    async fn finish(
        self,
        verified: Verified,
        active: Scanned,
        mut segments: VecDeque<Segment>,
        synced: Offset,
        now_ms: i64,
    ) -> io::Result<State> {
        let block = active.end.block();
        let partial = active.file.read(block.in_file(), active.end.since(block)).await?.to_vec();
        assert_eq!(partial.len(), active.end.in_block(), "the verified end was just read");
        let first_timestamp_ms = first_timestamp(&active).await?;
        segments.push_back(Segment {
            end: active.end,
            stage: Stage::Active,
            max_timestamp: active.index.max_timestamp(),
            first_timestamp_ms,
            index: Some(active.index),
            file: Some(active.file),
            ..Segment::begin(active.base, now_ms)
        });
        let first = segments.front().map_or(active.base, |segment| segment.base);
        let start = self.how.log_start.map_or(first, |start| start.max(first));
        let mut state = new_state(start, verified.end, synced, segments, partial);
        state.epochs = verified.epochs;
        state.epochs.cut_start(first);
        state.producers = verified.producers;
        state.producers.forget_below(start);
        tracing::debug!(topic = self.topic, partition = %self.key.partition, %start, end = %state.stored, "log opened");
        Ok(state)
    }

    /// Cuts zeros or damage behind the last whole batch away, for good. After a power loss the last block may hold lost bytes
    /// behind the end of the file, which would come back with the next power loss if the file has grown by then: lengthening
    /// and cutting it makes them zero.
    async fn cut_to_length(&self, segment: &Scanned) -> io::Result<()> {
        let end = segment.end.in_file();
        if self.how.last_run == LastRun::Closed && !self.how.has_failed && segment.file_len == end {
            return Ok(());
        }
        let block_end = segment.end.block().in_file() + BLOCK_BYTES;
        if segment.file_len < block_end {
            segment.file.truncate(block_end).await?;
        }
        segment.file.truncate(end).await?;
        segment.file.sync().await
    }

    /// Writes again, block by block, what lies behind the recovery point: a failed sync may have dropped it from the disk while
    /// reads still show it, and the next sync would not say so. Names are synced again as well; files when they are cut to
    /// their length.
    async fn write_again(&self, segments: impl Iterator<Item = &Scanned>) -> io::Result<()> {
        let arena = Arena::new(SCAN_BYTES);
        let point = self.how.recovery_point.unwrap_or(Offset::ZERO);
        for segment in segments {
            let mut position = Position::new(segment.index.position_before(point)).block();
            tracing::warn!(folder = %self.folder.display(), base = %segment.base, from = position.get(), to = segment.end.get(), "written again after a failure of the disk");
            while position < segment.end {
                let len = segment.end.since(position).min(SCAN_BYTES);
                let bytes = segment.file.read(position.in_file(), len).await?;
                let whole = bytes.len().next_multiple_of(BLOCK);
                let mut chunk = arena.chunk(whole).map_err(io::Error::other)?;
                let written = chunk.append_parts(&[&bytes, &[0; BLOCK][..whole - bytes.len()]]);
                written.expect("the chunk has this length");
                segment.file.write_range(chunk.blocks(0..whole), position.in_file()).await?;
                position = position.advance(len);
            }
        }
        fs::sync_dir(self.folder).await?;
        sync_name(self.folder).await
    }

    async fn open(&self, base: Offset, create: Create) -> io::Result<File> {
        let options = OpenOptions { create: create == Create::Yes, direct: self.io == FileIo::Direct, write: true };
        File::open(&FileKind::Log.path(self.folder, base), options).await
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Create {
    Yes,
    No,
}

async fn first_timestamp(active: &Scanned) -> io::Result<Option<i64>> {
    if active.end == Position::ZERO {
        return Ok(None);
    }
    let head = active.file.read(0, HEADER_LEN).await?;
    let first = BatchHeader::parse(&head).ok();
    Ok(first.map(|batch| batch.max_timestamp_ms).filter(|timestamp_ms| *timestamp_ms >= 0))
}

fn too_long(base: Offset, len: u64) -> io::Error {
    io::Error::other(format!("segment {base} has {len} bytes, more than any segment of ours"))
}

fn new_state(start: Offset, end: Offset, synced: Offset, segments: VecDeque<Segment>, partial: Vec<u8>) -> State {
    let active = segments.back().expect("a log has an active segment");
    let stored_at = (active.base, active.end);
    State {
        start,
        recovery_point: synced.min(end),
        synced: synced.min(end),
        synced_at: now(),
        stored: end,
        told: end,
        appended: end,
        stored_at,
        segments,
        tail: Tail::new(partial),
        epochs: EpochCache::default(),
        begun_epoch: None,
        producers: Producers::default(),
        open_settled: VecDeque::new(),
        cuts: 0,
        cutting: false,
        last_append: now(),
    }
}
