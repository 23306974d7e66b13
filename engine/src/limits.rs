//! Bounds of the broker outside the log, each with its reason and what happens at it.

use std::time::Duration;

/// Requests of one connection that are started and not answered. At the bound reading pauses (back-pressure by TCP).
pub const REQUESTS_IN_FLIGHT_MAX: usize = 32;

/// How long answers under way may take once a peer has sent something we refuse. Then the connection is closed without
/// them: a waiting fetch must not keep it.
pub const LAST_ANSWERS_WAIT: Duration = Duration::from_millis(500);

/// First read of an idle connection: idle connections must cost little.
pub const RECEIVE_BYTES_MIN: usize = 4 << 10;

/// Largest single read of a busy connection.
pub const RECEIVE_BYTES_MAX: usize = 256 << 10;

/// Messages in a shard's mailbox. At the bound senders wait; answers never go through it.
pub const SHARD_MAILBOX: usize = 4096;

/// Messages in the combiner's mailbox. At the bound shards keep their ranges and offer them again.
pub const COMBINER_MAILBOX: usize = 4096;

/// Requests for a checkpoint that wait. At the bound shards wait: one write answers all of them.
pub const CHECKPOINTS_ASKED: usize = 256;

/// Messages in the control shard's mailbox. At the bound senders wait.
pub const CONTROL_MAILBOX: usize = 1024;

/// Messages taken from a mailbox before other tasks of the shard run.
pub const MESSAGES_PER_TURN: usize = 256;

/// Readers that changes of one partition wake. At the bound a further one waits for its time (`fetch.max.wait.ms`), then reads.
pub const WAITERS_PER_PARTITION_MAX: usize = 4096;

/// Lines per second that bad connections may write to the log; the rest is counted and told in one line.
pub const BAD_CONNECTION_LINES_PER_SECOND: u32 = 5;

/// Partitions in one request of a client. Above it the request is refused.
pub const PARTITIONS_PER_REQUEST_MAX: usize = 100_000;

/// Largest number of partitions that one topic may have.
pub const PARTITIONS_PER_TOPIC_MAX: i32 = 10_000;

/// Bytes lent to the combiner as one range. A larger appended run is lent in several.
pub const LEND_BYTES_MAX: usize = 1 << 20;

/// How long a shard waits before it offers its messages again to a mailbox that was full.
pub const LEND_RETRY: Duration = Duration::from_millis(50);

/// Record bytes in the answer to a consumer, whatever it asks for, and one batch (Kafka's default of `fetch.max.bytes`).
pub const FETCH_BYTES_MAX: usize = 55 << 20;

/// Longest wait of a consumer's fetch, whatever it asks for.
pub const FETCH_WAIT_MAX: Duration = Duration::from_secs(600);

/// Bytes of objects that one fetcher reads at a time. At the bound its next fetch waits.
pub const READING_BYTES_MAX: u64 = 64 << 20;

/// How long a fetch waits for reads to end: it also reports what was stored, and a read may be tried again for a while.
pub const READING_WAIT: Duration = Duration::from_millis(100);

/// A new high watermark alone answers a follower's fetch after this wait (R9).
pub const HIGH_WATERMARK_WAKE: Duration = Duration::from_millis(5);

const _: () = assert!(RECEIVE_BYTES_MIN <= RECEIVE_BYTES_MAX);
const _: () = assert!(MESSAGES_PER_TURN <= SHARD_MAILBOX);

/// What one produced batch may decompress to. Above it the batch is refused: a small bomb must not fill memory.
pub const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;

/// How long a stopping broker waits until its followers have everything: longer than `remote.wal.fallback.after.ms` usually
/// is. After it the broker stops all the same; what only it stored (acks=1) is then lost to the next leader.
pub const HAND_OVER_LIMIT: Duration = Duration::from_secs(2);

/// How long each thread of a process may take to stop cleanly. After it the process ends anyway, and the next start
/// recovers.
pub const STOP_LIMIT: Duration = Duration::from_secs(3);

/// How long a commit of offsets or of a group's state may take until its members are told that it failed.
pub const OFFSETS_COMMIT_LIMIT: Duration = Duration::from_secs(5);

/// Bytes of the offsets topic read at once when a coordinator loads.
pub const REPLAY_BYTES: usize = 1 << 20;

/// Longest answer that a broker takes from a peer.
pub const PEER_ANSWER_BYTES_MAX: usize = 128 << 20;
