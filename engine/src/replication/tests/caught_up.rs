//! R10: who counts as caught up.

use std::time::Duration;

use super::*;

/// Steady load of one record per millisecond; objects are frozen every 10 ms, take 5 ms to be put, 4 ms to be read, 1 ms to
/// be stored. The follower fetches when an answer came and when something was stored.
struct Steady {
    leader: LeaderState,
    follower_end: i64,
    fetches: u64,
    /// Kafka's rule beside ours: end ≥ the leader's end at the previous fetch → caught up at the time of that fetch.
    kafka_previous: (i64, Duration),
    kafka_caught_up: Duration,
    longest_lag: Duration,
}

impl Steady {
    fn fetch(&mut self, now_ms: u64) {
        let now = ms(now_ms);
        self.fetches += 1;
        let stored = self.leader.stored().get();
        if self.follower_end >= stored {
            self.kafka_caught_up = now;
        } else if self.follower_end >= self.kafka_previous.0 {
            self.kafka_caught_up = self.kafka_caught_up.max(self.kafka_previous.1);
        }
        self.kafka_previous = (stored, now);
        let fetch = checked(fetch(OTHER, (1, self.fetches), self.follower_end), &self.leader, stored);
        self.leader.on_follower_fetch(&fetch, now);
        let caught_up = self.leader.progress(OTHER).and_then(|follower| follower.caught_up()).expect("in the ISR");
        self.longest_lag = self.longest_lag.max(now.saturating_sub(caught_up));
    }
}

#[test]
fn steady_load_keeps_a_reference_follower_in_the_isr_where_kafkas_own_rule_would_drop_it() {
    let mut run = Steady {
        leader: LeaderState::new(leadership(&[OTHER], 0), ms(0)),
        follower_end: 0,
        fetches: 0,
        kafka_previous: (0, ms(0)),
        kafka_caught_up: ms(0),
        longest_lag: ms(0),
    };
    for now in 1..=180_000_u64 {
        let stored = i64::try_from(now).expect("small");
        run.leader.on_stored(at(stored), ms(now));
        match now % 10 {
            // An object frozen 10 ms ago is stored by the follower.
            0 if now >= 20 => {
                run.follower_end = stored - 10;
                run.fetch(now);
            }
            // The next one is published: the parked fetch is answered, another is sent.
            5 if now >= 20 => run.fetch(now),
            _ => {}
        }
        assert_eq!(run.leader.isr_shrink(ms(now)), None, "dropped after {now} ms");
    }
    assert!(run.longest_lag <= ms(40), "{:?}", run.longest_lag);
    assert!(ms(180_000) - run.kafka_caught_up > LAG_MAX, "Kafka's rule would have kept it");
    assert!(run.leader.high_watermark().get() >= 180_000 - 20);
}

#[test]
fn a_follower_that_stands_still_leaves_after_the_lag_time() {
    let mut leader = LeaderState::new(leadership(&[OTHER], 100), ms(0));
    let taken = checked(fetch(OTHER, (1, 1), 40), &leader, 100);
    leader.on_follower_fetch(&taken, ms(10));
    for now in [10_000, 20_000, 30_000] {
        let again = checked(fetch(OTHER, (1, now), 40), &leader, 100);
        leader.on_follower_fetch(&again, ms(now));
        assert_eq!(leader.isr_shrink(ms(now)), None);
    }
    let proposal = leader.isr_shrink(ms(30_001)).expect("it is behind for too long");
    assert_eq!(proposal.isr, [(ME, registration(ME))]);
    assert_eq!(leader.high_watermark(), at(40));
    assert_eq!(leader.isr_shrink(ms(30_002)), None, "one proposal at a time");
}

#[test]
fn a_follower_that_holds_everything_stays_however_long_nothing_happens() {
    let mut leader = LeaderState::new(leadership(&[OTHER], 100), ms(0));
    let taken = checked(fetch(OTHER, (1, 1), 100), &leader, 100);
    leader.on_follower_fetch(&taken, ms(10));
    assert_eq!(leader.isr_shrink(ms(3_600_000)), None);
}

#[test]
fn a_slow_follower_is_not_caught_up_by_a_mark_that_keeps_moving() {
    // It stores half of what is produced: at each fetch it passes the mark of an ever older time.
    let mut leader = LeaderState::new(leadership(&[OTHER], 0), ms(0));
    let mut dropped = None;
    for second in 1..=200_u64 {
        let now = ms(second * 1000);
        let produced = i64::try_from(second).expect("small") * 1000;
        leader.on_stored(at(produced), now);
        let taken = checked(fetch(OTHER, (1, second), produced / 2), &leader, produced);
        leader.on_follower_fetch(&taken, now);
        if dropped.is_none() && leader.isr_shrink(now).is_some() {
            dropped = Some(second);
        }
    }
    assert!(dropped.is_some_and(|second| (31..=130).contains(&second)), "{dropped:?}");
}
