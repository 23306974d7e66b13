//! The records inside stored batches, for the few places that look into them: coordinators replaying their topics,
//! offset lookup by time, tools, tests.
//!
//! Path: from bytes read off the log (their CRC was checked on the way in) to borrowed records. Pure.
//!
//! Cost: no copy of an uncompressed batch; a compressed one is decompressed whole into one buffer under a bound.

use std::borrow::Cow;

use thiserror::Error;

use super::compression::{Compression, DecompressError, decompress};
use super::cursor::{Cursor, Malformed};
use super::header::{BatchHeader, HEADER_LEN, HeaderError, TimestampType};
use super::record::Record;
use crate::ids::Offset;

/// Why records cannot be read.
#[derive(Debug, Error)]
pub enum RecordsError {
    /// The bytes end inside the batch.
    #[error("batch has {have} bytes of {need}")]
    Torn {
        /// Bytes that are here.
        have: usize,
        /// Bytes of the whole batch.
        need: usize,
    },
    /// No batch header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The codec's reader gave up, or its output is over the bound.
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    /// A record does not follow the format, or bytes are left after the last.
    #[error("records of the batch: {0}")]
    Malformed(#[from] Malformed),
}

/// The records of one batch, decompressed.
#[derive(Debug)]
pub struct BatchRecords<'a> {
    header: BatchHeader,
    body: Cow<'a, [u8]>,
}

impl<'a> BatchRecords<'a> {
    /// Opens the batch at the start of `bytes`; what follows it is not looked at. The CRC is not checked.
    ///
    /// # Errors
    /// See [`RecordsError`]; more than `output_len_max` bytes after decompression are one.
    pub fn open(bytes: &'a [u8], output_len_max: usize) -> Result<Self, RecordsError> {
        let header = BatchHeader::parse(bytes)?;
        let batch = bytes.get(..header.len).ok_or(RecordsError::Torn { have: bytes.len(), need: header.len })?;
        let body = &batch[HEADER_LEN..];
        let body = match header.compression() {
            Compression::None => Cow::Borrowed(body),
            // Compaction may leave a batch without records, and then there is no stream either.
            _ if header.record_count == 0 => Cow::Borrowed(&[][..]),
            codec => Cow::Owned(decompress(codec, body, output_len_max)?),
        };
        Ok(Self { header, body })
    }

    /// The batch's header.
    #[must_use]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Its records in order. The last item is an error if the bytes do not hold what the header says.
    #[must_use]
    pub fn iter(&self) -> RecordsIter<'_> {
        RecordsIter { header: &self.header, cursor: Cursor::new(&self.body), left: self.header.record_count }
    }
}

impl<'a> IntoIterator for &'a BatchRecords<'_> {
    type Item = Result<PlacedRecord<'a>, RecordsError>;
    type IntoIter = RecordsIter<'a>;

    fn into_iter(self) -> RecordsIter<'a> {
        self.iter()
    }
}

/// A record with its offset and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedRecord<'a> {
    /// Its offset.
    pub offset: Offset,
    /// Its time in ms: its own, or the batch's if the broker stamped it.
    pub timestamp_ms: i64,
    /// Key, value, headers.
    pub record: Record<'a>,
}

/// See [`BatchRecords::iter`].
pub struct RecordsIter<'a> {
    header: &'a BatchHeader,
    cursor: Cursor<'a>,
    left: u32,
}

impl<'a> RecordsIter<'a> {
    fn read(&mut self) -> Result<PlacedRecord<'a>, Malformed> {
        let record = Record::read(&mut self.cursor)?;
        if self.left == 0 {
            self.cursor.finish()?;
        }
        let offset = self.header.base_offset.get().checked_add(i64::from(record.offset_delta));
        let offset = offset.and_then(Offset::from_wire).ok_or_else(|| self.cursor.wrong("record without an offset"))?;
        if record.offset_delta < 0 || offset > self.header.last_offset() {
            return Err(self.cursor.wrong("offset delta outside the batch"));
        }
        let timestamp_ms = match self.header.attributes.timestamp_type() {
            TimestampType::LogAppendTime => Some(self.header.max_timestamp_ms),
            TimestampType::CreateTime => self.header.base_timestamp_ms.checked_add(record.timestamp_delta),
        };
        let timestamp_ms = timestamp_ms.ok_or_else(|| self.cursor.wrong("timestamp is beyond 64 bits"))?;
        Ok(PlacedRecord { offset, timestamp_ms, record })
    }
}

impl<'a> Iterator for RecordsIter<'a> {
    type Item = Result<PlacedRecord<'a>, RecordsError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let item = self.read();
        if item.is_err() {
            self.left = 0;
        }
        Some(item.map_err(RecordsError::Malformed))
    }
}

/// Calls `each` for every record of the whole batches in `bytes`, control batches left out.
///
/// # Errors
/// The first batch that cannot be read; records before it were seen.
pub fn for_each_record(
    mut bytes: &[u8],
    output_len_max: usize,
    mut each: impl FnMut(PlacedRecord<'_>),
) -> Result<(), RecordsError> {
    while !bytes.is_empty() {
        let batch = BatchRecords::open(bytes, output_len_max)?;
        if !batch.header.attributes.is_control() {
            for record in &batch {
                each(record?);
            }
        }
        bytes = &bytes[batch.header.len..];
    }
    Ok(())
}
