//! Bounds of the control plane: why each, and what happens at it.
//!
//! Whatever would pass a bound of the metadata is refused at apply (`CommandError::TooMany`), before it is in an image:
//! the image of every broker is bounded by these numbers.

/// Brokers that may be registered at once; a further registration is refused.
pub const BROKERS_MAX: usize = 1_000;
/// Broker ids that were ever registered: each keeps a partition of the WAL metadata topic; a new id beyond is refused.
pub const BROKER_IDS_MAX: usize = 10_000;
/// Partitions of one topic; more is refused. Kafka's own bound for one request is the same.
pub const TOPIC_PARTITIONS_MAX: usize = 10_000;
/// Partitions of the whole cluster; more is refused. Keeps an image below about 100 MB.
pub const CLUSTER_PARTITIONS_MAX: usize = 200_000;
/// Replicas of one partition; more is refused.
pub const REPLICAS_MAX: usize = 32;
/// Entries in one configuration map; more is refused.
pub const CONFIG_ENTRIES_MAX: usize = 500;
/// Bytes of one configuration name or value, host name or rack; longer is refused.
pub const TEXT_BYTES_MAX: usize = 32 * 1024;
/// Listeners or log folders in one registration; more is refused.
pub const REGISTRATION_ITEMS_MAX: usize = 64;
/// Characters of a topic name; longer is refused (Kafka's bound: the folder name must fit a file system).
pub const TOPIC_NAME_LEN_MAX: usize = 249;
/// Producer ids handed out at once (Kafka's block).
pub const PRODUCER_ID_BLOCK: i64 = 1_000;

/// Events kept for brokers that follow the log; an older reader takes the whole image.
pub const RECENT_EVENTS_MAX: usize = 10_000;
/// Snapshots on disk; older ones are removed.
pub const SNAPSHOTS_KEPT: usize = 2;
/// Entries after which a snapshot is made (default).
pub const ENTRIES_PER_SNAPSHOT: u64 = 20_000;
/// Entries that stay in log and memory behind a snapshot, for a controller that is a little late (default).
pub const ENTRIES_KEPT: u64 = 5_000;
/// Bytes of one record in the controller's own log; a longer one is our mistake or damage.
pub const LOG_RECORD_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes after which no further record joins a write of the controller's log; the next write takes it.
pub const LOG_WRITE_BYTES_SOFT_MAX: usize = 4 * 1024 * 1024;
/// Jobs taken from the queue of the controller's log at once.
pub const LOG_JOBS_PER_WRITE_MAX: usize = 256;
/// Jobs waiting for the controller's log; raft waits for room beyond.
pub const LOG_JOBS_WAITING_MAX: usize = 1_024;

const _: () = assert!(TOPIC_PARTITIONS_MAX <= CLUSTER_PARTITIONS_MAX);
