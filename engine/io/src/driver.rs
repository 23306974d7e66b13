//! The seam between the scheduler and the world: everything a shard asks of disk, network, clock and chance.
//!
//! Path: from the futures of `file`, `net` and `fs` through `executor` to a `Driver` (`uring` in production, `sim` under a
//! seed) and back as `Completion`s.
//!
//! Invariant: an operation owns all memory it touches, from `push` until its completion, also when it was cancelled.
//! Invariant: every pushed operation gives exactly one completion with the same id, in whatever order; a cancelled one too.
//! Invariant: a driver wakes nobody and calls nothing of the scheduler; it only returns completions from `turn`.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::executor::Core;
use crate::file::OpenOptions;
use crate::fs::DirEntry;
use crate::memory::{BlockLease, ReadBuffer};
use crate::moment::Moment;

/// Names one operation in flight of one shard: a slot number (low 32 bits) and how often the slot was used (31 bits).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpId(u64);

impl OpId {
    pub(crate) fn new(slot: u32, turn: u32) -> OpId {
        OpId(u64::from(turn & 0x7fff_ffff) << 32 | u64::from(slot))
    }
    /// Small and dense; no two operations in flight share it.
    pub fn slot(self) -> usize {
        usize::try_from(self.0 & 0xffff_ffff).expect("32 bits fit a usize on the platforms we build for")
    }
    /// Below 2^63.
    pub fn to_u64(self) -> u64 {
        self.0
    }
    pub(crate) fn from_u64(value: u64) -> OpId {
        OpId(value)
    }
}

/// One open file, listener or stream. The driver chose the number; when the last clone is gone, the shard pushes
/// `Op::Close` with it. Operations in flight hold a clone, so a number is never closed below them.
#[derive(Clone)]
pub struct Handle(Rc<OpenHandle>);

struct OpenHandle {
    number: u64,
    owner: Weak<Core>,
}

impl Handle {
    pub(crate) fn new(number: u64, owner: &Rc<Core>) -> Handle {
        Handle(Rc::new(OpenHandle { number, owner: Rc::downgrade(owner) }))
    }
    /// The number the driver gave in `Outcome::Opened`, `Accepted`, `Connected`, `FsAnswer::Locked` or `listen`.
    pub fn number(&self) -> u64 {
        self.0.number
    }
    /// The number, not closed any more by a drop, when this is the last clone.
    pub(crate) fn into_number(self) -> Option<u64> {
        let mut open = Rc::try_unwrap(self.0).ok()?;
        open.owner = Weak::new();
        Some(open.number)
    }
}

impl Drop for OpenHandle {
    fn drop(&mut self) {
        // After the shard ended, its driver has closed everything already.
        if let Some(owner) = self.owner.upgrade() {
            owner.close_later(self.number);
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({})", self.0.number)
    }
}

/// Held by a write or send in flight; its drop (at the completion) gives the range or the stream free again.
/// Drivers only keep it together with the rest of the operation.
pub struct InFlight {
    pub(crate) ranges: Rc<std::cell::RefCell<Vec<Range<u64>>>>,
    pub(crate) range: Range<u64>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut ranges = self.ranges.borrow_mut();
        let at = ranges.iter().position(|r| *r == self.range).expect("the range was entered when the guard was made");
        ranges.swap_remove(at);
    }
}

/// What a shard asks of its driver. Positions and lengths are bytes.
pub enum Op {
    /// Gives `Outcome::Opened`.
    Open { path: PathBuf, options: OpenOptions },
    /// Gives `Done`. No operation on the number is in flight and none follows.
    Close { number: u64 },
    /// Gives `Size`.
    Size { file: Handle },
    /// Fills `buffer` from `position` on (both multiples of `BLOCK`), short only at the end of the file. Gives `Read`.
    Read { file: Handle, buffer: ReadBuffer, position: u64 },
    /// Writes all of `blocks` or fails; a failed or cancelled write may have written any part. Gives `Done`.
    Write { file: Handle, blocks: BlockLease, position: u64, in_flight: InFlight },
    /// What was completely written before the push is on stable storage (data and size). Gives `Done`.
    Sync { file: Handle },
    /// Gives `Done`.
    Truncate { file: Handle, len: u64 },
    /// Reserves space up to `len` without a change of the file's size. Gives `Done`.
    Allocate { file: Handle, len: u64 },
    /// Gives `Fs`.
    Fs(FsCall),
    /// Gives `Accepted`.
    Accept { listener: Handle },
    /// Resolves `host` (a name or an address) and connects. Gives `Connected`.
    Connect { host: String, port: u16 },
    /// Appends to `buffer` within its spare capacity (at least one byte, asserted by the caller). Gives `Received`.
    Recv { stream: Handle, buffer: BytesMut },
    /// Sends all parts in order or fails; a failed or cancelled send may have sent any prefix. Gives `Done`.
    Send { stream: Handle, parts: Vec<Bytes>, in_flight: InFlight },
    /// Half-close: the peer reads to the end; receiving goes on. Gives `Done`.
    Shutdown { stream: Handle },
    /// Runs the closure away from the shard's thread (the simulator: at once). It does not unwind. Gives `Done`.
    Blocking(Box<dyn FnOnce() + Send>),
}

/// Calls on names of the file system.
#[derive(Debug)]
pub enum FsCall {
    /// Answer `Content`.
    ReadFile(PathBuf),
    /// All or nothing, also over a power loss: temporary file `<name>.new` beside it, sync, rename, sync of the folder. `Done`.
    ReplaceFile(PathBuf, Vec<u8>),
    /// Not durable before `SyncDir` of the folder(s). `Done`.
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    RemoveFile(PathBuf),
    RemoveDirAll(PathBuf),
    CreateDirAll(PathBuf),
    /// Answer `Entries`, sorted by name.
    ListDir(PathBuf),
    SyncDir(PathBuf),
    /// Answer `Exists`.
    Exists(PathBuf),
    /// Takes `<folder>/.lock` for this process, error `WouldBlock` when another one has it. Answer `Locked`.
    Lock(PathBuf),
}

#[derive(Debug)]
pub enum FsAnswer {
    Done,
    Content(Vec<u8>),
    Entries(Vec<DirEntry>),
    Exists(bool),
    /// The lock is held until the number is closed.
    Locked(u64),
}

pub struct Completion {
    pub id: OpId,
    pub outcome: Outcome,
}

/// The result of an operation, with the memory that goes back. A cancelled operation ends with the error kind
/// `Interrupted` (`cancelled()`) or as if it had not been cancelled.
pub enum Outcome {
    Done(io::Result<()>),
    Opened(io::Result<u64>),
    Size(io::Result<u64>),
    Read(io::Result<ReadBuffer>),
    Fs(io::Result<FsAnswer>),
    /// The number of the stream and the peer.
    Accepted(io::Result<(u64, SocketAddr)>),
    Connected(io::Result<(u64, SocketAddr)>),
    /// Bytes appended (0: the peer closed its side) and the buffer, in every case.
    Received(io::Result<usize>, BytesMut),
}

/// The error of a cancelled operation.
pub fn cancelled() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the operation was cancelled")
}

/// How long `turn` may wait for a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Not at all. The only one a simulated driver sees.
    No,
    Until(Moment),
    Forever,
}

/// A shard's world. Used by one thread only; made on that thread.
pub trait Driver {
    /// Begins an operation. It may already be done at the next `turn`, never inside this call.
    fn push(&mut self, id: OpId, op: Op);
    /// Nobody waits for `id` any more. The completion still comes, once; until then the operation keeps its memory.
    fn cancel(&mut self, id: OpId);
    /// Submits what was pushed, waits at most as told, adds what completed since the last turn.
    fn turn(&mut self, wait: Wait, completions: &mut Vec<Completion>);
    /// Binds with SO_REUSEPORT; gives the listener's number and its address (a port where 0 was asked).
    fn listen(&mut self, address: SocketAddr) -> io::Result<(u64, SocketAddr)>;
    /// Monotonic. In production the same for all shards of the process.
    fn now(&self) -> Moment;
    fn wall_clock_ms(&self) -> i64;
    fn fill_random(&mut self, bytes: &mut [u8]);
    /// What ends this driver's `turn` from another thread.
    fn remote_wake(&self) -> Arc<dyn RemoteWake>;
    /// Wakes another shard from this one, at the latest in the next `turn`.
    fn wake_shard(&mut self, other: &Arc<dyn RemoteWake>) {
        other.wake();
    }
    /// The shard has ended, all its tasks are dropped: returns when no operation holds memory any more.
    fn stop(&mut self);
}

/// Ends a `turn` that waits, from any thread. Called at most once per sleep of the shard. The simulator's does nothing:
/// its world asks `Shard::is_ready`.
pub trait RemoteWake: Send + Sync {
    fn wake(&self);
    /// The io_uring to which a message can be sent instead.
    fn ring(&self) -> Option<i32> {
        None
    }
}
