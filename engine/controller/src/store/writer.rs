//! The one task that writes the controller's log: segments, group commit, removal of old segments.
//!
//! Path: from the jobs of `LogStore` to the disk and back to their callbacks. All jobs that wait go into one write and
//! one sync; the next write begins after it. A write begins on a block that holds nothing yet, so a torn write cannot
//! take what was synced before.
//!
//! Invariant: jobs reach the disk in the order in which they were sent, votes among entries. The first error is final:
//! every later job gets it, and the node must stop. Rule: R6.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

use openraft::storage::IOFlushed;
use sakia_io::{Arena, File, OpenOptions, fs};
use tokio::sync::{mpsc, oneshot};

use super::record::{Record, put_record};
use super::replay::{BLOCK, ReadSegment, Summary};
use crate::limits::{LOG_JOBS_PER_WRITE_MAX, LOG_RECORD_BYTES_MAX, LOG_WRITE_BYTES_SOFT_MAX};
use crate::raft_types::Quorum;

/// Records to write, and who waits for them.
pub(crate) struct Job {
    pub(crate) records: Vec<Record>,
    pub(crate) waiter: Waiter,
}

/// Who waits for a job.
pub(crate) enum Waiter {
    /// Raft, for entries: called after the sync.
    Flushed(IOFlushed<Quorum>),
    /// A caller of `LogStore`: answered after the sync.
    Reply(oneshot::Sender<io::Result<()>>),
    /// Nobody: written with the next write, without a sync of its own.
    Nobody,
}

impl Waiter {
    fn complete(self, result: &io::Result<()>) {
        let result = match result {
            Ok(()) => Ok(()),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        match self {
            Self::Flushed(callback) => callback.io_completed(result),
            Self::Reply(reply) => drop(reply.send(result)), // the caller is gone: nothing to tell
            Self::Nobody => {}
        }
    }
}

/// The log's open end.
pub(crate) struct Writer {
    folder: PathBuf,
    node: u64,
    segment_bytes: usize,
    arena: Arena,
    /// All segments, the one being written last.
    segments: VecDeque<Segment>,
    /// The file of the last segment.
    file: File,
    /// Where the next write goes in it: a multiple of `BLOCK`.
    position: usize,
    /// How long it may become; one block is kept for `Record::End`.
    capacity: usize,
    /// What the written records say.
    summary: Summary,
}

/// What must be known of a segment to remove it.
#[derive(Clone, Copy)]
struct Segment {
    number: u64,
    highest: Option<u64>,
}

impl From<&ReadSegment> for Segment {
    fn from(read: &ReadSegment) -> Self {
        Self { number: read.number, highest: read.highest }
    }
}

/// How to write a log.
#[derive(Clone, Debug)]
pub(crate) struct WriterSettings {
    pub(crate) folder: PathBuf,
    pub(crate) node: u64,
    /// Space reserved for a segment.
    pub(crate) segment_bytes: usize,
}

pub(crate) fn segment_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:020}.log"))
}

impl Writer {
    /// Begins a new segment behind those that were read. The last of them was ended by `end_segment`.
    pub(crate) async fn begin(settings: WriterSettings, read: &[ReadSegment], summary: Summary) -> io::Result<Self> {
        let WriterSettings { folder, node, segment_bytes } = settings;
        let number = read.last().map_or(1, |last| last.number + 1);
        let arena = Arena::new(2 * (LOG_RECORD_BYTES_MAX + LOG_WRITE_BYTES_SOFT_MAX));
        let (file, position, capacity) = make_segment(&folder, &arena, number, node, segment_bytes, summary).await?;
        let mut segments: VecDeque<Segment> = read.iter().map(Into::into).collect();
        segments.push_back(Segment { number, highest: None });
        Ok(Self { folder, node, segment_bytes, arena, segments, file, position, capacity, summary })
    }

    /// Writes until all senders are gone.
    pub(crate) async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut failed: Option<io::Result<()>> = None;
        let mut batch = Vec::new();
        while jobs.recv_many(&mut batch, LOG_JOBS_PER_WRITE_MAX).await > 0 {
            let mut waiting = batch.drain(..).peekable();
            while waiting.peek().is_some() {
                let mut group = Group::default();
                while group.bytes.len() < LOG_WRITE_BYTES_SOFT_MAX
                    && let Some(job) = waiting.next()
                {
                    group.add(job);
                }
                let result = match &failed {
                    Some(Err(error)) => Err(io::Error::new(error.kind(), error.to_string())),
                    _ => self.write(&group).await,
                };
                for waiter in group.waiters {
                    waiter.complete(&result);
                }
                if let Err(error) = &result
                    && failed.is_none()
                {
                    tracing::error!(%error, folder = %self.folder.display(), "controller log failed, it takes no more");
                    failed = Some(result);
                }
            }
        }
    }

    async fn write(&mut self, group: &Group) -> io::Result<()> {
        let len = group.bytes.len().next_multiple_of(BLOCK);
        if self.position + len + BLOCK > self.capacity {
            self.roll(len).await?;
        }
        write_at(&self.file, &self.arena, self.position, &group.bytes).await?;
        self.position += len;
        if group.needs_sync {
            self.file.sync().await?;
        }
        let current = self.segments.back_mut().expect("the segment being written");
        current.highest = current.highest.max(group.highest);
        let purged_before = self.summary.purged;
        for record in &group.summary {
            self.summary.follow(record);
        }
        if self.summary.purged != purged_before {
            self.remove_old().await?;
        }
        Ok(())
    }

    /// Ends the segment and begins the next, with room for `len` bytes.
    async fn roll(&mut self, len: usize) -> io::Result<()> {
        end_segment(&self.file, &self.arena, self.position, &[]).await?;
        let number = self.segments.back().expect("the segment being written").number + 1;
        let room = self.segment_bytes.max(len + 3 * BLOCK);
        (self.file, self.position, self.capacity) =
            make_segment(&self.folder, &self.arena, number, self.node, room, self.summary).await?;
        self.segments.push_back(Segment { number, highest: None });
        Ok(())
    }

    /// Removes the oldest segments as long as every entry in them is purged.
    async fn remove_old(&mut self) -> io::Result<()> {
        let purged = self.summary.purged.map(|id| id.index);
        while self.segments.len() > 1
            && let Some(oldest) = self.segments.front()
            && oldest.highest <= purged
        {
            fs::remove_file(&segment_path(&self.folder, oldest.number)).await?;
            self.segments.pop_front();
        }
        Ok(())
    }
}

/// Jobs that are written together.
#[derive(Default)]
struct Group {
    bytes: Vec<u8>,
    waiters: Vec<Waiter>,
    summary: Vec<Record>,
    highest: Option<u64>,
    needs_sync: bool,
}

impl Group {
    fn add(&mut self, job: Job) {
        for record in job.records {
            put_record(&record, &mut self.bytes);
            match record {
                Record::Entry(entry) => self.highest = self.highest.max(Some(entry.log_id.index)),
                other => self.summary.push(other),
            }
        }
        self.needs_sync |= !matches!(job.waiter, Waiter::Nobody);
        self.waiters.push(job.waiter);
    }
}

/// Writes the last record of a segment behind `good` bytes, which stand at `position`, cuts the rest off, and syncs it.
pub(crate) async fn end_segment(file: &File, arena: &Arena, position: usize, good: &[u8]) -> io::Result<()> {
    let mut bytes = good.to_vec();
    put_record(&Record::End, &mut bytes);
    write_at(file, arena, position, &bytes).await?;
    file.truncate(to_u64(position + bytes.len().next_multiple_of(BLOCK))).await?;
    file.sync().await
}

async fn make_segment(
    folder: &Path,
    arena: &Arena,
    number: u64,
    node: u64,
    capacity: usize,
    summary: Summary,
) -> io::Result<(File, usize, usize)> {
    let options = OpenOptions { create: true, direct: false, write: true };
    let file = File::open(&segment_path(folder, number), options).await?;
    match file.allocate(to_u64(capacity)).await {
        Err(error) if error.kind() != io::ErrorKind::Unsupported => return Err(error),
        _ => {} // a file system that cannot reserve space makes syncs slower, not wrong
    }
    file.truncate(to_u64(capacity)).await?; // so that a later sync need not record a new size
    let mut bytes = Vec::new();
    put_record(&Record::Segment { number, node }, &mut bytes);
    for record in summary.records() {
        put_record(&record, &mut bytes);
    }
    assert!(bytes.len() <= BLOCK, "the beginning of a segment fits one block");
    write_at(&file, arena, 0, &bytes).await?;
    file.sync().await?;
    fs::sync_dir(folder).await?;
    Ok((file, BLOCK, capacity))
}

async fn write_at(file: &File, arena: &Arena, position: usize, bytes: &[u8]) -> io::Result<()> {
    assert!(position.is_multiple_of(BLOCK), "a write begins on a block");
    let chunk = arena.chunk(bytes.len().next_multiple_of(BLOCK));
    let mut chunk = chunk.map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))?;
    let range = chunk.append(bytes).expect("the chunk was made for these bytes");
    file.write_range(chunk.blocks(range), to_u64(position)).await
}

fn to_u64(position: usize) -> u64 {
    u64::try_from(position).expect("a position fits 64 bits")
}
