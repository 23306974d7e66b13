//! The private tagged fields of Fetch between our own brokers: tag 23040 in request and response. Pure.
//!
//! Path: follower's fetcher → leader's Fetch, and the reply back. Sent only to a peer whose registration has feature
//! `sakia.wal` ≥ 1. Big-endian, as Kafka:
//! ```text
//! request:  version u8 = 1 · flags u8 (1 = wants references) · session u64 · number u64 ·
//!           bytes_until: count uvarint, each { topic id 16 bytes, partition i32, offset i64 }
//! response: version u8 = 1 · mode u8 (0 references, 1 fallback) · objects: count uvarint, each a reference
//! ```
//! Invariant: what is encoded is read back equal; damaged bytes are an error, never a panic.

use bytes::{BufMut, Bytes, BytesMut};
use sakia_protocol::ids::{Offset, PartitionIndex, PartitionKey};

use crate::limits::{BYTES_UNTIL_MAX, REPLY_OBJECTS_MAX};
use crate::reference::{REFERENCE_LENGTH_MIN, ReferencedObject};
pub use crate::wire::WalTagError;
use crate::wire::{Cursor, put_count};

/// Number of the tagged field, in request and response.
pub const WAL_TAG: u32 = 23040;

const VERSION: u8 = 1;
const FLAG_WANTS_REFERENCES: u8 = 1;
const BYTES_UNTIL_LENGTH: usize = 28;

/// What a follower asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wants {
    /// Record bytes only: its breaker for the bucket is open.
    Bytes,
    /// References where the leader has them.
    References,
}

/// One partition that must get bytes below an offset, whatever the leader has in the bucket (Rule: R12).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BytesUntil {
    /// Which partition.
    pub key: PartitionKey,
    /// First offset that may be referenced again.
    pub offset: Offset,
}

/// Place of a fetch among all fetches of one follower process at this leader, counted by the follower: connections are
/// accepted in another order than they were opened in, so the leader cannot count them (Rule: R11).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FetchPlace {
    /// Session: grows with each begin anew.
    pub session: u64,
    /// Fetch in the session: grows with each.
    pub number: u64,
}

/// The tag of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalRequest {
    /// Which fetch this is.
    pub place: FetchPlace,
    /// References or bytes.
    pub wants: Wants,
    /// Exceptions.
    pub bytes_until: Vec<BytesUntil>,
}

/// Whether the leader is able to hand out references now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyMode {
    /// The usual state.
    References,
    /// The leader's uploads are behind; it sends bytes.
    Fallback,
}

/// The tag of a response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalResponse {
    /// State of the leader.
    pub mode: ReplyMode,
    /// Objects to GET, in the order in which they were written.
    pub objects: Vec<ReferencedObject>,
}

impl WalRequest {
    /// Its binary form, without tag and length.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        assert!(self.bytes_until.len() <= BYTES_UNTIL_MAX, "exceptions are bounded");
        let mut out = BytesMut::with_capacity(24 + self.bytes_until.len() * BYTES_UNTIL_LENGTH);
        out.put_u8(VERSION);
        out.put_u8(match self.wants {
            Wants::Bytes => 0,
            Wants::References => FLAG_WANTS_REFERENCES,
        });
        out.put_u64(self.place.session);
        out.put_u64(self.place.number);
        put_count(&mut out, self.bytes_until.len());
        for until in &self.bytes_until {
            out.put_slice(until.key.topic_id.as_bytes());
            out.put_i32(until.key.partition.get());
            out.put_i64(until.offset.get());
        }
        out.freeze()
    }

    /// Reads the value of the tag.
    pub fn decode(bytes: &[u8]) -> Result<Self, WalTagError> {
        let mut cursor = Cursor::new(bytes);
        check_version(&mut cursor)?;
        let wants = match cursor.u8("flags")? {
            0 => Wants::Bytes,
            FLAG_WANTS_REFERENCES => Wants::References,
            _ => return Err(WalTagError::Invalid { field: "flags" }),
        };
        let place = FetchPlace { session: cursor.u64("session")?, number: cursor.u64("number")? };
        let count = cursor.count("bytes until", BYTES_UNTIL_LENGTH, BYTES_UNTIL_MAX)?;
        let bytes_until = (0..count).map(|_| decode_bytes_until(&mut cursor)).collect::<Result<Vec<_>, _>>()?;
        cursor.finish()?;
        Ok(Self { place, wants, bytes_until })
    }
}

fn check_version(cursor: &mut Cursor<'_>) -> Result<(), WalTagError> {
    match cursor.u8("version")? {
        VERSION => Ok(()),
        version => Err(WalTagError::Version { version }),
    }
}

fn decode_bytes_until(cursor: &mut Cursor<'_>) -> Result<BytesUntil, WalTagError> {
    let topic_id = cursor.uuid("topic id")?;
    let partition =
        PartitionIndex::from_wire(cursor.i32("partition")?).ok_or(WalTagError::Invalid { field: "partition" })?;
    let offset = Offset::from_wire(cursor.i64("offset")?).ok_or(WalTagError::Invalid { field: "offset" })?;
    Ok(BytesUntil { key: PartitionKey { topic_id, partition }, offset })
}

impl WalResponse {
    /// Its binary form, without tag and length.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        assert!(self.objects.len() <= REPLY_OBJECTS_MAX, "objects of a reply are bounded");
        let mut out = BytesMut::with_capacity(8 + self.objects.len() * REFERENCE_LENGTH_MIN);
        out.put_u8(VERSION);
        out.put_u8(match self.mode {
            ReplyMode::References => 0,
            ReplyMode::Fallback => 1,
        });
        put_count(&mut out, self.objects.len());
        for object in &self.objects {
            object.encode(&mut out);
        }
        out.freeze()
    }

    /// Reads the value of the tag.
    pub fn decode(bytes: &[u8]) -> Result<Self, WalTagError> {
        let mut cursor = Cursor::new(bytes);
        check_version(&mut cursor)?;
        let mode = match cursor.u8("mode")? {
            0 => ReplyMode::References,
            1 => ReplyMode::Fallback,
            _ => return Err(WalTagError::Invalid { field: "mode" }),
        };
        let count = cursor.count("objects", REFERENCE_LENGTH_MIN, REPLY_OBJECTS_MAX)?;
        let objects = (0..count).map(|_| ReferencedObject::decode(&mut cursor)).collect::<Result<Vec<_>, _>>()?;
        cursor.finish()?;
        Ok(Self { mode, objects })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::ObjectReference;
    use sakia_protocol::ids::{BrokerEpoch, BrokerId, Uuid};

    fn request() -> WalRequest {
        let until = |partition, offset| BytesUntil {
            key: PartitionKey { topic_id: Uuid::from_bytes([3; 16]), partition: PartitionIndex::new(partition) },
            offset: Offset::new(offset),
        };
        WalRequest {
            place: FetchPlace { session: 3, number: 0x0102_0304_0506 },
            wants: Wants::References,
            bytes_until: vec![until(0, 100), until(7, i64::MAX)],
        }
    }

    fn response() -> WalResponse {
        let object = |sequence, excluded: &[u32]| ReferencedObject {
            object: ObjectReference {
                bucket: 1,
                broker: BrokerId::new(2),
                broker_epoch: BrokerEpoch::new(0x0102_0304),
                sequence,
                object_length: 5000,
                manifest_length: 141,
                manifest_crc32c: 0xdead_beef,
            },
            get_end: 4000,
            excluded: excluded.to_vec(),
        };
        WalResponse { mode: ReplyMode::References, objects: vec![object(5, &[]), object(6, &[0, 3])] }
    }

    fn golden(name: &str, bytes: &[u8]) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
        let expected = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}; bytes: {bytes:02x?}", path.display()));
        assert_eq!(bytes, expected, "{name}");
    }

    #[test]
    fn tags_equal_their_golden_bytes_and_are_read_back() {
        golden("fetch-request-tag-1.bin", &request().encode());
        golden("fetch-response-tag-1.bin", &response().encode());
        assert_eq!(WalRequest::decode(&request().encode()), Ok(request()));
        assert_eq!(WalResponse::decode(&response().encode()), Ok(response()));
    }

    #[test]
    fn a_reference_without_exclusions_has_38_bytes() {
        let empty = WalResponse { mode: ReplyMode::Fallback, objects: Vec::new() };
        let mut one = response();
        one.objects.truncate(1);
        assert_eq!(one.encode().len() - empty.encode().len(), REFERENCE_LENGTH_MIN);
        assert_eq!(WalResponse::decode(&empty.encode()), Ok(empty));
    }

    #[test]
    fn every_prefix_is_refused_and_trailing_bytes_too() {
        let (asked, answered) = (request().encode(), response().encode());
        for end in 0..asked.len() {
            assert!(WalRequest::decode(&asked[..end]).is_err(), "request of {end} bytes");
        }
        for end in 0..answered.len() {
            assert!(WalResponse::decode(&answered[..end]).is_err(), "response of {end} bytes");
        }
        let mut long = request().encode().to_vec();
        long.push(0);
        assert_eq!(WalRequest::decode(&long), Err(WalTagError::Trailing { count: 1 }));
    }

    #[test]
    fn damaged_bytes_never_panic() {
        let bytes = response().encode();
        for position in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.to_vec();
                damaged[position] ^= 1 << bit;
                if let Ok(read) = WalResponse::decode(&damaged) {
                    for object in read.objects {
                        assert!(object.get_end <= object.object.object_length);
                        assert!(object.get_end > object.object.head_length());
                    }
                }
            }
        }
    }

    #[test]
    fn a_newer_version_is_told_apart_from_damage() {
        let mut bytes = request().encode().to_vec();
        bytes[0] = 2;
        assert_eq!(WalRequest::decode(&bytes), Err(WalTagError::Version { version: 2 }));
    }

    #[test]
    fn a_huge_count_is_refused_before_memory_is_taken() {
        assert!(WalResponse::decode(&[1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]).is_err());
        let mut huge = vec![1, 1];
        huge.extend([0; 16]);
        huge.extend([0xff, 0xff, 0x03]);
        assert!(WalRequest::decode(&huge).is_err());
    }
}
