//! Bounds of replication, each with its reason and what happens at it.

use std::time::Duration;

/// ISR states that may still be committed. One is usual; a second appears when an answer is lost. At the bound: no
/// further proposal until a partition epoch is seen.
pub const PENDING_ISR_MAX: usize = 4;

/// How long the fate of a proposal may be unknown before the ISR is confirmed as it is: the high watermark waits meanwhile
/// for a joiner that may be gone.
pub const ISR_CONFIRM_AFTER: Duration = Duration::from_secs(2);

/// Bytes of references that a broker keeps over all its shards (Rule: R8). At the bound the oldest are forgotten, and a
/// follower that is so far behind gets bytes.
pub const WAL_INDEX_BYTES: usize = 64 << 20;

/// Moments at which bytes were offered for upload, kept per partition. At the bound the two oldest become one, which can
/// only bring fallback forward.
pub const UPLOAD_MARKS_MAX: usize = 64;

/// References in one reply. At the bound the rest waits for the next fetch.
pub const REFERENCES_PER_REPLY_MAX: usize = 1024;

/// Bytes of slices that one followed partition keeps while an earlier slice is on its way. At the bound a slice is
/// dropped and asked for again.
pub const WAITING_BYTES_MAX: usize = 32 << 20;

/// Bytes of one partition that a follower is given as references and has not stored. At the bound the next ones wait for its
/// next fetch: it could not keep more while the first of them is late.
pub const HANDED_BYTES_MAX: usize = 16 << 20;

/// Slices that one followed partition keeps so. At the bound as above.
pub const WAITING_SLICES_MAX: usize = 256;

/// Slices of one partition that a follower is given and has not stored, and as many again in one reply. At the bound as for
/// their bytes.
pub const HANDED_SLICES_MAX: usize = 128;

/// Failures in a row that open a breaker: the first retries are cheaper than a change of mode.
pub const BREAKER_FAILURES: u32 = 5;

/// How long a breaker stays open at first; doubled with each probe that fails.
pub const BREAKER_OPEN_MIN: Duration = Duration::from_millis(500);

/// How long a breaker stays open at most: the way back after an outage takes no longer than this.
pub const BREAKER_OPEN_MAX: Duration = Duration::from_secs(5);

/// Wait before a failed GET is tried again; doubled with each attempt.
pub const GET_RETRY_MIN: Duration = Duration::from_millis(20);

/// Longest wait between two attempts of a GET.
pub const GET_RETRY_MAX: Duration = Duration::from_millis(250);

const _: () = assert!(HANDED_BYTES_MAX <= WAITING_BYTES_MAX / 2);
const _: () = assert!(HANDED_SLICES_MAX <= WAITING_SLICES_MAX / 2);
const _: () = assert!(BREAKER_OPEN_MIN.as_millis() <= BREAKER_OPEN_MAX.as_millis());
const _: () = assert!(GET_RETRY_MIN.as_millis() <= GET_RETRY_MAX.as_millis());
