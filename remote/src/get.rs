//! Which GETs a fetch reply needs, and what may be taken from the bytes that came. Pure.
//!
//! Path: [`crate::wal_tag::WalResponse`] → [`plan`] → one GET per object → [`open_object`] → slices to owner shards.
//! Invariant: a slice that [`open_object`] returns lies in the object that the reference names, inside the bytes that
//! were asked for, and has the checksum, batch offsets and leader epoch that its manifest says (Rules: R5, R9, R12).
//! Continuity with the log is the owner shard's check.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use sakia_protocol::ids::{LeaderEpoch, Offset, PartitionKey};

use crate::batches;
use crate::key::{KeySpace, ObjectKey};
use crate::object::{HeadView, ObjectError, SliceHeader, read_head};
use crate::reference::{ObjectReference, ReferencedObject};

/// One GET.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedGet {
    /// What the reply said of the object.
    pub object: ReferencedObject,
    /// Its name.
    pub key: ObjectKey,
    /// Bytes to ask for: from 0, so that the manifest comes along.
    pub range: Range<u64>,
}

/// One GET per object, in the order of the streams, however often the reply names it.
///
/// Named twice, an object is read to the larger end, without the slices that either entry excludes.
#[must_use]
pub fn plan(space: &KeySpace, objects: &[ReferencedObject]) -> Vec<PlannedGet> {
    let mut gets: BTreeMap<ObjectReference, ReferencedObject> = BTreeMap::new();
    for object in objects {
        let known = gets.entry(object.object).or_insert_with(|| object.clone());
        known.get_end = known.get_end.max(object.get_end);
        known.excluded.extend_from_slice(&object.excluded);
        known.excluded.sort_unstable();
        known.excluded.dedup();
    }
    gets.into_values()
        .map(|object| PlannedGet { key: object.object.key(space), range: 0..u64::from(object.get_end), object })
        .collect()
}

/// A slice with its bytes, checked against its manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SliceBytes {
    /// Offsets, epoch, positions.
    pub header: SliceHeader,
    /// Its record bytes: a part of the GET's bytes, not a copy.
    pub bytes: Bytes,
}

/// Why a GET's bytes may not be used. Each is counted, re-checked once and then answered by fallback (Rule: R12).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GetError {
    /// The store gave another number of bytes than asked.
    #[error("{got} bytes of {asked}")]
    Length {
        /// Bytes that came.
        got: usize,
        /// Bytes asked for.
        asked: u32,
    },
    /// The head is damaged.
    #[error(transparent)]
    Head(#[from] ObjectError),
    /// A valid object, but not the one that was named.
    #[error("object is not the one referenced: {what} differs")]
    Another {
        /// What differs.
        what: &'static str,
    },
    /// Record bytes are damaged.
    #[error("slice {index} of {key} has checksum {found:#010x}, expected {expected:#010x}")]
    SliceChecksum {
        /// Its number.
        index: usize,
        /// Its partition.
        key: PartitionKey,
        /// Computed.
        found: u32,
        /// As the manifest says.
        expected: u32,
    },
    /// The batches in a slice are not what its manifest says.
    #[error("slice {index} of {key} {what}")]
    Batches {
        /// Its number.
        index: usize,
        /// Its partition.
        key: PartitionKey,
        /// Which rule is broken.
        what: &'static str,
    },
}

/// Opens the bytes `0..get_end` of an object: every slice that lies whole inside them and is not excluded.
///
/// Cost: one CRC pass over manifest and slices; slices share the memory of `bytes`.
pub fn open_object(object: &ReferencedObject, bytes: &Bytes) -> Result<Vec<SliceBytes>, GetError> {
    open_slices(object, bytes, |_| true)
}

/// As [`open_object`], for those slices that continue a wanted partition; others are neither checked nor returned.
pub fn open_wanted(object: &ReferencedObject, bytes: &Bytes, wanted: &Wanted) -> Result<Vec<SliceBytes>, GetError> {
    open_slices(object, bytes, |slice| wanted.wants(slice))
}

fn open_slices(
    object: &ReferencedObject,
    bytes: &Bytes,
    wants: impl Fn(&SliceHeader) -> bool,
) -> Result<Vec<SliceBytes>, GetError> {
    if u32::try_from(bytes.len()) != Ok(object.get_end) {
        return Err(GetError::Length { got: bytes.len(), asked: object.get_end });
    }
    let head = read_head(bytes)?;
    check_identity(&object.object, &head)?;
    let mut slices = Vec::new();
    for (index, header) in head.slices().enumerate() {
        if header.end > u64::from(object.get_end) {
            break;
        }
        let excluded = u32::try_from(index).is_ok_and(|number| object.excluded.binary_search(&number).is_ok());
        if excluded || !wants(&header) {
            continue;
        }
        slices.push(cut(index, header, bytes)?);
    }
    Ok(slices)
}

fn check_identity(reference: &ObjectReference, head: &HeadView<'_>) -> Result<(), GetError> {
    let prelude = head.prelude();
    let facts = [
        (prelude.manifest_crc32c == reference.manifest_crc32c, "manifest checksum"),
        (prelude.manifest_length == reference.manifest_length, "manifest length"),
        (prelude.object_length == u64::from(reference.object_length), "object length"),
        (head.stream() == reference.stream(), "stream"),
        (head.sequence() == reference.sequence, "sequence"),
    ];
    facts.iter().find(|(equal, _)| !equal).map_or(Ok(()), |(_, what)| Err(GetError::Another { what }))
}

fn cut(index: usize, header: SliceHeader, bytes: &Bytes) -> Result<SliceBytes, GetError> {
    let start = usize::try_from(header.start).expect("inside the bytes that came");
    let end = usize::try_from(header.end).expect("inside the bytes that came");
    let part = bytes.slice(start..end);
    let found = crc32c::crc32c(&part);
    if found != header.crc32c {
        return Err(GetError::SliceChecksum { index, key: header.key, found, expected: header.crc32c });
    }
    batches::check(&part, header.base, header.next, header.leader_epoch).map_err(|what| GetError::Batches {
        index,
        key: header.key,
        what,
    })?;
    Ok(SliceBytes { header, bytes: part })
}

/// What a follower can append: per partition its end and the leader epoch it follows.
#[derive(Clone, Default, Debug)]
pub struct Wanted {
    partitions: BTreeMap<PartitionKey, (Offset, LeaderEpoch)>,
}

impl Wanted {
    /// Wants `key` from `offset` on. Slices of epochs up to `epoch` are taken: a leader hands out the older ones of
    /// its lineage too.
    pub fn insert(&mut self, key: PartitionKey, offset: Offset, epoch: LeaderEpoch) {
        self.partitions.insert(key, (offset, epoch));
    }

    /// Whether a slice has records at or above the wanted offset, at an epoch that the follower may take.
    #[must_use]
    pub fn wants(&self, slice: &SliceHeader) -> bool {
        self.partitions
            .get(&slice.key)
            .is_some_and(|(offset, epoch)| slice.next > *offset && slice.leader_epoch <= *epoch)
    }

    /// Whether nothing is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }
}

#[cfg(test)]
mod tests;
