//! Wall clocks of all machines jump and drift while leaders change: what is committed does not depend on them (DESIGN 13.10).
//!
//! Time that only passes (sessions, lags) trims ISRs, as in Kafka; what is lost or kept is decided by offsets and epochs.

use sakia_io::sim::Random;

use crate::scenario::{Fault, Side, Step};
use crate::steered::{Load, Required, Steered};

const SIDES: [Side; 5] = [Side::Broker(0), Side::Broker(1), Side::Broker(2), Side::Controller, Side::Clients];
/// A year.
const FAR_MS: i64 = 365 * 24 * 3600 * 1000;

#[test]
fn clocks_that_are_wrong_by_years_lose_nothing() {
    for seed in 1..=8 {
        steered(&mut Random::seeded(seed)).run(seed);
    }
}

/// Every machine's clock is moved several times, and leaders die in between.
fn steered(random: &mut Random) -> Steered {
    let any = i64::MAX.to_string();
    let mut steered = Steered::new(3, Required::Two)
        .config("message.timestamp.before.max.ms", &any)
        .config("message.timestamp.after.max.ms", &any)
        .config("retention.ms", "-1")
        .load(Load { writers: 2, ..Load::default() });
    for side in SIDES {
        for _ in 0..3 {
            let at = random.within(300..7000);
            let by = i64::try_from(random.within(0..2 * FAR_MS.unsigned_abs())).expect("two years") - FAR_MS;
            steered = steered.at(at, Step::Happens(Fault::ClockJump(side, by)));
            let rate = i64::try_from(random.within(0..1_000_000)).expect("small") - 500_000;
            steered = steered.at(at + 1, Step::Happens(Fault::ClockDrift(side, rate)));
        }
    }
    for number in 0..3_u64 {
        let at = 1000 + 2000 * number + random.within(0..500);
        let dies = Fault::Kill(usize::try_from(number).expect("a few"));
        steered = steered.during(at..at + 800, &dies);
    }
    steered
}
