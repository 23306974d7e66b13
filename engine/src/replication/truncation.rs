//! Where two logs of one partition part, by leader epochs alone (KIP-101, KIP-279, KIP-595).
//!
//! Pure. The leader answers with the end of the follower's epoch in its own log ([`leader_end_of`], [`diverging`]); the
//! follower cuts back to what both may have in common ([`truncate_to`]) and asks again until nothing is left to cut.
//! Never by the high watermark: two quick leader changes would leave logs that differ for ever.
//! Invariant: a cut never goes below the last record that both logs hold at the same epoch; each cut removes something.

use sakia_protocol::ids::{LeaderEpoch, Offset};

use crate::log::epochs::EpochCache;

/// An epoch and the offset where it ends in someone's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochEnd {
    /// The largest epoch of that log at or below the one that was asked for.
    pub epoch: LeaderEpoch,
    /// Offset after its last record.
    pub end: Offset,
}

/// A leadership as its log shows it.
#[derive(Clone, Copy, Debug)]
pub struct Lineage<'a> {
    /// Which epoch wrote what. The current epoch has an entry only after its first append.
    pub epochs: &'a EpochCache,
    /// The current epoch.
    pub leader_epoch: LeaderEpoch,
    /// Where its records begin.
    pub epoch_start: Offset,
    /// End of the log: `stored` for answers to OffsetForLeaderEpoch, `appended` for checks of a follower (R1).
    pub end: Offset,
}

/// Where `epoch` ends in the leader's log. An epoch that has written nothing yet counts as beginning, and ending, at the end
/// of the log: else a tail from an epoch that this leader never saw would be taken for part of the log. `None` for an
/// epoch above the current one.
#[must_use]
pub fn leader_end_of(lineage: Lineage<'_>, epoch: LeaderEpoch) -> Option<EpochEnd> {
    if epoch > lineage.leader_epoch {
        return None;
    }
    if epoch == lineage.leader_epoch {
        return Some(EpochEnd { epoch, end: lineage.end });
    }
    let latest = lineage.epochs.latest();
    match latest {
        Some(latest) if epoch < latest.epoch => {
            lineage.epochs.end_of(epoch, lineage.end).map(|(epoch, end)| EpochEnd { epoch, end })
        }
        // Above or at the last epoch that wrote something: that one ends where the current epoch begins.
        Some(latest) => Some(EpochEnd { epoch: latest.epoch, end: lineage.epoch_start }),
        None => Some(EpochEnd { epoch, end: lineage.epoch_start }),
    }
}

/// What a leader answers to a follower whose log ends at `end` with a record of `last_epoch`: `Some` if that is no
/// beginning of the leader's log. An epoch above the leader's own is treated as diverging from the start of the current one.
#[must_use]
pub fn diverging(lineage: Lineage<'_>, last_epoch: LeaderEpoch, end: Offset) -> Option<EpochEnd> {
    let current = EpochEnd { epoch: lineage.leader_epoch, end: lineage.end };
    let found = leader_end_of(lineage, last_epoch).unwrap_or(current);
    (found.epoch < last_epoch || found.end < end).then_some(found)
}

/// Where a follower cuts its log, ending at `end`, after a leader said that its own `leader.epoch` ends at `leader.end`.
/// `None`: nothing to cut, the answer does not fit this log (it comes from another question).
#[must_use]
pub fn truncate_to(epochs: &EpochCache, end: Offset, leader: EpochEnd) -> Option<Offset> {
    let target = match epochs.end_of(leader.epoch, end) {
        // The same epoch on both sides: common up to the shorter one. A floor epoch below it: what follows that one here is
        // unknown to the leader, and where that one ends there shows at the next question.
        Some((found, own_end)) if found == leader.epoch => own_end.min(leader.end),
        Some((_, own_end)) => own_end.min(leader.end).min(end),
        None => leader.end.min(end),
    };
    (target < end).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(entries: &[(i32, i64)]) -> EpochCache {
        let mut cache = EpochCache::default();
        for (epoch, start) in entries {
            let _ = cache.assign(LeaderEpoch::new(*epoch), Offset::new(*start));
        }
        cache
    }

    fn end(epoch: i32, end: i64) -> EpochEnd {
        EpochEnd { epoch: LeaderEpoch::new(epoch), end: Offset::new(end) }
    }

    #[test]
    fn a_leader_that_has_written_nothing_yet_still_cuts_a_foreign_tail() {
        let cache = epochs(&[(1, 0)]);
        let log_end = Offset::new(5);
        let lineage = Lineage { epochs: &cache, leader_epoch: LeaderEpoch::new(3), epoch_start: log_end, end: log_end };
        // The old leader has 0..10 at epoch 1, the next one wrote 7.. at epoch 2; neither tail reached this leader.
        assert_eq!(diverging(lineage, LeaderEpoch::new(1), Offset::new(10)), Some(end(1, 5)));
        assert_eq!(diverging(lineage, LeaderEpoch::new(2), Offset::new(9)), Some(end(1, 5)));
        assert_eq!(diverging(lineage, LeaderEpoch::new(1), Offset::new(5)), None);
        assert_eq!(leader_end_of(lineage, LeaderEpoch::new(3)), Some(end(3, 5)));
        assert_eq!(leader_end_of(lineage, LeaderEpoch::new(4)), None);
    }

    #[test]
    fn the_example_of_the_kip_cuts_back_to_the_elected_replica() {
        // remote-wal-2: followers at 5 and 7, leader at 10; the one at 5 is elected in epoch 1 and writes 5..8.
        let leader = epochs(&[(0, 0), (1, 5)]);
        let lineage = Lineage {
            epochs: &leader,
            leader_epoch: LeaderEpoch::new(1),
            epoch_start: Offset::new(5),
            end: Offset::new(8),
        };
        let old = epochs(&[(0, 0)]);
        for own_end in [7, 10] {
            let answer = diverging(lineage, LeaderEpoch::new(0), Offset::new(own_end)).expect("it diverges");
            assert_eq!(truncate_to(&old, Offset::new(own_end), answer), Some(Offset::new(5)));
        }
    }

    #[test]
    fn an_answer_that_does_not_shorten_the_log_is_refused() {
        let cache = epochs(&[(0, 0)]);
        assert_eq!(truncate_to(&cache, Offset::new(5), end(0, 9)), None);
        assert_eq!(truncate_to(&EpochCache::default(), Offset::ZERO, end(0, 0)), None);
    }
}
