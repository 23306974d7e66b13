//! Reads fields from a frame.
//!
//! Byte fields come out as slices of the frame (`Bytes`, counted reference), strings as `&str` into it or as `String`.
//! Cost: no copy and no allocation except for `String` and lists.

use std::str;

use bytes::Bytes;

use super::{Decode, Form, LIST_RESERVE_MAX, STRING_BYTES_MAX, WireError};
use crate::ids::Uuid;

/// A place in a frame, moving forward.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    frame: &'a Bytes,
    position: usize,
    end: usize,
    form: Form,
}

/// What the reader of a tagged field did with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tagged {
    /// Read it to its last byte.
    Known,
    /// Does not know it; it is skipped.
    Unknown,
}

macro_rules! fixed {
    ($(#[$doc:meta])* $name:ident -> $type:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// `Short`.
        pub fn $name(&mut self) -> Result<$type, WireError> {
            self.fixed().map(<$type>::from_be_bytes)
        }
    };
}

impl<'a> Reader<'a> {
    /// A reader at the start of `frame`, in plain form.
    #[must_use]
    pub fn new(frame: &'a Bytes) -> Self {
        Self { frame, position: 0, end: frame.len(), form: Form::Plain }
    }

    /// Chooses how lengths are written from here on.
    pub fn set_form(&mut self, form: Form) {
        self.form = form;
    }

    /// How lengths are written.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Bytes left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.end - self.position
    }

    /// Bytes from the start of the frame to here.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// `Trailing`.
    pub fn end(&self) -> Result<(), WireError> {
        match self.remaining() {
            0 => Ok(()),
            rest => Err(WireError::Trailing(rest)),
        }
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// `Short`.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let start = self.advance(len)?;
        Ok(&self.frame[start..start + len])
    }

    /// The next `len` bytes as a slice of the frame that keeps the frame alive.
    ///
    /// # Errors
    /// `Short`.
    pub fn slice(&mut self, len: usize) -> Result<Bytes, WireError> {
        let start = self.advance(len)?;
        Ok(self.frame.slice(start..start + len))
    }

    fn advance(&mut self, len: usize) -> Result<usize, WireError> {
        if len > self.remaining() {
            return Err(WireError::Short);
        }
        let start = self.position;
        self.position += len;
        Ok(start)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let bytes = self.take(N)?;
        Ok(*bytes.first_chunk().expect("exactly N bytes were taken"))
    }

    fixed!(
        /// One byte.
        u8 -> u8
    );
    fixed!(
        /// One byte, signed.
        i8 -> i8
    );
    fixed!(
        /// Two bytes, signed, big-endian.
        i16 -> i16
    );
    fixed!(
        /// Two bytes, big-endian.
        u16 -> u16
    );
    fixed!(
        /// Four bytes, signed, big-endian.
        i32 -> i32
    );
    fixed!(
        /// Four bytes, big-endian.
        u32 -> u32
    );
    fixed!(
        /// Eight bytes, signed, big-endian.
        i64 -> i64
    );
    fixed!(
        /// Eight bytes, big-endian.
        u64 -> u64
    );
    fixed!(
        /// A double, big-endian.
        f64 -> f64
    );

    /// One byte; anything but 0 is true, as in Kafka.
    ///
    /// # Errors
    /// `Short`.
    pub fn bool(&mut self) -> Result<bool, WireError> {
        self.u8().map(|byte| byte != 0)
    }

    /// Sixteen bytes.
    ///
    /// # Errors
    /// `Short`.
    pub fn uuid(&mut self) -> Result<Uuid, WireError> {
        self.fixed().map(Uuid::from_bytes)
    }

    /// An unsigned number of one to five bytes, seven bits each, lowest first.
    ///
    /// # Errors
    /// `Short`, `VarintTooLong`.
    pub fn uvarint(&mut self) -> Result<u32, WireError> {
        let value = self.uvarlong_within(5)?;
        u32::try_from(value).map_err(|_| WireError::VarintTooLong)
    }

    /// A signed number, zigzag over one to five bytes.
    ///
    /// # Errors
    /// `Short`, `VarintTooLong`.
    pub fn varint(&mut self) -> Result<i32, WireError> {
        let value = self.uvarint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// A signed number, zigzag over one to ten bytes.
    ///
    /// # Errors
    /// `Short`, `VarintTooLong`.
    pub fn varlong(&mut self) -> Result<i64, WireError> {
        let value = self.uvarlong_within(10)?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn uvarlong_within(&mut self, bytes_max: u32) -> Result<u64, WireError> {
        let mut value = 0u64;
        for index in 0..bytes_max {
            let byte = self.u8()?;
            let shift = 7 * index;
            if shift == 63 && byte > 1 {
                return Err(WireError::VarintTooLong);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::VarintTooLong)
    }

    /// A length or count in the current form; `None` is null.
    fn length(&mut self) -> Result<Option<u32>, WireError> {
        match self.form {
            Form::Compact => Ok(self.uvarint()?.checked_sub(1)),
            Form::Plain => match self.i32()? {
                -1 => Ok(None),
                value => u32::try_from(value).map(Some).map_err(|_| WireError::NegativeLength(value)),
            },
        }
    }

    fn string_length(&mut self) -> Result<Option<usize>, WireError> {
        let len = match self.form {
            Form::Compact => self.length()?.map(widen),
            Form::Plain => match self.i16()? {
                -1 => None,
                value => Some(usize::try_from(value).map_err(|_| WireError::NegativeLength(i32::from(value)))?),
            },
        };
        match len {
            Some(len) if len > STRING_BYTES_MAX => Err(WireError::StringTooLong(len)),
            len => Ok(len),
        }
    }

    /// A string of the frame, or null.
    ///
    /// # Errors
    /// `Short`, `NegativeLength`, `StringTooLong`, `NotUtf8`, `VarintTooLong`.
    pub fn nullable_str(&mut self) -> Result<Option<&'a str>, WireError> {
        let Some(len) = self.string_length()? else { return Ok(None) };
        let bytes = self.take(len)?;
        str::from_utf8(bytes).map(Some).map_err(|_| WireError::NotUtf8)
    }

    /// A string of the frame.
    ///
    /// # Errors
    /// As `nullable_str`, and `Null`.
    pub fn str(&mut self) -> Result<&'a str, WireError> {
        self.nullable_str()?.ok_or(WireError::Null)
    }

    /// An owned string, or null.
    ///
    /// # Errors
    /// As `nullable_str`.
    pub fn nullable_string(&mut self) -> Result<Option<String>, WireError> {
        Ok(self.nullable_str()?.map(str::to_owned))
    }

    /// An owned string.
    ///
    /// # Errors
    /// As `str`.
    pub fn string(&mut self) -> Result<String, WireError> {
        self.str().map(str::to_owned)
    }

    /// A byte range of the frame, or null. Also the type of record batches.
    ///
    /// # Errors
    /// `Short`, `NegativeLength`, `VarintTooLong`.
    pub fn nullable_bytes(&mut self) -> Result<Option<Bytes>, WireError> {
        match self.length()? {
            None => Ok(None),
            Some(len) => self.slice(widen(len)).map(Some),
        }
    }

    /// A byte range of the frame.
    ///
    /// # Errors
    /// As `nullable_bytes`, and `Null`.
    pub fn bytes(&mut self) -> Result<Bytes, WireError> {
        self.nullable_bytes()?.ok_or(WireError::Null)
    }

    /// The count of a list whose elements take at least `size_min` bytes each, or null.
    ///
    /// # Errors
    /// `Short`, `NegativeLength`, `VarintTooLong`, and `CountAboveFrame` if the rest of the frame cannot hold so many.
    pub fn nullable_count(&mut self, size_min: usize) -> Result<Option<usize>, WireError> {
        match self.length()? {
            Some(count) if widen(count) > self.remaining() / size_min.max(1) => Err(WireError::CountAboveFrame(count)),
            count => Ok(count.map(widen)),
        }
    }

    /// The count of a list.
    ///
    /// # Errors
    /// As `nullable_count`, and `Null`.
    pub fn count(&mut self, size_min: usize) -> Result<usize, WireError> {
        self.nullable_count(size_min)?.ok_or(WireError::Null)
    }

    /// A list, or null.
    ///
    /// # Errors
    /// As `nullable_count`, and those of the elements.
    pub fn nullable_array<T: Decode>(&mut self, version: i16) -> Result<Option<Vec<T>>, WireError> {
        let Some(count) = self.nullable_count(T::SIZE_MIN)? else { return Ok(None) };
        let mut list = Vec::with_capacity(count.min(LIST_RESERVE_MAX));
        while list.len() < count {
            if list.len() == list.capacity() {
                list.reserve_exact(list.len().min(count - list.len()));
            }
            list.push(T::decode(self, version)?);
        }
        Ok(Some(list))
    }

    /// A list.
    ///
    /// # Errors
    /// As `nullable_array`, and `Null`.
    pub fn array<T: Decode>(&mut self, version: i16) -> Result<Vec<T>, WireError> {
        self.nullable_array(version)?.ok_or(WireError::Null)
    }

    /// A struct behind a marker byte: 1, or -1 for null.
    ///
    /// # Errors
    /// `Marker`, and those of the struct.
    pub fn nullable_struct<T: Decode>(&mut self, version: i16) -> Result<Option<T>, WireError> {
        match self.i8()? {
            -1 => Ok(None),
            1 => T::decode(self, version).map(Some),
            other => Err(WireError::Marker(other)),
        }
    }

    /// The tagged fields at the end of a struct; nothing in plain form. `field` gets each tag with a reader over exactly
    /// its bytes.
    ///
    /// # Errors
    /// `TagOrder`, `TagSize`, `Short`, and those of the fields.
    pub fn tagged(
        &mut self,
        mut field: impl FnMut(u32, &mut Self) -> Result<Tagged, WireError>,
    ) -> Result<(), WireError> {
        if self.form == Form::Plain {
            return Ok(());
        }
        let mut above = None;
        for _ in 0..self.uvarint()? {
            let tag = self.uvarint()?;
            if above.is_some_and(|previous| tag <= previous) {
                return Err(WireError::TagOrder(tag));
            }
            above = Some(tag);
            let size = widen(self.uvarint()?);
            let start = self.advance(size)?;
            let mut inner = Self { frame: self.frame, position: start, end: start + size, form: self.form };
            if field(tag, &mut inner)? == Tagged::Known && inner.remaining() > 0 {
                return Err(WireError::TagSize(tag));
            }
        }
        Ok(())
    }

    /// Steps over the tagged fields at the end of a struct that has none of its own.
    ///
    /// # Errors
    /// As `tagged`.
    pub fn skip_tagged(&mut self) -> Result<(), WireError> {
        self.tagged(|_, _| Ok(Tagged::Unknown))
    }
}

fn widen(value: u32) -> usize {
    usize::try_from(value).expect("usize has at least 32 bits on the supported platforms")
}
