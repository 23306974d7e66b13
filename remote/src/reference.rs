//! What a replica gets instead of record bytes: the name and lengths of an object. Pure.
//!
//! Path: from the combiner's finished PUT over the leader's WAL index and a Fetch response to the follower's GET.
//! Big-endian, as Kafka:
//! ```text
//! bucket u8 · broker i32 · broker_epoch i64 · sequence u64 · object_length u32 · manifest_length u32 · get_end u32 ·
//! manifest_crc32c u32 · excluded: count uvarint, u32 each (numbers of slices outside the leader's lineage)
//! ```
//! Invariant: of a reference that was read, head ≤ `get_end` ≤ object.

use bytes::{BufMut, BytesMut};
use sakia_protocol::ids::{BrokerEpoch, BrokerId};

use crate::key::{KeySpace, ObjectKey, StreamId};
use crate::limits::{EXCLUDED_SLICES_MAX, OBJECT_LENGTH_MAX, OBJECT_SLICES_MAX};
use crate::object::{PRELUDE_LENGTH, head_length};
use crate::wire::{Cursor, WalTagError, put_count};

/// One object, by name and by what its head must be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ObjectReference {
    /// Which bucket; fixed per broker epoch (Rule: R13).
    pub bucket: u8,
    /// Who wrote it.
    pub broker: BrokerId,
    /// Which process of it.
    pub broker_epoch: BrokerEpoch,
    /// Number in the stream.
    pub sequence: u64,
    /// Bytes of the whole object.
    pub object_length: u32,
    /// Bytes of its manifest, without the prelude.
    pub manifest_length: u32,
    /// CRC-32C of the manifest.
    pub manifest_crc32c: u32,
}

impl ObjectReference {
    /// The stream the object belongs to.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        StreamId { broker: self.broker, broker_epoch: self.broker_epoch }
    }

    /// The object's name.
    #[must_use]
    pub fn key(&self, space: &KeySpace) -> ObjectKey {
        space.wal_object(self.stream(), self.sequence)
    }

    /// Position of the first record byte.
    #[must_use]
    pub fn head_length(&self) -> u32 {
        self.manifest_length + PRELUDE_LENGTH
    }
}

/// An object as one fetch reply names it to one follower.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReferencedObject {
    /// Which object.
    pub object: ObjectReference,
    /// Position after the last slice that this follower wants: the GET reads `0..get_end`.
    pub get_end: u32,
    /// Numbers of slices that must not be taken, ascending.
    pub excluded: Vec<u32>,
}

/// Shortest binary form: no slice excluded.
pub const REFERENCE_LENGTH_MIN: usize = 38;

impl ReferencedObject {
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        assert!(self.excluded.len() <= EXCLUDED_SLICES_MAX, "excluded slices are bounded");
        assert!(self.excluded.is_sorted(), "excluded slices ascend");
        assert!(self.get_end > self.object.head_length(), "a reply names an object for at least one slice");
        assert!(self.get_end <= self.object.object_length, "a reply names bytes inside the object");
        out.put_u8(self.object.bucket);
        out.put_i32(self.object.broker.get());
        out.put_i64(self.object.broker_epoch.get());
        out.put_u64(self.object.sequence);
        out.put_u32(self.object.object_length);
        out.put_u32(self.object.manifest_length);
        out.put_u32(self.get_end);
        out.put_u32(self.object.manifest_crc32c);
        put_count(out, self.excluded.len());
        for slice in &self.excluded {
            out.put_u32(*slice);
        }
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, WalTagError> {
        let bucket = cursor.u8("bucket")?;
        let broker = BrokerId::from_wire(cursor.i32("broker")?).ok_or(WalTagError::Invalid { field: "broker" })?;
        let broker_epoch = BrokerEpoch::from_wire(cursor.i64("broker epoch")?)
            .ok_or(WalTagError::Invalid { field: "broker epoch" })?;
        let sequence = cursor.u64("sequence")?;
        let object_length = cursor.u32("object length")?;
        let manifest_length = cursor.u32("manifest length")?;
        let get_end = cursor.u32("get end")?;
        let manifest_crc32c = cursor.u32("manifest checksum")?;
        if manifest_length > head_length(OBJECT_SLICES_MAX) {
            return Err(WalTagError::Invalid { field: "manifest length" });
        }
        if u64::from(object_length) > OBJECT_LENGTH_MAX {
            return Err(WalTagError::Invalid { field: "object length" });
        }
        let object =
            ObjectReference { bucket, broker, broker_epoch, sequence, object_length, manifest_length, manifest_crc32c };
        if get_end <= object.head_length() || get_end > object_length {
            return Err(WalTagError::Invalid { field: "get end" });
        }
        let count = cursor.count("excluded slices", 4, EXCLUDED_SLICES_MAX)?;
        let excluded = (0..count).map(|_| cursor.u32("excluded slices")).collect::<Result<Vec<_>, _>>()?;
        if !excluded.is_sorted() {
            return Err(WalTagError::Invalid { field: "excluded slices" });
        }
        Ok(Self { object, get_end, excluded })
    }
}
