//! Every row of what Kafka answers to a client's batch, one change at a time, plain and compressed.

use super::*;
use crate::api::error::ErrorCode;

fn refused(bytes: &Bytes) -> BatchError {
    refused_within(bytes, &LIMITS)
}

fn refused_within(bytes: &Bytes, limits: &CheckLimits) -> BatchError {
    RawBatch::new(bytes).check(limits).expect_err("the batch has one fault")
}

/// One record as it stands in a body: attributes, timestamp delta 0, then as given.
fn record(offset_delta: u8, rest: &[u8]) -> Vec<u8> {
    let mut body = vec![0, 0, offset_delta << 1];
    body.extend_from_slice(rest);
    body.insert(0, u8::try_from(body.len()).unwrap() << 1);
    body
}

/// Null key, value "a", no headers.
const NULL_A: &[u8] = &[0x01, 0x02, b'a', 0x00];

fn records(count: u8) -> Vec<u8> {
    (0..count).flat_map(|delta| record(delta, NULL_A)).collect()
}

#[test]
fn right_batches_of_every_codec_pass() {
    for codec in Compression::ALL {
        let sent = three_records(BatchBuilder::new(codec).producer(PRODUCER).transactional());
        let checked = RawBatch::new(sent.bytes()).check(&LIMITS).expect("right");
        assert_eq!(checked.bytes(), sent.bytes());
        assert_eq!(checked.header(), sent.header());
        assert_eq!(checked.header().compression(), codec);
        assert_eq!(checked.header().producer, Some(PRODUCER));
        assert!(checked.header().attributes.is_transactional());
        assert_eq!((checked.max_timestamp_ms(), checked.max_timestamp_delta().get()), (NOW + 9, 2));
        assert_eq!(RawBatch::new(sent.bytes()).looks_compressed(), codec != Compression::None);
    }
}

#[test]
fn no_batch_or_a_cut_one_is_invalid() {
    assert_eq!(refused(&Bytes::new()).code, ErrorCode::InvalidRecord);
    let batch = plain();
    for len in 0..batch.len() {
        let error = refused(&batch.slice(..len));
        assert_eq!(error.code, ErrorCode::InvalidRecord, "cut to {len}: {error}");
    }
}

#[test]
fn more_than_one_batch_is_invalid() {
    let two = [plain(), plain()].concat();
    assert_eq!(refused(&Bytes::from(two)).code, ErrorCode::InvalidRecord);
    let trailing = [&plain()[..], &[0]].concat();
    assert_eq!(refused(&Bytes::from(trailing)).code, ErrorCode::InvalidRecord);
}

#[test]
fn old_formats_are_invalid_and_unknown_ones_corrupt() {
    for (magic, code) in [
        (0, ErrorCode::InvalidRecord),
        (1, ErrorCode::InvalidRecord),
        (3, ErrorCode::CorruptMessage),
        (0xff, ErrorCode::CorruptMessage),
    ] {
        assert_eq!(refused(&edited(&plain(), |b| b[at::MAGIC] = magic)).code, code, "magic {magic}");
    }
}

#[test]
fn a_length_below_the_header_is_corrupt() {
    for length in [i32::MIN, -1, 0, 13] {
        let bytes = edited(&plain(), |b| set(b, at::LENGTH, length.to_be_bytes()));
        assert_eq!(refused(&bytes).code, ErrorCode::CorruptMessage, "length {length}");
    }
    // A whole "batch" that is too short to have a header.
    let mut short = plain()[..60].to_vec();
    set(&mut short, at::LENGTH, 48i32.to_be_bytes());
    assert_eq!(refused(&Bytes::from(short)).code, ErrorCode::CorruptMessage);
}

#[test]
fn zstd_needs_produce_seven_and_unknown_codecs_are_unsupported() {
    let zstd = three_records(BatchBuilder::new(Compression::Zstd));
    let old = CheckLimits { produce_version: 6, ..LIMITS };
    assert_eq!(refused_within(zstd.bytes(), &old).code, ErrorCode::UnsupportedCompressionType);
    assert!(RawBatch::new(zstd.bytes()).check(&CheckLimits { produce_version: 7, ..LIMITS }).is_ok());
    for codec in 5..8 {
        let bytes = edited(&plain(), |b| b[at::ATTRIBUTES + 1] = codec);
        assert_eq!(refused(&bytes).code, ErrorCode::UnsupportedCompressionType);
    }
}

#[test]
fn a_base_offset_is_invalid() {
    for base in [1, -1, i64::MAX] {
        let bytes = edited(&plain(), |b| set(b, at::BASE_OFFSET, i64::to_be_bytes(base)));
        assert_eq!(refused(&bytes).code, ErrorCode::InvalidRecord, "base {base}");
    }
}

#[test]
fn more_than_max_message_bytes_is_too_large() {
    let batch = plain();
    let exact = CheckLimits { batch_bytes_max: batch.len(), ..LIMITS };
    assert!(RawBatch::new(&batch).check(&exact).is_ok());
    let below = CheckLimits { batch_bytes_max: batch.len() - 1, ..LIMITS };
    assert_eq!(refused_within(&batch, &below).code, ErrorCode::MessageTooLarge);
}

#[test]
fn every_flipped_byte_is_refused_or_outside_the_crc() {
    for codec in Compression::ALL {
        let batch = three_records(BatchBuilder::new(codec)).bytes().clone();
        for position in 0..batch.len() {
            let mut bytes = batch.to_vec();
            bytes[position] ^= 0x10;
            let result = RawBatch::new(&Bytes::from(bytes)).check(&LIMITS);
            if (at::LEADER_EPOCH..at::MAGIC).contains(&position) {
                assert!(result.is_ok(), "the leader sets its own epoch");
            } else if position >= at::CRC {
                // The codec and the format are looked at before the CRC, as in Kafka.
                let expected = [ErrorCode::CorruptMessage, ErrorCode::UnsupportedCompressionType];
                assert!(expected.contains(&result.expect_err("damaged").code), "byte {position}");
            } else {
                assert!(result.is_err(), "byte {position}");
            }
        }
    }
}

#[test]
fn a_count_that_contradicts_the_offsets_is_invalid() {
    for (last_delta, count) in [(2, 0), (2, -1), (-1, 0), (2, 2), (2, 4), (3, 3), (-1, 3), (i32::MAX, i32::MAX)] {
        let bytes = edited(&plain(), |b| {
            set(b, at::LAST_OFFSET_DELTA, i32::to_be_bytes(last_delta));
            set(b, at::RECORD_COUNT, i32::to_be_bytes(count));
        });
        assert_eq!(refused(&bytes).code, ErrorCode::InvalidRecord, "{count} records, last delta {last_delta}");
    }
}

#[test]
fn a_control_batch_of_a_client_is_invalid() {
    let marker = three_records(BatchBuilder::new(Compression::None).producer(PRODUCER).transactional().control());
    assert_eq!(refused(marker.bytes()).code, ErrorCode::InvalidRecord);
}

#[test]
fn a_producer_without_sequence_or_epoch_is_invalid() {
    let batch = three_records(BatchBuilder::new(Compression::None).producer(PRODUCER)).bytes().clone();
    let sequence = edited(&batch, |b| set(b, at::BASE_SEQUENCE, (-1i32).to_be_bytes()));
    assert_eq!(refused(&sequence).code, ErrorCode::InvalidRecord);
    let epoch = edited(&batch, |b| set(b, at::PRODUCER_EPOCH, (-1i16).to_be_bytes()));
    assert_eq!(refused(&epoch).code, ErrorCode::InvalidRecord);
}

#[test]
fn a_null_key_in_a_compacted_topic_names_its_record() {
    let compacted = CheckLimits { null_keys: NullKeys::Refused, ..LIMITS };
    for codec in Compression::ALL {
        let batch = three_records(BatchBuilder::new(codec));
        let error = refused_within(batch.bytes(), &compacted);
        assert_eq!(error.code, ErrorCode::InvalidRecord);
        assert_eq!(error.records.iter().map(|fault| fault.batch_index).collect::<Vec<_>>(), [1]);
    }
}

#[test]
fn a_time_out_of_bounds_names_its_records() {
    for codec in Compression::ALL {
        let batch = three_records(BatchBuilder::new(codec));
        let early = CheckLimits { timestamps: TimestampRule::within(NOW + 9, 5, 0), ..LIMITS };
        let error = refused_within(batch.bytes(), &early);
        assert_eq!(error.code, ErrorCode::InvalidTimestamp);
        assert_eq!(error.records.iter().map(|fault| fault.batch_index).collect::<Vec<_>>(), [0]);
        let late = CheckLimits { timestamps: TimestampRule::within(NOW, i64::MAX, 4), ..LIMITS };
        let error = refused_within(batch.bytes(), &late);
        assert_eq!(error.records.iter().map(|fault| fault.batch_index).collect::<Vec<_>>(), [1, 2]);
        // Both bounds are inclusive, and a LogAppendTime topic takes any time.
        let exact = CheckLimits { timestamps: TimestampRule::within(NOW + 5, 5, 4), ..LIMITS };
        assert!(RawBatch::new(batch.bytes()).check(&exact).is_ok());
        let replaced = CheckLimits { timestamps: TimestampRule::Replaced, ..LIMITS };
        assert!(RawBatch::new(batch.bytes()).check(&replaced).is_ok());
    }
}

#[test]
fn records_without_time_pass_and_overflowing_time_does_not() {
    let mut builder = BatchBuilder::new(Compression::None);
    builder.push(NewRecord { timestamp_ms: NO_TIMESTAMP_MS, value: Some(b"v"), ..NewRecord::default() });
    let checked = RawBatch::new(builder.build().bytes()).check(&LIMITS).expect("right");
    assert_eq!(checked.max_timestamp_ms(), NO_TIMESTAMP_MS);

    let bytes = edited(&plain(), |b| set(b, at::BASE_TIMESTAMP, i64::MAX.to_be_bytes()));
    let unbounded = CheckLimits { timestamps: TimestampRule::within(NOW, i64::MAX, i64::MAX), ..LIMITS };
    let error = refused_within(&bytes, &unbounded);
    assert_eq!(error.code, ErrorCode::InvalidTimestamp);
    assert_eq!(error.records.iter().map(|fault| fault.batch_index).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_client_may_not_claim_log_append_time() {
    let bytes = edited(&plain(), |b| b[at::ATTRIBUTES + 1] |= 0b1000);
    for timestamps in [LIMITS.timestamps, TimestampRule::Replaced] {
        let error = refused_within(&bytes, &CheckLimits { timestamps, ..LIMITS });
        assert_eq!(error.code, ErrorCode::InvalidTimestamp);
        assert_eq!(error.records.len(), 3);
    }
}

#[test]
fn faults_named_in_one_answer_are_bounded() {
    let mut builder = BatchBuilder::new(Compression::None);
    for _ in 0..RECORD_FAULTS_MAX + 50 {
        builder.push(NewRecord { timestamp_ms: NOW, ..NewRecord::default() });
    }
    let compacted = CheckLimits { null_keys: NullKeys::Refused, ..LIMITS };
    let error = refused_within(builder.build().bytes(), &compacted);
    assert_eq!(error.records.len(), RECORD_FAULTS_MAX);
    assert!(error.message.starts_with("150 records"), "{error}");
}

#[test]
fn fewer_or_more_records_than_stated_are_invalid() {
    for codec in Compression::ALL {
        assert!(RawBatch::new(&around(codec, 3, &records(3))).check(&LIMITS).is_ok(), "{codec:?}");
        for count in [0, 1, 2, 4, 5] {
            let error = refused(&around(codec, 3, &records(count)));
            assert_eq!(error.code, ErrorCode::InvalidRecord, "{codec:?}, {count} records of 3: {error}");
        }
    }
}

#[test]
fn offset_deltas_must_count_up_from_zero() {
    for codec in Compression::ALL {
        for deltas in [[1, 1], [0, 0], [0, 2], [1, 0]] {
            let body = deltas.map(|delta| record(delta, NULL_A)).concat();
            assert_eq!(refused(&around(codec, 2, &body)).code, ErrorCode::InvalidRecord, "{codec:?} {deltas:?}");
        }
    }
}

#[test]
fn records_that_break_the_format_are_invalid() {
    let bodies: [(&str, Vec<u8>); 13] = [
        ("negative record length", vec![0x01]),
        ("record length beyond the batch", vec![0x7e, 0, 0, 0, 1, 1, 0]),
        ("empty record", vec![0x00]),
        ("key beyond the record", record(0, &[0x08, b'k', 0x01, 0x00])),
        ("key length below -1", record(0, &[0x03, 0x01, 0x00])),
        ("value beyond the record", record(0, &[0x01, 0x7e, b'v', 0x00])),
        ("value length below -1", record(0, &[0x01, 0x05, 0x00])),
        ("negative header count", record(0, &[0x01, 0x01, 0x01])),
        ("header count beyond the record", record(0, &[0x01, 0x01, 0xfe, 0xff, 0xff, 0xff, 0x0f])),
        ("null header key", record(0, &[0x01, 0x01, 0x02, 0x01, 0x01])),
        ("header value beyond the record", record(0, &[0x01, 0x01, 0x02, 0x00, 0x0a])),
        ("bytes left in the record", record(0, &[0x01, 0x01, 0x00, 0x00])),
        ("varint that never ends", record(0, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])),
    ];
    for codec in Compression::ALL {
        for (fault, body) in &bodies {
            let error = refused(&around(codec, 1, body));
            assert_eq!(error.code, ErrorCode::InvalidRecord, "{codec:?}, {fault}: {error}");
        }
    }
}

#[test]
fn records_of_random_bytes_never_panic() {
    let mut state = 1u64;
    for length in (0..400).cycle().take(20_000) {
        let body: Vec<u8> = (0..length % 40)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state.to_be_bytes()[1] & if length % 3 == 0 { 0xff } else { 0x0f }
            })
            .collect();
        let batch = around(Compression::None, 1 + length % 3, &body);
        if let Ok(checked) = RawBatch::new(&batch).check(&LIMITS) {
            let opened = BatchRecords::open(checked.bytes(), 1 << 20).expect("checked");
            assert!(opened.iter().all(|record| record.is_ok()), "checked records can be read");
        }
    }
}

#[test]
fn a_bomb_is_too_large_and_a_stated_size_is_not_believed() {
    // 16 MiB of one value of zeros: far more than 100 times its compressed bytes and a MiB.
    let mut builder = BatchBuilder::new(Compression::None);
    builder.push(NewRecord { timestamp_ms: NOW, value: Some(&vec![0; 16 << 20]), ..NewRecord::default() });
    let body = builder.build().bytes().slice(HEADER_LEN..);
    for codec in [Compression::Gzip, Compression::Lz4, Compression::Zstd] {
        let bomb = around(codec, 1, &body);
        assert!(bomb.len() < 100_000, "{codec:?}");
        assert_eq!(refused(&bomb).code, ErrorCode::MessageTooLarge, "{codec:?}");
    }
    let snappy = around(Compression::Snappy, 1, &body);
    let ceiling = CheckLimits { decompressed_bytes_max: 1 << 20, ..LIMITS };
    assert_eq!(refused_within(&snappy, &ceiling).code, ErrorCode::MessageTooLarge);
    // A raw snappy body that states 4 GiB.
    let mut stated = around(Compression::Snappy, 1, b"").to_vec();
    stated.truncate(HEADER_LEN);
    stated.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0x00, 0x41]);
    let length = i32::try_from(stated.len() - LENGTH_END).unwrap();
    set(&mut stated, at::LENGTH, length.to_be_bytes());
    assert_eq!(refused(&edited(&Bytes::from(stated), |_| {})).code, ErrorCode::MessageTooLarge);
}

#[test]
fn damaged_streams_are_invalid() {
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let batch = around(codec, 3, &records(3));
        // A body of another codec, and one without a byte.
        let mut other = plain()[..HEADER_LEN].to_vec();
        other.extend_from_slice(&records(3));
        let length = i32::try_from(other.len() - LENGTH_END).unwrap();
        set(&mut other, at::LENGTH, length.to_be_bytes());
        other[at::ATTRIBUTES + 1] = codec.bits();
        assert_eq!(refused(&edited(&Bytes::from(other), |_| {})).code, ErrorCode::InvalidRecord, "{codec:?}");
        for len in HEADER_LEN..batch.len() {
            let cut = edited(&batch.slice(..len), |b| {
                let length = i32::try_from(b.len() - LENGTH_END).unwrap();
                set(b, at::LENGTH, length.to_be_bytes());
            });
            assert_eq!(refused(&cut).code, ErrorCode::InvalidRecord, "{codec:?} cut to {len}");
        }
    }
}
