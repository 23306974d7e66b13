//! Record batches of our own: internal topics, markers, tools, tests.
//!
//! Path: from records to a [`CheckedBatch`] that the log appends like a client's. Pure.

use bytes::{BufMut, Bytes};

use super::compression::{Compression, compress};
use super::crc;
use super::header::{Attributes, BatchHeader, BatchProducer, CRC_START, HEADER_LEN, NO_TIMESTAMP_MS, at};
use super::placed::CheckedBatch;
use super::record::{Header, put_varint, put_varint_bytes, put_varlong};
use super::walk::LargestTimestamp;
use crate::ids::{Offset, OffsetDelta};

/// A record to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewRecord<'a> {
    /// Its time in ms, -1 for none.
    pub timestamp_ms: i64,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value; null is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Its headers, in order.
    pub headers: &'a [Header<'a>],
}

/// Collects records into one batch. The caller keeps it below its own bound of bytes, see [`Self::records_len`].
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    attributes: Attributes,
    producer: Option<BatchProducer>,
    base_timestamp_ms: i64,
    largest: LargestTimestamp,
    record_count: u32,
    records: Vec<u8>,
    record: Vec<u8>,
}

impl BatchBuilder {
    /// An empty batch of this codec.
    #[must_use]
    pub fn new(compression: Compression) -> Self {
        Self {
            attributes: Attributes::default().with_compression(compression),
            producer: None,
            base_timestamp_ms: NO_TIMESTAMP_MS,
            largest: LargestTimestamp::NONE,
            record_count: 0,
            records: Vec::new(),
            record: Vec::new(),
        }
    }

    /// The idempotent producer that writes it.
    #[must_use]
    pub fn producer(mut self, producer: BatchProducer) -> Self {
        self.producer = Some(producer);
        self
    }

    /// Makes it part of a transaction.
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.attributes = self.attributes.with_transactional();
        self
    }

    /// Makes it a marker of the broker.
    #[must_use]
    pub fn control(mut self) -> Self {
        self.attributes = self.attributes.with_control();
        self
    }

    /// Adds a record at the next offset.
    pub fn push(&mut self, new: NewRecord<'_>) -> &mut Self {
        if self.record_count == 0 {
            self.base_timestamp_ms = new.timestamp_ms;
        }
        self.largest.meet(new.timestamp_ms, self.record_count);
        let record = &mut self.record;
        record.clear();
        record.put_i8(0);
        put_varlong(record, new.timestamp_ms.wrapping_sub(self.base_timestamp_ms));
        put_varint(record, i32::try_from(self.record_count).expect("a batch has below 2^31 records"));
        put_varint_bytes(record, new.key);
        put_varint_bytes(record, new.value);
        put_varint(record, i32::try_from(new.headers.len()).expect("a batch is below 2 GiB"));
        for header in new.headers {
            put_varint_bytes(record, Some(header.key));
            put_varint_bytes(record, header.value);
        }
        put_varint_bytes(&mut self.records, Some(record));
        self.record_count += 1;
        self
    }

    /// Records so far.
    #[must_use]
    pub fn record_count(&self) -> u32 {
        self.record_count
    }

    /// Bytes of the records so far, before compression.
    #[must_use]
    pub fn records_len(&self) -> usize {
        self.records.len()
    }

    /// The batch, at base offset 0 and without a leader epoch. Panics without a record: an empty batch takes no
    /// offset, so nobody could refer to it.
    #[must_use]
    pub fn build(self) -> CheckedBatch {
        assert!(self.record_count > 0, "a batch has a record");
        let compression = self.attributes.compression().expect("set from the enum");
        let body = compress(compression, &self.records);
        let mut header = BatchHeader {
            base_offset: Offset::ZERO,
            len: HEADER_LEN + body.len(),
            leader_epoch: None,
            crc: 0,
            attributes: self.attributes,
            last_offset_delta: OffsetDelta::new(i64::from(self.record_count) - 1),
            base_timestamp_ms: self.base_timestamp_ms,
            max_timestamp_ms: self.largest.timestamp_ms,
            producer: self.producer,
            record_count: self.record_count,
        };
        let mut bytes = Vec::with_capacity(header.len);
        bytes.extend_from_slice(&header.encode());
        bytes.extend_from_slice(&body);
        header.crc = crc::crc32c(&bytes[CRC_START..]);
        bytes[at::CRC..CRC_START].copy_from_slice(&header.crc.to_be_bytes());
        CheckedBatch::new(Bytes::from(bytes), header, self.largest)
    }
}
