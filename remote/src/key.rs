//! Names of objects in the bucket. Pure.
//!
//! ```text
//! <prefix>/<cluster incarnation>/wal/<broker>/<broker epoch>/<sequence, 20 digits>
//! ```
//! The name says who wrote it: one broker process (broker, broker epoch) owns one *stream* of sequence numbers.
//! Invariant: names of one stream sort by sequence, so a listing is in writing order.

use std::fmt;
use std::sync::Arc;

use sakia_protocol::ids::{BrokerEpoch, BrokerId};

/// The full name of one object in its bucket.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(Arc<str>);

impl ObjectKey {
    /// Takes a name as it stands.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(Arc::from(name))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectKey({})", self.0)
    }
}

/// One broker process as a writer of objects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StreamId {
    /// Who writes.
    pub broker: BrokerId,
    /// Which process of it.
    pub broker_epoch: BrokerEpoch,
}

/// Where the objects of one cluster lie in a bucket: prefix and cluster incarnation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeySpace {
    root: Arc<str>,
}

impl KeySpace {
    /// `prefix` as configured (may be empty, outer slashes do not matter), `incarnation` of the cluster.
    /// Panics if the incarnation is empty or has a slash: it is ours, not a user's.
    #[must_use]
    pub fn new(prefix: &str, incarnation: &str) -> Self {
        assert!(!incarnation.is_empty(), "a cluster incarnation is never empty");
        assert!(!incarnation.contains('/'), "a cluster incarnation is one part of a name");
        let prefix = prefix.trim_matches('/');
        let root = if prefix.is_empty() { incarnation.to_owned() } else { format!("{prefix}/{incarnation}") };
        Self { root: Arc::from(root) }
    }

    /// The name of one combined object.
    #[must_use]
    pub fn wal_object(&self, stream: StreamId, sequence: u64) -> ObjectKey {
        ObjectKey(Arc::from(format!("{}{sequence:020}", self.stream_prefix(stream))))
    }

    /// What all names of one stream begin with.
    #[must_use]
    pub fn stream_prefix(&self, stream: StreamId) -> String {
        format!("{}{}/", self.broker_prefix(stream.broker), stream.broker_epoch)
    }

    /// What all names of one broker, of every epoch, begin with.
    #[must_use]
    pub fn broker_prefix(&self, broker: BrokerId) -> String {
        format!("{}/wal/{broker}/", self.root)
    }

    /// Reads a listed name back; `None` if it is no combined object of this key space.
    #[must_use]
    pub fn parse_wal_object(&self, key: &ObjectKey) -> Option<(StreamId, u64)> {
        let rest = key.as_str().strip_prefix(&*self.root)?.strip_prefix("/wal/")?;
        let mut parts = rest.split('/');
        let broker = BrokerId::from_wire(parts.next()?.parse().ok()?)?;
        let broker_epoch = BrokerEpoch::from_wire(parts.next()?.parse().ok()?)?;
        let sequence = parts.next()?.parse().ok()?;
        let stream = StreamId { broker, broker_epoch };
        // Writing it again refuses other spellings of the same numbers.
        (self.wal_object(stream, sequence) == *key).then_some((stream, sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> StreamId {
        StreamId { broker: BrokerId::new(7), broker_epoch: BrokerEpoch::new(4711) }
    }

    #[test]
    fn a_name_is_prefix_incarnation_broker_epoch_and_padded_sequence() {
        let key = KeySpace::new("/some/prefix/", "inc1").wal_object(stream(), 42);
        assert_eq!(key.as_str(), "some/prefix/inc1/wal/7/4711/00000000000000000042");
        assert_eq!(KeySpace::new("", "inc1").wal_object(stream(), 0).as_str(), "inc1/wal/7/4711/00000000000000000000");
    }

    #[test]
    fn names_sort_by_sequence_and_are_read_back() {
        let space = KeySpace::new("p", "i");
        assert!(space.wal_object(stream(), 9) < space.wal_object(stream(), 10));
        let last = space.wal_object(stream(), u64::MAX);
        assert!(space.wal_object(stream(), 10) < last);
        assert_eq!(space.parse_wal_object(&last), Some((stream(), u64::MAX)));
    }

    #[test]
    fn foreign_names_are_not_read() {
        let space = KeySpace::new("p", "i");
        let foreign = [
            "p/other/wal/7/4711/00000000000000000042",
            "p/i/wal/7/4711/42",
            "p/i/wal/7/4711/00000000000000000042/x",
            "p/i/wal/-7/4711/00000000000000000042",
            "p/i/tier/7/4711/00000000000000000042",
            "",
        ];
        for name in foreign {
            assert_eq!(space.parse_wal_object(&ObjectKey::new(name)), None, "{name}");
        }
    }
}
