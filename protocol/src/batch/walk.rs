//! A walk over the records of one batch that checks their structure and builds none of them.
//!
//! ```text
//! length           varint   bytes after this field
//! attributes       i8
//! timestamp_delta  varlong
//! offset_delta     varint
//! key              varint length, -1 null; bytes
//! value            varint length, -1 null; bytes
//! headers          varint count; each: key (varint length, bytes), value (varint length, -1 null; bytes)
//! ```
//! Varints are zigzag. Source: Kafka's DefaultRecord.
//!
//! Path: between the CRC and the append. Runs over the batch's own bytes, or over the output of a decompressor piece
//! by piece, so that a compressed batch never stands in memory whole. Pure.
//!
//! Cost: one pass, no allocation for an uncompressed batch.

use super::compression::{DecompressError, Decompressor};
use super::cursor::{read_varint, read_varlong};
use super::header::NO_TIMESTAMP_MS;

/// Why the records of a batch are refused.
#[derive(Debug)]
pub(super) enum Damage {
    /// More output than allowed.
    TooLarge(DecompressError),
    /// The codec's reader gave up.
    Stream(DecompressError),
    /// The batch ends inside a record, or has fewer records than it says.
    EndOfBatch,
    /// Bytes are left after the last record.
    BytesLeft,
    /// One record does not follow the format.
    Record(&'static str),
}

/// Where the bytes of records come from.
pub(super) trait Source {
    /// Starts a record of `len` bytes: nothing beyond them may be taken until [`Self::end_record`].
    fn begin_record(&mut self, len: usize) -> Result<(), Damage>;
    /// Ends the record; all of its bytes must have been taken.
    fn end_record(&mut self) -> Result<(), Damage>;
    /// Bytes of the record not yet taken.
    fn left_in_record(&self) -> usize;
    /// One byte. Outside a record only the next record's length may be read.
    fn byte(&mut self) -> Result<u8, Damage>;
    /// Passes over bytes of the record.
    fn skip(&mut self, len: usize) -> Result<(), Damage>;
    /// Nothing may follow the last record.
    fn finish(&mut self) -> Result<(), Damage>;
}

/// What a record says about itself, without its contents.
pub(super) struct RecordShape {
    pub(super) timestamp_delta: i64,
    pub(super) offset_delta: i32,
    pub(super) has_key: bool,
}

/// Passes over the next record.
pub(super) fn record<S: Source>(source: &mut S) -> Result<RecordShape, Damage> {
    let len = usize::try_from(varint(source)?).map_err(|_| Damage::Record("negative record length"))?;
    source.begin_record(len)?;
    source.byte()?;
    let timestamp_delta = varlong(source)?;
    let offset_delta = varint(source)?;
    let has_key = skip_nullable(source)?;
    skip_nullable(source)?;
    skip_headers(source)?;
    source.end_record()?;
    Ok(RecordShape { timestamp_delta, offset_delta, has_key })
}

fn skip_headers<S: Source>(source: &mut S) -> Result<(), Damage> {
    let count = usize::try_from(varint(source)?).map_err(|_| Damage::Record("negative header count"))?;
    // A header takes at least two bytes, so a hostile count ends here and not in a long loop.
    if count > source.left_in_record() / 2 {
        return Err(Damage::Record("more headers than bytes"));
    }
    for _ in 0..count {
        let key_len = usize::try_from(varint(source)?).map_err(|_| Damage::Record("null header key"))?;
        source.skip(key_len)?;
        skip_nullable(source)?;
    }
    Ok(())
}

#[inline]
fn skip_nullable<S: Source>(source: &mut S) -> Result<bool, Damage> {
    match varint(source)? {
        -1 => Ok(false),
        len => {
            source.skip(usize::try_from(len).map_err(|_| Damage::Record("negative length"))?)?;
            Ok(true)
        }
    }
}

#[inline]
fn varint<S: Source>(source: &mut S) -> Result<i32, Damage> {
    read_varint(|| source.byte())?.ok_or(Damage::Record("varint longer than 32 bits"))
}

#[inline]
fn varlong<S: Source>(source: &mut S) -> Result<i64, Damage> {
    read_varlong(|| source.byte())?.ok_or(Damage::Record("varint longer than 64 bits"))
}

/// Records that lie in memory as they are.
pub(super) struct InMemory<'a> {
    bytes: &'a [u8],
    position: usize,
    /// End of the record being read, or of all bytes between records.
    end: usize,
}

impl<'a> InMemory<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, end: bytes.len() }
    }
}

impl Source for InMemory<'_> {
    #[inline]
    fn begin_record(&mut self, len: usize) -> Result<(), Damage> {
        if len > self.bytes.len() - self.position {
            return Err(Damage::EndOfBatch);
        }
        self.end = self.position + len;
        Ok(())
    }

    #[inline]
    fn end_record(&mut self) -> Result<(), Damage> {
        if self.position != self.end {
            return Err(Damage::Record("bytes left in a record"));
        }
        self.end = self.bytes.len();
        Ok(())
    }

    #[inline]
    fn left_in_record(&self) -> usize {
        self.end - self.position
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Damage> {
        if self.position == self.end {
            return Err(self.beyond());
        }
        let byte = self.bytes[self.position];
        self.position += 1;
        Ok(byte)
    }

    #[inline]
    fn skip(&mut self, len: usize) -> Result<(), Damage> {
        if len > self.left_in_record() {
            return Err(self.beyond());
        }
        self.position += len;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Damage> {
        if self.position == self.bytes.len() { Ok(()) } else { Err(Damage::BytesLeft) }
    }
}

impl InMemory<'_> {
    #[cold]
    fn beyond(&self) -> Damage {
        if self.end == self.bytes.len() { Damage::EndOfBatch } else { Damage::Record("field beyond the record") }
    }
}

/// Records that come out of a decompressor.
pub(super) struct Streamed<'a> {
    stream: Decompressor<'a>,
    /// Bytes of the record not yet taken; `None` between records.
    left: Option<usize>,
}

impl<'a> Streamed<'a> {
    pub(super) fn new(stream: Decompressor<'a>) -> Self {
        Self { stream, left: None }
    }

    fn fill(&mut self) -> Result<&[u8], Damage> {
        self.stream.fill().map_err(|error| match error {
            DecompressError::TooLarge { .. } => Damage::TooLarge(error),
            DecompressError::Damaged { .. } => Damage::Stream(error),
        })
    }
}

impl Source for Streamed<'_> {
    fn begin_record(&mut self, len: usize) -> Result<(), Damage> {
        self.left = Some(len);
        Ok(())
    }

    fn end_record(&mut self) -> Result<(), Damage> {
        match self.left.take() {
            Some(0) => Ok(()),
            _ => Err(Damage::Record("bytes left in a record")),
        }
    }

    fn left_in_record(&self) -> usize {
        self.left.unwrap_or(0)
    }

    fn byte(&mut self) -> Result<u8, Damage> {
        match &mut self.left {
            Some(0) => return Err(Damage::Record("field beyond the record")),
            Some(left) => *left -= 1,
            None => {}
        }
        let byte = *self.fill()?.first().ok_or(Damage::EndOfBatch)?;
        self.stream.consume(1);
        Ok(byte)
    }

    fn skip(&mut self, len: usize) -> Result<(), Damage> {
        let left = self.left.unwrap_or(0);
        self.left = Some(left.checked_sub(len).ok_or(Damage::Record("field beyond the record"))?);
        let mut rest = len;
        while rest > 0 {
            let piece = self.fill()?.len().min(rest);
            if piece == 0 {
                return Err(Damage::EndOfBatch);
            }
            self.stream.consume(piece);
            rest -= piece;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Damage> {
        if self.fill()?.is_empty() { Ok(()) } else { Err(Damage::BytesLeft) }
    }
}

/// The largest timestamp met so far, and how far behind the base offset its first record lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LargestTimestamp {
    pub(super) timestamp_ms: i64,
    pub(super) offset_delta: u32,
}

impl LargestTimestamp {
    pub(super) const NONE: Self = Self { timestamp_ms: NO_TIMESTAMP_MS, offset_delta: 0 };

    pub(super) fn meet(&mut self, timestamp_ms: i64, offset_delta: u32) {
        if timestamp_ms > self.timestamp_ms {
            *self = Self { timestamp_ms, offset_delta };
        }
    }
}
