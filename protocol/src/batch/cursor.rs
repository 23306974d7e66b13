//! A place in borrowed bytes that moves forward: the reader of the hot path.
//!
//! Positions and lengths are checked against the bytes that are there before anything is taken, so a count in hostile
//! bytes costs nothing but its own check. No allocation. Pure.

use std::ops::Range;

use thiserror::Error;

use crate::ids::Uuid;

/// Bytes that do not follow the format: where, and what was expected there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{what} at byte {position}")]
pub struct Malformed {
    /// Byte position in the input.
    pub position: usize,
    /// What is wrong.
    pub what: &'static str,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    pub(crate) fn wrong(&self, what: &'static str) -> Malformed {
        Malformed { position: self.position, what }
    }

    /// The next `len` bytes, as a range of the input.
    pub(crate) fn range(&mut self, len: usize) -> Result<Range<usize>, Malformed> {
        if len > self.remaining() {
            return Err(self.wrong("length beyond the end"));
        }
        let start = self.position;
        self.position += len;
        Ok(start..self.position)
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let range = self.range(len)?;
        Ok(&self.bytes[range])
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let Some(value) = self.bytes[self.position..].first_chunk() else {
            return Err(self.wrong("field beyond the end"));
        };
        self.position += N;
        Ok(*value)
    }

    pub(crate) fn i8(&mut self) -> Result<i8, Malformed> {
        Ok(i8::from_be_bytes(self.array()?))
    }

    pub(crate) fn i16(&mut self) -> Result<i16, Malformed> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub(crate) fn uuid(&mut self) -> Result<Uuid, Malformed> {
        Ok(Uuid::from_bytes(self.array()?))
    }

    /// Up to five bytes, seven bits each, lowest first.
    #[inline]
    pub(crate) fn uvarint(&mut self) -> Result<u32, Malformed> {
        let mut value = 0u32;
        for shift in (0..35).step_by(7) {
            let [byte] = self.array()?;
            // The fifth byte has room for four bits.
            if shift == 28 && byte > 0x0f {
                break;
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.wrong("varint longer than 32 bits"))
    }

    /// Zigzag: 0, -1, 1, -2 as 0, 1, 2, 3.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<i32, Malformed> {
        let value = self.uvarint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    #[inline]
    pub(crate) fn varlong(&mut self) -> Result<i64, Malformed> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let [byte] = self.array()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
            }
        }
        Err(self.wrong("varint longer than 64 bits"))
    }

    /// Bytes under a zigzag length; -1 is null.
    pub(crate) fn varint_bytes(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match self.varint()? {
            -1 => Ok(None),
            len => {
                let len = usize::try_from(len).map_err(|_| self.wrong("negative length"))?;
                self.take(len).map(Some)
            }
        }
    }

    /// A count of elements of which each takes at least `element_len` bytes. `None` is null.
    pub(crate) fn count(&mut self, form: Form, element_len: usize) -> Result<Option<usize>, Malformed> {
        let Some(count) = self.len(form)? else { return Ok(None) };
        if count > self.remaining() / element_len {
            return Err(self.wrong("count beyond the end"));
        }
        Ok(Some(count))
    }

    /// A length or count field of 4 bytes (classic) or one varint holding length + 1 (compact). `None` is null.
    pub(crate) fn len(&mut self, form: Form) -> Result<Option<usize>, Malformed> {
        let len = match form {
            Form::Classic => i64::from(self.i32()?),
            Form::Compact => i64::from(self.uvarint()?) - 1,
        };
        self.length_field(len)
    }

    /// A string's range: classic length i16, compact as [`Self::len`]. Checked to be UTF-8. `None` is null.
    pub(crate) fn string(&mut self, form: Form) -> Result<Option<Range<usize>>, Malformed> {
        let len = match form {
            Form::Classic => i64::from(self.i16()?),
            Form::Compact => i64::from(self.uvarint()?) - 1,
        };
        let Some(len) = self.length_field(len)? else { return Ok(None) };
        if len > STRING_LEN_MAX {
            return Err(self.wrong("string longer than 32767 bytes"));
        }
        let range = self.range(len)?;
        if std::str::from_utf8(&self.bytes[range.clone()]).is_err() {
            return Err(self.wrong("string is not UTF-8"));
        }
        Ok(Some(range))
    }

    pub(crate) fn required_string(&mut self, form: Form) -> Result<Range<usize>, Malformed> {
        self.string(form)?.ok_or_else(|| self.wrong("null string"))
    }

    fn length_field(&self, len: i64) -> Result<Option<usize>, Malformed> {
        match len {
            -1 => Ok(None),
            len => usize::try_from(len).map(Some).map_err(|_| self.wrong("negative length")),
        }
    }

    /// Reads a section of tagged fields: `each` gets a tag and a cursor over its bytes that it must use up, or
    /// `false` is returned by it and the field is skipped.
    pub(crate) fn tagged_fields(
        &mut self,
        form: Form,
        mut each: impl FnMut(u32, &mut Cursor<'a>) -> Result<Tag, Malformed>,
    ) -> Result<(), Malformed> {
        if form == Form::Classic {
            return Ok(());
        }
        let count = self.uvarint()?;
        for _ in 0..count {
            let tag = self.uvarint()?;
            let len = usize::try_from(self.uvarint()?).map_err(|_| self.wrong("length beyond the end"))?;
            let range = self.range(len)?;
            let mut field = Cursor { bytes: &self.bytes[..range.end], position: range.start };
            if each(tag, &mut field)? == Tag::Known && field.remaining() != 0 {
                return Err(field.wrong("bytes left in a tagged field"));
            }
        }
        Ok(())
    }

    pub(crate) fn finish(&self) -> Result<(), Malformed> {
        if self.remaining() == 0 { Ok(()) } else { Err(self.wrong("bytes after the end of the message")) }
    }
}

/// Longest string Kafka can write.
const STRING_LEN_MAX: usize = 32_767;

/// How lengths are written: before or since "flexible versions".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// i16 before strings, i32 before bytes and arrays; no tagged fields.
    Classic,
    /// One varint holding length + 1; tagged fields end every structure.
    Compact,
}

/// What the reader of a tagged field did with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tag {
    /// Read; all of its bytes must be used.
    Known,
    /// Not ours: skipped.
    Skipped,
}
