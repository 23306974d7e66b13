//! Files: block-aligned writes of chunk memory, reads of any range.
//!
//! Path: from the segment of a partition to the driver and back.
//!
//! Invariant: of one `File` (and its clones) at most one write in flight covers a given 4 KiB block; two could reach the disk in
//! the wrong order, and the older would win. A dropped write counts until its completion.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;

use crate::driver::{Handle, InFlight, Op, Outcome};
use crate::executor::current;
use crate::limits::READ_BYTES_MAX;
use crate::memory::{BLOCK, BlockLease, ReadBuffer};
use crate::operation::begin;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenOptions {
    /// Make it when it is not there (implies `write`). Its name is durable after a `fs::sync_dir` of its folder.
    pub create: bool,
    /// Past the page cache (O_DIRECT).
    pub direct: bool,
    /// Reading is always allowed.
    pub write: bool,
}

/// An open file of this shard. Clones are the same file; it is closed when the last one and all operations are gone.
#[derive(Clone, Debug)]
pub struct File {
    handle: Handle,
    writes: Rc<RefCell<Vec<Range<u64>>>>,
}

const BLOCK_U64: u64 = 4096;
const _: () = assert!(BLOCK == 4096);

fn done(outcome: Outcome) -> io::Result<()> {
    match outcome {
        Outcome::Done(result) => result,
        _ => unreachable!("this operation gives Done"),
    }
}

impl File {
    pub async fn open(path: &Path, options: OpenOptions) -> io::Result<File> {
        match begin(Op::Open { path: path.to_owned(), options }).await {
            Outcome::Opened(number) => {
                Ok(File { handle: Handle::new(number?, &current()), writes: Rc::new(RefCell::new(Vec::new())) })
            }
            _ => unreachable!("an open gives Opened"),
        }
    }

    /// Bytes.
    pub async fn size(&self) -> io::Result<u64> {
        match begin(Op::Size { file: self.handle.clone() }).await {
            Outcome::Size(size) => size,
            _ => unreachable!("a size gives Size"),
        }
    }

    /// Writes all of `blocks` at `position` (a multiple of `BLOCK`). After an error, and when dropped before its end, any part
    /// may be written. Panics when another write in flight covers one of its blocks.
    pub async fn write_range(&self, blocks: BlockLease, position: u64) -> io::Result<()> {
        assert!(position.is_multiple_of(BLOCK_U64), "a write begins at a block, not at {position}");
        let len = u64::try_from(blocks.len()).expect("a length fits 64 bits");
        assert!(len > 0 && len.is_multiple_of(BLOCK_U64), "a write has whole blocks, not {len} bytes");
        let range = position..position.checked_add(len).expect("a file is shorter than 2^64 bytes");
        let in_flight = self.reserve(range);
        done(begin(Op::Write { file: self.handle.clone(), blocks, position, in_flight }).await)
    }

    fn reserve(&self, range: Range<u64>) -> InFlight {
        let mut writes = self.writes.borrow_mut();
        let other = writes.iter().find(|other| other.start < range.end && range.start < other.end);
        assert!(other.is_none(), "write of {range:?} while {other:?} is in flight");
        writes.push(range.clone());
        InFlight { ranges: Rc::clone(&self.writes), range }
    }

    /// The bytes from `position` on, `len` of them or up to the end of the file.
    pub async fn read(&self, position: u64, len: usize) -> io::Result<Bytes> {
        assert!(len <= READ_BYTES_MAX, "a read of {len} bytes is not cut into parts");
        if len == 0 {
            return Ok(Bytes::new());
        }
        let skip = usize::try_from(position % BLOCK_U64).expect("below 4096");
        let cover = (skip + len).next_multiple_of(BLOCK);
        let buffer = ReadBuffer::new(&current().read_arena, cover);
        let start = position - position % BLOCK_U64;
        match begin(Op::Read { file: self.handle.clone(), buffer, position: start }).await {
            Outcome::Read(buffer) => {
                let bytes = buffer?.freeze();
                let end = bytes.len().min(skip + len);
                Ok(if end <= skip { Bytes::new() } else { bytes.slice(skip..end) })
            }
            _ => unreachable!("a read gives Read"),
        }
    }

    /// What was written before is on stable storage when this returns. An error is final for the folder (R6).
    pub async fn sync(&self) -> io::Result<()> {
        done(begin(Op::Sync { file: self.handle.clone() }).await)
    }

    /// Cuts or extends (with zeros) to `len` bytes.
    pub async fn truncate(&self, len: u64) -> io::Result<()> {
        let beyond = self.writes.borrow().iter().find(|write| write.end > len).cloned();
        assert!(beyond.is_none(), "truncation to {len} while a write of {beyond:?} is in flight");
        done(begin(Op::Truncate { file: self.handle.clone(), len }).await)
    }

    /// Reserves space up to `len`; the size stays.
    pub async fn allocate(&self, len: u64) -> io::Result<()> {
        done(begin(Op::Allocate { file: self.handle.clone(), len }).await)
    }

    /// Closes it and says how that went, if this is the last clone and nothing is in flight; else it is closed with them.
    pub async fn close(self) -> io::Result<()> {
        match self.handle.into_number() {
            Some(number) => done(begin(Op::Close { number }).await),
            None => Ok(()),
        }
    }
}
