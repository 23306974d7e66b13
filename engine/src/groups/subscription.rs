//! The little a broker reads of a consumer's own format: which topics a member subscribes to.
//!
//! Pure. Kafka's ConsumerProtocolSubscription begins in every version with `version i16 · topics: count i32, strings`.
//! What cannot be read is nobody's mistake: other protocol types put other bytes there.

use bytes::Bytes;
use sakia_protocol::codec::{Reader, WireError};

/// Topics of a subscription, ascending; `None` if the bytes are something else.
pub(super) fn topics(metadata: &Bytes) -> Option<Vec<String>> {
    let mut topics = read(metadata).ok()?;
    topics.sort_unstable();
    topics.dedup();
    Some(topics)
}

fn read(metadata: &Bytes) -> Result<Vec<String>, WireError> {
    let mut reader = Reader::new(metadata);
    reader.i16()?;
    let count = reader.count(2)?;
    (0..count).map(|_| reader.string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_read_sorted_and_other_bytes_are_not_an_error() {
        let metadata = Bytes::from_static(b"\x00\x01\x00\x00\x00\x02\x00\x01b\x00\x01a\xff\xff\xff\xff");
        assert_eq!(topics(&metadata), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(topics(&Bytes::from_static(b"\x00")), None);
        assert_eq!(topics(&Bytes::from_static(b"\x00\x01\x7f\xff\xff\xff")), None);
    }
}
