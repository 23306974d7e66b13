//! Whether the bucket can be read, told by the combiner to the fetchers of its broker.
//!
//! While the breaker is open a fetcher asks its leader for record bytes (R12); from the moment a probe is due it asks for
//! references again, and the GET of the first one is the probe.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sakia_io::Moment;

/// Shared by the threads of one broker. Holds the end of the breaker's pause in nanoseconds; 0: it is closed.
#[derive(Clone, Default)]
pub struct BucketState(Arc<AtomicU64>);

impl BucketState {
    pub(super) fn works(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    pub(super) fn fails_until(&self, until: Duration) {
        self.0.store(Moment::from_duration(until).as_nanos(), Ordering::Relaxed);
    }

    /// Whether it is worth asking for references.
    #[must_use]
    pub fn is_usable(&self, now: Moment) -> bool {
        now.as_nanos() >= self.0.load(Ordering::Relaxed)
    }
}
