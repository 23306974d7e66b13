//! All checks of a client's batch: header, CRC, record walk.

use std::hint::black_box;

use bytes::Bytes;
use sakia_benches::{Per, time};
use sakia_protocol::batch::{
    BatchBuilder, CheckLimits, Compression, NewRecord, NullKeys, RawBatch, TimestampRule, check_replicated,
};

fn main() {
    let limits = CheckLimits {
        batch_bytes_max: 2 << 20,
        decompressed_bytes_max: 64 << 20,
        timestamps: TimestampRule::within(1_000_000, 1_000_000, 1_000_000),
        null_keys: NullKeys::Allowed,
        produce_version: 9,
    };
    let one = batch(1, 101, Compression::None);
    assert_eq!(one.len(), 171, "one record of 101 bytes");
    for (label, bytes) in [
        ("171 B, 1 record", one),
        ("16 KiB, 8 records", batch(8, 2_030, Compression::None)),
        ("16 KiB, 150 records", batch(150, 100, Compression::None)),
        ("1 MiB, 512 records", batch(512, 2_030, Compression::None)),
        ("16 KiB, 150 records, lz4", batch(150, 100, Compression::Lz4)),
    ] {
        time(&format!("check of a client's batch, {label}"), Per::Bytes(bytes.len()), || {
            black_box(RawBatch::new(black_box(&bytes)).check(&limits)).expect("it is good");
        });
        time(&format!("check of a replicated batch, {label}"), Per::Bytes(bytes.len()), || {
            assert_eq!(black_box(check_replicated(black_box(&bytes)).count()), 1, "one batch");
        });
    }
}

fn batch(records: usize, value_bytes: usize, compression: Compression) -> Bytes {
    let value: Vec<u8> = (0..value_bytes).map(|n| u8::try_from(n * 31 % 251).expect("below 251")).collect();
    let mut batch = BatchBuilder::new(compression);
    for _ in 0..records {
        batch.push(NewRecord { timestamp_ms: 1_000_000, value: Some(&value), ..Default::default() });
    }
    batch.build().bytes().clone()
}
