//! Writes a Fetch response, versions 4 to 18, without touching records.
//!
//! ```text
//! length i32 · correlation id i32 · tags (12..)
//! throttle_time_ms i32 · error_code i16 · session_id i32 (7..) · topics [
//!   name string (..=12) or topic_id uuid (13..) · partitions [
//!     index i32 · error_code i16 · high_watermark i64 · last_stable_offset i64 · log_start_offset i64 (5..)
//!     · aborted_transactions nullable [ producer_id i64 · first_offset i64 · tags ] · preferred_read_replica i32 (11..)
//!     · records bytes
//!     · tags (12..): 0 diverging_epoch { epoch i32 · end_offset i64 · tags }
//!                    1 current_leader { leader_id i32 · leader_epoch i32 · tags }
//!                    2 snapshot_id { end_offset i64 · epoch i32 · tags } ] · tags ]
//! · tags (12..): 0 node_endpoints [ id i32 · host string · port i32 · rack nullable string · tags ] (16..)
//!                23040 nullable bytes, private to our own replicas (17..)
//! ```
//! Path: the last step of a fetched batch: from the log's ranges to the socket's writev. Pure.
//!
//! All bytes that are not records go into one buffer; records stay the `Bytes` they are. The result is both in order.
//! The length in front is set at the end.
//!
//! Cost: one buffer and one list per response, two entries in it per partition with records.

use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::{Form, WireError, Writer};
use crate::fetch_view::{FETCH_VERSIONS, PRIVATE_FROM, PRIVATE_TAG};
use crate::ids::{BrokerId, LeaderEpoch, Offset, ProducerId};
use crate::topic_ref::TopicRef;

const COMPACT_FROM: i16 = 12;
const TOPIC_ID_FROM: i16 = 13;
const ENDPOINTS_FROM: i16 = 16;
const LENGTH_LEN: usize = 4;

/// What stands in front of the topics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FetchResponseStart {
    /// Comes back from the request.
    pub correlation_id: i32,
    /// How long the client was or will be held back, in ms.
    pub throttle_time_ms: i32,
    /// Error of the whole response (version 7 and later).
    pub error_code: i16,
    /// The session, 0 for none (version 7 and later).
    pub session_id: i32,
}

/// A transaction whose records in this response are to be skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AbortedTransaction {
    /// Its producer.
    pub producer_id: ProducerId,
    /// Its first record in this partition.
    pub first_offset: Offset,
}

/// Where a replica's log parts from the leader's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DivergingEpoch {
    /// Largest epoch of the leader's log that is not above the replica's.
    pub epoch: LeaderEpoch,
    /// Its end in the leader's log.
    pub end_offset: Offset,
}

/// Who leads a partition, for a client that asked the wrong broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CurrentLeader {
    /// The leader, if there is one.
    pub leader_id: Option<BrokerId>,
    /// Its leadership.
    pub leader_epoch: LeaderEpoch,
}

/// A snapshot to be fetched instead of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotId {
    /// Its end.
    pub end_offset: Offset,
    /// Its epoch.
    pub epoch: LeaderEpoch,
}

/// Address of a broker named as current leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeEndpoint<'a> {
    /// The broker.
    pub id: BrokerId,
    /// Host name or address.
    pub host: &'a str,
    /// Port.
    pub port: u16,
    /// Rack, if it has one.
    pub rack: Option<&'a str>,
}

/// One partition's answer, without its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FetchedPartition<'a> {
    /// Its number as asked for.
    pub index: i32,
    /// Kafka's code.
    pub error_code: i16,
    /// `None` is -1.
    pub high_watermark: Option<Offset>,
    /// `None` is -1.
    pub last_stable_offset: Option<Offset>,
    /// `None` is -1 (version 5 and later).
    pub log_start_offset: Option<Offset>,
    /// `None` is null: the consumer reads uncommitted records.
    pub aborted_transactions: Option<&'a [AbortedTransaction]>,
    /// A replica nearer to the consumer (version 11 and later).
    pub preferred_read_replica: Option<BrokerId>,
    /// For a replica that must truncate (version 12 and later).
    pub diverging_epoch: Option<DivergingEpoch>,
    /// Beside NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (version 12 and later).
    pub current_leader: Option<CurrentLeader>,
    /// Beside a metadata log that starts later (version 12 and later).
    pub snapshot_id: Option<SnapshotId>,
}

/// See the module. Fields that the version does not have are left out.
#[derive(Debug)]
pub struct FetchResponseWriter {
    version: i16,
    out: Writer,
    /// `out` up to here is in `pieces`.
    cut: usize,
    pieces: Vec<Piece>,
    records_len: usize,
    topics_left: usize,
    partitions_left: usize,
}

#[derive(Debug)]
enum Piece {
    /// Bytes of `out` up to this position.
    OutUpTo(usize),
    Records(Bytes),
}

impl FetchResponseWriter {
    /// Starts a response with `topic_count` topics. Panics outside [`FETCH_VERSIONS`]: the request was refused then.
    ///
    /// # Errors
    /// `TooLarge`.
    pub fn new(version: i16, start: FetchResponseStart, topic_count: usize) -> Result<Self, WireError> {
        Self::over(BytesMut::with_capacity(256), version, start, topic_count)
    }

    /// As [`Self::new`], writing into an empty buffer whose memory is used again.
    ///
    /// # Errors
    /// `TooLarge`.
    pub fn over(
        buffer: BytesMut,
        version: i16,
        start: FetchResponseStart,
        topic_count: usize,
    ) -> Result<Self, WireError> {
        assert!(FETCH_VERSIONS.contains(&version), "fetch version {version} was refused when it was read");
        assert!(buffer.is_empty(), "a response starts its buffer");
        let mut out = Writer::over(buffer);
        out.set_form(Form::of(version, COMPACT_FROM));
        out.i32(0);
        out.i32(start.correlation_id);
        out.no_tagged();
        out.i32(start.throttle_time_ms);
        if version >= 7 {
            out.i16(start.error_code);
            out.i32(start.session_id);
        }
        out.length(Some(topic_count))?;
        let pieces = Vec::new();
        Ok(Self { version, out, cut: 0, pieces, records_len: 0, topics_left: topic_count, partitions_left: 0 })
    }

    /// Starts the next topic, with `partition_count` partitions to follow. The version says whether by name or by id.
    ///
    /// # Errors
    /// `TooLarge`, `StringTooLong`, and `Null` if the version calls topics otherwise than `topic` does.
    pub fn topic(&mut self, topic: TopicRef<'_>, partition_count: usize) -> Result<&mut Self, WireError> {
        assert_eq!(self.partitions_left, 0, "the topic before has all its partitions");
        assert!(self.topics_left > 0, "no more topics than announced");
        self.topics_left -= 1;
        match topic {
            TopicRef::Name(name) if self.version < TOPIC_ID_FROM => self.out.string(name)?,
            TopicRef::Id(id) if self.version >= TOPIC_ID_FROM => self.out.uuid(id),
            TopicRef::Name(_) | TopicRef::Id(_) => return Err(WireError::Null),
        }
        self.out.length(Some(partition_count))?;
        self.partitions_left = partition_count;
        if partition_count == 0 {
            self.out.no_tagged();
        }
        Ok(self)
    }

    /// The next partition of the topic, with its records in order.
    ///
    /// # Errors
    /// `TooLarge` if the records of one partition reach 2 GiB.
    pub fn partition(
        &mut self,
        partition: &FetchedPartition<'_>,
        records: impl IntoIterator<Item = Bytes, IntoIter: Clone>,
    ) -> Result<&mut Self, WireError> {
        assert!(self.partitions_left > 0, "no more partitions than announced");
        self.partitions_left -= 1;
        self.partition_fields(partition)?;
        let records = records.into_iter();
        let len: usize = records.clone().map(|bytes| bytes.len()).sum();
        self.out.length(Some(len))?;
        if len > 0 {
            self.pieces.push(Piece::OutUpTo(self.out.len()));
            self.cut = self.out.len();
            self.pieces.extend(records.filter(|bytes| !bytes.is_empty()).map(Piece::Records));
            self.records_len += len;
        }
        self.partition_tags(partition)?;
        if self.partitions_left == 0 {
            self.out.no_tagged();
        }
        Ok(self)
    }

    /// Bytes of records so far: what counts against the request's limits.
    #[must_use]
    pub fn records_len(&self) -> usize {
        self.records_len
    }

    /// Ends the response: brokers named as leaders (left out below version 16), and our private field for a replica of
    /// ours (left out below version 17). The pieces are to be sent one after the other. Panics if topics or partitions are missing.
    ///
    /// # Errors
    /// `TooLarge` if the whole response reaches 2 GiB.
    pub fn finish(mut self, endpoints: &[NodeEndpoint<'_>], private: Option<&[u8]>) -> Result<Vec<Bytes>, WireError> {
        assert_eq!(self.topics_left, 0, "all announced topics are written");
        assert_eq!(self.partitions_left, 0, "all announced partitions are written");
        self.response_tags(endpoints, private)?;
        let len = self.out.len() - LENGTH_LEN + self.records_len;
        let wire_len = i32::try_from(len).map_err(|_| WireError::TooLarge(len))?;
        let mut buffer = self.out.into_buffer();
        (&mut buffer[..LENGTH_LEN]).put_i32(wire_len);
        if self.cut < buffer.len() {
            self.pieces.push(Piece::OutUpTo(buffer.len()));
        }
        let out = buffer.freeze();
        let mut start = 0;
        let pieces = self.pieces.into_iter().map(|piece| match piece {
            Piece::Records(bytes) => bytes,
            Piece::OutUpTo(end) => {
                let bytes = out.slice(start..end);
                start = end;
                bytes
            }
        });
        Ok(pieces.collect())
    }

    fn partition_fields(&mut self, partition: &FetchedPartition<'_>) -> Result<(), WireError> {
        let out = &mut self.out;
        out.i32(partition.index);
        out.i16(partition.error_code);
        out.i64(Offset::to_wire(partition.high_watermark));
        out.i64(Offset::to_wire(partition.last_stable_offset));
        if self.version >= 5 {
            out.i64(Offset::to_wire(partition.log_start_offset));
        }
        out.length(partition.aborted_transactions.map(<[_]>::len))?;
        for aborted in partition.aborted_transactions.unwrap_or_default() {
            out.i64(aborted.producer_id.get());
            out.i64(aborted.first_offset.get());
            out.no_tagged();
        }
        if self.version >= 11 {
            out.i32(BrokerId::to_wire(partition.preferred_read_replica));
        }
        Ok(())
    }

    fn partition_tags(&mut self, partition: &FetchedPartition<'_>) -> Result<(), WireError> {
        let FetchedPartition { diverging_epoch, current_leader, snapshot_id, .. } = partition;
        // Nearly every partition has none; the general writer of tags would allocate.
        if diverging_epoch.is_none() && current_leader.is_none() && snapshot_id.is_none() {
            self.out.no_tagged();
            return Ok(());
        }
        self.out.tagged(|tags| {
            if let Some(diverging) = diverging_epoch {
                tags.field(0, |out| {
                    out.i32(diverging.epoch.get());
                    out.i64(diverging.end_offset.get());
                    out.no_tagged();
                    Ok(())
                })?;
            }
            if let Some(leader) = current_leader {
                tags.field(1, |out| {
                    out.i32(BrokerId::to_wire(leader.leader_id));
                    out.i32(leader.leader_epoch.get());
                    out.no_tagged();
                    Ok(())
                })?;
            }
            if let Some(snapshot) = snapshot_id {
                tags.field(2, |out| {
                    out.i64(snapshot.end_offset.get());
                    out.i32(snapshot.epoch.get());
                    out.no_tagged();
                    Ok(())
                })?;
            }
            Ok(())
        })
    }

    fn response_tags(&mut self, endpoints: &[NodeEndpoint<'_>], private: Option<&[u8]>) -> Result<(), WireError> {
        let with_endpoints = self.version >= ENDPOINTS_FROM && !endpoints.is_empty();
        let private = private.filter(|_| self.version >= PRIVATE_FROM);
        self.out.tagged(|tags| {
            if with_endpoints {
                tags.field(0, |out| {
                    out.length(Some(endpoints.len()))?;
                    for endpoint in endpoints {
                        out.i32(endpoint.id.get());
                        out.string(endpoint.host)?;
                        out.i32(i32::from(endpoint.port));
                        out.nullable_string(endpoint.rack)?;
                        out.no_tagged();
                    }
                    Ok(())
                })?;
            }
            if let Some(bytes) = private {
                tags.field(PRIVATE_TAG, |out| out.bytes(bytes))?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
