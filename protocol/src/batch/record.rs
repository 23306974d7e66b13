//! One decoded record, borrowed from the bytes of its batch.
//!
//! Headers stay an ordered list that may repeat a key: producers rely on both. Pure.

use bytes::BufMut;

use super::cursor::{Cursor, Malformed};

/// One record; nothing in it is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its distance from the batch's base offset.
    pub offset_delta: i32,
    /// Its distance from the batch's base timestamp in ms.
    pub timestamp_delta: i64,
    /// Its key; null and empty differ.
    pub key: Option<&'a [u8]>,
    /// Its value; null is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Its headers in order.
    pub headers: Headers<'a>,
}

/// A header of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// Its key: text by convention, any bytes in truth.
    pub key: &'a [u8],
    /// Its value.
    pub value: Option<&'a [u8]>,
}

/// The headers of one record, in order: iterates without allocation over bytes that were checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Headers<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads the record at the cursor and moves it behind the record.
    pub(super) fn read(cursor: &mut Cursor<'a>) -> Result<Self, Malformed> {
        let len = usize::try_from(cursor.varint()?).map_err(|_| cursor.wrong("negative record length"))?;
        let mut body = Cursor::new(cursor.take(len)?);
        body.byte()?;
        let timestamp_delta = body.varlong()?;
        let offset_delta = body.varint()?;
        let key = body.varint_bytes()?;
        let value = body.varint_bytes()?;
        let headers = Headers::read(&mut body)?;
        body.finish()?;
        Ok(Self { offset_delta, timestamp_delta, key, value, headers })
    }
}

impl<'a> Headers<'a> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn read(cursor: &mut Cursor<'a>) -> Result<Self, Malformed> {
        let count = usize::try_from(cursor.varint()?).map_err(|_| cursor.wrong("negative header count"))?;
        if count > cursor.remaining() / 2 {
            return Err(cursor.wrong("more headers than bytes"));
        }
        let mut ahead = cursor.clone();
        for _ in 0..count {
            Header::read(&mut ahead)?;
        }
        let bytes = cursor.take(ahead.position() - cursor.position())?;
        Ok(Self { count, bytes })
    }
}

impl<'a> IntoIterator for Headers<'a> {
    type Item = Header<'a>;
    type IntoIter = HeadersIter<'a>;

    fn into_iter(self) -> HeadersIter<'a> {
        HeadersIter { cursor: Cursor::new(self.bytes), left: self.count }
    }
}

/// See [`Headers`].
pub struct HeadersIter<'a> {
    cursor: Cursor<'a>,
    left: usize,
}

impl<'a> Iterator for HeadersIter<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        self.left = self.left.checked_sub(1)?;
        Some(Header::read(&mut self.cursor).expect("all headers were read once when the record was"))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<'a> Header<'a> {
    fn read(cursor: &mut Cursor<'a>) -> Result<Self, Malformed> {
        let key = cursor.varint_bytes()?.ok_or_else(|| cursor.wrong("null header key"))?;
        Ok(Self { key, value: cursor.varint_bytes()? })
    }
}

pub(super) fn put_varint(out: &mut Vec<u8>, value: i32) {
    put_varlong(out, i64::from(value));
}

pub(super) fn put_varlong(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.put_u8(u8::try_from(rest & 0x7f).expect("seven bits fit") | 0x80);
        rest >>= 7;
    }
    out.put_u8(u8::try_from(rest).expect("seven bits fit"));
}

pub(super) fn put_varint_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_varint(out, i32::try_from(bytes.len()).expect("a batch is below 2 GiB"));
            out.extend_from_slice(bytes);
        }
    }
}
