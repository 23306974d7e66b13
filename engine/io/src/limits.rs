//! Every bound of this crate, with its reason and what happens at the bound. Pure.

use std::time::Duration;

/// Tasks run between two looks at the driver. At the bound: completions and timers are taken first, then it goes on.
pub const RUN_TASKS_MAX: usize = 128;
/// Time of one such run, looked at after every `RUN_CLOCK_EVERY` tasks, so that a timer beside busy tasks is not late by more.
pub const RUN_TIME_MAX: Duration = Duration::from_micros(500);
pub const RUN_CLOCK_EVERY: usize = 16;
/// With both classes ready, one background task follows this many foreground tasks.
pub const FOREGROUND_PER_BACKGROUND: usize = 8;

/// Entries of the submission ring. At the bound: what is queued is submitted first.
pub const RING_ENTRIES: u32 = 1024;
/// Entries of the completion ring. At the bound the kernel keeps the rest until the next look.
pub const RING_COMPLETIONS: u32 = 8192;
/// Parts in one vectored send (IOV_MAX). At the bound: the rest follows in the next call.
pub const SEND_PARTS_MAX: usize = 1024;
/// Connections not yet accepted. At the bound the kernel makes clients wait.
pub const LISTEN_BACKLOG: i32 = 1024;
/// Pause of accepting when the process has no file descriptor left. Clients wait in the backlog meanwhile.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Threads for blocking calls, shared by all shards. At the bound: calls queue; each holds a task, so the queue is bounded by tasks.
pub const BLOCKING_THREADS: usize = 4;

/// Memory for disk reads of one shard that comes from its own arena. Beyond it each read has memory of its own.
pub const READ_ARENA_BYTES: usize = 32 << 20;
/// Such memory from this size on is a mapping: it returns to the system at once. Below it there could be more of them than
/// mappings that a process may have (vm.max_map_count); they come from the heap.
pub const MAPPED_BYTES_MIN: usize = 256 << 10;
/// The longest read with one operation. Longer ones are cut by the caller (asserted).
pub const READ_BYTES_MAX: usize = 1 << 30;
/// Free 2 MiB regions that an arena keeps. At the bound a region goes back to the system.
pub const FREE_REGIONS_MAX: usize = 8;

/// Open files a broker needs at least: connections, segments and their indexes. Below it the broker does not start.
pub const OPEN_FILES_MIN: u64 = 4096;
