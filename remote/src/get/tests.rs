use super::*;
use crate::frozen::FrozenObject;
use crate::testing::{followed_by, joined, key, object, range, space};
use sakia_protocol::ids::BrokerId;

fn sample() -> FrozenObject {
    object(
        3,
        vec![
            followed_by(range(key(1, 0), 10..12, 20), &[2]),
            followed_by(range(key(1, 0), 12..13, 30), &[2]),
            followed_by(range(key(2, 1), 5..6, 10), &[2, 3]),
            followed_by(range(key(3, 0), 0..9, 50), &[3]),
        ],
    )
}

fn referenced(object: &FrozenObject, broker: i32) -> ReferencedObject {
    let get_end = object.get_end(BrokerId::new(broker)).expect("it follows something");
    ReferencedObject { object: object.reference(), get_end, excluded: Vec::new() }
}

fn fetched(object: &FrozenObject, referenced: &ReferencedObject) -> Bytes {
    joined(object).slice(..usize::try_from(referenced.get_end).unwrap())
}

#[test]
fn one_get_per_object_however_often_it_is_named() {
    let (one, two) = (object(1, vec![range(key(1, 0), 0..1, 9)]), sample());
    let mut short = referenced(&two, 2);
    short.excluded = vec![2];
    let mut long = referenced(&two, 3);
    long.excluded = vec![0];
    let gets = plan(&space(), &[short, referenced(&one, 2), long.clone()]);
    assert_eq!(gets.len(), 2);
    assert_eq!(gets[0].key.as_str(), "prefix/incarnation/wal/1/77/00000000000000000001");
    assert_eq!(gets[1].range, 0..u64::from(long.get_end));
    assert_eq!(gets[1].object.excluded, [0, 2]);
}

#[test]
fn a_follower_reads_to_its_last_slice_and_gets_the_slices_below() {
    let object = sample();
    let to_two = referenced(&object, 2);
    let slices = open_object(&to_two, &fetched(&object, &to_two)).expect("valid");
    let keys: Vec<_> = slices.iter().map(|slice| slice.header.key).collect();
    assert_eq!(keys, [key(1, 0), key(2, 1)]);
    assert_eq!((slices[0].header.base, slices[0].header.next), (Offset::new(10), Offset::new(13)));
    let to_three = referenced(&object, 3);
    assert_eq!(open_object(&to_three, &fetched(&object, &to_three)).expect("valid").len(), 3);
    assert_eq!(to_three.get_end, object.reference().object_length);
}

#[test]
fn slices_share_the_memory_of_the_get() {
    let object = sample();
    let referenced = referenced(&object, 3);
    let bytes = fetched(&object, &referenced);
    for slice in open_object(&referenced, &bytes).expect("valid") {
        let at = usize::try_from(slice.header.start).unwrap();
        assert_eq!(slice.bytes.as_ptr(), bytes[at..].as_ptr());
    }
}

#[test]
fn excluded_and_unwanted_slices_are_left_out() {
    let object = sample();
    let mut referenced = referenced(&object, 3);
    let bytes = fetched(&object, &referenced);
    let mut wanted = Wanted::default();
    wanted.insert(key(1, 0), Offset::new(12), LeaderEpoch::new(4));
    wanted.insert(key(2, 1), Offset::new(6), LeaderEpoch::new(4));
    wanted.insert(key(3, 0), Offset::new(0), LeaderEpoch::new(3));
    let slices = open_wanted(&referenced, &bytes, &wanted).expect("valid");
    assert_eq!(slices.len(), 1, "one is behind its end, one of an epoch that is not taken");
    assert_eq!(slices[0].header.key, key(1, 0));
    referenced.excluded = vec![0, 2];
    assert_eq!(open_object(&referenced, &bytes).expect("valid")[0].header.key, key(2, 1));
}

#[test]
fn every_damaged_byte_is_noticed() {
    let object = sample();
    let referenced = referenced(&object, 3);
    let bytes = fetched(&object, &referenced);
    for position in 0..bytes.len() {
        let mut damaged = bytes.to_vec();
        damaged[position] ^= 0x10;
        assert!(open_object(&referenced, &damaged.into()).is_err(), "byte {position}");
    }
}

#[test]
fn fewer_and_more_bytes_than_asked_are_refused() {
    let object = sample();
    let referenced = referenced(&object, 2);
    for length in [0, 10, 31, 32, 33, usize::try_from(referenced.get_end).unwrap() - 1] {
        let bytes = joined(&object).slice(..length);
        let short = Err(GetError::Length { got: length, asked: referenced.get_end });
        assert_eq!(open_object(&referenced, &bytes), short);
    }
    let whole = joined(&object);
    assert!(matches!(open_object(&referenced, &whole), Err(GetError::Length { .. })));
}

#[test]
fn another_valid_object_under_the_name_is_refused() {
    let (object, other) = (sample(), object(4, sample_ranges()));
    let asked = referenced(&object, 3);
    let mut bytes = joined(&other).to_vec();
    bytes.resize(usize::try_from(asked.get_end).unwrap(), 0);
    assert_eq!(open_object(&asked, &bytes.into()), Err(GetError::Another { what: "manifest checksum" }));
}

fn sample_ranges() -> Vec<crate::pack::ReadyRange> {
    vec![range(key(1, 0), 10..12, 20)]
}

#[test]
fn batches_of_another_epoch_in_a_slice_are_refused() {
    let object = sample();
    let referenced = referenced(&object, 2);
    let bytes = fetched(&object, &referenced);
    let head = read_head(&bytes).expect("valid");
    let mut header = head.slices().next().expect("a slice");
    header.leader_epoch = LeaderEpoch::new(9);
    assert!(matches!(cut(0, header, &bytes), Err(GetError::Batches { index: 0, .. })));
}
