//! Layout of a combined object, version 1. Pure.
//!
//! Path: from a frozen plan to the bucket, and from a GET's bytes to a follower's log. Little-endian, no padding,
//! positions absolute from byte 0:
//! ```text
//!  0  magic            8 bytes  "SAKIAWAL"
//!  8  version          u16 = 1
//! 10  flags            u16 = 0
//! 12  manifest_length  u32
//! 16  manifest_crc32c  u32
//! 20  object_length    u64
//! 28  prelude_crc32c   u32      over bytes 0..28
//! 32  manifest         rkyv: slices (81 bytes each), then 60 bytes of its own
//!     record bytes, slice after slice
//! ```
//! Invariant: what [`read_head`] returns has slices that lie end to end from the manifest's end to the object's end,
//! each with base < next and no negative number.

use bytes::{Bytes, BytesMut};
use rkyv::rancor;
use rkyv::{Archive, Serialize};
use sakia_protocol::ids::{
    BrokerEpoch, BrokerId, LeaderEpoch, MetadataIndex, Offset, PartitionIndex, PartitionKey, Uuid,
};

use crate::key::StreamId;
use crate::limits::{OBJECT_LENGTH_MAX, OBJECT_SLICES_MAX};

/// First bytes of every object.
pub const MAGIC: &[u8; 8] = b"SAKIAWAL";
/// The only version there is.
pub const VERSION: u16 = 1;
/// Length of the prelude; the manifest begins here.
pub const PRELUDE_LENGTH: u32 = 32;

const MANIFEST_FIXED_LENGTH: u32 = 60;
const SLICE_ENTRY_LENGTH: u32 = 81;
const CODEC_NONE: u8 = 0;

/// Random identity of one frozen object: tells our own earlier attempt from a stranger's object (Rule: R13).
pub type ObjectId = Uuid;

/// One partition's part of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SliceHeader {
    /// Whose records.
    pub key: PartitionKey,
    /// Leader epoch of every batch in it (Rule: R5).
    pub leader_epoch: LeaderEpoch,
    /// First offset.
    pub base: Offset,
    /// Offset after the last.
    pub next: Offset,
    /// Position of the first byte.
    pub start: u64,
    /// Position after the last byte.
    pub end: u64,
    /// CRC-32C of the stored bytes.
    pub crc32c: u32,
    /// Largest record timestamp, -1 if unknown.
    pub max_timestamp_ms: i64,
    /// Log start of the partition when it was frozen.
    pub log_start: Offset,
}

/// All that stands in front of the record bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// Random identity.
    pub object_id: ObjectId,
    /// Who wrote it.
    pub stream: StreamId,
    /// Its number in the stream.
    pub sequence: u64,
    /// Wall clock of the writer.
    pub created_at_ms: i64,
    /// Controller log index that the writer had applied.
    pub metadata_index: MetadataIndex,
    /// Slices in the order of their bytes.
    pub slices: Vec<SliceHeader>,
}

/// Why bytes are not the head of an object. Nothing of it may be used; `Short` alone can be mended by reading more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// Fewer bytes than the head needs.
    #[error("{got} bytes, the head needs {needed}")]
    Short {
        /// Bytes there are.
        got: usize,
        /// Bytes the head needs.
        needed: usize,
    },
    /// Not an object of ours.
    #[error("no object of ours: wrong magic")]
    Magic,
    /// Written by a newer release.
    #[error("object version {version} with flags {flags:#x} is not known")]
    Version {
        /// Version found.
        version: u16,
        /// Flags found.
        flags: u16,
    },
    /// Damaged prelude.
    #[error("prelude checksum {found:#010x}, expected {expected:#010x}")]
    PreludeChecksum {
        /// Computed over the bytes.
        found: u32,
        /// Written in the bytes.
        expected: u32,
    },
    /// Damaged manifest.
    #[error("manifest checksum {found:#010x}, expected {expected:#010x}")]
    ManifestChecksum {
        /// Computed over the bytes.
        found: u32,
        /// Written in the prelude.
        expected: u32,
    },
    /// Lengths that contradict each other.
    #[error("manifest of {manifest_length} bytes in an object of {object_length}")]
    Lengths {
        /// As the prelude says.
        manifest_length: u32,
        /// As the prelude says.
        object_length: u64,
    },
    /// The manifest is not a valid archive, or a number of it is out of range.
    #[error("manifest is not valid: {what}")]
    Manifest {
        /// Which rule is broken.
        what: &'static str,
    },
    /// A slice breaks a rule.
    #[error("slice {index} is not valid: {what}")]
    Slice {
        /// Its number.
        index: usize,
        /// Which rule is broken.
        what: &'static str,
    },
}

#[derive(Archive, Serialize)]
struct Manifest {
    object_id: [u8; 16],
    broker: i32,
    broker_epoch: i64,
    sequence: u64,
    created_at_ms: i64,
    metadata_index: i64,
    slices: Vec<Slice>,
}

#[derive(Archive, Serialize)]
struct Slice {
    topic_id: [u8; 16],
    partition: i32,
    leader_epoch: i32,
    base_offset: i64,
    next_offset: i64,
    start: u64,
    end: u64,
    crc32c: u32,
    max_timestamp_ms: i64,
    codec: u8,
    raw_length: u32,
    log_start: i64,
}

const _: () = assert!(size_of::<ArchivedSlice>() == 81, "a slice entry is 81 bytes");
const _: () = assert!(size_of::<ArchivedManifest>() == 60, "a manifest without slices is 60 bytes");
const _: () = assert!(align_of::<ArchivedManifest>() == 1, "a manifest is read at any address");

/// Length of prelude and manifest for that many slices; record bytes begin there.
#[must_use]
pub fn head_length(slices: usize) -> u32 {
    assert!(slices <= OBJECT_SLICES_MAX, "an object holds at most {OBJECT_SLICES_MAX} slices");
    let slices = u32::try_from(slices).expect("below OBJECT_SLICES_MAX");
    PRELUDE_LENGTH + MANIFEST_FIXED_LENGTH + SLICE_ENTRY_LENGTH * slices
}

/// Writes prelude and manifest. Panics on slices that break a rule of the layout: our own mistake.
#[must_use]
pub fn encode_head(head: &Head) -> Bytes {
    assert!(!head.slices.is_empty(), "an object has at least one slice");
    let object_length = head.slices.last().map_or(0, |slice| slice.end);
    assert!(object_length <= OBJECT_LENGTH_MAX, "an object has at most {OBJECT_LENGTH_MAX} bytes");
    let length = head_length(head.slices.len());
    let manifest = rkyv::to_bytes::<rancor::Error>(&to_archive(head)).expect("plain numbers always serialize");
    assert_eq!(manifest.len() + 32, usize::try_from(length).expect("fits"), "length of the manifest is as computed");

    let mut out = BytesMut::with_capacity(manifest.len() + 32);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&0u16.to_le_bytes());
    out.extend_from_slice(&(length - PRELUDE_LENGTH).to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(&manifest).to_le_bytes());
    out.extend_from_slice(&object_length.to_le_bytes());
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&manifest);
    let out = out.freeze();
    // Checked from the reader's side before a byte of it leaves.
    let checked = read_head(&out).expect("a head that was just written is valid");
    assert_eq!(checked.object_id(), head.object_id, "the head names its object");
    out
}

fn to_archive(head: &Head) -> Manifest {
    let slices = head.slices.iter().map(|slice| Slice {
        topic_id: *slice.key.topic_id.as_bytes(),
        partition: slice.key.partition.get(),
        leader_epoch: slice.leader_epoch.get(),
        base_offset: slice.base.get(),
        next_offset: slice.next.get(),
        start: slice.start,
        end: slice.end,
        crc32c: slice.crc32c,
        max_timestamp_ms: slice.max_timestamp_ms,
        codec: CODEC_NONE,
        raw_length: u32::try_from(slice.end - slice.start).expect("a slice is shorter than OBJECT_LENGTH_MAX"),
        log_start: slice.log_start.get(),
    });
    Manifest {
        object_id: *head.object_id.as_bytes(),
        broker: head.stream.broker.get(),
        broker_epoch: head.stream.broker_epoch.get(),
        sequence: head.sequence,
        created_at_ms: head.created_at_ms,
        metadata_index: head.metadata_index.get(),
        slices: slices.collect(),
    }
}

/// The fixed first 32 bytes, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prelude {
    /// Bytes of the manifest that follows.
    pub manifest_length: u32,
    /// Its CRC-32C.
    pub manifest_crc32c: u32,
    /// Length of the whole object.
    pub object_length: u64,
}

/// Reads and checks the prelude alone.
pub fn read_prelude(bytes: &[u8]) -> Result<Prelude, ObjectError> {
    let needed = 32;
    let Some(prelude) = bytes.first_chunk::<32>() else {
        return Err(ObjectError::Short { got: bytes.len(), needed });
    };
    if !prelude.starts_with(MAGIC) {
        return Err(ObjectError::Magic);
    }
    let expected = u32::from_le_bytes(array(prelude, 28));
    let found = crc32c::crc32c(&prelude[..28]);
    if found != expected {
        return Err(ObjectError::PreludeChecksum { found, expected });
    }
    let version = u16::from_le_bytes(array(prelude, 8));
    let flags = u16::from_le_bytes(array(prelude, 10));
    if version != VERSION || flags != 0 {
        return Err(ObjectError::Version { version, flags });
    }
    let manifest_length = u32::from_le_bytes(array(prelude, 12));
    let object_length = u64::from_le_bytes(array(prelude, 20));
    if object_length > OBJECT_LENGTH_MAX || u64::from(manifest_length) + 32 > object_length {
        return Err(ObjectError::Lengths { manifest_length, object_length });
    }
    Ok(Prelude { manifest_length, manifest_crc32c: u32::from_le_bytes(array(prelude, 16)), object_length })
}

fn array<const N: usize>(bytes: &[u8; 32], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("fields lie inside the prelude")
}

/// Reads the head of an object from bytes that begin at its byte 0 and reach at least to the manifest's end.
///
/// Cost: one CRC pass over the manifest and one check per slice; nothing is decoded or copied.
pub fn read_head(bytes: &[u8]) -> Result<HeadView<'_>, ObjectError> {
    let prelude = read_prelude(bytes)?;
    let needed = usize::try_from(prelude.manifest_length).expect("u32 fits usize") + 32;
    let Some(manifest) = bytes.get(32..needed) else {
        return Err(ObjectError::Short { got: bytes.len(), needed });
    };
    let found = crc32c::crc32c(manifest);
    if found != prelude.manifest_crc32c {
        return Err(ObjectError::ManifestChecksum { found, expected: prelude.manifest_crc32c });
    }
    let manifest = rkyv::access::<ArchivedManifest, rancor::Error>(manifest)
        .map_err(|_| ObjectError::Manifest { what: "not an archive of version 1" })?;
    let view = HeadView { prelude, manifest };
    view.check_fields()?;
    view.check_slices()?;
    Ok(view)
}

/// A checked head, read in place.
#[derive(Clone, Copy)]
pub struct HeadView<'a> {
    prelude: Prelude,
    manifest: &'a ArchivedManifest,
}

impl HeadView<'_> {
    fn check_fields(&self) -> Result<(), ObjectError> {
        let wrong = |what| Err(ObjectError::Manifest { what });
        if self.manifest.broker.to_native() < 0 {
            return wrong("broker is negative");
        }
        if self.manifest.broker_epoch.to_native() < 0 {
            return wrong("broker epoch is negative");
        }
        if self.manifest.metadata_index.to_native() < 0 {
            return wrong("metadata index is negative");
        }
        if self.manifest.slices.is_empty() || self.manifest.slices.len() > OBJECT_SLICES_MAX {
            return wrong("number of slices is out of range");
        }
        if head_length(self.manifest.slices.len()) != self.prelude.manifest_length + PRELUDE_LENGTH {
            return wrong("length does not fit the number of slices");
        }
        Ok(())
    }

    fn check_slices(&self) -> Result<(), ObjectError> {
        let mut position = u64::from(self.head_length());
        for (index, slice) in self.manifest.slices.iter().enumerate() {
            check_slice(slice, position, self.prelude.object_length)
                .map_err(|what| ObjectError::Slice { index, what })?;
            position = slice.end.to_native();
        }
        if position != self.prelude.object_length {
            return Err(ObjectError::Manifest { what: "slices do not reach the object's end" });
        }
        Ok(())
    }

    /// The fixed first bytes.
    #[must_use]
    pub fn prelude(&self) -> Prelude {
        self.prelude
    }

    /// Length of prelude and manifest; record bytes begin there.
    #[must_use]
    pub fn head_length(&self) -> u32 {
        self.prelude.manifest_length + PRELUDE_LENGTH
    }

    /// Random identity of the object.
    #[must_use]
    pub fn object_id(&self) -> ObjectId {
        Uuid::from_bytes(self.manifest.object_id)
    }

    /// Who wrote it.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        StreamId {
            broker: BrokerId::new(self.manifest.broker.to_native()),
            broker_epoch: BrokerEpoch::new(self.manifest.broker_epoch.to_native()),
        }
    }

    /// Its number in the stream.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.manifest.sequence.to_native()
    }

    /// Wall clock of the writer.
    #[must_use]
    pub fn created_at_ms(&self) -> i64 {
        self.manifest.created_at_ms.to_native()
    }

    /// Controller log index that the writer had applied.
    #[must_use]
    pub fn metadata_index(&self) -> MetadataIndex {
        MetadataIndex::new(self.manifest.metadata_index.to_native())
    }

    /// Number of slices.
    #[must_use]
    pub fn slice_count(&self) -> usize {
        self.manifest.slices.len()
    }

    /// Slices in the order of their bytes.
    pub fn slices(&self) -> impl ExactSizeIterator<Item = SliceHeader> {
        self.manifest.slices.iter().map(slice_header)
    }

    /// All of it as an owned value, for tools and tests.
    #[must_use]
    pub fn to_head(&self) -> Head {
        Head {
            object_id: self.object_id(),
            stream: self.stream(),
            sequence: self.sequence(),
            created_at_ms: self.created_at_ms(),
            metadata_index: self.metadata_index(),
            slices: self.slices().collect(),
        }
    }
}

fn check_slice(slice: &ArchivedSlice, position: u64, object_length: u64) -> Result<(), &'static str> {
    let (start, end) = (slice.start.to_native(), slice.end.to_native());
    let rules = [
        (start == position, "does not begin where the one before ends"),
        (start < end, "has no bytes"),
        (end <= object_length, "reaches beyond the object"),
        (slice.partition.to_native() >= 0, "partition is negative"),
        (slice.leader_epoch.to_native() >= 0, "leader epoch is negative"),
        (slice.base_offset.to_native() >= 0, "base offset is negative"),
        (slice.base_offset.to_native() < slice.next_offset.to_native(), "has no offsets"),
        (slice.log_start.to_native() >= 0, "log start is negative"),
        (slice.codec == CODEC_NONE, "codec is not known"),
        (end.checked_sub(start) == Some(u64::from(slice.raw_length.to_native())), "raw length differs without codec"),
    ];
    rules.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, what)| Err(*what))
}

fn slice_header(slice: &ArchivedSlice) -> SliceHeader {
    SliceHeader {
        key: PartitionKey {
            topic_id: Uuid::from_bytes(slice.topic_id),
            partition: PartitionIndex::new(slice.partition.to_native()),
        },
        leader_epoch: LeaderEpoch::new(slice.leader_epoch.to_native()),
        base: Offset::new(slice.base_offset.to_native()),
        next: Offset::new(slice.next_offset.to_native()),
        start: slice.start.to_native(),
        end: slice.end.to_native(),
        crc32c: slice.crc32c.to_native(),
        max_timestamp_ms: slice.max_timestamp_ms.to_native(),
        log_start: Offset::new(slice.log_start.to_native()),
    }
}

#[cfg(test)]
mod tests;
