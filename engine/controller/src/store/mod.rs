//! The controller's own log: what raft must not forget.
//!
//! Reading order: `record` (byte form), `replay` (what the files say), `writer` (the one task that writes), this file
//! (the raft library's storage interface over both).
//!
//! Entries that are not purged are held in memory, so readers never touch the disk; snapshots bound them.
//! Invariant: nothing is confirmed before it is synced; a vote is never reordered with entries.

mod record;
mod replay;
mod writer;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use sakia_io::{Arena, Class, File, OpenOptions, Task, fs, spawn};
use tokio::sync::{mpsc, oneshot};

use self::record::Record;
pub use self::replay::ReplayError;
use self::replay::{BLOCK, Contents, Place, ReadSegment, check_whole, read_segment};
use self::writer::{Job, Waiter, Writer, WriterSettings, end_segment, segment_path};
use crate::limits::LOG_JOBS_WAITING_MAX;
use crate::raft_types::{Entry, LogId, Quorum, Vote};

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenLogError {
    /// The disk refused.
    #[error("controller log in {folder}: {source}")]
    Disk {
        /// The log's folder.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The files are damaged, or another node's.
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

/// The log as raft sees it. Clones are the same log (raft's readers).
#[derive(Clone)]
pub struct LogStore {
    contents: Rc<RefCell<Contents>>,
    jobs: mpsc::Sender<Job>,
}

impl LogStore {
    /// Reads the log in `folder`, which exists and is locked by the caller, and begins a new segment.
    /// The task writes; it ends after the last job when all clones of the store are gone, and must be held until then.
    ///
    /// # Errors
    /// Damage, another node's log, or a disk that refuses.
    pub async fn open(folder: &Path, node: u64, segment_bytes: usize) -> Result<(Self, Task<()>), OpenLogError> {
        let disk = |source| OpenLogError::Disk { folder: folder.to_owned(), source };
        let (contents, read) = read_all(folder, node).await?;
        if let Some(last) = read.last() {
            end_last(folder, last).await.map_err(disk)?;
        }
        let settings = WriterSettings { folder: folder.to_owned(), node, segment_bytes };
        let writer = Writer::begin(settings, &read, contents.summary).await.map_err(disk)?;
        let (jobs, receiver) = mpsc::channel(LOG_JOBS_WAITING_MAX);
        let writing = spawn(Class::Foreground, writer.run(receiver));
        Ok((Self { contents: Rc::new(RefCell::new(contents)), jobs }, writing))
    }

    /// The last purged position: a snapshot must reach it.
    pub(crate) fn purged(&self) -> Option<LogId> {
        self.contents.borrow().summary.purged
    }

    /// Shows the records to readers, then queues them for the disk.
    async fn queue(&self, records: Vec<Record>, waiter: Waiter) -> io::Result<()> {
        {
            let mut contents = self.contents.borrow_mut();
            for record in &records {
                contents.follow(record.clone()).map_err(io::Error::other)?;
            }
        }
        self.jobs.send(Job { records, waiter }).await.map_err(|_| io::Error::other("the log's writer has ended"))
    }

    async fn queue_and_wait(&self, record: Record) -> io::Result<()> {
        let (reply, answer) = oneshot::channel();
        self.queue(vec![record], Waiter::Reply(reply)).await?;
        answer.await.unwrap_or_else(|_| Err(io::Error::other("the log's writer has ended")))
    }
}

/// Reads all segments. A last segment that was not even begun is removed.
async fn read_all(folder: &Path, node: u64) -> Result<(Contents, Vec<ReadSegment>), OpenLogError> {
    let disk = |source| OpenLogError::Disk { folder: folder.to_owned(), source };
    let listed = fs::list_dir(folder).await.map_err(disk)?;
    let number_of = |name: &str| name.strip_suffix(".log").and_then(|stem| stem.parse::<u64>().ok());
    let numbers: Vec<u64> = listed.iter().filter_map(|entry| number_of(&entry.name)).collect();
    let mut contents = Contents::default();
    let mut read: Vec<ReadSegment> = Vec::new();
    for &number in &numbers {
        if read.last().is_some_and(|before| before.number + 1 != number) {
            let reason = "the segment before it is missing";
            return Err(ReplayError::Damaged { segment: number, position: 0, reason }.into());
        }
        let place = if Some(&number) == numbers.last() { Place::Last } else { Place::Earlier };
        let path = segment_path(folder, number);
        let bytes = fs::read_file(&path).await.map_err(disk)?;
        match read_segment(&mut contents, node, number, place, &bytes)? {
            Some(segment) => read.push(segment),
            None => {
                if bytes.iter().skip(BLOCK).any(|&byte| byte != 0) {
                    let reason = "its first record is bad";
                    return Err(ReplayError::Damaged { segment: number, position: 0, reason }.into());
                }
                fs::remove_file(&path).await.map_err(disk)?;
            }
        }
    }
    check_whole(&contents, numbers.first().copied().unwrap_or(1))?;
    Ok((contents, read))
}

/// Makes the last segment whole: the last record takes the place of a torn write, and what a killed process wrote is
/// synced. The block it stands in belongs to that write, which nobody has confirmed, unless it begins there.
async fn end_last(folder: &Path, last: &ReadSegment) -> io::Result<()> {
    let options = OpenOptions { create: false, direct: false, write: true };
    let file = File::open(&segment_path(folder, last.number), options).await?;
    if last.is_ended {
        return file.sync().await;
    }
    end_segment(&file, &Arena::new(2 * BLOCK), last.rest_start, &last.rest).await
}

impl RaftLogReader<Quorum> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<Entry>> {
        Ok(self.contents.borrow().entries.range(range).map(|(_, entry)| entry.clone()).collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.contents.borrow().summary.vote)
    }
}

impl RaftLogStorage<Quorum> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<Quorum>> {
        let contents = self.contents.borrow();
        Ok(LogState { last_purged_log_id: contents.summary.purged, last_log_id: contents.last() })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.queue_and_wait(Record::Vote(*vote)).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        match committed {
            Some(id) => self.queue(vec![Record::Committed(id)], Waiter::Nobody).await,
            None => Ok(()),
        }
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.contents.borrow().summary.committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Quorum>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let records = entries.into_iter().map(Record::Entry).collect();
        self.queue(records, Waiter::Flushed(callback)).await
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let from = last.map_or(0, |id| id.index + 1);
        self.queue_and_wait(Record::Truncate { from }).await
    }

    async fn purge(&mut self, id: LogId) -> io::Result<()> {
        self.queue_and_wait(Record::Purge(id)).await
    }
}
