//! Kafka's encoding of numbers, strings, byte ranges, lists and tagged fields.
//!
//! Path: from a frame to a message (`Reader`, `Decode`) and back (`Writer`, `Encode`). A message comes in one of two
//! forms, chosen by its version: `Form::Plain` (lengths as i16 or i32, no tagged fields) or `Form::Compact` (lengths as
//! unsigned varints, each struct ends in tagged fields). Reader and writer carry the form, so one call serves both.
//!
//! Invariant: nothing here trusts a length. A count or length larger than what is left of the frame is an error before
//! anything is allocated for it.

mod error;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use bytes::Bytes;

pub use error::WireError;
pub use reader::{Reader, Tagged};
pub use writer::{Tags, Writer};

use crate::ids::Uuid;

/// Longest string Kafka allows, in bytes.
pub const STRING_BYTES_MAX: usize = 32_767;

/// How many elements of a list are allocated for at once; a longer list grows as its elements arrive.
pub const LIST_RESERVE_MAX: usize = 1024;

/// The two encodings of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Lengths are i16 or i32, no tagged fields.
    Plain,
    /// "Flexible versions": lengths are unsigned varints of length + 1, every struct ends in tagged fields.
    Compact,
}

impl Form {
    /// The form of `version` of a message that is flexible from version `flexible_from` on.
    #[must_use]
    pub const fn of(version: i16, flexible_from: i16) -> Self {
        if version >= flexible_from { Self::Compact } else { Self::Plain }
    }
}

/// Something that can be read from a frame.
pub trait Decode: Sized {
    /// Fewest bytes a value takes in any version; bounds the count of a list by the bytes that are left.
    const SIZE_MIN: usize = 1;

    /// Reads the value as `version` of its message lays it out.
    ///
    /// # Errors
    /// A `WireError` if the bytes are not such a value. The reader's position is then of no use.
    fn decode(r: &mut Reader<'_>, version: i16) -> Result<Self, WireError>;
}

/// Something that can be written into a frame.
pub trait Encode {
    /// Writes the value as `version` of its message lays it out. Fields that `version` does not know are left out.
    ///
    /// # Errors
    /// A `WireError` if a string or list is too long, or a field is null that `version` does not allow to be.
    fn encode(&self, w: &mut Writer, version: i16) -> Result<(), WireError>;
}

/// Reads one value that must fill `bytes` to the last byte.
///
/// # Errors
/// As `Decode::decode`, and `WireError::Trailing` if bytes are left over.
pub fn decode_exact<T: Decode>(bytes: &Bytes, version: i16) -> Result<T, WireError> {
    let mut r = Reader::new(bytes);
    let value = T::decode(&mut r, version)?;
    r.end()?;
    Ok(value)
}

/// Writes one value into bytes of its own, without a length in front.
///
/// # Errors
/// As `Encode::encode`.
pub fn encode_to_bytes<T: Encode>(value: &T, version: i16) -> Result<Bytes, WireError> {
    let mut w = Writer::new();
    value.encode(&mut w, version)?;
    Ok(w.into_bytes())
}

/// Elements of lists that are not structs.
macro_rules! element {
    ($type:ty, $size:expr, $read:ident, |$w:ident, $value:ident| $write:expr) => {
        impl Decode for $type {
            const SIZE_MIN: usize = $size;

            fn decode(r: &mut Reader<'_>, _version: i16) -> Result<Self, WireError> {
                r.$read()
            }
        }

        impl Encode for $type {
            fn encode(&self, $w: &mut Writer, _version: i16) -> Result<(), WireError> {
                let $value = self;
                $write
            }
        }
    };
}

element!(i8, 1, i8, |w, value| {
    w.i8(*value);
    Ok(())
});
element!(i16, 2, i16, |w, value| {
    w.i16(*value);
    Ok(())
});
element!(i32, 4, i32, |w, value| {
    w.i32(*value);
    Ok(())
});
element!(i64, 8, i64, |w, value| {
    w.i64(*value);
    Ok(())
});
element!(Uuid, 16, uuid, |w, value| {
    w.uuid(*value);
    Ok(())
});
element!(String, 1, string, |w, value| w.string(value));
element!(Bytes, 1, bytes, |w, value| w.bytes(value));
