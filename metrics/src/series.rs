//! One series: the cell that is counted in, and the handle that counts.
//!
//! Invariant: a counter never falls; a histogram is never reset, neither by a scrape nor by anything else.
//! Invariant: each cell begins a cache line of its own, so that two shards that count different things do not wait for
//! each other.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use aligned::{A64, Aligned};

/// What one recorded unit is worth in the scrape. Everything is recorded in whole numbers; Prometheus wants base units.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unit {
    /// Recorded as shown: requests, bytes, offsets.
    #[default]
    One,
    /// A thousandth: milliseconds recorded, seconds shown.
    Thousandth,
    /// A millionth: microseconds recorded, seconds shown.
    Millionth,
    /// A thousand-millionth: nanoseconds recorded, seconds shown; also nano-dollars.
    Billionth,
}

impl Unit {
    /// Writes `value` in the shown unit, exactly.
    pub(crate) fn write(self, out: &mut String, value: i128) -> fmt::Result {
        let digits = match self {
            Self::One => return write!(out, "{value}"),
            Self::Thousandth => 3,
            Self::Millionth => 6,
            Self::Billionth => 9,
        };
        let parts = 10_u128.pow(digits);
        let size = value.unsigned_abs();
        let sign = if value < 0 { "-" } else { "" };
        write!(out, "{sign}{}", size / parts)?;
        let rest = size % parts;
        if rest == 0 {
            return Ok(());
        }
        let digits = usize::try_from(digits).expect("at most nine digits");
        let fraction = format!("{rest:0digits$}");
        write!(out, ".{}", fraction.trim_end_matches('0'))
    }
}

/// Upper bounds of buckets for latencies in microseconds: 50 µs to 60 s.
pub const LATENCY_MICROS: &[u64] = &[
    50, 100, 250, 500, 1_000, 2_000, 3_000, 5_000, 7_500, 10_000, 15_000, 20_000, 30_000, 50_000, 100_000, 250_000,
    500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// A number that only grows. Clones count in the same series.
#[derive(Clone, Debug)]
pub struct Counter(pub(crate) Arc<Aligned<A64, AtomicU64>>);

impl Counter {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Aligned(AtomicU64::new(0))))
    }

    /// Counts one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Counts `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// What was counted so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that rises and falls. Clones show the same series.
#[derive(Clone, Debug)]
pub struct Gauge(pub(crate) Arc<Aligned<A64, AtomicI64>>);

impl Gauge {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Aligned(AtomicI64::new(0))))
    }

    /// Shows `value` from now on.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Raises by `amount`; a negative amount lowers.
    pub fn add(&self, amount: i64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// What it shows.
    #[must_use]
    pub fn value(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts in buckets of fixed bounds, with their sum. Clones record in the same series.
#[derive(Clone, Debug)]
pub struct Histogram(pub(crate) Arc<Aligned<A64, Buckets>>);

#[derive(Debug)]
pub(crate) struct Buckets {
    /// Upper bounds (inclusive, as Prometheus' `le`), growing; the last bucket of `counts` has none.
    bounds: &'static [u64],
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// What a histogram held at one moment.
pub(crate) struct Snapshot {
    /// Observations at or below each bound, then all of them.
    pub(crate) cumulative: Vec<u64>,
    pub(crate) sum: u64,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [u64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Aligned(Buckets { bounds, counts, sum: AtomicU64::new(0) })))
    }

    /// Records one observation.
    pub fn record(&self, value: u64) {
        let bucket = self.0.bounds.partition_point(|&bound| bound < value);
        self.0.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.0.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Number of observations so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Sum of the observations so far.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.sum.load(Ordering::Relaxed)
    }

    /// Upper bound of the bucket that holds the observation at `per_mille` thousandths of all (500: the median).
    /// `None` without observations, or when it lies above the highest bound.
    #[must_use]
    pub fn quantile(&self, per_mille: u16) -> Option<u64> {
        let counts: Vec<u64> = self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        let rank = (u128::from(total) * u128::from(per_mille)).div_ceil(1000).max(1);
        let mut below = 0_u128;
        for (count, bound) in counts.iter().zip(self.0.bounds) {
            below += u128::from(*count);
            if below >= rank {
                return Some(*bound);
            }
        }
        None
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut below = 0;
        let cumulative = self.0.counts.iter().map(|count| {
            below += count.load(Ordering::Relaxed);
            below
        });
        Snapshot { cumulative: cumulative.collect(), sum: self.sum() }
    }

    /// Adds everything that `other` holds. Both have the bounds of their family.
    pub(crate) fn absorb(&self, other: &Self) {
        assert_eq!(self.0.bounds, other.0.bounds, "series of one family have the same bounds");
        for (mine, theirs) in self.0.counts.iter().zip(&other.0.counts) {
            mine.fetch_add(theirs.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.0.sum.fetch_add(other.sum(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(unit: Unit, value: i128) -> String {
        let mut out = String::new();
        unit.write(&mut out, value).expect("a string takes everything");
        out
    }

    #[test]
    fn units_are_written_exactly() {
        assert_eq!(shown(Unit::One, -3), "-3");
        assert_eq!(shown(Unit::Millionth, 2_500_000), "2.5");
        assert_eq!(shown(Unit::Millionth, 50), "0.00005");
        assert_eq!(shown(Unit::Thousandth, 3_000), "3");
        assert_eq!(shown(Unit::Billionth, -1), "-0.000000001");
    }

    #[test]
    fn an_observation_on_a_bound_is_below_it() {
        let histogram = Histogram::new(&[10, 20]);
        for value in [10, 11, 20, 21] {
            histogram.record(value);
        }
        assert_eq!(histogram.snapshot().cumulative, [1, 3, 4]);
        assert_eq!((histogram.count(), histogram.sum()), (4, 62));
    }

    #[test]
    fn quantiles_name_the_bound_of_their_bucket() {
        let histogram = Histogram::new(&[1, 2, 4]);
        assert_eq!(histogram.quantile(500), None);
        for value in [1, 1, 2, 3] {
            histogram.record(value);
        }
        assert_eq!(histogram.quantile(500), Some(1));
        assert_eq!(histogram.quantile(750), Some(2));
        assert_eq!(histogram.quantile(1000), Some(4));
        histogram.record(9);
        assert_eq!(histogram.quantile(1000), None);
    }
}
