//! The memory of batches: 4 KiB-aligned chunks that are filled in place, and leases that let disk, sockets and other threads
//! read them without a copy.
//!
//! Path: from a produce request (one copy into the tail chunk) to the disk (`BlockLease`), to followers, consumers and the
//! object store (`Lease`).
//!
//! Invariant: bytes below `filled` never change. Only the one `ChunkWriter` writes, and only at `filled` and beyond.
//! Invariant: from `filled` to the end of its block a chunk holds zeros, so what is written to disk is padded with zeros.
//! Invariant: memory goes back to its arena when writer, leases and operations in flight are all gone, on whatever thread.
//! Invariant: the kernel writes only into a `ReadBuffer`, which nobody else sees before the operation is over.
//!
//! Memory is cut from 2 MiB-aligned regions (huge pages where the system gives them) by halving; larger chunks have a
//! region of their own. This file and `uring/ring.rs` hold all unsafe code.
#![expect(unsafe_code, reason = "chunks are read by the device and other threads while their tail grows")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::limits::{FREE_REGIONS_MAX, MAPPED_BYTES_MIN};

/// The unit of direct I/O: alignment of positions, lengths and addresses.
pub const BLOCK: usize = 4096;

/// Immutable bytes, lent to any thread. Over chunk memory it is `Bytes::from_owner`, so one type reaches socket, disk and bucket.
pub type Lease = Bytes;

const REGION: usize = 2 << 20;
/// Sizes are `BLOCK << order`, up to one region.
const ORDERS: usize = 10;
const _: () = assert!(BLOCK << (ORDERS - 1) == REGION);

/// A budget of chunk memory. Clones share it.
#[derive(Clone)]
pub struct Arena(Arc<Pool>);

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the memory budget of {budget} bytes is used up: {in_use} in use, {wanted} wanted")]
pub struct ArenaFull {
    pub budget: usize,
    pub in_use: usize,
    pub wanted: usize,
}

struct Pool {
    budget: usize,
    state: Mutex<PoolState>,
}

struct PoolState {
    in_use: usize,
    /// Free parts by order; addresses as numbers.
    free: [BTreeSet<usize>; ORDERS],
    /// Every mapping of this pool by address, with its length.
    regions: BTreeMap<usize, usize>,
}

impl Arena {
    /// The budget bounds what is handed out, rounded up to a power of two (above 2 MiB: to a multiple of it).
    pub fn new(budget_bytes: usize) -> Arena {
        let state = PoolState { in_use: 0, free: Default::default(), regions: BTreeMap::new() };
        Arena(Arc::new(Pool { budget: budget_bytes, state: Mutex::new(state) }))
    }

    /// An empty chunk of `len` bytes, a multiple of `BLOCK`.
    pub fn chunk(&self, len: usize) -> Result<ChunkWriter, ArenaFull> {
        assert!(len > 0 && len.is_multiple_of(BLOCK), "a chunk has whole blocks, not {len} bytes");
        let memory = Memory::from_pool(&self.0, len)?;
        let chunk = Arc::new(Chunk { memory, filled: AtomicUsize::new(0) });
        Ok(ChunkWriter { chunk, zeroed: 0, local: PhantomData })
    }

    /// Bytes handed out and not yet given back.
    pub fn in_use(&self) -> usize {
        self.0.locked().in_use
    }

    pub fn budget(&self) -> usize {
        self.0.budget
    }
}

/// What a chunk of `len` bytes costs of the budget.
fn rounded(len: usize) -> usize {
    if len <= REGION { len.next_power_of_two().max(BLOCK) } else { len.next_multiple_of(REGION) }
}

fn order_of(len: usize) -> usize {
    usize::try_from((len / BLOCK).trailing_zeros()).expect("at most 64")
}

impl Pool {
    fn locked(&self) -> MutexGuard<'_, PoolState> {
        // An assertion that fails under this lock ends the process in any case.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, len: usize) -> Result<NonNull<u8>, ArenaFull> {
        let mut state = self.locked();
        if len > self.budget.saturating_sub(state.in_use) {
            return Err(ArenaFull { budget: self.budget, in_use: state.in_use, wanted: len });
        }
        let address = if len > REGION { state.map(len) } else { state.split(order_of(len)) };
        state.in_use += len;
        Ok(NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("a mapping is not at address zero"))
    }

    fn give_back(&self, address: NonNull<u8>, len: usize) {
        let address = address.as_ptr().expose_provenance();
        let mut state = self.locked();
        state.in_use -= len;
        if len > REGION { state.unmap(address) } else { state.merge(address, order_of(len)) }
    }
}

impl PoolState {
    /// Takes a free part of this order, halving a larger one when there is none.
    fn split(&mut self, order: usize) -> usize {
        if let Some(address) = self.free[order].pop_first() {
            return address;
        }
        if order == ORDERS - 1 {
            return self.map(REGION);
        }
        let address = self.split(order + 1);
        self.free[order].insert(address + (BLOCK << order));
        address
    }

    /// Puts a part back, joined with its other half as far as that is free.
    fn merge(&mut self, mut address: usize, mut order: usize) {
        while order < ORDERS - 1 && self.free[order].remove(&(address ^ (BLOCK << order))) {
            address &= !(BLOCK << order);
            order += 1;
        }
        let new = self.free[order].insert(address);
        assert!(new, "memory is given back once");
        if self.free[ORDERS - 1].len() > FREE_REGIONS_MAX {
            let spare = self.free[ORDERS - 1].pop_last().expect("there is more than the bound");
            self.unmap(spare);
        }
    }

    fn map(&mut self, len: usize) -> usize {
        let address = map_region(len);
        self.regions.insert(address, len);
        address
    }

    fn unmap(&mut self, address: usize) {
        let len = self.regions.remove(&address).expect("a region is unmapped once");
        unmap(address, len);
    }
}

impl Drop for PoolState {
    fn drop(&mut self) {
        assert_eq!(self.in_use, 0, "every part keeps its pool");
        for (address, len) in std::mem::take(&mut self.regions) {
            unmap(address, len);
        }
    }
}

/// Maps `len` bytes (a multiple of `REGION`), aligned to `REGION`.
fn map_region(len: usize) -> usize {
    let whole = len + REGION;
    let begin = map(whole);
    let address = begin.next_multiple_of(REGION);
    if address > begin {
        unmap(begin, address - begin);
    }
    if begin + whole > address + len {
        unmap(address + len, begin + whole - (address + len));
    }
    // Safety: the advice covers exactly the mapping made above. It may be refused; then pages are small.
    unsafe { libc::madvise(std::ptr::with_exposed_provenance_mut(address), len, libc::MADV_HUGEPAGE) };
    address
}

/// Maps `len` bytes, aligned to a page.
fn map(len: usize) -> usize {
    // Safety: an anonymous mapping at an address the kernel chooses touches no memory of ours.
    let mapped = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        handle_alloc_error(Layout::from_size_align(len, BLOCK).expect("the layout of a mapping is valid"));
    }
    mapped.expose_provenance()
}

fn unmap(address: usize, len: usize) {
    // Safety: callers pass mappings (or cut-off ends of one) of this file that nothing points to any more.
    let result = unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(address), len) };
    assert_eq!(result, 0, "the mapping was made by this file");
}

/// Aligned memory, uninitialised. Who owns it decides who reads and writes.
struct Memory {
    address: NonNull<u8>,
    /// Usable; a multiple of `BLOCK`.
    len: usize,
    pool: Option<Arc<Pool>>,
}

// Safety: it is plain memory with one owner; the types around it (`Chunk`, `ReadBuffer`) say who touches which bytes.
unsafe impl Send for Memory {}
// Safety: as above; a shared `Memory` gives out only its address.
unsafe impl Sync for Memory {}

impl Memory {
    fn from_pool(pool: &Arc<Pool>, len: usize) -> Result<Memory, ArenaFull> {
        let address = pool.take(rounded(len))?;
        Ok(Memory { address, len, pool: Some(Arc::clone(pool)) })
    }

    /// Outside of any budget. Large memory has a mapping of its own, which goes back to the system with its owner: in the
    /// heap a burst of large reads would stay for ever.
    fn unbudgeted(len: usize) -> Memory {
        assert!(len > 0, "there is no empty memory");
        let address = if len >= MAPPED_BYTES_MIN {
            NonNull::new(std::ptr::with_exposed_provenance_mut(map(len))).expect("a mapping is not at address zero")
        } else {
            let layout = Layout::from_size_align(len, BLOCK).expect("a length below the largest read");
            // Safety: the length is not zero.
            NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
        };
        Memory { address, len, pool: None }
    }

    /// Safety: the caller alone touches `range` while the pointer is used, and stays within it.
    fn at(&self, range: &Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} lies within {} bytes", self.len);
        self.address.as_ptr().wrapping_add(range.start)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match &self.pool {
            Some(pool) => pool.give_back(self.address, rounded(self.len)),
            None if self.len >= MAPPED_BYTES_MIN => unmap(self.address.as_ptr().expose_provenance(), self.len),
            None => {
                let layout = Layout::from_size_align(self.len, BLOCK).expect("the layout of its allocation");
                // Safety: allocated in `unbudgeted` with this layout.
                unsafe { dealloc(self.address.as_ptr(), layout) }
            }
        }
    }
}

struct Chunk {
    memory: Memory,
    /// Grows only. Stored with release by the writer; a lease was made below it on the writer's thread.
    filled: AtomicUsize,
}

/// The only appender of a chunk. It stays on its shard.
pub struct ChunkWriter {
    chunk: Arc<Chunk>,
    /// Bytes from `filled` to here are zero; a multiple of `BLOCK`.
    zeroed: usize,
    local: PhantomData<*const ()>,
}

impl ChunkWriter {
    pub fn capacity(&self) -> usize {
        self.chunk.memory.len
    }

    pub fn filled(&self) -> usize {
        self.chunk.filled.load(Ordering::Relaxed)
    }

    pub fn remaining(&self) -> usize {
        self.capacity() - self.filled()
    }

    /// Copies the bytes behind the filled ones and says where they are. `None`, and nothing appended, when they do not fit.
    pub fn append(&mut self, bytes: &[u8]) -> Option<Range<usize>> {
        self.append_parts(&[bytes])
    }

    /// As `append`, of several parts: all of them or none.
    pub fn append_parts(&mut self, parts: &[&[u8]]) -> Option<Range<usize>> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len > self.remaining() {
            return None;
        }
        let start = self.filled();
        let mut end = start;
        for part in parts {
            let target = self.chunk.memory.at(&(end..end + part.len()));
            // Safety: the range is in bounds and at or above `filled`, where nobody reads but the device (a block that it
            // writes may be torn there; it is written again after this append).
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), target, part.len()) };
            end += part.len();
        }
        self.zero_rest_of_block(end);
        self.chunk.filled.store(end, Ordering::Release);
        Some(start..end)
    }

    fn zero_rest_of_block(&mut self, end: usize) {
        let block_end = end.next_multiple_of(BLOCK);
        if block_end > self.zeroed {
            let target = self.chunk.memory.at(&(end..block_end));
            // Safety: in bounds and above everything filled; no block lease covers it, since they end below `zeroed`.
            unsafe { std::ptr::write_bytes(target, 0, block_end - end) };
            self.zeroed = block_end;
        }
    }

    /// Lends filled bytes to anyone, for as long as they like.
    pub fn lease(&self, range: Range<usize>) -> Lease {
        assert!(range.start <= range.end && range.end <= self.filled(), "{range:?} is not filled yet");
        if range.is_empty() {
            return Lease::new();
        }
        Bytes::from_owner(Filled { chunk: Arc::clone(&self.chunk), range })
    }

    /// Lends the whole blocks around filled bytes to the disk. The last one is padded with zeros, or with what is appended
    /// meanwhile.
    pub fn blocks(&self, range: Range<usize>) -> BlockLease {
        assert!(range.start < range.end && range.end <= self.filled(), "{range:?} is empty or not filled yet");
        let cover = range.start - range.start % BLOCK..range.end.next_multiple_of(BLOCK);
        assert!(cover.end <= self.zeroed, "blocks that are lent are padded");
        BlockLease { chunk: Arc::clone(&self.chunk), range: cover, local: PhantomData }
    }

    /// Whether leases, block leases or operations in flight still hold the memory.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.chunk) > 1
    }
}

/// A mistake for tests of the simulator: the memory is taken for free, and the next owner fills it (R5).
#[cfg(feature = "planted")]
impl Drop for ChunkWriter {
    fn drop(&mut self) {
        if crate::planted::is_planted(crate::planted::Planted::ChunkReused) && self.is_shared() {
            let target = self.chunk.memory.at(&(0..self.filled()));
            // Safety: none, this is the mistake. In bounds; the simulator runs on one thread, so nobody reads meanwhile.
            unsafe { std::ptr::write_bytes(target, 0x5a, self.filled()) };
        }
    }
}

/// The owner of a lease's bytes.
struct Filled {
    chunk: Arc<Chunk>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        debug_assert!(self.range.end <= self.chunk.filled.load(Ordering::Acquire), "a lease lies below filled");
        let start = self.chunk.memory.at(&self.range);
        // Safety: the range was below `filled` when this was made, so it is initialised and never written again, and `chunk`
        // keeps the memory.
        unsafe { std::slice::from_raw_parts(start, self.range.len()) }
    }
}

/// Whole blocks, for the device to read. No deref: bytes of the last block may still be appended. It stays on its shard.
pub struct BlockLease {
    chunk: Arc<Chunk>,
    range: Range<usize>,
    local: PhantomData<*const ()>,
}

impl BlockLease {
    /// Bytes, a multiple of `BLOCK`.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Where the first block begins in the chunk, a multiple of `BLOCK`.
    pub fn start(&self) -> usize {
        self.range.start
    }

    /// The bytes as they are now, for a driver without a device.
    pub fn copy_now(&self) -> Vec<u8> {
        let start = self.chunk.memory.at(&self.range);
        // Safety: in bounds and initialised (filled, or zeroed up to the end of the block). Nobody appends meanwhile: writer and
        // block lease are on one thread.
        unsafe { std::slice::from_raw_parts(start, self.range.len()) }.to_vec()
    }

    /// For the device.
    pub(crate) fn address(&self) -> *const u8 {
        self.chunk.memory.at(&self.range)
    }

    /// Cuts off the last block and gives a copy of it as it is now, for devices that check what they read (stable writes).
    pub(crate) fn take_last_block(&mut self, arena: &Arena) -> ReadBuffer {
        let last = BlockLease {
            chunk: Arc::clone(&self.chunk),
            range: self.range.end - BLOCK..self.range.end,
            local: PhantomData,
        };
        let mut bounce = ReadBuffer::new(arena, BLOCK);
        bounce.put(&last.copy_now());
        self.range.end -= BLOCK;
        bounce
    }
}

/// Aligned memory that one read fills, then everybody may read.
pub struct ReadBuffer {
    memory: Memory,
    filled: usize,
}

impl ReadBuffer {
    /// From the arena, or beside it when its budget is used up. `len` is a multiple of `BLOCK`.
    pub fn new(arena: &Arena, len: usize) -> ReadBuffer {
        assert!(len > 0 && len.is_multiple_of(BLOCK), "a read has whole blocks, not {len} bytes");
        let memory = Memory::from_pool(&arena.0, len).unwrap_or_else(|_| Memory::unbudgeted(len));
        ReadBuffer { memory, filled: 0 }
    }

    pub fn capacity(&self) -> usize {
        self.memory.len
    }

    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Appends bytes, for a driver without a device. Panics when they do not fit.
    pub fn put(&mut self, bytes: &[u8]) {
        let target = self.memory.at(&(self.filled..self.filled + bytes.len()));
        // Safety: in bounds, and this buffer is the only owner of its memory.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        self.filled += bytes.len();
    }

    /// Only the filled bytes.
    pub fn freeze(self) -> Bytes {
        if self.filled == 0 { Bytes::new() } else { Bytes::from_owner(self) }
    }

    /// Where the device writes next, `capacity() - filled()` bytes.
    pub(crate) fn spare(&mut self) -> *mut u8 {
        self.memory.at(&(self.filled..self.memory.len))
    }

    /// Where the filled bytes begin, for the device to read.
    pub(crate) fn address(&self) -> *const u8 {
        self.memory.at(&(0..self.filled))
    }

    /// Safety: the device has written `count` bytes at `spare()`.
    pub(crate) unsafe fn advance(&mut self, count: usize) {
        assert!(count <= self.memory.len - self.filled, "the device wrote within the buffer");
        self.filled += count;
    }
}

impl AsRef<[u8]> for ReadBuffer {
    fn as_ref(&self) -> &[u8] {
        let start = self.memory.at(&(0..self.filled));
        // Safety: filled by `put` or by the device, and not written again: both need `&mut self`.
        unsafe { std::slice::from_raw_parts(start, self.filled) }
    }
}

#[cfg(test)]
mod tests;
