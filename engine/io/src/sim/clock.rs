//! Virtual time: one monotonic clock for the whole world and a wall clock for each machine.
//!
//! Pure. Monotonic time moves only when the world says so and never goes back. A machine's wall clock runs beside
//! it at its own rate and may be set forward or back at any moment, as a badly synchronised machine's is.
//! Invariant: nothing done to a wall clock changes monotonic time.

use crate::moment::Moment;

/// Where every wall clock starts: 2026-01-01T00:00:00Z, in milliseconds since 1970.
pub const WALL_CLOCK_START_MS: i64 = 1_767_225_600_000;

/// One machine's wall clock: `reading` was right at monotonic `since`; from there it runs at 1 + rate.
#[derive(Clone, Debug)]
pub(crate) struct WallClock {
    since: Moment,
    reading_ns: i128,
    rate_ppm: i64,
}

impl WallClock {
    pub(crate) fn new() -> WallClock {
        WallClock { since: Moment::START, reading_ns: i128::from(WALL_CLOCK_START_MS) * 1_000_000, rate_ppm: 0 }
    }

    pub(crate) fn read_ms(&self, now: Moment) -> i64 {
        i64::try_from(self.read_ns(now) / 1_000_000).expect("simulated dates fit 64 bits of milliseconds")
    }

    /// From `now` on the clock gains (or loses, if negative) this many microseconds per second.
    pub(crate) fn drift(&mut self, now: Moment, rate_ppm: i64) {
        assert!(rate_ppm > -1_000_000, "a wall clock that runs backwards is a jump");
        self.settle(now);
        self.rate_ppm = rate_ppm;
    }

    /// Sets the clock forward (positive) or back (negative).
    pub(crate) fn jump_ms(&mut self, now: Moment, by_ms: i64) {
        self.settle(now);
        self.reading_ns += i128::from(by_ms) * 1_000_000;
    }

    fn settle(&mut self, now: Moment) {
        self.reading_ns = self.read_ns(now);
        self.since = now;
    }

    fn read_ns(&self, now: Moment) -> i128 {
        let elapsed = i128::try_from((now - self.since).as_nanos()).expect("simulated spans fit 127 bits");
        self.reading_ns + elapsed + elapsed * i128::from(self.rate_ppm) / 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn second(seconds: u64) -> Moment {
        Moment::START + Duration::from_secs(seconds)
    }

    #[test]
    fn a_drifting_clock_gains_its_rate_and_keeps_what_it_gained() {
        let mut clock = WallClock::new();
        clock.drift(second(10), 1000);
        assert_eq!(clock.read_ms(second(20)), WALL_CLOCK_START_MS + 20_010);
        clock.drift(second(20), 0);
        assert_eq!(clock.read_ms(second(30)), WALL_CLOCK_START_MS + 30_010);
    }

    #[test]
    fn a_jump_back_moves_the_reading_by_exactly_that_much() {
        let mut clock = WallClock::new();
        clock.jump_ms(second(5), -3000);
        assert_eq!(clock.read_ms(second(5)), WALL_CLOCK_START_MS + 2000);
    }
}
