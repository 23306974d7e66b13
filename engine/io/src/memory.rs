//! Skeleton.
use bytes::Bytes;
use std::marker::PhantomData;
use std::ops::Range;

pub const BLOCK: usize = 4096;
pub type Lease = Bytes;

#[derive(Clone)]
pub struct Arena(PhantomData<*const ()>);
#[derive(Debug, thiserror::Error)]
#[error("the memory budget of {budget} bytes is used up: {in_use} in use, {wanted} wanted")]
pub struct ArenaFull {
    pub budget: usize,
    pub in_use: usize,
    pub wanted: usize,
}
impl Arena {
    pub fn new(_budget_bytes: usize) -> Arena {
        todo!()
    }
    pub fn chunk(&self, _len: usize) -> Result<ChunkWriter, ArenaFull> {
        todo!()
    }
    pub fn in_use(&self) -> usize {
        todo!()
    }
}
pub struct ChunkWriter(PhantomData<*const ()>);
impl ChunkWriter {
    pub fn capacity(&self) -> usize {
        todo!()
    }
    pub fn filled(&self) -> usize {
        todo!()
    }
    pub fn remaining(&self) -> usize {
        todo!()
    }
    /// `None` (and nothing appended) when it does not fit.
    pub fn append(&mut self, _bytes: &[u8]) -> Option<Range<usize>> {
        todo!()
    }
    /// Bytes below `filled`.
    pub fn lease(&self, _range: Range<usize>) -> Lease {
        todo!()
    }
    /// Block-aligned cover of a range that ends at most at `filled`, zeros beyond `filled`.
    pub fn blocks(&self, _range: Range<usize>) -> BlockLease {
        todo!()
    }
    /// Whether leases, block leases or operations in flight still hold the memory.
    pub fn is_shared(&self) -> bool {
        todo!()
    }
}
/// !Send.
pub struct BlockLease(PhantomData<*const ()>);
impl BlockLease {
    /// Always a multiple of `BLOCK`.
    pub fn len(&self) -> usize {
        todo!()
    }
    /// Where the cover begins in the chunk, a multiple of `BLOCK`.
    pub fn start(&self) -> usize {
        todo!()
    }
    /// For the simulated disk: the bytes as they are now.
    pub fn copy_now(&self) -> Vec<u8> {
        todo!()
    }
}
/// Aligned memory that one read fills.
pub struct ReadBuffer(PhantomData<*const ()>);
impl ReadBuffer {
    /// A multiple of `BLOCK`.
    pub fn capacity(&self) -> usize {
        todo!()
    }
    pub fn filled(&self) -> usize {
        todo!()
    }
    /// For the simulated disk: appends (asserts that it fits).
    pub fn put(&mut self, _bytes: &[u8]) {
        todo!()
    }
    /// Only the filled bytes.
    pub fn freeze(self) -> Bytes {
        todo!()
    }
}
