//! What an answer of an S3 service means for the caller. Pure.
//!
//! Path: status, error code and headers of one attempt → [`StoreError`] or the bytes that were asked for.
//! Invariant: a reply to a range get gives exactly the bytes asked, or an error.

use std::ops::Range;

use super::StoreError;

/// What came back instead of success.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'a> {
    /// HTTP status; `None`: no answer.
    pub status: Option<u16>,
    /// S3 error code, if the body had one.
    pub code: Option<&'a str>,
    /// Text for people.
    pub text: &'a str,
}

/// Sorts a failure by what the caller does next.
#[must_use]
pub fn classify(failure: Failure<'_>) -> StoreError {
    let why = describe(failure);
    // Codes first: services send some of them with more than one status.
    match failure.code {
        Some(
            "RequestTimeout"
            | "ExpiredToken"
            | "InvalidToken"
            | "TokenRefreshRequired"
            | "RequestTimeTooSkewed"
            | "SlowDown"
            | "ServiceUnavailable"
            | "Throttling"
            | "ThrottlingException",
        ) => return StoreError::Retry { why },
        Some("NoSuchKey") => return StoreError::Missing,
        Some("NoSuchBucket") => return StoreError::Refused { why },
        Some("ConditionalRequestConflict" | "OperationAborted") => return StoreError::Conflict,
        Some("PreconditionFailed") => return StoreError::Exists,
        _ => {}
    }
    match failure.status {
        None => StoreError::Unknown { why },
        Some(404) => StoreError::Missing,
        Some(409) => StoreError::Conflict,
        Some(412) => StoreError::Exists,
        Some(408 | 425 | 429 | 503) => StoreError::Retry { why },
        Some(501) => StoreError::Refused { why },
        Some(500..) => StoreError::Unknown { why },
        Some(300..500) => StoreError::Refused { why },
        // A success that could not be read.
        Some(_) => StoreError::Unknown { why },
    }
}

fn describe(failure: Failure<'_>) -> String {
    match (failure.status, failure.code) {
        (Some(status), Some(code)) => format!("{status} {code}: {}", failure.text),
        (Some(status), None) => format!("{status}: {}", failure.text),
        (None, _) => failure.text.to_owned(),
    }
}

/// Where the asked bytes lie in the body of a reply to a range get.
///
/// `content_range` is the header of that name (a 206 has it, a 200 does not), `content_length` the length of the body.
/// A 200 with the whole object is accepted and cut; a range that was clamped means that the object is shorter.
pub fn place_range(
    asked: &Range<u64>,
    content_range: Option<&str>,
    content_length: Option<u64>,
) -> Result<Range<u64>, StoreError> {
    let Some(content_range) = content_range else {
        let length = content_length.ok_or_else(|| bad("whole object without a length".to_owned()))?;
        return if length < asked.end {
            Err(StoreError::OutOfRange { asked: asked.end, length: Some(length) })
        } else {
            Ok(asked.clone())
        };
    };
    let (range, total) =
        parse_content_range(content_range).ok_or_else(|| bad(format!("content-range {content_range:?}")))?;
    if total < asked.end {
        return Err(StoreError::OutOfRange { asked: asked.end, length: Some(total) });
    }
    if range != *asked {
        return Err(bad(format!("range {range:?} for {asked:?}")));
    }
    if content_length.is_some_and(|length| length != asked.end - asked.start) {
        return Err(bad(format!("length {content_length:?} for {asked:?}")));
    }
    Ok(0..asked.end - asked.start)
}

/// Length of the object as a 416 tells it: `bytes */total`.
#[must_use]
pub fn length_of_unsatisfied(content_range: &str) -> Option<u64> {
    content_range.strip_prefix("bytes */")?.parse().ok()
}

fn bad(why: String) -> StoreError {
    StoreError::BadReply { why }
}

/// `bytes first-last/total`, last inclusive.
fn parse_content_range(text: &str) -> Option<(Range<u64>, u64)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let end = last.parse::<u64>().ok()?.checked_add(1)?;
    Some((first.parse().ok()?..end, total.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(status: u16, code: Option<&str>) -> StoreError {
        classify(Failure { status: Some(status), code, text: "" })
    }

    #[test]
    fn conflict_exists_and_missing_are_told_apart() {
        assert_eq!(kind(409, Some("ConditionalRequestConflict")), StoreError::Conflict);
        assert_eq!(kind(412, None), StoreError::Exists);
        assert_eq!(kind(404, Some("NoSuchKey")), StoreError::Missing);
        assert!(matches!(kind(404, Some("NoSuchBucket")), StoreError::Refused { .. }));
    }

    #[test]
    fn what_passes_by_itself_is_retried_whatever_its_status() {
        let cases = [
            (400, "RequestTimeout"),
            (400, "ExpiredToken"),
            (403, "ExpiredToken"),
            (403, "RequestTimeTooSkewed"),
            (503, "SlowDown"),
        ];
        for (status, code) in cases {
            assert!(matches!(kind(status, Some(code)), StoreError::Retry { .. }), "{status} {code}");
        }
        assert!(matches!(kind(429, None), StoreError::Retry { .. }));
    }

    #[test]
    fn access_denied_is_refused_and_not_missing() {
        assert!(matches!(kind(403, Some("AccessDenied")), StoreError::Refused { .. }));
        assert!(matches!(kind(501, Some("NotImplemented")), StoreError::Refused { .. }));
        assert!(matches!(kind(301, Some("PermanentRedirect")), StoreError::Refused { .. }));
    }

    #[test]
    fn an_outcome_that_nobody_told_is_unknown() {
        assert!(matches!(kind(500, Some("InternalError")), StoreError::Unknown { .. }));
        assert!(matches!(classify(Failure { status: None, code: None, text: "reset" }), StoreError::Unknown { .. }));
    }

    #[test]
    fn only_the_asked_range_is_taken() {
        let asked = 100..200;
        assert_eq!(place_range(&asked, Some("bytes 100-199/1000"), Some(100)), Ok(0..100));
        assert_eq!(place_range(&asked, None, Some(1000)), Ok(100..200), "the whole object is cut");
        let bad = [
            (Some("bytes 0-99/1000"), Some(100)),
            (Some("bytes 100-149/1000"), Some(50)),
            (Some("bytes 100-199/1000"), Some(99)),
            (Some("bytes 100-199/*"), Some(100)),
            (Some("items 1-2/3"), Some(100)),
            (None, None),
        ];
        for (content_range, length) in bad {
            let got = place_range(&asked, content_range, length);
            assert!(matches!(got, Err(StoreError::BadReply { .. })), "{content_range:?} {length:?}: {got:?}");
        }
    }

    #[test]
    fn a_clamped_range_tells_that_the_object_is_shorter() {
        let short = Err(StoreError::OutOfRange { asked: 200, length: Some(150) });
        assert_eq!(place_range(&(100..200), Some("bytes 100-149/150"), Some(50)), short);
        assert_eq!(place_range(&(100..200), None, Some(150)), short);
        assert_eq!(length_of_unsatisfied("bytes */150"), Some(150));
    }
}
