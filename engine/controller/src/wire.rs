//! Byte form of the values in commands, events and images: a cursor and one trait.
//!
//! Big-endian like Kafka. Text and lists have a u32 count before them, an option has one byte (0 none, 1 some), a map is
//! a list of pairs in key order. Counts are checked against the bytes that are left before anything is allocated, text
//! must be UTF-8, map keys must ascend strictly: equal values have equal bytes, and damaged bytes are an error.
//! Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use sakia_protocol::ids::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, MetadataIndex, PartitionEpoch, PartitionIndex, PartitionKey,
    Uuid,
};

/// Bytes that are not what they claim to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A kind or version that this binary does not know: a newer one wrote it.
    #[error("unknown {what} {kind} version {version}")]
    Unknown {
        /// Command, event, snapshot.
        what: &'static str,
        /// Its number.
        kind: u16,
        /// Its version.
        version: u16,
    },
    /// The checksum differs.
    #[error("checksum of {what} is {found:#x}, expected {expected:#x}")]
    Checksum {
        /// Command or image.
        what: &'static str,
        /// Computed over the bytes.
        found: u32,
        /// Stored beside them.
        expected: u32,
    },
    /// Too few bytes, too many, or a value outside its range.
    #[error("malformed {what}")]
    Malformed {
        /// The field's kind.
        what: &'static str,
    },
}

pub(crate) const fn malformed(what: &'static str) -> WireError {
    WireError::Malformed { what }
}

/// Bytes not read yet.
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn bytes(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], WireError> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(malformed(what))?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn count(&mut self) -> Result<usize, WireError> {
        let count = usize::try_from(u32::take(self)?).map_err(|_| malformed("count"))?;
        if count > self.rest.len() {
            return Err(malformed("count")); // every element takes a byte or more
        }
        Ok(count)
    }

    pub(crate) const fn remaining(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// A value with a byte form of at least one byte.
pub(crate) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(input: &mut Cursor<'_>) -> Result<Self, WireError>;
}

/// Decodes a value that must fill `bytes` exactly.
pub(crate) fn take_exact<T: Wire>(bytes: &[u8]) -> Result<T, WireError> {
    let mut cursor = Cursor::new(bytes);
    let value = T::take(&mut cursor)?;
    if cursor.is_empty() { Ok(value) } else { Err(malformed("trailing bytes")) }
}

pub(crate) fn put_count(count: usize, out: &mut Vec<u8>) {
    u32::try_from(count).expect("counts are bounded in limits.rs").put(out);
}

macro_rules! wire_numbers {
    ($($number:ty),*) => {$(
        impl Wire for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }
            fn take(input: &mut Cursor<'_>) -> Result<Self, WireError> {
                let bytes = input.bytes(size_of::<$number>(), stringify!($number))?;
                Ok(Self::from_be_bytes(bytes.try_into().expect("the slice has the asked length")))
            }
        }
    )*};
}
wire_numbers!(u8, u16, u32, u64, i16, i32, i64);

macro_rules! wire_ids {
    ($($id:ident: $number:ty),*) => {$(
        impl Wire for $id {
            fn put(&self, out: &mut Vec<u8>) {
                self.get().put(out);
            }
            fn take(input: &mut Cursor<'_>) -> Result<Self, WireError> {
                Self::from_wire(<$number>::take(input)?).ok_or(malformed(stringify!($id)))
            }
        }
    )*};
}
wire_ids!(
    BrokerId: i32, BrokerEpoch: i64, ControllerEpoch: i32, LeaderEpoch: i32, PartitionEpoch: i32, PartitionIndex: i32,
    MetadataIndex: i64
);

impl Wire for Uuid {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
    fn take(input: &mut Cursor<'_>) -> Result<Self, WireError> {
        let bytes = input.bytes(16, "uuid")?;
        Ok(Self::from_bytes(bytes.try_into().expect("the slice has 16 bytes")))
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        out.extend_from_slice(self.as_bytes());
    }
    fn take(input: &mut Cursor<'_>) -> Result<Self, WireError> {
        let len = input.count()?;
        let bytes = input.bytes(len, "text")?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| malformed("text"))
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            None => out.push(0),
            Some(value) => {
                out.push(1);
                value.put(out);
            }
        }
    }
    fn take(input: &mut Cursor<'_>) -> Result<Self, WireError> {
        match u8::take(input)? {
            0 => Ok(None),
            1 => T::take(input).map(Some),
            _ => Err(malformed("option")),
        }
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        for value in self {
            value.put(out);
        }
    }
    fn take(input: &mut Cursor<'_>) -> Result<Self, WireError> {
        let count = input.count()?;
        let mut values = Self::with_capacity(count.min(1_024)); // elements may be much larger than their bytes
        for _ in 0..count {
            values.push(T::take(input)?);
        }
        Ok(values)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(input: &mut Cursor<'_>) -> Result<Self, WireError> {
        Ok((A::take(input)?, B::take(input)?))
    }
}

impl<K: Wire + Ord, V: Wire> Wire for BTreeMap<K, V> {
    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }
    fn take(input: &mut Cursor<'_>) -> Result<Self, WireError> {
        let count = input.count()?;
        let mut map = Self::new();
        for _ in 0..count {
            let (key, value) = <(K, V)>::take(input)?;
            if map.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(malformed("map order"));
            }
            map.insert(key, value);
        }
        Ok(map)
    }
}

impl<T: Wire> Wire for Arc<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_ref().put(out);
    }
    fn take(input: &mut Cursor<'_>) -> Result<Self, WireError> {
        T::take(input).map(Self::new)
    }
}

impl Wire for PartitionKey {
    fn put(&self, out: &mut Vec<u8>) {
        self.topic_id.put(out);
        self.partition.put(out);
    }
    fn take(input: &mut Cursor<'_>) -> Result<Self, WireError> {
        Ok(Self { topic_id: Uuid::take(input)?, partition: PartitionIndex::take(input)? })
    }
}

/// Byte form of a struct: its fields in the order named here.
macro_rules! wire_struct {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $( $crate::wire::Wire::put(&self.$field, out); )*
            }
            fn take(input: &mut $crate::wire::Cursor<'_>) -> Result<Self, $crate::wire::WireError> {
                Ok(Self { $( $field: $crate::wire::Wire::take(input)? ),* })
            }
        }
    };
}
pub(crate) use wire_struct;

/// Byte form of an enum without fields: one byte, as numbered here.
macro_rules! wire_choice {
    ($name:ident { $($variant:ident = $number:literal),* $(,)? }) => {
        impl $crate::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                out.push(match self { $( Self::$variant => $number ),* });
            }
            fn take(input: &mut $crate::wire::Cursor<'_>) -> Result<Self, $crate::wire::WireError> {
                match <u8 as $crate::wire::Wire>::take(input)? {
                    $( $number => Ok(Self::$variant), )*
                    _ => Err($crate::wire::malformed(stringify!($name))),
                }
            }
        }
    };
}
pub(crate) use wire_choice;

/// An enum of kinds: number and version of each variant, and the byte form of its body.
macro_rules! wire_kinds {
    ($name:ident, $what:literal, { $($variant:ident = $kind:literal v $version:literal),* $(,)? }) => {
        impl $name {
            /// Number of the kind in its byte form.
            #[must_use]
            pub const fn kind(&self) -> u16 {
                match self { $( Self::$variant(_) => $kind ),* }
            }

            /// Version of the kind's byte form.
            #[must_use]
            pub const fn version(&self) -> u16 {
                match self { $( Self::$variant(_) => $version ),* }
            }

            /// Appends the bytes of the body (without kind and version).
            pub fn encode_body(&self, out: &mut Vec<u8>) {
                match self { $( Self::$variant(body) => $crate::wire::Wire::put(body, out) ),* }
            }

            /// Reads a body of this kind and version, which must be all of `body`.
            ///
            /// # Errors
            /// An unknown kind or version (a newer binary wrote it; never skip it), or malformed bytes.
            pub fn decode_body(kind: u16, version: u16, body: &[u8]) -> Result<Self, $crate::wire::WireError> {
                match (kind, version) {
                    $( ($kind, $version) => $crate::wire::take_exact(body).map(Self::$variant), )*
                    _ => Err($crate::wire::WireError::Unknown { what: $what, kind, version }),
                }
            }
        }

        $( impl From<$variant> for $name {
            fn from(body: $variant) -> Self {
                Self::$variant(body)
            }
        } )*
    };
}
pub(crate) use wire_kinds;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_beyond_the_bytes_is_refused_before_it_is_allocated() {
        assert_eq!(take_exact::<Vec<u8>>(&[0xff, 0xff, 0xff, 0xff, 1]), Err(malformed("count")));
    }

    #[test]
    fn trailing_bytes_and_unordered_maps_are_refused() {
        assert_eq!(take_exact::<u16>(&[0, 1, 2]), Err(malformed("trailing bytes")));
        let bytes = [0, 0, 0, 2, 2, 9, 1, 9];
        assert_eq!(take_exact::<BTreeMap<u8, u8>>(&bytes), Err(malformed("map order")));
    }
}
