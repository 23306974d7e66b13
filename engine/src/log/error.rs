//! What can go wrong with a log, in the order of what the caller does next. Pure.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use sakia_protocol::ids::{LeaderEpoch, Offset, TopicId};
use thiserror::Error;

use crate::log::producers::ProducerError;
use crate::log::tail::TailFull;

/// Linux's numbers of what passes: no memory, too many open files of the system, of the process.
const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// Whether the system lacked files or memory for a moment: no fault of the disk.
pub(crate) fn is_want(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(ENOMEM | ENFILE | EMFILE))
}

/// Why a leader's append was refused. Nothing was appended.
#[derive(Debug, Error)]
pub enum AppendError {
    /// Try again when the disk or the memory budget has caught up.
    #[error("no room in memory for a batch: {0}")]
    Busy(TailFull),
    /// The producer's mistake: 45, 47 or 48.
    #[error(transparent)]
    Producer(#[from] ProducerError),
    /// `RECORD_LIST_TOO_LARGE` (18): larger than a whole segment.
    #[error("a batch of {bytes} bytes does not fit a segment of {segment_bytes}")]
    TooLarge {
        /// Of the batch.
        bytes: usize,
        /// `segment.bytes`.
        segment_bytes: u32,
    },
    /// `KAFKA_STORAGE_ERROR` (56): the log is closed, or its folder is offline.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Why a call on a log failed.
#[derive(Debug, Clone, Error)]
pub enum LogError {
    /// Try again when the disk or the memory budget has caught up.
    #[error("no room in memory for a batch: {0}")]
    Busy(String),
    /// `OFFSET_OUT_OF_RANGE` (1).
    #[error("offset {asked} lies outside {start}..={end}")]
    OutOfRange {
        /// What was asked for.
        asked: Offset,
        /// Start of the log.
        start: Offset,
        /// Its end.
        end: Offset,
    },
    /// Replicated bytes that do not continue this log. Nothing of them was appended.
    #[error("replicated bytes do not continue the log: {0}")]
    Refused(Refusal),
    /// The log was closed; this call came too late.
    #[error("the log is closed")]
    Closed,
    /// Bytes on disk are not what was written there. Other offsets may still be read.
    #[error("{file} is damaged at position {position}: {what}")]
    Damaged {
        /// The segment.
        file: PathBuf,
        /// Where in it.
        position: u64,
        /// What was found.
        what: String,
    },
    /// The disk refused a read. Other offsets may still be read.
    #[error("cannot read {file}: {what}")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        what: String,
    },
    /// The folder holds another topic's data under this name: it is not opened.
    #[error("{folder} belongs to topic {found}, not to {wanted}")]
    OtherTopic {
        /// The partition's folder.
        folder: PathBuf,
        /// In `partition.metadata`.
        found: TopicId,
        /// Asked for.
        wanted: TopicId,
    },
    /// R6: a write or sync failed. Final for this log folder: resign, acknowledge nothing more.
    #[error("the log folder is offline: {0}")]
    Offline(String),
}

impl LogError {
    /// What an error at opening a log means. Nothing was appended to it yet, so one that has passed may be forgotten; damage is of
    /// this log alone; everything else is the disk's, and final for the folder (R6).
    pub(crate) fn at_opening(folder: &Path, error: &io::Error) -> Self {
        let what = error.to_string();
        match (error.raw_os_error(), error.kind()) {
            _ if is_want(error) => Self::Unreadable { file: folder.to_owned(), what },
            (None, ErrorKind::Other | ErrorKind::InvalidData | ErrorKind::UnexpectedEof) => {
                Self::Damaged { file: folder.to_owned(), position: 0, what }
            }
            _ => Self::Offline(format!("opening {} failed: {what}", folder.display())),
        }
    }
}

/// What is wrong with replicated bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// They begin elsewhere.
    #[error("they begin at offset {base}, the log ends at {end}")]
    NotAtEnd {
        /// Their first offset.
        base: Offset,
        /// The log's end.
        end: Offset,
    },
    /// Not only whole batches.
    #[error("not whole batches after {good} bytes")]
    NotWhole {
        /// Bytes of whole batches.
        good: usize,
    },
    /// A batch without a leader epoch, or with one below the batch before it.
    #[error("leader epoch {epoch:?} at offset {base} after {latest:?}")]
    Epoch {
        /// The batch.
        base: Offset,
        /// Its epoch.
        epoch: Option<LeaderEpoch>,
        /// The log's.
        latest: Option<LeaderEpoch>,
    },
}
