//! The 61 bytes in front of every record batch (version 2, the only one we store).
//!
//! ```text
//!  0  base_offset          i64
//!  8  batch_length         i32   bytes after this field: whole batch - 12
//! 12  leader_epoch         i32   outside the CRC, so the leader may stamp it
//! 16  magic                i8    = 2
//! 17  crc                  u32   CRC-32C over 21..end
//! 21  attributes           i16   bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon
//! 23  last_offset_delta    i32
//! 27  base_timestamp       i64   ms
//! 35  max_timestamp        i64   ms
//! 43  producer_id          i64
//! 51  producer_epoch       i16
//! 53  base_sequence        i32
//! 57  record_count         i32
//! 61  records, compressed as one block if a codec is set
//! ```
//! All big-endian. Source: Kafka's RecordBatch. Pure.
//!
//! Invariant: a parsed header has non-negative offsets, a length of at least 61, and a range of offsets at least as
//! wide as its count of records. It says nothing about the CRC.

use thiserror::Error;

use super::compression::Compression;
use crate::ids::{LeaderEpoch, Offset, OffsetDelta, ProducerEpoch, ProducerId};

/// Bytes in front of the records.
pub const HEADER_LEN: usize = 61;
/// Bytes up to and including `batch_length`.
pub const LENGTH_END: usize = 12;
/// First byte under the CRC.
pub const CRC_START: usize = 21;
/// The only batch format that is stored.
pub const MAGIC: i8 = 2;
/// The wire's "no timestamp", in milliseconds.
pub const NO_TIMESTAMP_MS: i64 = -1;

pub(super) mod at {
    //! Byte positions of the fields.
    pub(crate) const BASE_OFFSET: usize = 0;
    pub(crate) const LENGTH: usize = 8;
    pub(crate) const LEADER_EPOCH: usize = 12;
    pub(crate) const MAGIC: usize = 16;
    pub(crate) const CRC: usize = 17;
    pub(crate) const ATTRIBUTES: usize = 21;
    pub(crate) const LAST_OFFSET_DELTA: usize = 23;
    pub(crate) const BASE_TIMESTAMP: usize = 27;
    pub(crate) const MAX_TIMESTAMP: usize = 35;
    pub(crate) const PRODUCER_ID: usize = 43;
    pub(crate) const PRODUCER_EPOCH: usize = 51;
    pub(crate) const BASE_SEQUENCE: usize = 53;
    pub(crate) const RECORD_COUNT: usize = 57;
}

const COMPRESSION_BITS: i16 = 0b111;
const LOG_APPEND_TIME: i16 = 1 << 3;
const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;
const DELETE_HORIZON: i16 = 1 << 6;

/// Why 61 bytes are not the header of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// Fewer than 61 bytes are here.
    #[error("{have} bytes are no batch header, 61 are")]
    Short {
        /// Bytes that are here.
        have: usize,
    },
    /// The length field leaves no room for a header.
    #[error("batch length {0} is below a header's 49")]
    Length(i32),
    /// Another format, or not a batch.
    #[error("magic {0} is not 2")]
    Magic(i8),
    /// Negative, or the batch would end beyond the largest offset.
    #[error("base offset {base} with last offset delta {delta} is no range of offsets")]
    Offsets {
        /// Base offset as read.
        base: i64,
        /// Last offset delta as read.
        delta: i32,
    },
    /// Negative, or more records than offsets.
    #[error("{count} records in {offsets} offsets")]
    Count {
        /// Record count as read.
        count: i32,
        /// Offsets the batch covers.
        offsets: i64,
    },
    /// A codec nobody has defined.
    #[error("compression codec {0} is not defined")]
    Compression(u8),
    /// A producer id without an epoch.
    #[error("producer {id} has epoch {epoch}")]
    Producer {
        /// Producer id as read.
        id: i64,
        /// Producer epoch as read.
        epoch: i16,
    },
}

/// Who gave the records their time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampType {
    /// The client; each record has its own.
    CreateTime,
    /// The broker; every record has the batch's max timestamp.
    LogAppendTime,
}

/// The 16 attribute bits of a batch. Any pattern is valid except an undefined codec, which parsing refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attributes(i16);

impl Attributes {
    /// From the wire's bits; the codec is checked where a header is parsed.
    #[must_use]
    pub const fn from_bits(bits: i16) -> Self {
        Self(bits)
    }

    /// The wire's bits.
    #[must_use]
    pub const fn bits(self) -> i16 {
        self.0
    }

    /// The codec, `None` if nobody has defined it.
    #[must_use]
    pub fn compression(self) -> Option<Compression> {
        Compression::from_bits(self.compression_bits())
    }

    /// The three codec bits.
    #[must_use]
    pub fn compression_bits(self) -> u8 {
        u8::try_from(self.0 & COMPRESSION_BITS).expect("three bits fit")
    }

    /// Who gave the records their time.
    #[must_use]
    pub fn timestamp_type(self) -> TimestampType {
        if self.0 & LOG_APPEND_TIME == 0 { TimestampType::CreateTime } else { TimestampType::LogAppendTime }
    }

    /// Part of a transaction.
    #[must_use]
    pub fn is_transactional(self) -> bool {
        self.0 & TRANSACTIONAL != 0
    }

    /// Holds a marker of the broker, not records of a client.
    #[must_use]
    pub fn is_control(self) -> bool {
        self.0 & CONTROL != 0
    }

    /// The base timestamp is a delete horizon set by compaction.
    #[must_use]
    pub fn has_delete_horizon(self) -> bool {
        self.0 & DELETE_HORIZON != 0
    }

    /// The same bits with this codec.
    #[must_use]
    pub fn with_compression(self, compression: Compression) -> Self {
        Self(self.0 & !COMPRESSION_BITS | i16::from(compression.bits()))
    }

    /// The same bits with this source of time.
    #[must_use]
    pub fn with_timestamp_type(self, timestamp_type: TimestampType) -> Self {
        match timestamp_type {
            TimestampType::CreateTime => Self(self.0 & !LOG_APPEND_TIME),
            TimestampType::LogAppendTime => Self(self.0 | LOG_APPEND_TIME),
        }
    }

    /// The same bits, part of a transaction.
    #[must_use]
    pub fn with_transactional(self) -> Self {
        Self(self.0 | TRANSACTIONAL)
    }

    /// The same bits, holding a marker.
    #[must_use]
    pub fn with_control(self) -> Self {
        Self(self.0 | CONTROL)
    }
}

/// Which idempotent producer wrote a batch, and as which of its batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchProducer {
    /// Its identity.
    pub id: ProducerId,
    /// Its incarnation.
    pub epoch: ProducerEpoch,
    /// Sequence number of the first record; `None` in markers.
    pub base_sequence: Option<i32>,
}

impl BatchProducer {
    /// Sequence number of the last of `record_count` records. Sequences wrap from 2^31-1 to 0.
    #[must_use]
    pub fn last_sequence(&self, record_count: u32) -> Option<i32> {
        let base = i64::from(self.base_sequence?);
        let last = (base + i64::from(record_count) - 1).rem_euclid(1 << 31);
        Some(i32::try_from(last).expect("a remainder of 2^31 fits"))
    }
}

/// The header of one batch, every field typed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    /// Offset of the first record (0 in a client's batch).
    pub base_offset: Offset,
    /// Bytes of the whole batch, at least 61.
    pub len: usize,
    /// Leadership that wrote it; `None` before a leader stamped it.
    pub leader_epoch: Option<LeaderEpoch>,
    /// CRC-32C over bytes 21..len, as read.
    pub crc: u32,
    /// Codec and kinds.
    pub attributes: Attributes,
    /// Last offset minus base offset; stays when compaction takes records out.
    pub last_offset_delta: OffsetDelta,
    /// What the records' timestamps count from, in ms.
    pub base_timestamp_ms: i64,
    /// Largest timestamp of a record in ms, -1 if there is none.
    pub max_timestamp_ms: i64,
    /// Who wrote it, if idempotent.
    pub producer: Option<BatchProducer>,
    /// Records that are in it.
    pub record_count: u32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`; the records need not be there. No allocation.
    ///
    /// # Errors
    /// See [`HeaderError`]; the CRC is not looked at.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let header: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(HeaderError::Short { have: bytes.len() })?;
        let magic = i8::from_be_bytes([header[at::MAGIC]]);
        if magic != MAGIC {
            return Err(HeaderError::Magic(magic));
        }
        let (base_offset, last_offset_delta) = offsets(header)?;
        let attributes = Attributes(read_i16(header, at::ATTRIBUTES));
        if attributes.compression().is_none() {
            return Err(HeaderError::Compression(attributes.compression_bits()));
        }
        Ok(Self {
            base_offset,
            len: length(header)?,
            leader_epoch: LeaderEpoch::from_wire(read_i32(header, at::LEADER_EPOCH)),
            crc: read_u32(header, at::CRC),
            attributes,
            last_offset_delta,
            base_timestamp_ms: read_i64(header, at::BASE_TIMESTAMP),
            max_timestamp_ms: read_i64(header, at::MAX_TIMESTAMP),
            producer: producer(header)?,
            record_count: record_count(header, last_offset_delta)?,
        })
    }

    /// The codec of the records.
    #[must_use]
    pub fn compression(&self) -> Compression {
        self.attributes.compression().expect("parsing refuses undefined codecs")
    }

    /// Offset of the last record the batch covers.
    #[must_use]
    pub fn last_offset(&self) -> Offset {
        self.base_offset.advance(self.last_offset_delta)
    }

    /// Offset after the batch.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.last_offset().next()
    }

    /// The 61 bytes of this header, with `crc` as it stands here.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let length = i32::try_from(self.len - LENGTH_END).expect("a batch is below 2 GiB");
        let producer = self.producer;
        let mut out = [0; HEADER_LEN];
        put(&mut out, at::BASE_OFFSET, self.base_offset.get().to_be_bytes());
        put(&mut out, at::LENGTH, length.to_be_bytes());
        put(&mut out, at::LEADER_EPOCH, LeaderEpoch::to_wire(self.leader_epoch).to_be_bytes());
        put(&mut out, at::MAGIC, MAGIC.to_be_bytes());
        put(&mut out, at::CRC, self.crc.to_be_bytes());
        put(&mut out, at::ATTRIBUTES, self.attributes.0.to_be_bytes());
        let delta = i32::try_from(self.last_offset_delta.get()).expect("read from, and checked to fit, an i32");
        put(&mut out, at::LAST_OFFSET_DELTA, delta.to_be_bytes());
        put(&mut out, at::BASE_TIMESTAMP, self.base_timestamp_ms.to_be_bytes());
        put(&mut out, at::MAX_TIMESTAMP, self.max_timestamp_ms.to_be_bytes());
        put(&mut out, at::PRODUCER_ID, ProducerId::to_wire(producer.map(|p| p.id)).to_be_bytes());
        put(&mut out, at::PRODUCER_EPOCH, ProducerEpoch::to_wire(producer.map(|p| p.epoch)).to_be_bytes());
        let sequence = producer.and_then(|p| p.base_sequence).unwrap_or(-1);
        put(&mut out, at::BASE_SEQUENCE, sequence.to_be_bytes());
        put(&mut out, at::RECORD_COUNT, self.record_count.to_be_bytes());
        out
    }
}

fn length(header: &[u8; HEADER_LEN]) -> Result<usize, HeaderError> {
    let length = read_i32(header, at::LENGTH);
    usize::try_from(length)
        .ok()
        .map(|after| after + LENGTH_END)
        .filter(|&len| len >= HEADER_LEN)
        .ok_or(HeaderError::Length(length))
}

fn offsets(header: &[u8; HEADER_LEN]) -> Result<(Offset, OffsetDelta), HeaderError> {
    let base = read_i64(header, at::BASE_OFFSET);
    let delta = read_i32(header, at::LAST_OFFSET_DELTA);
    let wrong = HeaderError::Offsets { base, delta };
    // The offset after the batch must exist too, hence the +1.
    base.checked_add(i64::from(delta)).and_then(|last| last.checked_add(1)).ok_or(wrong)?;
    let delta = OffsetDelta::from_wire(i64::from(delta)).ok_or(wrong)?;
    Ok((Offset::from_wire(base).ok_or(wrong)?, delta))
}

fn producer(header: &[u8; HEADER_LEN]) -> Result<Option<BatchProducer>, HeaderError> {
    let id = read_i64(header, at::PRODUCER_ID);
    let epoch = read_i16(header, at::PRODUCER_EPOCH);
    let sequence = read_i32(header, at::BASE_SEQUENCE);
    let Some(producer_id) = ProducerId::from_wire(id) else { return Ok(None) };
    let epoch = ProducerEpoch::from_wire(epoch).ok_or(HeaderError::Producer { id, epoch })?;
    let base_sequence = (sequence >= 0).then_some(sequence);
    Ok(Some(BatchProducer { id: producer_id, epoch, base_sequence }))
}

fn record_count(header: &[u8; HEADER_LEN], last_delta: OffsetDelta) -> Result<u32, HeaderError> {
    let count = read_i32(header, at::RECORD_COUNT);
    let offsets = last_delta.get() + 1;
    // Compaction keeps a batch whose records are all gone, so a count of 0 is stored truth.
    let valid = u32::try_from(count).ok().filter(|&count| i64::from(count) <= offsets);
    valid.ok_or(HeaderError::Count { count, offsets })
}

pub(super) fn read_i16(header: &[u8; HEADER_LEN], position: usize) -> i16 {
    i16::from_be_bytes(field(header, position))
}

pub(super) fn read_i32(header: &[u8; HEADER_LEN], position: usize) -> i32 {
    i32::from_be_bytes(field(header, position))
}

pub(super) fn read_u32(header: &[u8; HEADER_LEN], position: usize) -> u32 {
    u32::from_be_bytes(field(header, position))
}

pub(super) fn read_i64(header: &[u8; HEADER_LEN], position: usize) -> i64 {
    i64::from_be_bytes(field(header, position))
}

fn field<const N: usize>(header: &[u8; HEADER_LEN], position: usize) -> [u8; N] {
    *header[position..].first_chunk().expect("the fields lie inside the header")
}

pub(super) fn put<const N: usize>(header: &mut [u8; HEADER_LEN], position: usize, value: [u8; N]) {
    header[position..position + N].copy_from_slice(&value);
}
