//! Which of the oldest segments may go: by the log's start, by size, by age.
//!
//! Pure. Kafka's rules: only whole segments go, oldest first, never one that holds a record at or above the high watermark.
//! A segment's age is that of its largest timestamp, so one record from the far future keeps it: that is said aloud
//! (`Retention::future`), and size retention still works.

use std::time::Duration;

use sakia_protocol::ids::Offset;

/// What retention must know of one segment, oldest first in a list; the last one is the active segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentFacts {
    /// Offset behind its last record.
    pub next: Offset,
    /// Bytes of its batches.
    pub bytes: u64,
    /// Largest timestamp in it (ms); `None` if it holds no record with a timestamp.
    pub max_timestamp_ms: Option<i64>,
}

/// The settings that decide (`retention.bytes`, `retention.ms`); `None` is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RetentionSettings {
    /// Bytes of log to keep.
    pub bytes: Option<u64>,
    /// Age from which a segment may go.
    pub age: Option<Duration>,
}

/// What may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Retention {
    /// So many of the oldest segments. May count the active one, which must then be rolled first.
    pub segments: usize,
    /// A timestamp of the oldest segment that stays which lies more than a day ahead of the clock: it stays until then.
    pub future: Option<i64>,
}

const FUTURE_MS: i64 = 24 * 3600 * 1000;

/// Decides how many of the oldest segments go.
#[must_use]
pub fn decide(
    segments: &[SegmentFacts],
    settings: RetentionSettings,
    log_start: Offset,
    high_watermark: Offset,
    now_ms: i64,
) -> Retention {
    let age_ms = settings.age.map(|age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
    let mut left: u64 = segments.iter().map(|segment| segment.bytes).sum();
    let mut gone = 0;
    for segment in segments {
        let is_active = gone + 1 == segments.len();
        let below_start = segment.next <= log_start && !is_active;
        let too_old =
            age_ms.zip(segment.max_timestamp_ms).is_some_and(|(age, newest)| now_ms.saturating_sub(newest) > age);
        let too_much = settings.bytes.is_some_and(|bytes| left - segment.bytes >= bytes) && !is_active;
        if segment.bytes == 0 || segment.next > high_watermark || !(below_start || too_old || too_much) {
            break;
        }
        left -= segment.bytes;
        gone += 1;
    }
    let next = segments.get(gone).and_then(|segment| segment.max_timestamp_ms);
    let future = next.filter(|newest| age_ms.is_some() && newest.saturating_sub(now_ms) > FUTURE_MS);
    Retention { segments: gone, future }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four segments of 100 bytes and ten records, one second apart; the last is active.
    fn segments() -> Vec<SegmentFacts> {
        (1..=4)
            .map(|number| SegmentFacts {
                next: Offset::new(number * 10),
                bytes: 100,
                max_timestamp_ms: Some(number * 1000),
            })
            .collect()
    }

    fn gone(bytes: Option<u64>, age_ms: Option<u64>, log_start: i64, high_watermark: i64, now_ms: i64) -> usize {
        let settings = RetentionSettings { bytes, age: age_ms.map(Duration::from_millis) };
        decide(&segments(), settings, Offset::new(log_start), Offset::new(high_watermark), now_ms).segments
    }

    #[test]
    fn size_retention_keeps_at_least_the_bytes_asked_for() {
        let cases = [(400, 0), (399, 0), (301, 0), (300, 1), (201, 1), (200, 2), (100, 3), (0, 3)];
        for (bytes, expected) in cases {
            assert_eq!(gone(Some(bytes), None, 0, 40, 0), expected, "{bytes}");
        }
    }

    #[test]
    fn time_retention_takes_whole_segments_older_than_the_age_and_at_last_the_active_one() {
        let cases = [(1500, 0), (1501, 1), (2501, 2), (3501, 3), (4500, 3), (4501, 4)];
        for (now, expected) in cases {
            assert_eq!(gone(None, Some(500), 0, 40, now), expected, "{now}");
        }
    }

    #[test]
    fn nothing_at_or_above_the_high_watermark_goes() {
        assert_eq!(gone(None, Some(500), 0, 19, 1_000_000), 1);
        assert_eq!(gone(Some(0), None, 0, 9, 0), 0);
    }

    #[test]
    fn segments_below_the_log_start_go_but_never_the_active_one() {
        assert_eq!(gone(None, None, 19, 40, 0), 1);
        assert_eq!(gone(None, None, 20, 40, 0), 2);
        assert_eq!(gone(None, None, 40, 40, 0), 3);
    }

    #[test]
    fn a_timestamp_from_the_future_stops_time_retention_loudly_but_not_size_retention() {
        let mut list = segments();
        list[0].max_timestamp_ms = Some(10 * 365 * 24 * 3600 * 1000);
        let decided = |settings| decide(&list, settings, Offset::ZERO, Offset::new(40), 100_000);
        let by_age = decided(RetentionSettings { bytes: None, age: Some(Duration::from_millis(500)) });
        assert_eq!(by_age, Retention { segments: 0, future: list[0].max_timestamp_ms });
        let by_both = decided(RetentionSettings { bytes: Some(100), age: Some(Duration::from_secs(1000)) });
        assert_eq!(by_both, Retention { segments: 3, future: None });
    }
}
