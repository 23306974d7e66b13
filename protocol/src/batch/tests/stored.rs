//! Placing checked batches, and finding them again in stored bytes.

use super::*;
use crate::ids::{LeaderEpoch, Offset};

const EPOCH: LeaderEpoch = LeaderEpoch::new(7);

fn stored(base: i64, codec: Compression) -> Bytes {
    three_records(BatchBuilder::new(codec)).place(Offset::new(base), EPOCH, StampedTime::FromRecords).to_bytes()
}

fn log_of_three() -> Vec<u8> {
    [stored(100, Compression::None), stored(103, Compression::Lz4), stored(106, Compression::Zstd)].concat()
}

#[test]
fn placing_sets_offset_and_epoch_and_leaves_the_crc() {
    let checked = three_records(BatchBuilder::new(Compression::None));
    let placed = checked.place(Offset::new(1234), EPOCH, StampedTime::FromRecords);
    assert_eq!(placed.header().crc, checked.header().crc);
    let bytes = placed.to_bytes();
    let header = BatchHeader::parse(&bytes).unwrap();
    assert_eq!(&header, placed.header());
    assert_eq!((header.base_offset, header.leader_epoch), (Offset::new(1234), Some(EPOCH)));
    assert_eq!((header.last_offset(), header.next_offset()), (Offset::new(1236), Offset::new(1237)));
    assert_eq!(&bytes[at::MAGIC..], &checked.bytes()[at::MAGIC..]);
    assert_eq!(scan(&bytes).finish(), ScanEnd::Complete);
}

#[test]
fn a_missing_max_timestamp_is_filled_in_with_a_right_crc() {
    for codec in Compression::ALL {
        for stated in [NO_TIMESTAMP_MS, NOW, i64::MAX] {
            let sent = three_records(BatchBuilder::new(codec)).bytes().clone();
            let sent = edited(&sent, |b| set(b, at::MAX_TIMESTAMP, stated.to_be_bytes()));
            let checked = RawBatch::new(&sent).check(&LIMITS).expect("a client may leave it out");
            assert_eq!((checked.max_timestamp_ms(), checked.max_timestamp_delta().get()), (NOW + 9, 2));
            let bytes = checked.place(Offset::new(5), EPOCH, StampedTime::FromRecords).to_bytes();
            assert_eq!(BatchHeader::parse(&bytes).unwrap().max_timestamp_ms, NOW + 9);
            assert_eq!(scan(&bytes).finish(), ScanEnd::Complete, "the crc is right");
        }
    }
}

#[test]
fn log_append_time_is_stamped_with_a_right_crc() {
    let checked = three_records(BatchBuilder::new(Compression::Gzip));
    let bytes = checked.place(Offset::ZERO, EPOCH, StampedTime::AppendedAt(NOW + 1000)).to_bytes();
    assert_eq!(scan(&bytes).finish(), ScanEnd::Complete, "the crc is right");
    let records = BatchRecords::open(&bytes, 1 << 20).unwrap();
    assert_eq!(records.header().attributes.timestamp_type(), TimestampType::LogAppendTime);
    assert!(records.iter().all(|record| record.unwrap().timestamp_ms == NOW + 1000));
}

#[test]
fn a_scan_gives_whole_batches_and_their_sum() {
    let log = log_of_three();
    let mut walk = scan(&log);
    let bases: Vec<i64> = walk.by_ref().map(|batch| batch.header.base_offset.get()).collect();
    assert_eq!(bases, [100, 103, 106]);
    assert_eq!(walk.end(), Some(ScanEnd::Complete));
    assert_eq!((walk.position(), walk.next_offset()), (log.len(), Some(Offset::new(109))));
    assert_eq!(walk.crc32c(), crc::crc32c(&log));
    assert_eq!(slice_crc(&log), Ok(crc::crc32c(&log)));
    let mut replicated = check_replicated(&log);
    assert_eq!(replicated.by_ref().filter(Result::is_ok).count(), 3);
    assert_eq!(replicated.crc32c(), crc::crc32c(&log));
    assert_eq!(headers(&log).map(|batch| batch.position).collect::<Vec<_>>(), {
        let first = stored(100, Compression::None).len();
        [0, first, first + stored(103, Compression::Lz4).len()]
    });
}

#[test]
fn every_cut_ends_the_scan_at_the_last_whole_batch() {
    let log = log_of_three();
    let ends: Vec<usize> = scan(&log).map(|batch| batch.position + batch.bytes.len()).collect();
    for len in 0..log.len() {
        let whole = ends.iter().copied().filter(|&end| end <= len).max().unwrap_or(0);
        let mut walk = scan(&log[..len]);
        let end = walk.finish();
        assert_eq!(walk.position(), whole, "cut to {len}");
        if whole == len {
            assert_eq!(end, ScanEnd::Complete);
        } else {
            match end {
                ScanEnd::Torn { have, need } => assert!(have == len - whole && need > have, "cut to {len}"),
                // The first bytes of a base offset are zeros.
                ScanEnd::Zeros => assert!(log[whole..len].iter().all(|&byte| byte == 0)),
                other => panic!("cut to {len}: {other}"),
            }
            let last = check_replicated(&log[..len]).last().expect("an error at least");
            assert!(last.is_err(), "a follower takes whole batches only");
        }
    }
}

#[test]
fn every_flipped_byte_under_the_crc_ends_the_scan_before_its_batch() {
    let log = log_of_three();
    let middle = stored(100, Compression::None).len();
    let third = middle + stored(103, Compression::Lz4).len();
    for position in middle + at::CRC..third {
        let mut damaged = log.clone();
        damaged[position] ^= 0x01;
        let mut walk = scan(&damaged);
        let end = walk.finish();
        assert_eq!(walk.position(), middle, "byte {position}: {end}");
        assert!(matches!(end, ScanEnd::Crc { .. } | ScanEnd::Header(_)), "byte {position}: {end}");
    }
    for position in middle..middle + at::CRC {
        let mut damaged = log.clone();
        damaged[position] ^= 0x80;
        // Offset and epoch lie outside a batch's own sum; the sum of the slice covers them.
        assert!(scan(&damaged).finish() != ScanEnd::Complete || slice_crc(&damaged) != slice_crc(&log));
    }
}

#[test]
fn zeros_after_the_last_batch_are_unwritten_space() {
    let mut log = log_of_three();
    let len = log.len();
    for zeros in [1, 12, 61, 4096] {
        log.resize(len + zeros, 0);
        let mut walk = scan(&log);
        assert_eq!(walk.finish(), ScanEnd::Zeros);
        assert_eq!(walk.position(), len);
    }
}

#[test]
fn offsets_that_go_back_end_the_scan_and_gaps_do_not() {
    let back = [stored(100, Compression::None), stored(102, Compression::None)].concat();
    let expected = ScanEnd::Offsets { base: Offset::new(102), expected: Offset::new(103) };
    assert_eq!(scan(&back).finish(), expected);
    let gap = [stored(100, Compression::None), stored(500, Compression::None)].concat();
    assert_eq!(scan(&gap).finish(), ScanEnd::Complete);
}

#[test]
fn headers_of_hostile_bytes_are_errors() {
    let good = stored(100, Compression::None);
    let header = |position: usize, value: &[u8]| {
        let mut bytes = good.to_vec();
        bytes[position..position + value.len()].copy_from_slice(value);
        BatchHeader::parse(&bytes)
    };
    assert_eq!(BatchHeader::parse(&good[..60]), Err(HeaderError::Short { have: 60 }));
    for length in [i32::MIN, -1, 0, 48] {
        assert_eq!(header(at::LENGTH, &length.to_be_bytes()), Err(HeaderError::Length(length)));
    }
    for base in [-1, i64::MIN, i64::MAX, i64::MAX - 2] {
        assert_eq!(header(at::BASE_OFFSET, &base.to_be_bytes()), Err(HeaderError::Offsets { base, delta: 2 }));
    }
    assert_eq!(
        header(at::LAST_OFFSET_DELTA, &(-1i32).to_be_bytes()),
        Err(HeaderError::Offsets { base: 100, delta: -1 })
    );
    for count in [-1, 4, i32::MAX] {
        assert_eq!(header(at::RECORD_COUNT, &count.to_be_bytes()), Err(HeaderError::Count { count, offsets: 3 }));
    }
    assert_eq!(header(at::ATTRIBUTES, &5i16.to_be_bytes()), Err(HeaderError::Compression(5)));
    assert_eq!(header(at::PRODUCER_ID, &9i64.to_be_bytes()), Err(HeaderError::Producer { id: 9, epoch: -1 }));
    assert_eq!(stated_len(&good), Some(good.len()));
    assert_eq!(stated_len(&good[..11]), None);
}

#[test]
fn sequences_wrap_to_zero() {
    let last = |base, count| BatchProducer { base_sequence: Some(base), ..PRODUCER }.last_sequence(count);
    assert_eq!(last(0, 1), Some(0));
    assert_eq!(last(40, 3), Some(42));
    assert_eq!(last(i32::MAX, 1), Some(i32::MAX));
    assert_eq!(last(i32::MAX, 2), Some(0));
    assert_eq!(last(i32::MAX - 1, 5), Some(2));
    assert_eq!(BatchProducer { base_sequence: None, ..PRODUCER }.last_sequence(1), None);
}
