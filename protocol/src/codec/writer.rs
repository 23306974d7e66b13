//! Writes fields into a growing buffer.

use bytes::{BufMut, Bytes, BytesMut};

use super::{Encode, Form, STRING_BYTES_MAX, WireError};
use crate::ids::Uuid;

/// A message being written.
#[derive(Debug)]
pub struct Writer {
    buffer: BytesMut,
    form: Form,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

macro_rules! fixed {
    ($(#[$doc:meta])* $name:ident($type:ty) = $put:ident) => {
        $(#[$doc])*
        pub fn $name(&mut self, value: $type) {
            self.buffer.$put(value);
        }
    };
}

impl Writer {
    /// An empty writer, in plain form.
    #[must_use]
    pub fn new() -> Self {
        Self::over(BytesMut::new())
    }

    /// A writer that appends to `buffer`, in plain form.
    #[must_use]
    pub fn over(buffer: BytesMut) -> Self {
        Self { buffer, form: Form::Plain }
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

    /// Bytes written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// What was written, to be patched or handed on.
    pub fn buffer_mut(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The buffer.
    #[must_use]
    pub fn into_buffer(self) -> BytesMut {
        self.buffer
    }

    /// What was written.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.buffer.freeze()
    }

    fixed!(
        /// One byte.
        u8(u8) = put_u8
    );
    fixed!(
        /// One byte, signed.
        i8(i8) = put_i8
    );
    fixed!(
        /// Two bytes, signed, big-endian.
        i16(i16) = put_i16
    );
    fixed!(
        /// Two bytes, big-endian.
        u16(u16) = put_u16
    );
    fixed!(
        /// Four bytes, signed, big-endian.
        i32(i32) = put_i32
    );
    fixed!(
        /// Four bytes, big-endian.
        u32(u32) = put_u32
    );
    fixed!(
        /// Eight bytes, signed, big-endian.
        i64(i64) = put_i64
    );
    fixed!(
        /// Eight bytes, big-endian.
        u64(u64) = put_u64
    );
    fixed!(
        /// A double, big-endian.
        f64(f64) = put_f64
    );
    fixed!(
        /// Bytes as they are, without a length.
        raw(&[u8]) = put_slice
    );

    /// One byte, 0 or 1.
    pub fn bool(&mut self, value: bool) {
        self.buffer.put_u8(u8::from(value));
    }

    /// Sixteen bytes.
    pub fn uuid(&mut self, value: Uuid) {
        self.buffer.put_slice(value.as_bytes());
    }

    /// An unsigned number in one to five bytes.
    pub fn uvarint(&mut self, value: u32) {
        self.uvarlong(u64::from(value));
    }

    /// A signed number, zigzag, in one to five bytes.
    pub fn varint(&mut self, value: i32) {
        self.uvarint((value << 1).cast_unsigned() ^ (value >> 31).cast_unsigned());
    }

    /// A signed number, zigzag, in one to ten bytes.
    pub fn varlong(&mut self, value: i64) {
        self.uvarlong((value << 1).cast_unsigned() ^ (value >> 63).cast_unsigned());
    }

    fn uvarlong(&mut self, mut value: u64) {
        loop {
            let low = u8::try_from(value & 0x7f).expect("seven bits fit a byte");
            value >>= 7;
            if value == 0 {
                self.buffer.put_u8(low);
                return;
            }
            self.buffer.put_u8(low | 0x80);
        }
    }

    /// The count of a list, or the length of a byte range; `None` is null.
    ///
    /// # Errors
    /// `TooLarge` above 2^31 - 1.
    pub fn length(&mut self, len: Option<usize>) -> Result<(), WireError> {
        let len = match len {
            None => None,
            Some(len) => Some(i32::try_from(len).map_err(|_| WireError::TooLarge(len))?),
        };
        match self.form {
            Form::Plain => self.i32(len.unwrap_or(-1)),
            Form::Compact => self.uvarint(len.map_or(0, |len| len.cast_unsigned() + 1)),
        }
        Ok(())
    }

    /// A string, or null.
    ///
    /// # Errors
    /// `StringTooLong`.
    pub fn nullable_string(&mut self, value: Option<&str>) -> Result<(), WireError> {
        let len = value.map(str::len);
        if let Some(len) = len.filter(|&len| len > STRING_BYTES_MAX) {
            return Err(WireError::StringTooLong(len));
        }
        match self.form {
            Form::Compact => self.length(len)?,
            Form::Plain => {
                let len = len.map_or(-1, |len| i16::try_from(len).expect("checked against 32767 above"));
                self.i16(len);
            }
        }
        self.raw(value.unwrap_or_default().as_bytes());
        Ok(())
    }

    /// A string.
    ///
    /// # Errors
    /// `StringTooLong`.
    pub fn string(&mut self, value: &str) -> Result<(), WireError> {
        self.nullable_string(Some(value))
    }

    /// A byte range, or null. Also the type of record batches.
    ///
    /// # Errors
    /// `TooLarge`.
    pub fn nullable_bytes(&mut self, value: Option<&[u8]>) -> Result<(), WireError> {
        self.length(value.map(<[u8]>::len))?;
        self.raw(value.unwrap_or_default());
        Ok(())
    }

    /// A byte range.
    ///
    /// # Errors
    /// `TooLarge`.
    pub fn bytes(&mut self, value: &[u8]) -> Result<(), WireError> {
        self.nullable_bytes(Some(value))
    }

    /// A list, or null.
    ///
    /// # Errors
    /// `TooLarge`, and those of the elements.
    pub fn nullable_array<T: Encode>(&mut self, list: Option<&[T]>, version: i16) -> Result<(), WireError> {
        self.length(list.map(<[T]>::len))?;
        for element in list.unwrap_or_default() {
            element.encode(self, version)?;
        }
        Ok(())
    }

    /// A list.
    ///
    /// # Errors
    /// As `nullable_array`.
    pub fn array<T: Encode>(&mut self, list: &[T], version: i16) -> Result<(), WireError> {
        self.nullable_array(Some(list), version)
    }

    /// A struct behind a marker byte: 1, or -1 for null.
    ///
    /// # Errors
    /// Those of the struct.
    pub fn nullable_struct<T: Encode>(&mut self, value: Option<&T>, version: i16) -> Result<(), WireError> {
        match value {
            None => {
                self.i8(-1);
                Ok(())
            }
            Some(value) => {
                self.i8(1);
                value.encode(self, version)
            }
        }
    }

    /// The tagged fields at the end of a struct; nothing in plain form. `fill` writes those that are set, by growing tag.
    ///
    /// # Errors
    /// Those of the fields, `TagOrder`, `TooLarge`.
    pub fn tagged(&mut self, fill: impl FnOnce(&mut Tags) -> Result<(), WireError>) -> Result<(), WireError> {
        if self.form == Form::Plain {
            return Ok(());
        }
        let mut tags = Tags { count: 0, last: None, fields: Self { buffer: BytesMut::new(), form: self.form } };
        fill(&mut tags)?;
        self.uvarint(tags.count);
        self.raw(&tags.fields.buffer);
        Ok(())
    }

    /// The end of a struct without tagged fields of its own.
    pub fn no_tagged(&mut self) {
        if self.form == Form::Compact {
            self.uvarint(0);
        }
    }
}

/// The tagged fields of one struct being written.
#[derive(Debug)]
pub struct Tags {
    count: u32,
    last: Option<u32>,
    fields: Writer,
}

impl Tags {
    /// Writes field `tag` with the bytes that `write` gives it.
    ///
    /// # Errors
    /// Those of `write`, `TagOrder`, `TooLarge`.
    pub fn field(
        &mut self,
        tag: u32,
        write: impl FnOnce(&mut Writer) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        if self.last.is_some_and(|last| tag <= last) {
            return Err(WireError::TagOrder(tag));
        }
        let mut field = Writer { buffer: BytesMut::new(), form: self.fields.form };
        write(&mut field)?;
        let size = u32::try_from(field.len()).map_err(|_| WireError::TooLarge(field.len()))?;
        self.fields.uvarint(tag);
        self.fields.uvarint(size);
        self.fields.raw(&field.buffer);
        self.last = Some(tag);
        self.count += 1;
        Ok(())
    }
}
