//! What the segments of the controller's log say when they are read from the start.
//!
//! A write is synced before the next begins, so only the last write of the last segment can be torn: there, reading
//! stops at the first bad record. A bad record anywhere else is damage, and the node must not start: a vote or an
//! acknowledged entry may be gone. Pure.

use std::collections::BTreeMap;

use super::record::{FRAME_HEAD, Frame, Record, frame_at, take_record};
use crate::raft_types::{Entry, LogId, Vote};
use crate::wire::WireError;

/// Bytes of a block: a write begins on a multiple of it.
pub(crate) const BLOCK: usize = sakia_io::BLOCK;

/// Damage, or a log of another node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// A segment that is not the last has a bad record, or the log's parts do not fit together.
    #[error("controller log segment {segment} is damaged at byte {position}: {reason}")]
    Damaged {
        /// Number of the segment.
        segment: u64,
        /// Where.
        position: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// A record with a right checksum that this binary cannot read: a newer one wrote it.
    #[error("controller log segment {segment} is not readable at byte {position}: {source}")]
    Unreadable {
        /// Number of the segment.
        segment: u64,
        /// Where.
        position: usize,
        /// Why.
        source: WireError,
    },
    /// The folder belongs to another node.
    #[error("the controller log belongs to node {found}, not to node {expected}")]
    OtherNode {
        /// In the segment.
        found: u64,
        /// Configured.
        expected: u64,
    },
}

/// What the log says apart from its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Summary {
    /// The last vote.
    pub(crate) vote: Option<Vote>,
    /// The last committed position.
    pub(crate) committed: Option<LogId>,
    /// The last purged position.
    pub(crate) purged: Option<LogId>,
}

impl Summary {
    pub(crate) fn follow(&mut self, record: &Record) {
        match *record {
            Record::Vote(vote) => self.vote = Some(vote),
            Record::Committed(id) => self.committed = Some(id),
            Record::Purge(id) => self.purged = self.purged.max(Some(id)),
            Record::Segment { .. } | Record::Entry(_) | Record::Truncate { .. } | Record::End => {}
        }
    }

    /// Records that say the same: the beginning of every segment, so that older ones can go.
    pub(crate) fn records(&self) -> Vec<Record> {
        let vote = self.vote.map(Record::Vote);
        let purged = self.purged.map(Record::Purge);
        vote.into_iter().chain(purged).chain(self.committed.map(Record::Committed)).collect()
    }
}

/// State of the log after some records.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Contents {
    /// All but the entries.
    pub(crate) summary: Summary,
    /// Entries that are neither purged nor truncated: the in-memory tail.
    pub(crate) entries: BTreeMap<u64, Entry>,
}

impl Contents {
    /// Takes over one record. Returns what is wrong with it, if anything.
    pub(crate) fn follow(&mut self, record: Record) -> Result<(), &'static str> {
        self.summary.follow(&record);
        match record {
            Record::Purge(id) => self.entries = self.entries.split_off(&(id.index + 1)),
            Record::Truncate { from } => drop(self.entries.split_off(&from)),
            Record::Entry(entry) => {
                let last = self.entries.last_key_value().map(|(index, _)| *index);
                if last.is_some_and(|last| entry.log_id.index != last + 1) {
                    return Err("entries are not consecutive");
                }
                self.entries.insert(entry.log_id.index, entry);
            }
            Record::Vote(_) | Record::Committed(_) | Record::Segment { .. } | Record::End => {}
        }
        Ok(())
    }

    /// The last position, purged ones included.
    pub(crate) fn last(&self) -> Option<LogId> {
        self.entries.last_key_value().map(|(_, entry)| entry.log_id).max(self.summary.purged)
    }
}

/// One segment as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadSegment {
    /// Its number.
    pub(crate) number: u64,
    /// Highest entry index that stands in it.
    pub(crate) highest: Option<u64>,
    /// The block in which the good records end, up to their end: what must stay when the last record is written there.
    pub(crate) rest: Vec<u8>,
    /// Where that block begins.
    pub(crate) rest_start: usize,
    /// Whether its last record is there.
    pub(crate) is_ended: bool,
}

/// Where a segment stands in the row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Others follow: it must be whole.
    Earlier,
    /// Its last write may be torn.
    Last,
}

/// Reads one segment into `contents`. `None`: the last segment has not even its first record, as after a crash while
/// it was made.
pub(crate) fn read_segment(
    contents: &mut Contents,
    node: u64,
    number: u64,
    place: Place,
    bytes: &[u8],
) -> Result<Option<ReadSegment>, ReplayError> {
    let mut read = ReadSegment { number, highest: None, rest: Vec::new(), rest_start: 0, is_ended: false };
    let mut end = 0;
    let mut position = 0;
    let mut is_first = true;
    while !read.is_ended {
        if BLOCK - position % BLOCK < FRAME_HEAD {
            position = position.next_multiple_of(BLOCK);
        }
        let start = position;
        let damaged = |reason| ReplayError::Damaged { segment: number, position: start, reason };
        let body = match frame_at(bytes, position) {
            Some((Frame::Padding, _)) if position % BLOCK != 0 => {
                position = position.next_multiple_of(BLOCK);
                continue;
            }
            Some((Frame::Record(body), next)) => {
                position = next;
                body
            }
            _ if place == Place::Last => break,
            _ => return Err(damaged("bad record before the end of the log")),
        };
        let unreadable = |source| ReplayError::Unreadable { segment: number, position: start, source };
        let record = take_record(body).map_err(unreadable)?;
        match (&record, is_first) {
            (&Record::Segment { number: found, node: owner }, true) => {
                if owner != node {
                    return Err(ReplayError::OtherNode { found: owner, expected: node });
                }
                if found != number {
                    return Err(damaged("the segment has another number"));
                }
            }
            (Record::Segment { .. }, false) | (_, true) => return Err(damaged("segment record out of place")),
            (Record::Entry(entry), false) => read.highest = read.highest.max(Some(entry.log_id.index)),
            (Record::End, false) => read.is_ended = true,
            _ => {}
        }
        is_first = false;
        contents.follow(record).map_err(damaged)?;
        end = position;
    }
    read.rest_start = end - end % BLOCK;
    read.rest = bytes.get(read.rest_start..end).unwrap_or_default().to_vec();
    Ok((!is_first).then_some(read))
}

/// Checks the whole after the last segment: no hole between what is purged and the first entry.
pub(crate) fn check_whole(contents: &Contents, first_segment: u64) -> Result<(), ReplayError> {
    let first_entry = contents.entries.first_key_value().map(|(index, _)| *index);
    let has_hole = match contents.summary.purged {
        Some(purged) => first_entry.is_some_and(|first| first > purged.index + 1),
        None => first_segment > 1,
    };
    if has_hole {
        return Err(ReplayError::Damaged {
            segment: first_segment,
            position: 0,
            reason: "entries before it are missing",
        });
    }
    Ok(())
}
