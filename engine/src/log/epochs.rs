//! The leader-epoch cache of one log: which leadership wrote which offsets. With it a follower finds where its log parts
//! from its leader's.
//!
//! Pure. Kept beside the log as `leader-epoch-checkpoint`, Kafka's text:
//! ```text
//! 0               version
//! 2               number of entries
//! 0 0             epoch, start offset
//! 3 1500
//! ```
//! Invariant: epochs and start offsets of the entries rise strictly. An entry's records end where the next one starts.

use sakia_protocol::ids::{LeaderEpoch, Offset};

use crate::log::limits::EPOCH_ENTRIES_MAX;

/// Name of the file in the partition's folder.
pub const EPOCH_FILE: &str = "leader-epoch-checkpoint";

/// One leadership that wrote something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochStart {
    /// The leadership.
    pub epoch: LeaderEpoch,
    /// Offset of its first record.
    pub start: Offset,
}

/// The checkpoint file is not believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line} is not what a leader epoch checkpoint holds")]
pub struct EpochFileDamage {
    /// Counted from 1.
    pub line: usize,
}

/// The epochs of one log, oldest first.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct EpochCache {
    entries: Vec<EpochStart>,
}

impl EpochCache {
    /// Takes note that records from `start` on were written in `epoch`. Nothing changes if that is the latest one.
    /// Returns whether the file must be written again.
    pub fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> Changed {
        if let Some(latest) = self.entries.last() {
            if latest.epoch == epoch {
                return Changed::No;
            }
            assert!(latest.epoch < epoch, "leader epochs of a log never go back: {epoch} after {}", latest.epoch);
        }
        while self.entries.last().is_some_and(|last| last.start >= start) {
            self.entries.pop();
        }
        if self.entries.len() == EPOCH_ENTRIES_MAX {
            self.entries.remove(0);
        }
        self.entries.push(EpochStart { epoch, start });
        Changed::Yes
    }

    /// The epoch of the last record, if there is one.
    #[must_use]
    pub fn latest(&self) -> Option<EpochStart> {
        self.entries.last().copied()
    }

    /// The epoch that wrote the record at `offset`.
    #[must_use]
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let found = self.entries.partition_point(|entry| entry.start <= offset);
        Some(self.entries[found.checked_sub(1)?].epoch)
    }

    /// Kafka's OffsetForLeaderEpoch: the largest epoch here at or below `epoch`, and the offset where it ends; `log_end` for
    /// the latest. An epoch below all of them is answered with itself and the start of the first. `None`: no such epoch here.
    #[must_use]
    pub fn end_of(&self, epoch: LeaderEpoch, log_end: Offset) -> Option<(LeaderEpoch, Offset)> {
        let latest = self.entries.last()?;
        if latest.epoch == epoch {
            return Some((epoch, log_end));
        }
        let next = self.entries.partition_point(|entry| entry.epoch <= epoch);
        let end = self.entries.get(next)?.start;
        let floor = next.checked_sub(1).map_or(epoch, |at| self.entries[at].epoch);
        Some((floor, end))
    }

    /// The log now ends at `end`: forgets what began at or behind it.
    pub fn cut_end(&mut self, end: Offset) {
        while self.entries.last().is_some_and(|last| last.start >= end) {
            self.entries.pop();
        }
    }

    /// The log now starts at `start`: the epoch that reaches over it begins there, older ones are forgotten.
    pub fn cut_start(&mut self, start: Offset) {
        let found = self.entries.partition_point(|entry| entry.start <= start);
        let Some(first) = found.checked_sub(1) else { return };
        self.entries.drain(..first);
        self.entries[0].start = start;
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no record was written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Oldest first.
    #[must_use]
    pub fn entries(&self) -> &[EpochStart] {
        &self.entries
    }

    /// The text of the checkpoint file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut text = format!("0\n{}\n", self.entries.len());
        for entry in &self.entries {
            text.push_str(&format!("{} {}\n", entry.epoch, entry.start));
        }
        text.into_bytes()
    }

    /// Reads the checkpoint file.
    ///
    /// # Errors
    /// The first line that cannot be right; the caller then rebuilds the cache from the log.
    pub fn decode(bytes: &[u8]) -> Result<Self, EpochFileDamage> {
        let text = std::str::from_utf8(bytes).map_err(|_| EpochFileDamage { line: 1 })?;
        let mut lines = text.lines();
        if lines.next() != Some("0") {
            return Err(EpochFileDamage { line: 1 });
        }
        let count: usize = lines.next().and_then(|line| line.parse().ok()).ok_or(EpochFileDamage { line: 2 })?;
        let mut cache = Self::default();
        for (at, line) in lines.enumerate() {
            let damage = EpochFileDamage { line: at + 3 };
            let entry = parse_entry(line).ok_or(damage)?;
            let rises = cache.entries.last().is_none_or(|last| last.epoch < entry.epoch && last.start < entry.start);
            if !rises || cache.entries.len() == count {
                return Err(damage);
            }
            cache.entries.push(entry);
        }
        // A text cut within its last number would otherwise pass as a smaller number.
        if cache.entries.len() != count || !text.ends_with('\n') {
            return Err(EpochFileDamage { line: cache.entries.len() + 3 });
        }
        Ok(cache)
    }
}

/// Whether a call changed something that is also kept in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Changed {
    /// It did.
    Yes,
    /// It did not.
    No,
}

fn parse_entry(line: &str) -> Option<EpochStart> {
    let (epoch, start) = line.split_once(' ')?;
    Some(EpochStart {
        epoch: LeaderEpoch::from_wire(epoch.parse().ok()?)?,
        start: Offset::from_wire(start.parse().ok()?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(value: i32) -> LeaderEpoch {
        LeaderEpoch::new(value)
    }

    fn offset(value: i64) -> Offset {
        Offset::new(value)
    }

    fn cache() -> EpochCache {
        let mut cache = EpochCache::default();
        for (number, start) in [(2, 10), (3, 20), (7, 30)] {
            let _ = cache.assign(epoch(number), offset(start));
        }
        cache
    }

    #[test]
    fn end_of_an_epoch_follows_kafkas_rule() {
        let end = offset(40);
        let cases = [
            (1, Some((1, 10))),
            (2, Some((2, 20))),
            (3, Some((3, 30))),
            (5, Some((3, 30))),
            (7, Some((7, 40))),
            (8, None),
        ];
        for (asked, answer) in cases {
            let answer = answer.map(|(number, at)| (epoch(number), offset(at)));
            assert_eq!(cache().end_of(epoch(asked), end), answer, "epoch {asked}");
        }
        assert_eq!(EpochCache::default().end_of(epoch(0), end), None);
    }

    #[test]
    fn an_epoch_that_wrote_nothing_leaves_no_entry() {
        let mut cache = cache();
        let _ = cache.assign(epoch(9), offset(30));
        assert_eq!(cache.latest(), Some(EpochStart { epoch: epoch(9), start: offset(30) }));
        assert_eq!(cache.len(), 3);
    }

    #[test]
    fn cuts_at_both_ends_keep_the_epoch_of_every_remaining_record() {
        for start in 0..45 {
            for end in start..45 {
                let mut cut = cache();
                cut.cut_start(offset(start));
                cut.cut_end(offset(end));
                for at in start.max(10)..end {
                    assert_eq!(cut.epoch_at(offset(at)), cache().epoch_at(offset(at)), "{start}..{end} at {at}");
                }
                assert!(cut.entries().iter().all(|entry| entry.start < offset(end)));
            }
        }
    }

    #[test]
    fn the_file_is_kafkas_text_and_reads_back() {
        assert_eq!(cache().encode(), b"0\n3\n2 10\n3 20\n7 30\n");
        assert_eq!(EpochCache::decode(&cache().encode()), Ok(cache()));
        assert_eq!(EpochCache::decode(b"0\n0\n"), Ok(EpochCache::default()));
    }

    #[test]
    fn a_file_cut_anywhere_is_recognised() {
        let bytes = cache().encode();
        for len in 0..bytes.len() {
            assert!(EpochCache::decode(&bytes[..len]).is_err(), "cut at {len}");
        }
        for damaged in
            [&b"1\n0\n"[..], b"0\n1\n3 x\n", b"0\n2\n3 10\n3 20\n", b"0\n1\n1 1\n2 2\n", b"\xff\xfe", b"0\n-1\n"]
        {
            assert!(EpochCache::decode(damaged).is_err());
        }
    }
}
