//! A frozen object: everything that every attempt to put it sends. Pure.
//!
//! Path: [`crate::pack::FrozenPlan`] → here (name, head, positions) → [`crate::store::settled`] → references.
//! Invariant: once built it never changes; each attempt and hedge sends exactly these bytes (Rule: R13).

use bytes::Bytes;
use sakia_protocol::ids::{BrokerId, MetadataIndex};

use crate::key::{KeySpace, ObjectKey, StreamId};
use crate::object::{Head, ObjectId, SliceHeader, encode_head, head_length, read_prelude};
use crate::pack::{BrokerSet, FrozenPlan, PlannedSlice};
use crate::reference::ObjectReference;
use crate::store::{CreateOnly, Put};

/// What the broker adds to a plan: whose object it is and when it was made.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Random.
    pub object_id: ObjectId,
    /// Which bucket.
    pub bucket: u8,
    /// Who writes.
    pub stream: StreamId,
    /// Number in the stream.
    pub sequence: u64,
    /// Wall clock.
    pub created_at_ms: i64,
    /// Controller log index applied.
    pub metadata_index: MetadataIndex,
}

/// Where a slice lies in its object, and who is told.
#[derive(Clone, Debug)]
pub struct PlacedSlice {
    /// Its number in the object.
    pub number: u32,
    /// Offsets, positions, checksum.
    pub header: SliceHeader,
    /// Generation of the partition on its shard when it was lent.
    pub generation: u64,
    /// Which shard lent it.
    pub shard: usize,
    /// Who will want it.
    pub followers: BrokerSet,
}

/// An object with name, head and lent bytes.
#[derive(Clone, Debug)]
pub struct FrozenObject {
    key: ObjectKey,
    object_id: ObjectId,
    reference: ObjectReference,
    parts: Vec<Bytes>,
    slices: Vec<PlacedSlice>,
}

impl FrozenObject {
    /// Gives a plan its name, head and positions.
    #[must_use]
    pub fn new(space: &KeySpace, identity: Identity, plan: FrozenPlan) -> Self {
        let slices = place(&plan.slices);
        let head = encode_head(&Head {
            object_id: identity.object_id,
            stream: identity.stream,
            sequence: identity.sequence,
            created_at_ms: identity.created_at_ms,
            metadata_index: identity.metadata_index,
            slices: slices.iter().map(|slice| slice.header).collect(),
        });
        let prelude = read_prelude(&head).expect("a head that was just written is valid");
        let mut parts = vec![head];
        parts.extend(plan.slices.into_iter().flat_map(|slice| slice.parts));
        let length: u64 = parts.iter().map(|part| u64::try_from(part.len()).expect("usize fits u64")).sum();
        assert_eq!(length, prelude.object_length, "the parts are as long as the object says");
        let reference = ObjectReference {
            bucket: identity.bucket,
            broker: identity.stream.broker,
            broker_epoch: identity.stream.broker_epoch,
            sequence: identity.sequence,
            object_length: u32::try_from(length).expect("below OBJECT_LENGTH_MAX"),
            manifest_length: prelude.manifest_length,
            manifest_crc32c: prelude.manifest_crc32c,
        };
        Self { key: reference.key(space), object_id: identity.object_id, reference, parts, slices }
    }

    /// Its name.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Its random identity.
    #[must_use]
    pub fn object_id(&self) -> ObjectId {
        self.object_id
    }

    /// What replicas get.
    #[must_use]
    pub fn reference(&self) -> ObjectReference {
        self.reference
    }

    /// Prelude and manifest: also the value of the metadata topic's record.
    #[must_use]
    pub fn head(&self) -> &Bytes {
        self.parts.first().expect("the head is the first part")
    }

    /// Slices in the order of their bytes.
    #[must_use]
    pub fn slices(&self) -> &[PlacedSlice] {
        &self.slices
    }

    /// Position after the last slice that `broker` wants; `None` if it wants none.
    #[must_use]
    pub fn get_end(&self, broker: BrokerId) -> Option<u32> {
        let last = self.slices.iter().rfind(|slice| slice.followers.contains(&broker))?;
        Some(u32::try_from(last.header.end).expect("below OBJECT_LENGTH_MAX"))
    }

    /// The request of one attempt. Cost: one reference count per part; no byte is copied.
    #[must_use]
    pub fn put(&self) -> Put {
        Put { key: self.key.clone(), parts: self.parts.clone(), create_only: CreateOnly::Yes }
    }
}

fn place(slices: &[PlannedSlice]) -> Vec<PlacedSlice> {
    let mut start = u64::from(head_length(slices.len()));
    let mut placed = Vec::with_capacity(slices.len());
    for (number, slice) in slices.iter().enumerate() {
        let end = start + slice.length;
        placed.push(PlacedSlice {
            number: u32::try_from(number).expect("below OBJECT_SLICES_MAX"),
            header: SliceHeader {
                key: slice.key,
                leader_epoch: slice.leader_epoch,
                base: slice.base,
                next: slice.next,
                start,
                end,
                crc32c: slice.crc32c,
                max_timestamp_ms: slice.max_timestamp_ms,
                log_start: slice.log_start,
            },
            generation: slice.generation,
            shard: slice.shard,
            followers: slice.followers.clone(),
        });
        start = end;
    }
    placed
}
