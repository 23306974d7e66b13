//! A follower's side: order, bounds, high watermark; and consumers at followers.

use bytes::Bytes;

use super::super::follower::{BatchSpan, Dropped, FetchedSlice, FollowerState, Following, Misfit, Offer, first_needed};
use super::super::limits::{WAITING_BYTES_MAX, WAITING_SLICES_MAX};
use super::super::read_replica::{FollowerRead, follower_read, preferred_replica};
use super::*;

fn following(end: i64) -> FollowerState {
    FollowerState::new(Following {
        leader: ME,
        leader_epoch: EPOCH,
        generation: 5,
        appended: at(end),
        stored: at(end),
        high_watermark: at(end),
    })
}

fn part(base: i64, next: i64) -> FetchedSlice {
    FetchedSlice {
        generation: 5,
        slice_epoch: Some(EPOCH),
        base: at(base),
        next: at(next),
        bytes: Bytes::from_static(b"batches"),
    }
}

#[test]
fn slices_that_come_early_wait_for_their_predecessor() {
    let mut follower = following(10);
    assert_eq!(follower.offer(part(30, 40)), Offer::Waits);
    assert_eq!(follower.offer(part(20, 30)), Offer::Waits);
    assert_eq!(follower.offer(part(20, 30)), Offer::Dropped(Dropped::Waits));
    assert_eq!(follower.take_ready(), None);
    assert_eq!(follower.offer(part(10, 20)), Offer::Append(part(10, 20)));
    follower.on_appended(at(20));
    assert_eq!(follower.take_ready(), Some(part(20, 30)));
    follower.on_appended(at(30));
    assert_eq!(follower.take_ready(), Some(part(30, 40)));
    follower.on_appended(at(40));
    assert_eq!(follower.take_ready(), None);
    assert_eq!(follower.waiting_bytes(), 0);
}

#[test]
fn any_order_of_slices_with_repeats_gives_the_log_once() {
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let mut follower = following(0);
        let mut log = Vec::new();
        let mut parts: Vec<i64> = (0..20).chain(0..20).collect();
        while !parts.is_empty() {
            let number = parts.swap_remove(dice.roll(parts.len()));
            let mut next = match follower.offer(part(number * 5, number * 5 + 5)) {
                Offer::Append(slice) => Some(slice),
                _ => None,
            };
            while let Some(slice) = next {
                let end = log.len();
                let from = usize::try_from(slice.base.get()).expect("small");
                let to = usize::try_from(slice.next.get()).expect("small");
                assert!(from <= end, "a gap, seed {seed}");
                log.extend(end.max(from)..to);
                follower.on_appended(slice.next);
                next = follower.take_ready();
            }
        }
        assert_eq!(log, (0..100).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn what_was_asked_for_in_another_generation_or_belongs_to_another_epoch_is_dropped() {
    let mut follower = following(10);
    let mut stale = part(10, 20);
    stale.generation = 4;
    assert_eq!(follower.offer(stale), Offer::Dropped(Dropped::Stale));
    let mut foreign = part(10, 20);
    foreign.slice_epoch = Some(LeaderEpoch::new(2));
    assert_eq!(follower.offer(foreign), Offer::Dropped(Dropped::OtherEpoch));
    assert_eq!(follower.offer(part(0, 10)), Offer::Dropped(Dropped::Held));
    assert_eq!(follower.offer(part(5, 20)), Offer::Append(part(5, 20)));
    follower.on_truncated(at(3), 6);
    assert_eq!(follower.offer(part(3, 9)), Offer::Dropped(Dropped::Stale));
    assert_eq!((follower.stored(), follower.high_watermark()), (at(3), at(3)));
}

#[test]
fn waiting_slices_are_bounded_in_number_and_bytes() {
    let mut follower = following(0);
    let mut number = 0;
    let mut base = 10;
    while follower.offer(part(base, base + 1)) == Offer::Waits {
        base += 1;
        number += 1;
    }
    assert_eq!(number, WAITING_SLICES_MAX);
    let mut follower = following(0);
    let large = FetchedSlice { bytes: Bytes::from(vec![0; WAITING_BYTES_MAX / 2 + 1]), ..part(10, 20) };
    assert_eq!(follower.offer(large.clone()), Offer::Waits);
    assert_eq!(follower.offer(FetchedSlice { base: at(20), next: at(30), ..large }), Offer::NoRoom);
}

#[test]
fn the_watermark_is_what_the_leader_says_and_what_is_stored() {
    let mut follower = following(10);
    assert_eq!(follower.on_leader(at(30), Some(at(2))), None);
    follower.on_appended(at(40));
    assert_eq!(follower.on_stored(at(25)), Some(at(25)));
    assert_eq!(follower.on_stored(at(40)), Some(at(30)));
    assert_eq!(follower.on_leader(at(20), Some(at(1))), None, "a reply that was overtaken");
    assert_eq!(follower.leader_log_start(), Some(at(2)));
}

#[test]
fn bytes_are_asked_for_until_the_lost_slice_is_stored() {
    let mut follower = following(10);
    follower.ask_bytes(None);
    assert_eq!(follower.bytes_until(), Some(at(11)));
    follower.ask_bytes(Some(at(30)));
    follower.ask_bytes(Some(at(20)));
    assert_eq!(follower.bytes_until(), Some(at(30)));
    follower.on_appended(at(30));
    follower.on_stored(at(29));
    assert_eq!(follower.bytes_until(), Some(at(30)));
    follower.on_stored(at(30));
    assert_eq!(follower.bytes_until(), None);
}

#[test]
fn batches_that_are_held_are_skipped_and_the_rest_continues_exactly() {
    let span = |base, next| BatchSpan { base: at(base), next: at(next), leader_epoch: EPOCH };
    let batches = [span(0, 5), span(5, 8), span(8, 12)];
    assert_eq!(first_needed(batches, at(0), Some(EPOCH)), Ok(0));
    assert_eq!(first_needed(batches, at(8), Some(EPOCH)), Ok(2));
    assert_eq!(first_needed(batches, at(12), Some(EPOCH)), Ok(3));
    let inside = first_needed(batches, at(6), Some(EPOCH));
    assert_eq!(inside, Err(Misfit::Base { base: at(5), next: at(8), end: at(6) }));
    let gap = first_needed([span(0, 5), span(6, 8)], at(0), None);
    assert_eq!(gap, Err(Misfit::Base { base: at(6), next: at(8), end: at(5) }));
    let other = first_needed(batches, at(0), Some(LeaderEpoch::new(2)));
    assert_eq!(other, Err(Misfit::Epoch { base: at(0), found: EPOCH, slice: LeaderEpoch::new(2) }));
}

#[test]
fn consumers_go_to_a_replica_in_their_rack_that_is_in_sync_and_holds_the_offset() {
    let mut leader = LeaderState::new(leadership(&[OTHER, THIRD], 100), ms(0));
    for (broker, end) in [(OTHER, 80), (THIRD, 90)] {
        let taken = checked(fetch(broker, (1, 1), end), &leader, 100);
        leader.on_follower_fetch(&taken, ms(1));
    }
    let rack = |broker: BrokerId| if broker == ME { Some("a") } else { Some("b") };
    let to = |leader: &LeaderState, consumer: &str, asked: i64| {
        preferred_replica(leader, consumer, Some("a"), at(asked), rack)
    };
    assert_eq!(to(&leader, "b", 80), Some(THIRD), "the one that holds most");
    assert_eq!(to(&leader, "b", 95), None, "nobody there holds it");
    assert_eq!(to(&leader, "a", 50), None);
    assert_eq!(to(&leader, "c", 50), None);
    leader.on_broker_change(THIRD, None);
    assert_eq!(to(&leader, "b", 80), Some(OTHER));
}

#[test]
fn a_trailing_follower_never_says_out_of_range_above_its_end() {
    assert_eq!(follower_read(at(4), at(5), at(9)), FollowerRead::OutOfRange);
    assert_eq!(follower_read(at(5), at(5), at(9)), FollowerRead::Serve);
    assert_eq!(follower_read(at(9), at(5), at(9)), FollowerRead::Serve);
    assert_eq!(follower_read(at(10), at(5), at(9)), FollowerRead::NotAvailable);
}

#[test]
fn a_leader_is_asked_only_when_the_tail_of_earlier_leaders_is_stored() {
    let mut follower = FollowerState::new(Following {
        leader: ME,
        leader_epoch: EPOCH,
        generation: 5,
        appended: at(20),
        stored: at(10),
        high_watermark: at(10),
    });
    assert!(!follower.may_ask());
    follower.on_stored(at(15));
    assert!(!follower.may_ask(), "its epochs below 15 say nothing of 15..20");
    follower.on_stored(at(20));
    assert!(follower.may_ask());
    follower.on_truncated(at(12), 6);
    follower.on_appended(at(30));
    assert!(follower.may_ask(), "what this leader gave needs no second look");
}

#[test]
fn a_follower_serves_nothing_before_the_leader_of_this_epoch_has_told_its_watermark() {
    let mut follower = following(10);
    assert_eq!(follower.high_watermark(), at(10));
    assert_eq!(follower.served_below(), None);
    assert_eq!(follower.on_leader(at(4), None), None);
    assert_eq!(follower.served_below(), Some(at(4)), "an unclean election may have taken the rest");
    assert_eq!(follower.on_leader(at(20), None), None);
    assert_eq!(follower.served_below(), Some(at(10)), "no more than is stored");
    follower.on_truncated(at(8), 6);
    assert_eq!(follower.served_below(), None);
}
