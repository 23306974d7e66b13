//! A place in the bytes of records that moves forward.
//!
//! The codec's `Reader` reads frames, which are `Bytes`; records may lie in a decompressor's buffer, so this one reads
//! any borrowed bytes, and only what records are made of. Nothing is taken before it is known to be there. Pure.

use thiserror::Error;

/// Bytes that are not records: where, and what is wrong there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{what} at byte {position}")]
pub struct Malformed {
    /// Byte position among the records, or in the record if the fault lies inside one.
    pub position: usize,
    /// What is wrong.
    pub what: &'static str,
}

/// See the module.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    pub(super) fn wrong(&self, what: &'static str) -> Malformed {
        Malformed { position: self.position, what }
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        if len > self.remaining() {
            return Err(self.wrong("length beyond the end"));
        }
        let start = self.position;
        self.position += len;
        Ok(&self.bytes[start..self.position])
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        let Some(&byte) = self.bytes.get(self.position) else { return Err(self.wrong("field beyond the end")) };
        self.position += 1;
        Ok(byte)
    }

    pub(super) fn varint(&mut self) -> Result<i32, Malformed> {
        read_varint(|| self.byte())?.ok_or_else(|| self.wrong("varint longer than 32 bits"))
    }

    pub(super) fn varlong(&mut self) -> Result<i64, Malformed> {
        read_varlong(|| self.byte())?.ok_or_else(|| self.wrong("varint longer than 64 bits"))
    }

    /// Bytes behind a varint length; -1 is null.
    pub(super) fn varint_bytes(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match self.varint()? {
            -1 => Ok(None),
            len => {
                let len = usize::try_from(len).map_err(|_| self.wrong("negative length"))?;
                self.take(len).map(Some)
            }
        }
    }

    pub(super) fn finish(&self) -> Result<(), Malformed> {
        if self.remaining() == 0 { Ok(()) } else { Err(self.wrong("bytes left")) }
    }
}

/// A zigzag number of one to five bytes, seven bits each, lowest first; `None` if it has more bits.
#[inline]
pub(super) fn read_varint<E>(mut byte: impl FnMut() -> Result<u8, E>) -> Result<Option<i32>, E> {
    let mut value = 0u32;
    for shift in (0..35).step_by(7) {
        let next = byte()?;
        // The fifth byte has room for four bits.
        if shift == 28 && next > 0x0f {
            break;
        }
        value |= u32::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return Ok(Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed()));
        }
    }
    Ok(None)
}

/// A zigzag number of one to ten bytes; `None` if it has more bits.
#[inline]
pub(super) fn read_varlong<E>(mut byte: impl FnMut() -> Result<u8, E>) -> Result<Option<i64>, E> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let next = byte()?;
        if shift == 63 && next > 1 {
            break;
        }
        value |= u64::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return Ok(Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed()));
        }
    }
    Ok(None)
}
