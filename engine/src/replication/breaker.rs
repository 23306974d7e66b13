//! A breaker per bucket: after failures in a row it refuses at once, and lets single probes through to find the way back.
//!
//! Pure. Path: before a GET or PUT [`Breaker::admit`], after it [`Breaker::succeeded`] or [`Breaker::failed`].
//! Invariant: while it is not closed at most one probe is under way; it is open for at most
//! [`super::limits::BREAKER_OPEN_MAX`] between two probes, so an outage never outlives itself by more.

use std::time::Duration;

use super::limits::{BREAKER_FAILURES, BREAKER_OPEN_MAX, BREAKER_OPEN_MIN};

/// Whether a request may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Admission {
    /// Send it.
    Go,
    /// Send it; its outcome decides whether the breaker closes.
    Probe,
    /// Do not send it: the next probe is due then, or under way (`None`).
    Refused { until: Option<Duration> },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Closed { failures: u32 },
    Open { until: Duration, pause: Duration },
    Probing { pause: Duration },
}

/// The state of one bucket, as one broker sees it.
#[derive(Clone, Debug)]
pub struct Breaker {
    state: State,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { state: State::Closed { failures: 0 } }
    }
}

impl Breaker {
    /// Whether a request may be sent now. Who gets `Probe` must report an outcome.
    pub fn admit(&mut self, now: Duration) -> Admission {
        match self.state {
            State::Closed { .. } => Admission::Go,
            State::Open { until, pause } if now >= until => {
                self.state = State::Probing { pause };
                Admission::Probe
            }
            State::Open { until, .. } => Admission::Refused { until: Some(until) },
            State::Probing { .. } => Admission::Refused { until: None },
        }
    }

    /// Whether requests are refused at present (a due probe aside): replicas ask for bytes.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed { .. })
    }

    /// While it refuses: when the next probe is due. `None` if it is closed or a probe is under way.
    #[must_use]
    pub fn open_until(&self) -> Option<Duration> {
        match self.state {
            State::Open { until, .. } => Some(until),
            State::Closed { .. } | State::Probing { .. } => None,
        }
    }

    /// A request was answered as it should be. A missing object counts too: the bucket works.
    pub fn succeeded(&mut self) {
        self.state = State::Closed { failures: 0 };
    }

    /// A request failed for a reason that lies with the bucket or the way to it. Late outcomes of requests that were sent
    /// before it opened change nothing.
    pub fn failed(&mut self, now: Duration) {
        self.state = match self.state {
            State::Closed { failures } if failures + 1 < BREAKER_FAILURES => State::Closed { failures: failures + 1 },
            State::Closed { .. } => State::Open { until: now + BREAKER_OPEN_MIN, pause: BREAKER_OPEN_MIN },
            State::Probing { pause } => {
                let pause = (pause * 2).min(BREAKER_OPEN_MAX);
                State::Open { until: now + pause, pause }
            }
            State::Open { until, pause } => State::Open { until, pause },
        };
    }

    /// The probe was given up without an outcome (its task was dropped): another one may go at once.
    pub fn probe_lost(&mut self, now: Duration) {
        if let State::Probing { pause } = self.state {
            self.state = State::Open { until: now, pause };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(value: u64) -> Duration {
        Duration::from_millis(value)
    }

    fn opened() -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..BREAKER_FAILURES {
            assert_eq!(breaker.admit(ms(0)), Admission::Go);
            breaker.failed(ms(0));
        }
        breaker
    }

    #[test]
    fn it_opens_after_failures_in_a_row_only() {
        let mut breaker = Breaker::default();
        for _ in 0..10 * BREAKER_FAILURES {
            breaker.failed(ms(0));
            breaker.succeeded();
        }
        assert!(!breaker.is_open());
        assert!(opened().is_open());
    }

    #[test]
    fn one_probe_at_a_time_and_its_success_closes() {
        let mut breaker = opened();
        assert_eq!(breaker.admit(ms(499)), Admission::Refused { until: Some(ms(500)) });
        assert_eq!(breaker.admit(ms(500)), Admission::Probe);
        assert_eq!(breaker.admit(ms(501)), Admission::Refused { until: None });
        breaker.succeeded();
        assert_eq!(breaker.admit(ms(502)), Admission::Go);
    }

    #[test]
    fn failing_probes_come_at_growing_bounded_distances() {
        let mut breaker = opened();
        let mut now = ms(0);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let Admission::Refused { until: Some(until) } = breaker.admit(now) else { panic!("it is open") };
            pauses.push(until - now);
            now = until;
            assert_eq!(breaker.admit(now), Admission::Probe);
            breaker.failed(now);
        }
        assert_eq!(pauses, [ms(500), ms(1000), ms(2000), ms(4000), ms(5000), ms(5000)]);
    }

    #[test]
    fn a_lost_probe_does_not_lock_it_for_ever() {
        let mut breaker = opened();
        assert_eq!(breaker.admit(ms(600)), Admission::Probe);
        breaker.probe_lost(ms(700));
        assert_eq!(breaker.admit(ms(700)), Admission::Probe);
    }
}
