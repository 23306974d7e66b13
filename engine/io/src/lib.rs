//! The ground all of Sakia stands on: tasks, time, chance, memory, files, sockets and shards.
//!
//! Reading order: `driver` (the seam), `executor` (the one scheduler), `memory` (chunks and leases), `file`, `net`, `fs`,
//! `mailbox`/`oneshot`/`signal` (between shards and threads), `shard`, then the two drivers `uring` and `sim`.
//!
//! Invariant: above this crate nothing reads a clock, draws a number or touches disk or network by itself, so a seed replays
//! a run. `unsafe` is allowed in `memory` and in `uring/ring` only.

mod blocking;
pub mod driver;
mod executor;
mod file;
pub mod fs;
pub mod limits;
mod mailbox;
mod memory;
mod moment;
mod net;
mod oneshot;
mod operation;
pub mod planted;
mod preflight;
mod shard;
mod signal;
pub mod sim;
mod slots;
mod task;
mod time;
mod uring;

pub use blocking::blocking;
pub use file::{File, OpenOptions};
pub use mailbox::{Closed, Receiver, Sender, TrySendError, mailbox};
pub use memory::{Arena, ArenaFull, BLOCK, BlockLease, ChunkWriter, Lease, ReadBuffer};
pub use moment::Moment;
pub use net::{Listener, Stream};
pub use oneshot::{Answer, Reply, oneshot};
pub use preflight::{PreflightError, open_files_limit, preflight};
pub use shard::{Progress, Shard, ShardHandle, ShardMain, ShardSpec, Spawner, Threads};
pub use signal::Signal;
pub use task::{Class, Task, spawn, yield_now};
pub use time::{
    Elapsed, Sleep, fill_random, in_shard, now, random_bytes, random_u64, shard_name, sleep, sleep_until, timeout,
    wall_clock_ms,
};
