//! The clock that requests are signed with: the host's, moved to the store's when the store says it is wrong.
//!
//! Path: `RequestTimeTooSkewed` with the store's Date header → offset → every later signature.
//! A host clock that is off by more than 15 minutes would otherwise refuse every request for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use aws_sdk_s3::primitives::DateTime;
use aws_smithy_async::time::TimeSource;

/// Shared by all clients of a store.
#[derive(Clone, Debug, Default)]
pub(super) struct SigningClock {
    offset_ms: Arc<AtomicI64>,
}

impl SigningClock {
    /// Takes over the store's time. Returns by how many milliseconds the offset changed.
    pub(super) fn follow(&self, server: &DateTime) -> i64 {
        let host = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_millis());
        let host = i64::try_from(host).unwrap_or(i64::MAX);
        let server = server.to_millis().unwrap_or(host);
        let offset = server.saturating_sub(host);
        offset.saturating_sub(self.offset_ms.swap(offset, Ordering::Relaxed))
    }
}

impl TimeSource for SigningClock {
    fn now(&self) -> SystemTime {
        let offset = self.offset_ms.load(Ordering::Relaxed);
        let distance = Duration::from_millis(offset.unsigned_abs());
        let host = SystemTime::now();
        let moved = if offset < 0 { host.checked_sub(distance) } else { host.checked_add(distance) };
        moved.unwrap_or(host)
    }
}
