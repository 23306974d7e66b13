//! When to try an attempt again. Pure: time and chance are handed in.
//!
//! Path: a store's error → here → [`super::settled`] or a reader waits or gives up.
//! Invariant: a retry never begins after the deadline, and attempts are bounded.

use std::time::Duration;

use super::StoreError;

/// How patient a caller is.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Attempts in all.
    pub attempts_max: u32,
    /// Longest wait before the first retry; doubles with each.
    pub backoff_first: Duration,
    /// Bound of the doubling.
    pub backoff_max: Duration,
    /// No retry begins later than this after the first attempt.
    pub deadline: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts_max: 20,
            backoff_first: Duration::from_millis(20),
            backoff_max: Duration::from_millis(500),
            deadline: Duration::from_secs(5),
        }
    }
}

/// What to do after a failed attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Try again after so long.
    After(Duration),
    /// Hand the error to the caller.
    GiveUp,
}

/// The retries of one request.
#[derive(Clone, Debug)]
pub struct Retries {
    policy: RetryPolicy,
    started: Duration,
    failed: u32,
    bad_replies: u32,
}

impl Retries {
    /// A request whose first attempt begins at `started`.
    #[must_use]
    pub fn new(policy: RetryPolicy, started: Duration) -> Self {
        assert!(policy.attempts_max > 0, "there is a first attempt");
        Self { policy, started, failed: 0, bad_replies: 0 }
    }

    /// Decides after an attempt failed with `error`; `random` draws the jitter (all of the wait is jitter, so that
    /// clients that failed together do not come back together).
    pub fn decide(&mut self, error: &StoreError, now: Duration, random: u64) -> Decision {
        self.failed += 1;
        let again = match error {
            StoreError::Retry { .. } | StoreError::Unknown { .. } | StoreError::Conflict => true,
            StoreError::BadReply { .. } => {
                self.bad_replies += 1;
                self.bad_replies == 1
            }
            StoreError::Exists | StoreError::Missing | StoreError::OutOfRange { .. } | StoreError::Refused { .. } => {
                false
            }
        };
        if !again || self.failed >= self.policy.attempts_max {
            return Decision::GiveUp;
        }
        let wait = self.wait(random);
        if now + wait > self.started + self.policy.deadline {
            return Decision::GiveUp;
        }
        Decision::After(wait)
    }

    fn wait(&self, random: u64) -> Duration {
        let doublings = (self.failed - 1).min(16);
        let longest = (self.policy.backoff_first * (1 << doublings)).min(self.policy.backoff_max);
        let nanos = u64::try_from(longest.as_nanos()).expect("a backoff is shorter than 500 years");
        Duration::from_nanos(random % (nanos + 1))
    }

    /// Attempts that failed so far.
    #[must_use]
    pub fn failed(&self) -> u32 {
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow_down() -> StoreError {
        StoreError::Retry { why: "503".to_owned() }
    }

    const POLICY: RetryPolicy = RetryPolicy {
        attempts_max: 5,
        backoff_first: Duration::from_millis(10),
        backoff_max: Duration::from_millis(35),
        deadline: Duration::from_secs(1),
    };

    #[test]
    fn the_longest_wait_doubles_up_to_its_bound_and_attempts_end() {
        let mut retries = Retries::new(POLICY, Duration::ZERO);
        let mut longest = Vec::new();
        // This value leaves the remainder 0 nowhere: the wait is what the range allows at most.
        for _ in 0..4 {
            let mut wait = Duration::ZERO;
            for random in [u64::MAX, 9_999_999, 10_000_000, 20_000_000, 35_000_000, 1] {
                let mut copy = retries.clone();
                if let Decision::After(w) = copy.decide(&slow_down(), Duration::ZERO, random) {
                    wait = wait.max(w);
                }
            }
            longest.push(wait.as_millis());
            assert_ne!(retries.decide(&slow_down(), Duration::ZERO, 0), Decision::GiveUp);
        }
        assert_eq!(longest, [10, 20, 35, 35]);
        assert_eq!(retries.decide(&slow_down(), Duration::ZERO, 0), Decision::GiveUp);
        assert_eq!(retries.failed(), 5);
    }

    #[test]
    fn no_retry_begins_after_the_deadline() {
        let mut retries = Retries::new(POLICY, Duration::from_secs(3));
        let now = Duration::from_millis(3_999);
        assert_eq!(retries.decide(&slow_down(), now, 2_000_000), Decision::GiveUp);
        let mut retries = Retries::new(POLICY, Duration::from_secs(3));
        assert_eq!(retries.decide(&slow_down(), now, 500_000), Decision::After(Duration::from_micros(500)));
    }

    #[test]
    fn a_conflict_is_retried_and_a_certain_answer_is_not() {
        let first = |error: StoreError| Retries::new(POLICY, Duration::ZERO).decide(&error, Duration::ZERO, 0);
        assert_eq!(first(StoreError::Conflict), Decision::After(Duration::ZERO));
        assert_eq!(first(StoreError::Unknown { why: String::new() }), Decision::After(Duration::ZERO));
        assert_eq!(first(StoreError::Exists), Decision::GiveUp);
        assert_eq!(first(StoreError::Missing), Decision::GiveUp);
        assert_eq!(first(StoreError::Refused { why: String::new() }), Decision::GiveUp);
    }

    #[test]
    fn a_reply_that_does_not_fit_is_retried_once() {
        let mut retries = Retries::new(POLICY, Duration::ZERO);
        let bad = StoreError::BadReply { why: "short".to_owned() };
        assert_eq!(retries.decide(&bad, Duration::ZERO, 0), Decision::After(Duration::ZERO));
        assert_eq!(retries.decide(&bad, Duration::ZERO, 0), Decision::GiveUp);
    }
}
