//! A cursor over big-endian bytes from a peer, for the private Fetch tags. Pure.
//!
//! Invariant: no count is believed before the bytes for it are there.

use bytes::{BufMut, BytesMut};
use sakia_protocol::ids::Uuid;

/// Why a private tag cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WalTagError {
    /// Written by a newer release; the peer must not send it to us.
    #[error("version {version} of the private fetch tag is not known")]
    Version {
        /// Version found.
        version: u8,
    },
    /// Bytes are missing.
    #[error("private fetch tag ends inside {field}")]
    Short {
        /// Where.
        field: &'static str,
    },
    /// A value that no peer of ours writes.
    #[error("private fetch tag has an invalid {field}")]
    Invalid {
        /// Which.
        field: &'static str,
    },
    /// More bytes than the tag has fields.
    #[error("private fetch tag has {count} bytes too many")]
    Trailing {
        /// How many.
        count: usize,
    },
}

pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WalTagError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(WalTagError::Short { field })?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, WalTagError> {
        Ok(u8::from_be_bytes(self.take(field)?))
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, WalTagError> {
        Ok(u32::from_be_bytes(self.take(field)?))
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, WalTagError> {
        Ok(u64::from_be_bytes(self.take(field)?))
    }

    pub(crate) fn i32(&mut self, field: &'static str) -> Result<i32, WalTagError> {
        Ok(i32::from_be_bytes(self.take(field)?))
    }

    pub(crate) fn i64(&mut self, field: &'static str) -> Result<i64, WalTagError> {
        Ok(i64::from_be_bytes(self.take(field)?))
    }

    pub(crate) fn uuid(&mut self, field: &'static str) -> Result<Uuid, WalTagError> {
        Ok(Uuid::from_bytes(self.take(field)?))
    }

    fn uvarint(&mut self, field: &'static str) -> Result<u32, WalTagError> {
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.u8(field)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| WalTagError::Invalid { field });
            }
        }
        Err(WalTagError::Invalid { field })
    }

    /// A count of elements with at least `element_bytes` each, at most `bound`.
    pub(crate) fn count(
        &mut self,
        field: &'static str,
        element_bytes: usize,
        bound: usize,
    ) -> Result<usize, WalTagError> {
        let count = usize::try_from(self.uvarint(field)?).map_err(|_| WalTagError::Invalid { field })?;
        if count > bound {
            return Err(WalTagError::Invalid { field });
        }
        if count * element_bytes > self.rest.len() {
            return Err(WalTagError::Short { field });
        }
        Ok(count)
    }

    pub(crate) fn finish(self) -> Result<(), WalTagError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WalTagError::Trailing { count: self.rest.len() }) }
    }
}

pub(crate) fn put_count(out: &mut BytesMut, count: usize) {
    let mut rest = u32::try_from(count).expect("counts are bounded by limits.rs");
    while rest >= 0x80 {
        out.put_u8(u8::try_from(rest & 0x7f).expect("seven bits") | 0x80);
        rest >>= 7;
    }
    out.put_u8(u8::try_from(rest).expect("seven bits"));
}
