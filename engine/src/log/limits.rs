//! Bounds of one partition's log: what may grow, how far, and what happens there.
//!
//! Each constant says its reason and its effect at the bound. Relations between them are checked at compile time.

/// Smallest tail chunk. Every partition that appends holds one, so it is small: 1,000 busy partitions hold 64 MiB.
pub const TAIL_CHUNK_BYTES_MIN: usize = 64 * 1024;

/// Largest tail chunk that growth alone chooses (a larger batch gets a chunk of its own size). One write covers at most
/// one chunk, so a larger one would only delay the answer of its first batch.
pub const TAIL_CHUNK_BYTES_MAX: usize = 1024 * 1024;

/// Full chunks that stay in memory behind the current one for readers who are a little late. At the bound the oldest
/// chunk that is completely written is let go; readers behind it read from disk.
pub const TAIL_CHUNKS_KEPT: usize = 1;

/// Chunks of one log that wait to be written. At the bound an append is refused (`AppendError::Busy`): the disk is slower
/// than the producers and memory must not fill.
pub const TAIL_CHUNKS_UNWRITTEN_MAX: usize = 16;

/// Bytes of log between two entries of the sparse indexes (`index.interval.bytes` of Kafka).
pub const INDEX_INTERVAL_BYTES: u32 = 4096;

/// Closed segments of one log whose file and index stay open for cold readers. At the bound the one not used for longest is
/// closed. Two, so that a reader at a segment's end and one at the next's start do not push each other out.
pub const SETTLED_SEGMENTS_OPEN_MAX: usize = 2;

/// Entries of the leader-epoch cache. One leadership adds one. At the bound the oldest is forgotten: a follower that asks
/// for it is told the start of the oldest kept one and truncates further than it had to.
pub const EPOCH_ENTRIES_MAX: usize = 4096;

/// Batches remembered per producer, as Kafka: `max.in.flight.requests.per.connection` of an idempotent producer.
pub const PRODUCER_WINDOW_BATCHES: usize = 5;

/// Producer ids remembered per partition. At the bound the eighth that wrote longest ago is forgotten: such a producer is
/// then taken as unknown, so its next batch is accepted at any sequence.
pub const PRODUCER_IDS_MAX: usize = 65_536;

/// Bytes before the end that are read again when a log is opened, to refill the windows of its producers: a snapshot holds one
/// batch of each. More than five batches of the usual size; a producer whose batches lie further back is known by its last one.
pub const PRODUCER_RECALL_BYTES: u32 = 256 * 1024;

/// Snapshots of the producer state kept beside those that belong to a segment's start: the newest ones. Older ones are
/// removed when a new one stands.
pub const PRODUCER_SNAPSHOTS_KEPT: usize = 3;

/// Bytes read from disk at a time by recovery and by searches, and read ahead of a batch boundary.
pub const SCAN_BYTES: usize = 1024 * 1024;

/// Largest batch that recovery believes: a length field above it is damage. Above every `max.message.bytes` we accept.
pub const BATCH_BYTES_MAX: usize = 128 * 1024 * 1024;

const _: () = assert!(TAIL_CHUNK_BYTES_MIN.is_multiple_of(4096) && TAIL_CHUNK_BYTES_MAX.is_multiple_of(4096));
const _: () = assert!(TAIL_CHUNK_BYTES_MIN <= TAIL_CHUNK_BYTES_MAX);
const _: () = assert!(TAIL_CHUNKS_KEPT < TAIL_CHUNKS_UNWRITTEN_MAX);
