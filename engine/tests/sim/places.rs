//! Scenarios that steer towards the places where a mistake in the rules of replication would lose, double or reorder records.
//!
//! Each takes small things from its seed. Without a mistake all of them pass; `planted` makes the mistakes, one at a time.

use std::time::Duration;

use sakia_io::sim::Random;

use crate::scenario::{Fault, Side, Step};
use crate::steered::{Load, Required, Steered};

type Place = fn(&mut Random) -> Steered;

const PLACES: [Place; 8] = [
    slow_disks,
    everything_killed_while_a_follower_is_ahead,
    power_lost_and_the_other_killed,
    unanswered_until_sent_again,
    much_is_lent_to_a_slow_bucket,
    late_answers_of_a_deposed_leader,
    a_leader_comes_back_and_follows,
    a_leader_dies_before_it_hears_of_a_joiner,
];

#[test]
fn no_steered_run_loses_doubles_or_reorders_a_record() {
    for seed in 1..=2 {
        for place in PLACES {
            place(&mut Random::seeded(seed)).run(seed);
        }
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// One disk after the other takes long: what is in memory there is not on it.
pub fn slow_disks(random: &mut Random) -> Steered {
    let slow = ms(random.within(20..100));
    Steered::new(2, Required::Two)
        .load(Load { writers: 4, in_flight: 3, ..Load::default() })
        .during(1000..3000, &Fault::SlowDisk(0, slow))
        .during(3500..5500, &Fault::SlowDisk(1, slow))
}

/// A leader's disk takes long, so that its follower stores first what came through the bucket; then everything dies.
pub fn everything_killed_while_a_follower_is_ahead(random: &mut Random) -> Steered {
    let at = random.within(1500..2500);
    // The controller fences in the order of ids, so the last one is the one that leads again.
    Steered::new(2, Required::One)
        .load(Load { writers: 2, ..Load::default() })
        .during(1000..at + 100, &Fault::SlowDisk(1, ms(80)))
        .during(at..at + 200, &Fault::KillEverything)
}

/// One broker loses its power, the other is killed, and the first one comes back alone.
pub fn power_lost_and_the_other_killed(random: &mut Random) -> Steered {
    let loses = random.index(2);
    let at = random.within(1500..2500);
    Steered::new(2, Required::Two)
        .at(at, Step::Happens(Fault::LosePower(loses)))
        .at(at + 50, Step::Happens(Fault::Kill(1 - loses)))
        .at(at + 2000, Step::Starts(loses))
        .at(at + 4500, Step::Starts(1 - loses))
}

/// Followers cannot be reached for longer than a producer waits, but stay in the ISR.
pub fn unanswered_until_sent_again(random: &mut Random) -> Steered {
    let at = random.within(1000..2000);
    Steered::new(2, Required::Two)
        .setting("replica.lag.time.max.ms", "10000")
        .during(at..at + 5000, &Fault::Cut(Side::Broker(0), Side::Broker(1)))
}

/// Chunks fill while their bytes wait for the bucket.
pub fn much_is_lent_to_a_slow_bucket(random: &mut Random) -> Steered {
    let load = Load { writers: 3, value_bytes: 3000..9000, pause: ms(1)..ms(4), in_flight: 3, ..Load::default() };
    Steered::new(2, Required::One).load(load).during(1000..6000, &Fault::SlowBucket(ms(random.within(50..250))))
}

/// A leader is cut off from the controller and from the replica that is elected next; the third one hears of it, late, while it
/// truncates to the log of the next leader.
pub fn late_answers_of_a_deposed_leader(random: &mut Random) -> Steered {
    let deposed = random.index(3);
    let (next, late) = ((deposed + 1) % 3, (deposed + 2) % 3);
    let (from, to) = (Side::Broker(deposed), Side::Broker(late));
    let slow = random.within(100..300);
    Steered::new(3, Required::One)
        .load(Load { writers: 1, leader_writers: 2, in_flight: 3, ..Load::default() })
        .during(800..5000, &Fault::Delay(from, to, ms(slow / 2)..ms(slow)))
        .during(1000..5000, &Fault::SlowDisk(late, ms(random.within(40..120))))
        .during(1000..4000, &Fault::Cut(from, Side::Controller))
        .during(1000..4000, &Fault::Cut(from, Side::Broker(next)))
}

/// A leader is cut off with producers that wait for it, another one takes over and goes on, the first one comes back in time.
pub fn a_leader_comes_back_and_follows(random: &mut Random) -> Steered {
    let at = random.within(1000..1500);
    let back = at + random.within(1500..1900);
    // The first broker is asked first, so the late writer hears of the new leader.
    let off = Side::Broker(1);
    Steered::new(2, Required::One)
        .load(Load { late_writer: Some(ms(at + 1300)), in_flight: 3, ..Load::default() })
        .during(at..back, &Fault::Cut(off, Side::Broker(0)))
        .during(at..back, &Fault::Cut(off, Side::Controller))
}

/// The way between a leader and the controller is long: a member joins, and the leader dies before it knows.
pub fn a_leader_dies_before_it_hears_of_a_joiner(random: &mut Random) -> Steered {
    let leads = random.index(2);
    let joins = 1 - leads;
    let dies = random.within(2200..3800);
    Steered::new(2, Required::One)
        .setting("broker.session.timeout.ms", "3000")
        .at(300, Step::Happens(Fault::StopCleanly(joins)))
        .at(700, Step::Happens(Fault::Delay(Side::Broker(leads), Side::Controller, ms(400)..ms(500))))
        .at(1200, Step::Starts(joins))
        .at(dies, Step::Happens(Fault::Kill(leads)))
        .at(7500, Step::Starts(leads))
}
