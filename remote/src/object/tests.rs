use super::*;
use crate::testing::{key, object, range};

fn head() -> Head {
    let slice = |partition, base: i64, start: u64, end: u64| SliceHeader {
        key: key(7, partition),
        leader_epoch: LeaderEpoch::new(5),
        base: Offset::new(base),
        next: Offset::new(base + 3),
        start,
        end,
        crc32c: 0x0102_0304,
        max_timestamp_ms: 1_700_000_000_123,
        log_start: Offset::new(1),
    };
    let first = u64::from(head_length(2));
    Head {
        object_id: Uuid::from_bytes([0xab; 16]),
        stream: StreamId { broker: BrokerId::new(1), broker_epoch: BrokerEpoch::new(0x1122_3344_5566) },
        sequence: 42,
        created_at_ms: 1_700_000_000_456,
        metadata_index: MetadataIndex::new(17),
        slices: vec![slice(0, 100, first, first + 70), slice(3, 0x7fff_ffff_ffff, first + 70, first + 200)],
    }
}

/// Writes the checksums again, so that a damage reaches the checks behind them.
fn reseal(bytes: &mut [u8]) {
    let length = usize::try_from(u32::from_le_bytes(bytes[12..16].try_into().unwrap())).unwrap();
    if let Some(manifest) = bytes.get(32..32 + length) {
        let crc = crc32c::crc32c(manifest);
        bytes[16..20].copy_from_slice(&crc.to_le_bytes());
    }
    let crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn a_head_equals_its_golden_bytes() {
    let bytes = encode_head(&head());
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/object-head-1.bin");
    let golden = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(bytes, golden);
    assert_eq!(bytes.len(), 32 + 60 + 2 * 81);
}

#[test]
fn a_head_is_read_back_as_written_at_any_address() {
    let bytes = encode_head(&head());
    for shift in 0..8 {
        let mut shifted = vec![0; shift];
        shifted.extend_from_slice(&bytes);
        let view = read_head(&shifted[shift..]).expect("valid");
        assert_eq!(view.to_head(), head());
        assert_eq!(view.slices().len(), view.slice_count());
    }
}

#[test]
fn record_bytes_behind_the_head_do_not_disturb_it() {
    let mut bytes = encode_head(&head()).to_vec();
    bytes.extend_from_slice(&[0x5a; 200]);
    assert_eq!(read_head(&bytes).expect("valid").to_head(), head());
}

#[test]
fn every_damaged_byte_is_noticed() {
    let bytes = encode_head(&head());
    for position in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.to_vec();
            damaged[position] ^= 1 << bit;
            assert!(read_head(&damaged).is_err(), "bit {bit} of byte {position}");
        }
    }
}

#[test]
fn every_cut_is_noticed() {
    let bytes = encode_head(&head());
    for end in 0..bytes.len() {
        assert!(matches!(read_head(&bytes[..end]), Err(ObjectError::Short { .. })), "{end}");
    }
}

#[test]
fn damage_with_matching_checksums_never_panics_and_never_breaks_a_rule() {
    let bytes = encode_head(&head());
    for position in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut damaged = bytes.to_vec();
            damaged[position] = value;
            reseal(&mut damaged);
            let Ok(view) = read_head(&damaged) else { continue };
            let mut at = u64::from(view.head_length());
            for slice in view.slices() {
                assert_eq!(slice.start, at);
                assert!(slice.base < slice.next && slice.start < slice.end);
                at = slice.end;
            }
            assert_eq!(at, view.prelude().object_length);
        }
    }
}

#[test]
fn slices_that_break_a_rule_are_refused() {
    let with = |slice: usize, field: usize, value: &[u8]| {
        let mut bytes = encode_head(&head()).to_vec();
        let at = 32 + 81 * slice + field;
        bytes[at..at + value.len()].copy_from_slice(value);
        reseal(&mut bytes);
        read_head(&bytes).map(|view| view.to_head()).expect_err("refused").to_string()
    };
    // Fields of an entry: topic id 16, partition 4, epoch 4, base 8, next 8, start 8, end 8, crc 4, timestamp 8,
    // codec 1, raw length 4, log start 8.
    assert!(with(0, 16, &(-1i32).to_le_bytes()).contains("partition is negative"));
    assert!(with(0, 20, &(-1i32).to_le_bytes()).contains("leader epoch is negative"));
    assert!(with(1, 24, &(-1i64).to_le_bytes()).contains("base offset is negative"));
    assert!(with(0, 32, &100i64.to_le_bytes()).contains("has no offsets"));
    assert!(with(1, 40, &0u64.to_le_bytes()).contains("does not begin where"));
    assert!(with(1, 48, &u64::MAX.to_le_bytes()).contains("beyond the object"));
    assert!(with(0, 68, &[1]).contains("codec"));
    assert!(with(0, 69, &7u32.to_le_bytes()).contains("raw length"));
    assert!(with(0, 73, &(-5i64).to_le_bytes()).contains("log start"));
}

#[test]
fn another_version_is_told_apart_from_damage() {
    let mut bytes = encode_head(&head()).to_vec();
    bytes[8] = 2;
    reseal(&mut bytes);
    assert_eq!(read_head(&bytes).err(), Some(ObjectError::Version { version: 2, flags: 0 }));
    bytes[0] = b'X';
    assert_eq!(read_head(&bytes).err(), Some(ObjectError::Magic));
}

#[test]
fn the_largest_manifest_is_written_and_read() {
    let ranges = (0..2000).map(|partition| range(key(1, partition), 0..1, 0)).collect();
    let object = object(1, ranges);
    let view = read_head(object.head()).expect("valid");
    assert_eq!(view.slice_count(), 2000);
    assert_eq!(view.head_length(), 32 + 60 + 81 * 2000);
}
