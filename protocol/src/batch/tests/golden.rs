//! Batches of a real client, from `testdata/librdkafka`.

use super::*;
use crate::ids::{LeaderEpoch, Offset};

const BATCHES: [(Compression, &[u8]); 5] = [
    (Compression::None, include_bytes!("../../../testdata/librdkafka/none.batch")),
    (Compression::Gzip, include_bytes!("../../../testdata/librdkafka/gzip.batch")),
    (Compression::Snappy, include_bytes!("../../../testdata/librdkafka/snappy.batch")),
    (Compression::Lz4, include_bytes!("../../../testdata/librdkafka/lz4.batch")),
    (Compression::Zstd, include_bytes!("../../../testdata/librdkafka/zstd.batch")),
];

fn same_records(mut builder: BatchBuilder) -> CheckedBatch {
    let text = b"the same words again and again; ".repeat(8);
    let headers = [
        Header { key: b"h", value: Some(b"1") },
        Header { key: b"h", value: None },
        Header { key: b"g", value: Some(b"") },
    ];
    builder
        .push(NewRecord { timestamp_ms: NOW, key: Some(b"key-0"), value: Some(&text), headers: &[] })
        .push(NewRecord { timestamp_ms: NOW + 5, key: None, value: Some(&text[..100]), headers: &headers })
        .push(NewRecord { timestamp_ms: NOW + 9, key: Some(b"key-2"), value: None, headers: &[] });
    builder.build()
}

#[test]
fn a_real_clients_batches_of_every_codec_pass_and_hold_its_records() {
    let own = same_records(BatchBuilder::new(Compression::None));
    let own = BatchRecords::open(own.bytes(), 1 << 20).unwrap();
    let own: Vec<_> = own.iter().map(Result::unwrap).collect();
    for (codec, bytes) in BATCHES {
        let checked = RawBatch::new(&Bytes::from_static(bytes)).check(&LIMITS).expect("a right batch");
        assert_eq!(checked.header().compression(), codec);
        assert_eq!((checked.max_timestamp_ms(), checked.max_timestamp_delta().get()), (NOW + 9, 2));
        let records = BatchRecords::open(bytes, 1 << 20).unwrap();
        assert_eq!(records.iter().map(Result::unwrap).collect::<Vec<_>>(), own, "{codec:?}");
    }
}

#[test]
fn the_builder_writes_the_same_bytes_as_a_real_client() {
    let (_, golden) = BATCHES[0];
    let producer = BatchHeader::parse(golden).unwrap().producer.expect("an idempotent producer");
    assert_eq!((producer.epoch, producer.base_sequence), (ProducerEpoch::ZERO, Some(0)));
    let own = same_records(BatchBuilder::new(Compression::None).producer(producer));
    let placed = own.place(Offset::ZERO, LeaderEpoch::ZERO, StampedTime::FromRecords);
    assert_eq!(&placed.to_bytes()[..], golden);
}

#[test]
fn headers_are_written_as_they_were_read() {
    for (codec, bytes) in BATCHES {
        assert_eq!(BatchHeader::parse(bytes).unwrap().encode(), bytes[..HEADER_LEN], "{codec:?}");
    }
}
