//! A point of monotonic time, counted from the start of the driver's clock. Pure.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds since the driver's clock started. In production all shards of the process share that clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Moment(u64);

impl Moment {
    pub const START: Moment = Moment(0);

    pub fn from_duration(since_start: Duration) -> Moment {
        Moment(u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX))
    }
    pub fn as_duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
    pub fn as_nanos(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;
    /// Saturates: further than 584 years away is never.
    fn add(self, later: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(later.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Moment {
    type Output = Duration;
    /// Zero when `earlier` is not earlier.
    fn sub(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
