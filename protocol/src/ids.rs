//! Numbers with a meaning, each a type of its own.
//!
//! Two swapped `i64` compile; an `Offset` where a `BrokerEpoch` belongs does not. The wire's -1 ("none") is turned
//! into `Option` by the `from_wire` constructors, here and nowhere else.
//!
//! Invariant: a value of these types is never negative.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($inner);

        impl $name {
            /// The smallest value, 0.
            pub const ZERO: Self = Self(0);

            /// Wraps a number that is known not to be negative; panics otherwise (our own mistake, not a client's).
            #[must_use]
            pub const fn new(value: $inner) -> Self {
                assert!(value >= 0, concat!(stringify!($name), " must not be negative"));
                Self(value)
            }

            /// Reads a wire field: any negative value is `None`.
            #[must_use]
            pub const fn from_wire(value: $inner) -> Option<Self> {
                if value < 0 { None } else { Some(Self(value)) }
            }

            /// Writes a wire field: `None` is -1.
            #[must_use]
            pub fn to_wire(value: Option<Self>) -> $inner {
                value.map_or(-1, |v| v.0)
            }

            /// The plain number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

number!(
    /// A place in a partition's log: the number of the record that stands there.
    Offset(i64)
);
number!(
    /// How far one offset lies behind another.
    OffsetDelta(i64)
);
number!(
    /// Which leadership of a partition wrote a batch. Grows only in the controller log.
    LeaderEpoch(i32)
);
number!(
    /// Version of a partition's record (leader, ISR) in the controller log.
    PartitionEpoch(i32)
);
number!(
    /// Number of a partition inside its topic.
    PartitionIndex(i32)
);
number!(
    /// `node.id` of a broker or controller.
    BrokerId(i32)
);
number!(
    /// Log index of a broker's registration: one value per broker process.
    BrokerEpoch(i64)
);
number!(
    /// Which activation of a controller made a decision.
    ControllerEpoch(i32)
);
number!(
    /// Identity of an idempotent producer.
    ProducerId(i64)
);
number!(
    /// Which incarnation of a producer wrote a batch.
    ProducerEpoch(i16)
);
number!(
    /// Index of an entry in the controller log.
    MetadataIndex(i64)
);

impl Offset {
    /// The offset `delta` records further on. Panics on overflow.
    #[must_use]
    pub fn advance(self, delta: OffsetDelta) -> Self {
        Self(self.0.checked_add(delta.0).expect("offsets stay below 2^63"))
    }

    /// The next offset.
    #[must_use]
    pub fn next(self) -> Self {
        self.advance(OffsetDelta(1))
    }

    /// Distance from `earlier` to `self`; `None` if `earlier` lies behind `self`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Option<OffsetDelta> {
        OffsetDelta::from_wire(self.0.checked_sub(earlier.0)?)
    }
}

impl LeaderEpoch {
    /// The epoch after this one. Panics on overflow.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("leader epochs stay below 2^31"))
    }
}

impl PartitionEpoch {
    /// The epoch after this one. Panics on overflow.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("partition epochs stay below 2^31"))
    }
}

impl PartitionIndex {
    /// The number as an index into a list of partitions.
    #[must_use]
    pub fn index(self) -> usize {
        usize::try_from(self.0).expect("a partition index is not negative")
    }
}

/// A 128-bit identifier as Kafka writes it: 16 bytes, shown in URL-safe base64 without padding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid([u8; 16]);

impl Uuid {
    /// All zero: "no id" on the wire.
    pub const ZERO: Self = Self([0; 16]);

    /// From its 16 bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its 16 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Whether this is the wire's "no id".
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0 == [0; 16]
    }

    /// Reads the 22-character text form; `None` if it is anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut bits: u32 = 0;
        let mut count = 0;
        let mut out = [0u8; 16];
        let mut filled = 0;
        if text.len() != 22 {
            return None;
        }
        for c in text.bytes() {
            let value = BASE64.iter().position(|&b| b == c)?;
            bits = (bits << 6) | u32::try_from(value).ok()?;
            count += 6;
            if count >= 8 {
                count -= 8;
                *out.get_mut(filled)? = u8::try_from((bits >> count) & 0xff).ok()?;
                filled += 1;
            }
        }
        (filled == 16).then_some(Self(out))
    }
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(22);
        for group in self.0.chunks(3) {
            let mut bits = 0u32;
            for index in 0..3 {
                bits = (bits << 8) | u32::from(group.get(index).copied().unwrap_or(0));
            }
            for index in 0..=group.len() {
                let shift = 18 - 6 * index;
                text.push(char::from(BASE64[((bits >> shift) & 63) as usize]));
            }
        }
        f.write_str(&text)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Identity of a topic: survives its name.
pub type TopicId = Uuid;

/// One partition of one topic, by identity: the key of every map of partitions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartitionKey {
    /// Its topic.
    pub topic_id: TopicId,
    /// Its number in the topic.
    pub partition: PartitionIndex,
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic_id, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_text_form_is_kafkas() {
        let id = Uuid::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(id.to_string(), "AAECAwQFBgcICQoLDA0ODw");
        assert_eq!(Uuid::parse(&id.to_string()), Some(id));
        assert_eq!(Uuid::parse("AAECAwQFBgcICQoLDA0OD"), None);
        assert_eq!(Uuid::parse("AAECAwQFBgcICQoLDA0OD!"), None);
    }

    #[test]
    fn negative_wire_values_are_none() {
        assert_eq!(Offset::from_wire(-1), None);
        assert_eq!(Offset::to_wire(None), -1);
        assert_eq!(Offset::new(3).advance(OffsetDelta::new(4)), Offset::new(7));
        assert_eq!(Offset::new(3).since(Offset::new(4)), None);
    }
}
