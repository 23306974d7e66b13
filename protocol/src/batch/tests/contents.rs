//! Records in and out of batches.

use super::*;
use crate::ids::{LeaderEpoch, Offset};

type OwnedHeader = (Vec<u8>, Option<Vec<u8>>);
/// Offset, time, key, value, headers.
type OwnedRecord = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<OwnedHeader>);

fn owned(batch: &Bytes) -> Vec<OwnedRecord> {
    let mut out = Vec::new();
    for_each_record(batch, 1 << 20, |record| {
        let headers = record.record.headers.into_iter();
        out.push((
            record.offset.get(),
            record.timestamp_ms,
            record.record.key.map(<[u8]>::to_vec),
            record.record.value.map(<[u8]>::to_vec),
            headers.map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec))).collect(),
        ));
    })
    .expect("own batches can be read");
    out
}

#[test]
fn records_come_back_as_they_went_in() {
    for codec in Compression::ALL {
        let first = three_records(BatchBuilder::new(codec));
        let place = |base| first.place(Offset::new(base), LeaderEpoch::ZERO, StampedTime::FromRecords).to_bytes();
        let log = Bytes::from([place(10), place(13)].concat());
        let records = owned(&log);
        assert_eq!(records.len(), 6);
        for (index, base) in [10, 13].into_iter().enumerate() {
            let three = &records[3 * index..3 * index + 3];
            assert_eq!(three[0], (base, NOW, Some(b"key-0".to_vec()), Some(b"value-0".to_vec()), vec![]));
            assert_eq!(three[1], (base + 1, NOW + 5, None, Some(vec![]), vec![]));
            // Headers keep their order and their repeated keys; null and empty differ.
            let headers = vec![(b"h".to_vec(), Some(b"1".to_vec())), (b"h".to_vec(), None)];
            assert_eq!(three[2], (base + 2, NOW + 9, Some(vec![]), None, headers));
        }
    }
}

#[test]
fn control_batches_are_left_out() {
    let marker = three_records(BatchBuilder::new(Compression::None).producer(PRODUCER).transactional().control());
    assert_eq!(owned(marker.bytes()), []);
}

#[test]
fn extreme_times_and_long_values_come_back() {
    let long = vec![7; 100_000];
    let times = [i64::MAX, 0, -1, i64::MIN + 1];
    for &time in &times {
        let mut builder = BatchBuilder::new(Compression::None);
        builder.push(NewRecord { timestamp_ms: time, value: Some(&long), ..NewRecord::default() });
        let records = owned(builder.build().bytes());
        assert_eq!((records[0].1, records[0].3.as_ref()), (time, Some(&long)));
    }
}

#[test]
fn a_batch_emptied_by_compaction_has_no_records_and_keeps_its_offsets() {
    for codec in Compression::ALL {
        let mut bytes = plain()[..HEADER_LEN].to_vec();
        set(&mut bytes, at::LENGTH, 49i32.to_be_bytes());
        set(&mut bytes, at::RECORD_COUNT, 0i32.to_be_bytes());
        set(&mut bytes, at::ATTRIBUTES, i16::from(codec.bits()).to_be_bytes());
        let batch = edited(&Bytes::from(bytes), |_| {});
        assert_eq!(scan(&batch).finish(), ScanEnd::Complete);
        let records = BatchRecords::open(&batch, 1 << 20).unwrap();
        assert_eq!(records.iter().count(), 0);
        assert_eq!(records.header().last_offset_delta.get(), 2);
    }
}

#[test]
fn damaged_records_end_the_iteration_with_an_error() {
    let batch = plain();
    for position in HEADER_LEN..batch.len() {
        for flip in [0x01, 0x7f, 0x80] {
            let mut bytes = batch.to_vec();
            bytes[position] ^= flip;
            let records = BatchRecords::open(&bytes, 1 << 20).expect("the header is whole");
            let results: Vec<bool> = records.iter().map(|record| record.is_ok()).collect();
            assert!(results.len() <= 3);
            assert!(results.iter().rev().skip(1).all(|&ok| ok), "nothing follows an error");
        }
    }
    for len in HEADER_LEN..batch.len() {
        assert!(matches!(BatchRecords::open(&batch[..len], 1 << 20), Err(RecordsError::Torn { .. })));
    }
}

#[test]
fn a_stored_bomb_is_refused_by_the_reader_too() {
    let mut builder = BatchBuilder::new(Compression::Zstd);
    builder.push(NewRecord { value: Some(&vec![0; 4 << 20]), ..NewRecord::default() });
    let batch = builder.build();
    assert!(matches!(
        BatchRecords::open(batch.bytes(), 1 << 20),
        Err(RecordsError::Decompress(DecompressError::TooLarge { .. }))
    ));
}
