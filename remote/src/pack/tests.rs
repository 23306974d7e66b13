use super::*;
use crate::testing::{followed_by, key, plan, range};

const MS: Duration = Duration::from_millis(1);

fn packer() -> Packer {
    Packer::new(PackSettings { upload_bytes: 1000, interval: 10 * MS, object_bytes_max: 3000, queue_bytes_max: 10_000 })
}

/// A range of exactly `length` bytes.
fn sized(partition: i32, offset: i64, length: usize) -> ReadyRange {
    range(key(1, partition), offset..offset + 1, length - 61)
}

fn offer(packer: &mut Packer, range: ReadyRange, now: Duration) {
    assert!(matches!(packer.offer(range, now), Offered::Taken));
}

#[test]
fn nothing_is_due_while_nothing_waits() {
    let mut packer = packer();
    assert_eq!(packer.due(100 * MS), None);
    assert!(packer.freeze(100 * MS, 4).is_none());
}

#[test]
fn an_object_is_due_when_its_first_byte_is_old_enough() {
    let mut packer = packer();
    offer(&mut packer, sized(0, 0, 100), 50 * MS);
    offer(&mut packer, sized(0, 1, 100), 58 * MS);
    assert_eq!(packer.due(58 * MS), Some(2 * MS));
    assert!(packer.freeze(59 * MS, 4).is_none());
    let plan = packer.freeze(60 * MS, 4).expect("due");
    assert_eq!((plan.cause, plan.oldest_at, plan.bytes), (FreezeCause::Age, 50 * MS, 200));
    assert_eq!(packer.due(60 * MS), None);
    assert_eq!(packer.queued_bytes(), 0);
}

#[test]
fn an_object_is_due_at_its_size_before_its_age() {
    let mut packer = packer();
    offer(&mut packer, sized(0, 0, 999), Duration::ZERO);
    assert_eq!(packer.due(Duration::ZERO), Some(10 * MS));
    offer(&mut packer, sized(1, 0, 61), Duration::ZERO);
    assert_eq!(packer.due(Duration::ZERO), Some(Duration::ZERO));
    assert_eq!(packer.freeze(Duration::ZERO, 1).expect("due").cause, FreezeCause::Bytes);
}

#[test]
fn an_object_grows_while_no_slot_is_free_and_the_rest_waits_for_the_next() {
    let mut packer = packer();
    for offset in 0..8 {
        offer(&mut packer, sized(0, offset, 500), Duration::ZERO);
    }
    assert!(packer.freeze(20 * MS, 0).is_none());
    assert_eq!(packer.freeze(20 * MS, 1).expect("due").bytes, 3000);
    assert_eq!(packer.freeze(20 * MS, 1).expect("due").bytes, 1000);
    assert!(packer.freeze(20 * MS, 1).is_none());
}

#[test]
fn a_range_longer_than_an_object_goes_alone_and_whole() {
    let mut packer = packer();
    offer(&mut packer, sized(0, 0, 100), Duration::ZERO);
    offer(&mut packer, sized(1, 0, 5000), Duration::ZERO);
    offer(&mut packer, sized(2, 0, 100), Duration::ZERO);
    let sizes: Vec<_> = std::iter::from_fn(|| packer.freeze(20 * MS, 1)).map(|plan| plan.bytes).collect();
    assert_eq!(sizes, [100, 5000, 100]);
}

#[test]
fn a_full_queue_gives_the_range_back() {
    let mut packer = packer();
    for offset in 0..10 {
        offer(&mut packer, sized(0, offset, 1000), Duration::ZERO);
    }
    let Offered::Full(back) = packer.offer(sized(7, 3, 61), Duration::ZERO) else { panic!("the queue is full") };
    assert_eq!((back.key, back.base), (key(1, 7), Offset::new(3)));
    assert_eq!(packer.queued_bytes(), 10_000);
}

#[test]
fn neighbours_become_one_slice_with_the_checksum_of_the_whole() {
    let ranges = vec![range(key(1, 0), 5..7, 30), range(key(2, 0), 0..1, 10), range(key(1, 0), 7..8, 40)];
    let whole = [ranges[0].bytes.clone(), ranges[2].bytes.clone()].concat();
    let plan = plan(ranges);
    assert_eq!(plan.slices.len(), 2);
    let slice = &plan.slices[0];
    assert_eq!((slice.base, slice.next, slice.max_timestamp_ms), (Offset::new(5), Offset::new(8), 8));
    assert_eq!(slice.parts.concat(), whole);
    assert_eq!(slice.crc32c, crc32c::crc32c(&whole));
    assert_eq!(slice.length, u64::try_from(whole.len()).unwrap());
}

#[test]
fn a_slice_never_spans_a_gap_or_a_generation_or_an_epoch() {
    let first = || range(key(1, 0), 0..2, 0);
    let slices = |second: ReadyRange| plan(vec![first(), second]).slices.len();
    assert_eq!(slices(range(key(1, 0), 2..3, 0)), 1);
    assert_eq!(slices(range(key(1, 0), 3..4, 0)), 2);
    let mut generation = range(key(1, 0), 2..3, 0);
    generation.generation = 2;
    assert_eq!(slices(generation), 2);
    let mut epoch = range(key(1, 0), 2..3, 0);
    epoch.leader_epoch = LeaderEpoch::new(5);
    epoch.bytes = crate::batches::tests::batch(2, 1, 5, 0).into();
    epoch.crc32c = crc32c::crc32c(&epoch.bytes);
    assert_eq!(slices(epoch), 2);
}

#[test]
#[should_panic(expected = "another leader epoch")]
fn a_range_over_an_epoch_end_stops_the_process() {
    let mut range = range(key(1, 0), 0..1, 0);
    range.leader_epoch = LeaderEpoch::new(3);
    let _ = packer().offer(range, Duration::ZERO);
}

#[test]
fn what_one_follower_wants_comes_together_and_unfollowed_partitions_last() {
    let one = |topic, partition, brokers: &[i32]| followed_by(range(key(topic, partition), 0..1, 0), brokers);
    let plan = plan(vec![
        one(1, 0, &[]),
        one(1, 1, &[3]),
        one(1, 2, &[2]),
        one(1, 3, &[3, 2]),
        one(2, 0, &[2]),
        one(0, 9, &[2, 3]),
        one(1, 4, &[3]),
    ]);
    let order: Vec<_> =
        plan.slices.iter().map(|slice| (slice.key.topic_id.as_bytes()[0], slice.key.partition.get())).collect();
    assert_eq!(order, [(1, 2), (2, 0), (0, 9), (1, 3), (1, 1), (1, 4), (1, 0)]);
}

#[test]
fn slices_of_one_partition_stay_in_order_when_its_followers_change() {
    let early = followed_by(range(key(1, 0), 0..1, 0), &[3]);
    let late = followed_by(range(key(1, 0), 5..6, 0), &[2]);
    let plan = plan(vec![early, late]);
    let bases: Vec<_> = plan.slices.iter().map(|slice| slice.base.get()).collect();
    assert_eq!(bases, [0, 5]);
}

#[test]
fn oldest_ranges_leave_first_so_every_age_is_bounded() {
    let mut packer = packer();
    // One partition floods, another has one small range behind it.
    for offset in 0..4 {
        offer(&mut packer, sized(0, offset, 1000), Duration::ZERO);
    }
    offer(&mut packer, sized(9, 0, 61), MS);
    offer(&mut packer, sized(0, 4, 1000), 2 * MS);
    let first = packer.freeze(3 * MS, 1).expect("due");
    let second = packer.freeze(3 * MS, 1).expect("due");
    assert!(first.slices.iter().all(|slice| slice.key == key(1, 0)));
    assert!(second.slices.iter().any(|slice| slice.key == key(1, 9)), "in the second object at the latest");
}

#[test]
fn expired_ranges_are_taken_out() {
    let mut packer = packer();
    offer(&mut packer, sized(0, 0, 100), 10 * MS);
    offer(&mut packer, sized(1, 0, 100), 20 * MS);
    offer(&mut packer, sized(2, 0, 100), 30 * MS);
    assert_eq!(packer.take_expired(20 * MS).len(), 2);
    assert_eq!(packer.oldest_at(), Some(30 * MS));
    assert_eq!(packer.take_expired(30 * MS).len(), 1);
    assert_eq!((packer.queued_bytes(), packer.due(Duration::ZERO)), (0, None));
}

#[test]
fn a_clock_that_runs_behind_does_not_make_ranges_older() {
    let mut packer = packer();
    offer(&mut packer, sized(0, 0, 100), 50 * MS);
    offer(&mut packer, sized(0, 1, 100), 40 * MS);
    let _ = packer.take_expired(Duration::ZERO);
    assert_eq!(packer.oldest_at(), Some(50 * MS));
    packer.widen(100 * MS);
    assert_eq!(packer.due(60 * MS), Some(90 * MS));
}
