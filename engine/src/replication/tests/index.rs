//! R8: what the WAL index hands out.

use super::super::wal_index::{HeldLog, Indexed, WalIndex};
use super::*;

const BYTES: usize = 1 << 20;

fn insert(index: &mut WalIndex, slice: IndexedSlice, appended: i64) -> Indexed {
    let epochs = one_epoch();
    let held = HeldLog { local_start: Offset::ZERO, appended: at(appended), epochs: &epochs };
    index.insert(key(), 1, slice, held, ms(0))
}

fn opened() -> WalIndex {
    let mut index = WalIndex::new(BYTES);
    index.open(key(), 1);
    index
}

fn found(index: &WalIndex, from: i64) -> Vec<(i64, i64)> {
    index.references_from(key(), at(from)).map(|slice| (slice.base.get(), slice.next.get())).collect()
}

#[test]
fn slices_published_out_of_order_are_handed_out_in_order() {
    let mut index = opened();
    assert_eq!(insert(&mut index, slice(2, 10, 20), 30), Indexed::Taken);
    assert_eq!(found(&index, 0), []);
    assert_eq!(insert(&mut index, slice(1, 0, 10), 30), Indexed::Taken);
    assert_eq!(insert(&mut index, slice(3, 20, 30), 30), Indexed::Taken);
    assert_eq!(found(&index, 0), [(0, 10), (10, 20), (20, 30)]);
    assert_eq!(found(&index, 15), [(10, 20), (20, 30)], "base ≤ asked < next");
    assert_eq!(found(&index, 30), []);
}

#[test]
fn a_hole_ends_what_is_handed_out_and_is_followed_by_the_next_slice() {
    let mut index = opened();
    insert(&mut index, slice(1, 0, 10), 40);
    insert(&mut index, slice(3, 20, 30), 40);
    assert_eq!(found(&index, 5), [(0, 10)]);
    assert_eq!(found(&index, 10), []);
    assert_eq!(index.next_held(key(), at(10)), Some(at(20)));
    assert_eq!(index.next_held(key(), at(30)), None);
}

#[test]
fn only_what_the_own_log_holds_at_that_epoch_is_taken() {
    let mut index = opened();
    assert_eq!(insert(&mut index, slice(1, 0, 10), 9), Indexed::NotHeld);
    let mut old = slice(1, 0, 10);
    old.leader_epoch = LeaderEpoch::new(2);
    assert_eq!(insert(&mut index, old, 10), Indexed::NotHeld);
    let epochs = epochs(&[(2, 0), (3, 5)]);
    let held = HeldLog { local_start: at(1), appended: at(10), epochs: &epochs };
    for (base, next, epoch, holds) in
        [(1, 5, 2, true), (0, 5, 2, false), (1, 6, 2, false), (5, 10, 3, true), (4, 10, 3, false), (5, 10, 4, false)]
    {
        assert_eq!(held.holds(at(base), at(next), LeaderEpoch::new(epoch)), holds, "{base}..{next} at {epoch}");
    }
    assert_eq!(insert(&mut index, slice(1, 0, 10), 10), Indexed::Taken);
    assert_eq!(insert(&mut index, slice(2, 5, 15), 20), Indexed::Known);
}

#[test]
fn other_generations_are_dropped_and_truncation_cuts() {
    let mut index = opened();
    insert(&mut index, slice(1, 0, 10), 30);
    insert(&mut index, slice(2, 10, 20), 30);
    index.cut_end(key(), at(15));
    assert_eq!(found(&index, 0), [(0, 10)]);
    index.open(key(), 2);
    assert_eq!(insert(&mut index, slice(3, 10, 20), 30), Indexed::Stale);
    index.cut_start(key(), at(1));
    assert_eq!(found(&index, 5), []);
}

#[test]
fn the_oldest_slice_of_the_shard_leaves_at_the_bound_whatever_was_cut_before() {
    let mut index = WalIndex::new(4096);
    index.open(key(), 1);
    for number in 0..1000 {
        let base = i64::try_from(number).expect("small") * 10;
        assert_eq!(insert(&mut index, slice(number, base, base + 10), 10_000), Indexed::Taken);
        if number == 500 {
            index.cut_end(key(), at(5000));
            assert_eq!(insert(&mut index, slice(number, 5000, 5010), 10_000), Indexed::Taken);
        }
        assert!(index.bytes() <= 4096);
    }
    let kept = found(&index, 9990 - 50);
    assert_eq!(kept.last(), Some(&(9990, 10_000)));
    assert_eq!(found(&index, 0), []);
}

#[test]
fn objects_that_may_be_deleted_are_forgotten_in_time() {
    let mut index = opened();
    let epochs = one_epoch();
    let held = HeldLog { local_start: Offset::ZERO, appended: at(100), epochs: &epochs };
    index.insert(key(), 1, slice(1, 0, 10), held, ms(1000));
    index.insert(key(), 1, slice(2, 10, 20), held, ms(2000));
    index.expire(ms(2000));
    assert_eq!(found(&index, 0), []);
    assert_eq!(found(&index, 10), [(10, 20)]);
}
