//! How far a leader's bytes are on their way into the bucket, as far as replicas must know.
//!
//! Pure. One per led partition with the object path on. Path: append → [`UploadProgress::lend`] → the combiner →
//! [`UploadProgress::published`] or [`UploadProgress::returned`].
//! ```text
//!   ... in the bucket, or a hole that followers get as bytes | in flight | not offered yet |
//!                                                       in_flight       lent            appended
//! ```
//! Invariant: `in_flight ≤ lent`; nothing below `in_flight` will be waited for. Holes are allowed (Rule: R12); no offset is
//! offered twice in one leadership.

use std::collections::VecDeque;
use std::time::Duration;

use sakia_protocol::ids::Offset;

use super::limits::UPLOAD_MARKS_MAX;

/// Bytes up to `next` were offered at `at` at the earliest.
#[derive(Clone, Copy, Debug)]
struct LentMark {
    next: Offset,
    at: Duration,
}

/// Upload state of one led partition.
#[derive(Clone, Debug)]
pub struct UploadProgress {
    fallback_after: Duration,
    in_flight: Offset,
    lent: Offset,
    marks: VecDeque<LentMark>,
    /// Ranges that ended above `in_flight`, ascending: an object may overtake an earlier one.
    early: Vec<(Offset, Offset)>,
    /// Since the last give-up, until something offered later stands in the bucket: the offset at which offers began anew.
    proving: Option<Offset>,
}

impl UploadProgress {
    /// Uploads begin at `from`, the end of the log at the start of the leadership.
    #[must_use]
    pub fn new(from: Offset, fallback_after: Duration) -> Self {
        Self { fallback_after, in_flight: from, lent: from, marks: VecDeque::new(), early: Vec::new(), proving: None }
    }

    /// The next offset to offer.
    #[must_use]
    pub fn lent(&self) -> Offset {
        self.lent
    }

    /// First offset that is on its way; equal to [`Self::lent`] when nothing is.
    #[must_use]
    pub fn in_flight(&self) -> Offset {
        self.in_flight
    }

    /// Whether replicas get bytes until an upload succeeds again.
    #[must_use]
    pub fn is_proving(&self) -> bool {
        self.proving.is_some()
    }

    /// `lent..next` was offered to the combiner.
    pub fn lend(&mut self, next: Offset, now: Duration) {
        assert!(next > self.lent, "only what was not offered yet is offered: {next} after {}", self.lent);
        self.lent = next;
        let grain = self.fallback_after / 64;
        match self.marks.back_mut() {
            Some(last) if now.saturating_sub(last.at) < grain => last.next = next,
            _ => self.marks.push_back(LentMark { next, at: now }),
        }
        if self.marks.len() > UPLOAD_MARKS_MAX {
            let second = self.marks[1];
            let oldest = self.marks[0].at;
            self.marks.pop_front();
            self.marks[0] = LentMark { next: second.next, at: oldest };
        }
    }

    /// `base..next` stands in the bucket.
    pub fn published(&mut self, base: Offset, next: Offset) {
        self.ended(base, next);
        if self.proving.is_some_and(|since| base >= since) {
            self.proving = None;
        }
    }

    /// `base..next` came back without an object: followers get it as bytes.
    pub fn returned(&mut self, base: Offset, next: Offset) {
        self.ended(base, next);
        self.proving = self.proving.or(Some(self.lent));
    }

    fn ended(&mut self, base: Offset, next: Offset) {
        assert!(base < next && next <= self.lent, "{base}..{next} was never offered");
        if next <= self.in_flight {
            return;
        }
        self.keep_early(base, next);
        while let Some(first) = self.early.first().copied().filter(|first| first.0 <= self.in_flight) {
            self.in_flight = self.in_flight.max(first.1);
            self.early.remove(0);
        }
        self.forget_marks();
    }

    /// Neighbours become one, so that there are about as many ranges as PUTs in flight.
    fn keep_early(&mut self, base: Offset, next: Offset) {
        let place = self.early.partition_point(|range| range.0 < base);
        match place.checked_sub(1).map(|before| &mut self.early[before]) {
            Some(before) if before.1 >= base => before.1 = before.1.max(next),
            _ => self.early.insert(place, (base, next)),
        }
    }

    fn forget_marks(&mut self) {
        while self.marks.front().is_some_and(|mark| mark.next <= self.in_flight) {
            self.marks.pop_front();
        }
    }

    /// When the oldest bytes in flight stop being waited for.
    #[must_use]
    pub fn give_up_at(&self) -> Option<Duration> {
        self.marks.front().map(|mark| mark.at + self.fallback_after)
    }

    /// Gives up what has been in flight for too long: it is a hole now, offers go on from `appended` (what was appended and
    /// not offered becomes a hole too). Returns whether that was due; the caller then takes back what the combiner still
    /// holds. Late publications are welcome.
    pub fn give_up_if_due(&mut self, appended: Offset, now: Duration) -> GaveUp {
        if self.give_up_at().is_none_or(|at| now < at) {
            return GaveUp::No;
        }
        assert!(appended >= self.lent, "what was offered was appended");
        self.lent = appended;
        self.in_flight = appended;
        self.marks.clear();
        self.early.clear();
        self.proving = Some(appended);
        GaveUp::Yes
    }

    /// Skips to `appended` because what lies below is no longer in memory: it is a hole.
    pub fn skip_to(&mut self, appended: Offset) {
        assert!(appended >= self.lent, "what was offered was appended");
        if appended > self.lent {
            let from = std::mem::replace(&mut self.lent, appended);
            self.ended(from, appended);
        }
    }

    /// When the bytes at `offset` stop being waited for; `None` if they are not on their way.
    #[must_use]
    pub fn wait_until(&self, offset: Offset) -> Option<Duration> {
        if offset >= self.lent || offset < self.in_flight {
            return None;
        }
        if self.early.iter().any(|range| range.0 <= offset && offset < range.1) {
            return None;
        }
        let mark = self.marks.iter().find(|mark| offset < mark.next)?;
        Some(mark.at + self.fallback_after)
    }
}

/// Whether uploads were given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum GaveUp {
    /// They were: take the leases back.
    Yes,
    /// Nothing is overdue.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    const FALLBACK: Duration = Duration::from_millis(1000);

    fn ms(value: u64) -> Duration {
        Duration::from_millis(value)
    }

    fn at(value: i64) -> Offset {
        Offset::new(value)
    }

    #[test]
    fn an_object_that_overtakes_leaves_the_earlier_one_in_flight() {
        let mut upload = UploadProgress::new(at(10), FALLBACK);
        upload.lend(at(20), ms(0));
        upload.lend(at(30), ms(100));
        upload.published(at(20), at(30));
        assert_eq!(upload.in_flight(), at(10));
        assert_eq!(upload.wait_until(at(10)), Some(ms(1000)));
        upload.published(at(10), at(20));
        assert_eq!(upload.in_flight(), at(30));
        assert_eq!(upload.give_up_at(), None);
    }

    #[test]
    fn overdue_bytes_become_a_hole_and_a_later_success_is_needed_to_trust_the_bucket_again() {
        let mut upload = UploadProgress::new(at(0), FALLBACK);
        upload.lend(at(10), ms(0));
        assert_eq!(upload.give_up_if_due(at(12), ms(999)), GaveUp::No);
        assert_eq!(upload.give_up_if_due(at(12), ms(1000)), GaveUp::Yes);
        assert_eq!((upload.in_flight(), upload.lent()), (at(12), at(12)));
        assert!(upload.is_proving());
        upload.published(at(0), at(10));
        assert!(upload.is_proving(), "an upload from before the trouble proves nothing");
        upload.lend(at(20), ms(1100));
        upload.published(at(12), at(20));
        assert!(!upload.is_proving());
    }

    #[test]
    fn marks_are_bounded_and_merge_towards_the_earlier_time() {
        let mut upload = UploadProgress::new(at(0), FALLBACK);
        for step in 1..1000 {
            upload.lend(at(step), ms(u64::try_from(step).expect("small") * 100));
        }
        assert_eq!(upload.marks.len(), UPLOAD_MARKS_MAX);
        assert_eq!(upload.give_up_at(), Some(ms(1100)));
    }

    #[test]
    fn a_skipped_range_is_a_hole_and_does_not_hold_up_what_follows() {
        let mut upload = UploadProgress::new(at(10), FALLBACK);
        upload.lend(at(20), ms(0));
        upload.skip_to(at(50));
        upload.lend(at(60), ms(500));
        assert_eq!(upload.wait_until(at(30)), None);
        upload.published(at(10), at(20));
        assert_eq!(upload.in_flight(), at(50));
        assert_eq!(upload.give_up_at(), Some(ms(1500)));
    }

    #[test]
    fn returned_ranges_are_not_waited_for() {
        let mut upload = UploadProgress::new(at(0), FALLBACK);
        upload.lend(at(10), ms(0));
        upload.returned(at(0), at(10));
        assert_eq!(upload.wait_until(at(5)), None);
        assert!(upload.is_proving());
    }
}
