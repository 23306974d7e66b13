//! Tests of record batches: `produce_table` what a client may send, `stored` placing and scanning, `contents` records in
//! and out, `golden` a real client's bytes.

mod contents;
mod golden;
mod produce_table;
mod stored;

use bytes::Bytes;

use super::header::at;
use super::*;
use crate::ids::{ProducerEpoch, ProducerId};

/// A time all test records are near to, in ms.
const NOW: i64 = 1_700_000_000_000;

const LIMITS: CheckLimits = CheckLimits {
    batch_bytes_max: 1_048_588,
    decompressed_bytes_max: 64 << 20,
    timestamps: TimestampRule::Within { earliest_ms: NOW - 1_000_000, latest_ms: NOW + 3_600_000 },
    null_keys: NullKeys::Allowed,
    produce_version: 9,
};

const PRODUCER: BatchProducer =
    BatchProducer { id: ProducerId::new(77), epoch: ProducerEpoch::new(3), base_sequence: Some(40) };

/// Three records at NOW, NOW + 5, NOW + 9; the second has no key, the third two headers of one key.
fn three_records(mut builder: BatchBuilder) -> CheckedBatch {
    let headers = [Header { key: b"h", value: Some(b"1") }, Header { key: b"h", value: None }];
    builder
        .push(NewRecord { timestamp_ms: NOW, key: Some(b"key-0"), value: Some(b"value-0"), headers: &[] })
        .push(NewRecord { timestamp_ms: NOW + 5, key: None, value: Some(b""), headers: &[] })
        .push(NewRecord { timestamp_ms: NOW + 9, key: Some(b""), value: None, headers: &headers });
    builder.build()
}

fn plain() -> Bytes {
    three_records(BatchBuilder::new(Compression::None)).bytes().clone()
}

/// The batch with some of its bytes changed and its CRC made right again.
fn edited(batch: &Bytes, edit: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut bytes = batch.to_vec();
    edit(&mut bytes);
    let crc = crc::crc32c(&bytes[CRC_START..]);
    bytes[at::CRC..CRC_START].copy_from_slice(&crc.to_be_bytes());
    Bytes::from(bytes)
}

fn set<const N: usize>(bytes: &mut [u8], position: usize, value: [u8; N]) {
    bytes[position..position + N].copy_from_slice(&value);
}

/// A batch of this codec around a body made by hand.
fn around(codec: Compression, record_count: i32, body: &[u8]) -> Bytes {
    let mut bytes = plain()[..HEADER_LEN].to_vec();
    bytes.extend_from_slice(&compress(codec, body));
    let len = i32::try_from(bytes.len() - LENGTH_END).unwrap();
    set(&mut bytes, at::LENGTH, len.to_be_bytes());
    set(&mut bytes, at::ATTRIBUTES, i16::from(codec.bits()).to_be_bytes());
    set(&mut bytes, at::LAST_OFFSET_DELTA, (record_count - 1).to_be_bytes());
    set(&mut bytes, at::RECORD_COUNT, record_count.to_be_bytes());
    edited(&Bytes::from(bytes), |_| {})
}
