//! Record batches, version 2: the unit that is produced, stored, replicated and fetched.
//!
//! Stages of trust, each a type: [`RawBatch`] (a client's bytes) → [`CheckedBatch`] (all of Kafka's checks passed) →
//! [`PlacedBatch`] (offset and leader epoch set). Stored bytes come back through [`scan`] (recovery) or
//! [`check_replicated`] (followers).
//!
//! Read `header` (the layout) first, then `check`, `judge` and `walk` (what a client may send), `placed`, `scan`; then
//! `compression` with `snappy` and `lz4_frame`; `build`, `record` and `records` are for those who look inside. Pure.

mod build;
mod check;
mod compression;
pub mod crc;
mod cursor;
mod error;
mod header;
mod judge;
mod lz4_frame;
mod placed;
mod record;
mod records;
mod scan;
mod snappy;
#[cfg(test)]
mod tests;
mod walk;

pub use build::{BatchBuilder, NewRecord};
pub use check::{CheckLimits, NullKeys, RawBatch, TimestampRule};
pub use compression::{Compression, DecompressError, compress, decompress, output_len_max};
pub use cursor::Malformed;
pub use error::{BatchError, RECORD_FAULTS_MAX, RecordFault};
pub use header::{
    Attributes, BatchHeader, BatchProducer, CRC_START, HEADER_LEN, HeaderError, LENGTH_END, MAGIC, NO_TIMESTAMP_MS,
    TimestampType,
};
pub use placed::{CheckedBatch, PlacedBatch, StampedTime};
pub use record::{Header, Headers, HeadersIter, Record};
pub use records::{BatchRecords, PlacedRecord, RecordsError, RecordsIter, for_each_record};
pub use scan::{
    Replicated, Scan, ScanEnd, StoredBatch, check_replicated, extend_crc, headers, scan, slice_crc, stated_len,
};
