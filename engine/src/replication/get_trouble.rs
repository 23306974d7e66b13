//! What to do after a GET of one object failed (Rule: R12).
//!
//! Pure. Path: combiner or fetcher of the follower's broker → [`GetTrouble::failed`] → GET again, or every partition that
//! waits for a slice of the object asks its leader for bytes (`FollowerState::ask_bytes`).
//! Invariant: it ends: a missing or damaged object is read at most twice, any other failure is retried for
//! `remote.wal.fallback.after.ms` at most, and a GET without any answer is given up then.

use std::time::Duration;

use super::limits::{GET_RETRY_MAX, GET_RETRY_MIN};

/// How a GET failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GetFailure {
    /// 404: deleted, or not visible.
    Missing,
    /// The bytes are not those that were announced: length, checksum, epoch or offsets.
    Damaged,
    /// 5xx, timeout, reset, refused: the bucket or the way to it.
    Other,
}

/// What to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum GetVerdict {
    /// Read it again after this wait.
    Again { after: Duration },
    /// Its partitions ask for bytes.
    Bytes,
}

/// Failures of one object so far.
#[derive(Clone, Copy, Debug)]
pub struct GetTrouble {
    began: Duration,
    rechecked: Option<GetFailure>,
    attempts: u32,
}

impl GetTrouble {
    /// None yet of an object that is asked for from now on.
    pub const fn new(began: Duration) -> Self {
        Self { began, rechecked: None, attempts: 0 }
    }

    /// How long an attempt may go on: one without any answer must not outlast the patience with the others. The last one
    /// gets time for an answer, too.
    pub fn patience(&self, at: FailureTime) -> Duration {
        self.left(at).max(GET_RETRY_MAX)
    }

    fn left(&self, at: FailureTime) -> Duration {
        (self.began + at.fallback_after).saturating_sub(at.now)
    }

    /// Takes note of a failure. `breaker_open`: whether the bucket's breaker is open by now.
    pub fn failed(&mut self, failure: GetFailure, breaker: BreakerView, at: FailureTime) -> GetVerdict {
        let pause = GET_RETRY_MIN.saturating_mul(1 << self.attempts.min(8)).min(GET_RETRY_MAX);
        self.attempts += 1;
        let again = GetVerdict::Again { after: pause };
        match failure {
            GetFailure::Missing | GetFailure::Damaged => match self.rechecked.replace(failure) {
                None => again,
                Some(_) => GetVerdict::Bytes,
            },
            GetFailure::Other if breaker == BreakerView::Open => GetVerdict::Bytes,
            GetFailure::Other if self.left(at).is_zero() => GetVerdict::Bytes,
            GetFailure::Other => again,
        }
    }
}

/// The bucket's breaker at the time of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BreakerView {
    /// Requests go through.
    Closed,
    /// They are refused.
    Open,
}

/// When something failed, and how long that may go on.
#[derive(Clone, Copy, Debug)]
pub struct FailureTime {
    /// Now.
    pub now: Duration,
    /// `remote.wal.fallback.after.ms`.
    pub fallback_after: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(now_ms: u64) -> FailureTime {
        FailureTime { now: Duration::from_millis(now_ms), fallback_after: Duration::from_millis(1000) }
    }

    #[test]
    fn a_missing_or_damaged_object_is_checked_once_more() {
        for failure in [GetFailure::Missing, GetFailure::Damaged] {
            let mut trouble = GetTrouble::new(Duration::ZERO);
            assert!(matches!(trouble.failed(failure, BreakerView::Closed, at(0)), GetVerdict::Again { .. }));
            assert_eq!(trouble.failed(failure, BreakerView::Closed, at(20)), GetVerdict::Bytes);
        }
    }

    #[test]
    fn other_failures_are_retried_until_the_fallback_time() {
        let mut trouble = GetTrouble::new(Duration::ZERO);
        let mut now = 0;
        while let GetVerdict::Again { after } = trouble.failed(GetFailure::Other, BreakerView::Closed, at(now)) {
            now += u64::try_from(after.as_millis()).expect("short");
        }
        assert!((1000..1300).contains(&now), "{now}");
    }

    #[test]
    fn an_attempt_without_an_answer_is_waited_for_until_the_fallback_time_and_not_tried_again() {
        let mut trouble = GetTrouble::new(Duration::from_millis(500));
        assert_eq!(trouble.patience(at(700)), Duration::from_millis(800));
        assert!(matches!(trouble.failed(GetFailure::Other, BreakerView::Closed, at(1499)), GetVerdict::Again { .. }));
        assert_eq!(trouble.patience(at(1490)), GET_RETRY_MAX);
        assert_eq!(trouble.failed(GetFailure::Other, BreakerView::Closed, at(1500)), GetVerdict::Bytes);
    }

    #[test]
    fn an_open_breaker_ends_the_waiting() {
        let mut trouble = GetTrouble::new(Duration::ZERO);
        assert_eq!(trouble.failed(GetFailure::Other, BreakerView::Open, at(0)), GetVerdict::Bytes);
    }
}
