//! Attempts and bytes turned into dollars. Pure.
//!
//! Path: [`crate::store::StoreCounts`] per cause, bytes between zones and stored bytes → dollars beside the counts.
//! Prices are settings: they differ by region and change; each table says where and when it was read.
//! Invariant: a cost is a sum over counts; counting is exact, pricing is the only estimate.

use std::collections::BTreeMap;

use crate::store::{StoreCounts, Verb};

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// What a store and a cloud network charge, in US dollars.
#[derive(Clone, PartialEq, Debug)]
pub struct Prices {
    /// What these are prices of.
    pub name: &'static str,
    /// Where they were read.
    pub source: &'static str,
    /// When, as year-month.
    pub read_at: &'static str,
    /// Per 1000 puts; lists cost the same.
    pub puts_1000: f64,
    /// Per 1000 gets; heads cost the same.
    pub gets_1000: f64,
    /// Per GiB written.
    pub written_gib: f64,
    /// Per GiB read.
    pub read_gib: f64,
    /// Per GiB kept for a month.
    pub kept_gib_month: f64,
    /// Per GiB from one zone to another, both directions charged.
    pub cross_zone_gib: f64,
}

/// S3 Express One Zone.
pub const S3_EXPRESS_ONE_ZONE: Prices = Prices {
    name: "s3-express-one-zone us-east-1",
    source: "aws.amazon.com/s3/pricing",
    read_at: "2025-04",
    puts_1000: 0.00113,
    gets_1000: 0.00003,
    written_gib: 0.0032,
    read_gib: 0.0006,
    kept_gib_month: 0.11,
    cross_zone_gib: 0.02,
};

/// S3 Standard.
pub const S3_STANDARD: Prices = Prices {
    name: "s3-standard us-east-1",
    source: "aws.amazon.com/s3/pricing",
    read_at: "2025-04",
    puts_1000: 0.005,
    gets_1000: 0.0004,
    written_gib: 0.0,
    read_gib: 0.0,
    kept_gib_month: 0.023,
    cross_zone_gib: 0.02,
};

/// What a request was made for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// Combined objects of the write-ahead log.
    WalPut,
    /// Followers reading them.
    WalGet,
    /// Deleting and listing them.
    Garbage,
    /// Closed segments written to the slow store.
    TierPut,
    /// Consumers reading them.
    TierGet,
}

impl Cause {
    /// Name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WalPut => "wal_put",
            Self::WalGet => "wal_get",
            Self::Garbage => "garbage",
            Self::TierPut => "tier_put",
            Self::TierGet => "tier_get",
        }
    }
}

impl Prices {
    /// Dollars for one client's requests and object bytes.
    #[must_use]
    pub fn requests(&self, counts: &StoreCounts) -> f64 {
        let puts = count(counts.attempts(Verb::Put) + counts.attempts(Verb::List));
        let gets = count(counts.attempts(Verb::Get) + counts.attempts(Verb::Head));
        puts / 1000.0 * self.puts_1000
            + gets / 1000.0 * self.gets_1000
            + count(counts.sent_bytes) / GIB * self.written_gib
            + count(counts.received_bytes) / GIB * self.read_gib
    }

    /// Dollars per cause.
    #[must_use]
    pub fn by_cause(&self, counts: &BTreeMap<Cause, StoreCounts>) -> BTreeMap<Cause, f64> {
        counts.iter().map(|(cause, counts)| (*cause, self.requests(counts))).collect()
    }

    /// Dollars for bytes sent to another zone: what classic replication pays, and fallback too.
    #[must_use]
    pub fn cross_zone(&self, bytes: u64) -> f64 {
        count(bytes) / GIB * self.cross_zone_gib
    }

    /// Dollars for bytes kept so many hours.
    #[must_use]
    pub fn kept(&self, bytes: u64, hours: f64) -> f64 {
        count(bytes) / GIB * self.kept_gib_month * hours / (30.0 * 24.0)
    }
}

fn count(value: u64) -> f64 {
    // Halves convert exactly; a sum above 2^53 loses its last bits, far below a cent.
    let high = u32::try_from(value >> 32).expect("upper half");
    let low = u32::try_from(value & 0xffff_ffff).expect("lower half");
    f64::from(high) * 4_294_967_296.0 + f64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{StatusClass, StoreCounters};

    #[test]
    fn a_million_express_puts_cost_a_dollar_thirteen_and_retries_cost_too() {
        let counters = StoreCounters::default();
        for _ in 0..999 {
            counters.attempt(Verb::Put, StatusClass::Success);
        }
        counters.attempt(Verb::Put, StatusClass::ServerError);
        let dollars = S3_EXPRESS_ONE_ZONE.requests(&counters.counts()) * 1000.0;
        assert!((dollars - 1.13).abs() < 1e-9, "{dollars}");
    }

    #[test]
    fn causes_sum_to_the_whole_and_deletes_are_free() {
        let (put, get) = (StoreCounters::default(), StoreCounters::default());
        put.attempt(Verb::Put, StatusClass::Success);
        put.sent(1 << 30);
        get.attempt(Verb::Get, StatusClass::Success);
        get.attempt(Verb::Delete, StatusClass::Success);
        get.received(1 << 29);
        let counts = BTreeMap::from([(Cause::WalPut, put.counts()), (Cause::WalGet, get.counts())]);
        let by_cause = S3_EXPRESS_ONE_ZONE.by_cause(&counts);
        assert!((by_cause[&Cause::WalPut] - (0.000_001_13 + 0.0032)).abs() < 1e-12);
        assert!((by_cause[&Cause::WalGet] - (0.000_000_03 + 0.0003)).abs() < 1e-12);
    }

    #[test]
    fn a_gib_between_zones_costs_two_cents() {
        assert!((S3_STANDARD.cross_zone(1 << 30) - 0.02).abs() < 1e-12);
        assert!((S3_STANDARD.kept(1 << 30, 720.0) - 0.023).abs() < 1e-12);
    }
}
