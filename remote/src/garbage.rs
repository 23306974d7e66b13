//! Which of its own objects a broker deletes, by age. Pure.
//!
//! Path: finished objects and listings of older streams → here → delete requests of up to 1000 keys.
//! Rule: R22. In `replica` mode an object is never the only copy of a record, so age alone decides
//! (`remote.wal.retention.ms`); a reader that comes late gets 404 and falls back to bytes.
//! - The running stream is remembered as age marks (one per second), not as names: a put whose outcome never became
//!   known lies between two marks and is deleted with them.
//! - Streams of this broker's earlier epochs are found by listing and aged by the bucket's own clock.
//!
//! Invariant: nothing is deleted before it is older than the retention.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use crate::key::{KeySpace, ObjectKey, StreamId};
use crate::limits::{AGE_MARKS_MAX, DELETE_KEYS_MAX};
use crate::store::{ListedObject, Listing, More};

/// Sequences are marked once per so many milliseconds.
const MARK_EVERY_MS: i64 = 1000;

/// Sequences of the running stream, all of them begun no later than `newest_ms`.
#[derive(Debug)]
struct Mark {
    newest_ms: i64,
    first_ms: i64,
    sequences: Range<u64>,
}

/// Ages of the running stream's objects.
#[derive(Debug)]
pub struct Garbage {
    space: KeySpace,
    stream: StreamId,
    retention_ms: i64,
    marks: VecDeque<Mark>,
}

impl Garbage {
    /// Nothing yet to delete.
    #[must_use]
    pub fn new(space: KeySpace, stream: StreamId, retention: Duration) -> Self {
        Self { space, stream, retention_ms: millis(retention), marks: VecDeque::new() }
    }

    /// Notes that the put of `sequence` began or ended at `now_ms`. Sequences ascend; gaps are filled.
    pub fn note(&mut self, sequence: u64, now_ms: i64) {
        let full = self.marks.len() >= AGE_MARKS_MAX;
        let Some(last) = self.marks.back_mut() else {
            self.marks.push_back(Mark { newest_ms: now_ms, first_ms: now_ms, sequences: sequence..sequence + 1 });
            return;
        };
        if sequence < last.sequences.end {
            last.newest_ms = last.newest_ms.max(now_ms);
            return;
        }
        let young = now_ms.saturating_sub(last.first_ms) < MARK_EVERY_MS;
        if young || full {
            last.newest_ms = last.newest_ms.max(now_ms);
            last.sequences.end = sequence + 1;
        } else {
            let first = last.sequences.end;
            self.marks.push_back(Mark { newest_ms: now_ms, first_ms: now_ms, sequences: first..sequence + 1 });
        }
    }

    /// The oldest objects beyond the retention, at most one request's worth. They are forgotten when
    /// [`Self::deleted`] says so.
    #[must_use]
    pub fn due(&self, now_ms: i64) -> Option<Deletion> {
        let mark = self.marks.front()?;
        if now_ms.saturating_sub(mark.newest_ms) <= self.retention_ms {
            return None;
        }
        let bound = u64::try_from(DELETE_KEYS_MAX).expect("a small constant");
        let through = mark.sequences.end.min(mark.sequences.start + bound);
        let keys = (mark.sequences.start..through).map(|sequence| self.space.wal_object(self.stream, sequence));
        Some(Deletion { keys: keys.collect(), through })
    }

    /// Forgets what a deletion covered.
    pub fn deleted(&mut self, deletion: &Deletion) {
        while let Some(mark) = self.marks.front_mut() {
            if mark.sequences.end > deletion.through {
                mark.sequences.start = mark.sequences.start.max(deletion.through);
                return;
            }
            self.marks.pop_front();
        }
    }

    /// What to do with one page of a listing of this broker's prefix: older streams only.
    #[must_use]
    pub fn sweep(&self, page: &Listing, now_ms: i64) -> Sweep {
        let keys = page.objects.iter().filter(|object| self.is_old_leftover(object, now_ms));
        let keys: Vec<_> = keys.map(|object| object.key.clone()).take(DELETE_KEYS_MAX).collect();
        let last = page.objects.last().map(|object| object.key.clone());
        Sweep { keys, next_after: last.filter(|_| page.more == More::Yes) }
    }

    fn is_old_leftover(&self, object: &ListedObject, now_ms: i64) -> bool {
        let Some((stream, _)) = self.space.parse_wal_object(&object.key) else { return false };
        stream.broker == self.stream.broker
            && stream.broker_epoch < self.stream.broker_epoch
            && now_ms.saturating_sub(object.modified_ms) > self.retention_ms
    }
}

/// One delete request for the running stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deletion {
    /// What to delete.
    pub keys: Vec<ObjectKey>,
    through: u64,
}

/// One delete request for older streams, and where the listing goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sweep {
    /// What to delete; may be empty.
    pub keys: Vec<ObjectKey>,
    /// Ask for the next page after this name; `None`: the sweep is done.
    pub next_after: Option<ObjectKey>,
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sakia_protocol::ids::{BrokerEpoch, BrokerId};

    const HOUR_MS: i64 = 3_600_000;

    fn stream(broker: i32, epoch: i64) -> StreamId {
        StreamId { broker: BrokerId::new(broker), broker_epoch: BrokerEpoch::new(epoch) }
    }

    fn garbage() -> Garbage {
        Garbage::new(KeySpace::new("p", "i"), stream(1, 10), Duration::from_secs(3600))
    }

    #[test]
    fn nothing_is_deleted_before_it_is_older_than_the_retention() {
        let mut garbage = garbage();
        for sequence in 0..100u64 {
            garbage.note(sequence, i64::try_from(sequence).unwrap() * 50);
        }
        assert_eq!(garbage.due(HOUR_MS), None);
        // The first mark holds what began in the first second: 0..20, the newest at 950 ms.
        assert_eq!(garbage.due(HOUR_MS + 950), None);
        let deletion = garbage.due(HOUR_MS + 951).expect("due");
        assert_eq!(deletion.keys.len(), 20);
        assert_eq!(deletion.keys[0].as_str(), "p/i/wal/1/10/00000000000000000000");
        garbage.deleted(&deletion);
        assert_eq!(garbage.due(HOUR_MS + 951), None);
    }

    #[test]
    fn sequences_of_unknown_outcome_are_deleted_with_their_neighbours() {
        let mut garbage = garbage();
        garbage.note(0, 0);
        garbage.note(5, 2000);
        let mut deleted = Vec::new();
        while let Some(deletion) = garbage.due(HOUR_MS + 3000) {
            deleted.extend(deletion.keys.clone());
            garbage.deleted(&deletion);
        }
        assert_eq!(deleted.len(), 6, "0 and 1..=5");
    }

    #[test]
    fn a_request_has_at_most_its_bound_of_keys() {
        let mut garbage = garbage();
        garbage.note(2500, 0);
        garbage.note(4999, 1);
        let mut sizes = Vec::new();
        while let Some(deletion) = garbage.due(2 * HOUR_MS) {
            sizes.push(deletion.keys.len());
            garbage.deleted(&deletion);
        }
        assert_eq!(sizes, [1000, 1000, 500]);
    }

    #[test]
    fn a_sweep_takes_old_objects_of_own_earlier_epochs_only() {
        let space = KeySpace::new("p", "i");
        let listed = |stream, modified_ms| ListedObject { key: space.wal_object(stream, 1), length: 1, modified_ms };
        let page = Listing {
            objects: vec![
                listed(stream(1, 9), 0),
                listed(stream(1, 8), HOUR_MS),
                listed(stream(1, 10), 0),
                listed(stream(2, 9), 0),
                ListedObject { key: ObjectKey::new("p/i/wal/1/strange"), length: 1, modified_ms: 0 },
            ],
            more: More::No,
        };
        let sweep = garbage().sweep(&page, HOUR_MS + 1);
        assert_eq!(sweep.keys, [space.wal_object(stream(1, 9), 1)]);
        assert_eq!(sweep.next_after, None);
    }
}
