//! CRC-32C: the `crc32c` crate, which the broker uses, against `crc-fast`. One figure decides (DEPENDENCIES): at least
//! twice as fast at the sizes of record batches in one run, or it is not taken.

use std::hint::black_box;

use crc_fast::{CrcAlgorithm, checksum};
use sakia_benches::{Per, time};

fn main() {
    for (label, len) in [("110 B", 110), ("1 KiB", 1 << 10), ("16 KiB", 16 << 10), ("1 MiB", 1 << 20)] {
        let bytes: Vec<u8> = (0..len).map(|n: usize| u8::try_from(n * 31 % 251).expect("below 251")).collect();
        assert_eq!(u64::from(crc32c::crc32c(&bytes)), checksum(CrcAlgorithm::Crc32Iscsi, &bytes), "they agree");
        let ours = time(&format!("crc32c {label}"), Per::Bytes(len), || {
            black_box(crc32c::crc32c(black_box(&bytes)));
        });
        let other = time(&format!("crc-fast {label}"), Per::Bytes(len), || {
            black_box(checksum(CrcAlgorithm::Crc32Iscsi, black_box(&bytes)));
        });
        println!("{:<52} {:>12.2}", format!("crc-fast is faster by, {label}"), ours.least / other.least);
    }
    time("crc32c combine, 16 KiB behind", Per::Step, || {
        black_box(sakia_protocol::batch::crc::combine(black_box(0x1234_5678), black_box(0x9abc_def0), 16 << 10));
    });
}
