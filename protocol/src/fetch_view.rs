//! A Fetch request, versions 4 to 18, as places in its frame.
//!
//! ```text
//! replica_id i32 (..=14) · max_wait_ms i32 · min_bytes i32 · max_bytes i32 · isolation_level i8
//! · session_id i32 · session_epoch i32 (7..) · topics [
//!     name string (..=12) or topic_id uuid (13..) · partitions [
//!       index i32 · current_leader_epoch i32 (9..) · fetch_offset i64 · last_fetched_epoch i32 (12..)
//!       · log_start_offset i64 (5..) · partition_max_bytes i32
//!       · tags: 0 replica_directory_id uuid (17..), 1 high_watermark i64 (18..) ] · tags ]
//! · forgotten_topics [ name or topic_id · partitions [ i32 ] · tags ] (7..) · rack_id string (11..)
//! · tags: 0 cluster_id nullable string (12..), 1 replica_state { replica_id i32 · replica_epoch i64 · tags } (15..),
//!         23040 nullable bytes, private to our own replicas (17..)
//! ```
//! Compact and tagged from version 12.
//!
//! Path: from the connection's frame to the partitions' owners. Pure.
//!
//! Cost: one entry per partition in a list that is reused by the next request; no copy of strings. A view keeps its
//! frame alive until it is cleared.

use std::ops::RangeInclusive;

use bytes::Bytes;

use crate::codec::{Form, Reader, Tagged, WireError};
use crate::ids::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, Uuid};
use crate::topic_ref::{Span, TopicEntry, TopicForm, TopicRef, check_partitions, empty, nullable_span};

/// Versions this view reads.
pub const FETCH_VERSIONS: RangeInclusive<i16> = 4..=18;
const COMPACT_FROM: i16 = 12;
const TOPIC_ID_FROM: i16 = 13;
const REPLICA_STATE_FROM: i16 = 15;

/// Tagged field at the top level of request and response that only our own replicas use: nullable bytes.
pub const PRIVATE_TAG: u32 = 23_040;
/// First version that has it.
pub const PRIVATE_FROM: i16 = 17;

/// Which records a consumer may see.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// All below the high watermark.
    #[default]
    ReadUncommitted,
    /// Those of open transactions are held back, aborted ones are listed.
    ReadCommitted,
}

/// The replica that asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchReplica {
    /// Its broker.
    pub id: BrokerId,
    /// Its broker's registration (version 15 and later).
    pub epoch: Option<BrokerEpoch>,
}

/// What is asked of one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchPartition {
    /// Its number as sent; may be negative, which is an unknown partition.
    pub index: i32,
    /// Leadership the client believes in.
    pub current_leader_epoch: Option<LeaderEpoch>,
    /// First offset wanted, as sent: negative is out of range.
    pub fetch_offset: i64,
    /// Leadership that wrote the last record the replica has.
    pub last_fetched_epoch: Option<LeaderEpoch>,
    /// The replica's own start.
    pub log_start_offset: Option<Offset>,
    /// Bytes wanted at most, save for the first batch of a response.
    pub partition_max_bytes: i32,
    /// The replica's log folder (version 17 and later); zero if not given.
    pub replica_directory_id: Uuid,
    /// High watermark the replica knows (version 18 and later).
    pub high_watermark: Option<Offset>,
}

/// See the module. One per connection, filled by each request.
#[derive(Debug, Default)]
pub struct FetchView {
    frame: Bytes,
    fields: Fields,
    topics: Vec<TopicEntry>,
    partitions: Vec<FetchPartition>,
    forgotten_topics: Vec<TopicEntry>,
    forgotten_partitions: Vec<i32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Fields {
    replica_id: i32,
    replica_epoch: i64,
    max_wait_ms: i32,
    min_bytes: i32,
    max_bytes: i32,
    isolation: Isolation,
    session_id: i32,
    session_epoch: i32,
    rack_id: Option<Span>,
    cluster_id: Option<Span>,
    private: Option<Span>,
}

/// One topic of the request.
#[derive(Clone, Copy, Debug)]
pub struct FetchTopic<'a> {
    /// Its name or id.
    pub topic: TopicRef<'a>,
    /// Its partitions in the order of the request.
    pub partitions: &'a [FetchPartition],
}

/// One topic with partitions that the session shall no longer have.
#[derive(Clone, Copy, Debug)]
pub struct ForgottenTopic<'a> {
    /// Its name or id.
    pub topic: TopicRef<'a>,
    /// Partition numbers as sent.
    pub partitions: &'a [i32],
}

impl FetchView {
    /// A view of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the request whose body starts at byte `body_at` of `frame` and ends with it. What the view held before is
    /// dropped; after an error it holds nothing.
    ///
    /// # Errors
    /// `Version` outside [`FETCH_VERSIONS`]; else as the fields, `Value` for an isolation level nobody defined,
    /// `TooLarge` for more partitions than [`PARTITIONS_MAX`](crate::topic_ref::PARTITIONS_MAX), `Trailing`.
    pub fn decode(&mut self, frame: &Bytes, body_at: usize, version: i16) -> Result<(), WireError> {
        self.clear();
        let result = self.fill(frame, body_at, version);
        match result {
            Ok(()) => self.frame = frame.clone(),
            Err(_) => self.clear(),
        }
        result
    }

    /// Lets the frame go. The lists keep their memory for the next request.
    pub fn clear(&mut self) {
        self.frame = Bytes::new();
        self.fields = Fields { replica_id: -1, replica_epoch: -1, session_epoch: -1, ..Fields::default() };
        empty(&mut self.topics);
        empty(&mut self.partitions);
        empty(&mut self.forgotten_topics);
        empty(&mut self.forgotten_partitions);
    }

    fn fill(&mut self, frame: &Bytes, body_at: usize, version: i16) -> Result<(), WireError> {
        if !FETCH_VERSIONS.contains(&version) {
            return Err(WireError::Version(version));
        }
        let r = &mut Reader::new(frame);
        r.take(body_at)?;
        r.set_form(Form::of(version, COMPACT_FROM));
        self.fields.read_first(r, version)?;
        // A topic takes at least its name's length and its count.
        for _ in 0..r.count(2)? {
            self.topic(r, version)?;
        }
        if version >= 7 {
            for _ in 0..r.count(2)? {
                self.forgotten_topic(r, version)?;
            }
        }
        if version >= 11 {
            self.fields.rack_id = Some(nullable_span(r)?.ok_or(WireError::Null)?);
        }
        let fields = &mut self.fields;
        r.tagged(|tag, r| fields.read_tagged(tag, r, version))?;
        r.end()
    }

    fn topic(&mut self, r: &mut Reader<'_>, version: i16) -> Result<(), WireError> {
        let mut topic = TopicEntry::read(r, topic_form(version))?;
        let first = self.partitions.len();
        // Index, offset and limit are there in every version.
        let count = r.count(16)?;
        check_partitions(first + count)?;
        for _ in 0..count {
            self.partitions.push(read_partition(r, version)?);
        }
        r.skip_tagged()?;
        topic.partitions = first..self.partitions.len();
        check_partitions(self.topics.len() + 1)?;
        self.topics.push(topic);
        Ok(())
    }

    fn forgotten_topic(&mut self, r: &mut Reader<'_>, version: i16) -> Result<(), WireError> {
        let mut topic = TopicEntry::read(r, topic_form(version))?;
        let first = self.forgotten_partitions.len();
        let count = r.count(4)?;
        check_partitions(first + count)?;
        for _ in 0..count {
            self.forgotten_partitions.push(r.i32()?);
        }
        r.skip_tagged()?;
        topic.partitions = first..self.forgotten_partitions.len();
        check_partitions(self.forgotten_topics.len() + 1)?;
        self.forgotten_topics.push(topic);
        Ok(())
    }

    /// The replica that asks; `None` is a consumer.
    #[must_use]
    pub fn replica(&self) -> Option<FetchReplica> {
        let id = BrokerId::from_wire(self.fields.replica_id)?;
        Some(FetchReplica { id, epoch: BrokerEpoch::from_wire(self.fields.replica_epoch) })
    }

    /// How long the response may wait for `min_bytes`, in ms.
    #[must_use]
    pub fn max_wait_ms(&self) -> i32 {
        self.fields.max_wait_ms
    }

    /// Bytes of records worth answering before that.
    #[must_use]
    pub fn min_bytes(&self) -> i32 {
        self.fields.min_bytes
    }

    /// Bytes of records in the whole response, save for its first batch.
    #[must_use]
    pub fn max_bytes(&self) -> i32 {
        self.fields.max_bytes
    }

    /// Which records the consumer may see.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        self.fields.isolation
    }

    /// The session this request belongs to; 0 is none.
    #[must_use]
    pub fn session_id(&self) -> i32 {
        self.fields.session_id
    }

    /// Its number in the session: 0 opens one, -1 closes it (and is what versions below 7 mean).
    #[must_use]
    pub fn session_epoch(&self) -> i32 {
        self.fields.session_epoch
    }

    /// Where the consumer stands; empty if it does not say.
    #[must_use]
    pub fn rack_id(&self) -> &str {
        self.fields.rack_id.map_or("", |span| span.text(&self.frame))
    }

    /// The cluster the replica believes in.
    #[must_use]
    pub fn cluster_id(&self) -> Option<&str> {
        self.fields.cluster_id.map(|span| span.text(&self.frame))
    }

    /// What is in our private tagged field.
    #[must_use]
    pub fn private_field(&self) -> Option<Bytes> {
        self.fields.private.map(|span| span.slice(&self.frame))
    }

    /// Partitions of all topics.
    #[must_use]
    pub fn partition_count(&self) -> usize {
        self.partitions.len()
    }

    /// The topics in the order of the request.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = FetchTopic<'_>> {
        self.topics.iter().map(|entry| FetchTopic {
            topic: entry.topic(&self.frame),
            partitions: &self.partitions[entry.partitions.clone()],
        })
    }

    /// What the session shall no longer have.
    pub fn forgotten_topics(&self) -> impl ExactSizeIterator<Item = ForgottenTopic<'_>> {
        self.forgotten_topics.iter().map(|entry| ForgottenTopic {
            topic: entry.topic(&self.frame),
            partitions: &self.forgotten_partitions[entry.partitions.clone()],
        })
    }
}

impl Fields {
    fn read_first(&mut self, r: &mut Reader<'_>, version: i16) -> Result<(), WireError> {
        if version < REPLICA_STATE_FROM {
            self.replica_id = r.i32()?;
        }
        self.max_wait_ms = r.i32()?;
        self.min_bytes = r.i32()?;
        self.max_bytes = r.i32()?;
        self.isolation = match r.i8()? {
            0 => Isolation::ReadUncommitted,
            1 => Isolation::ReadCommitted,
            other => return Err(WireError::Value(i64::from(other))),
        };
        if version >= 7 {
            self.session_id = r.i32()?;
            self.session_epoch = r.i32()?;
        }
        Ok(())
    }

    fn read_tagged(&mut self, tag: u32, r: &mut Reader<'_>, version: i16) -> Result<Tagged, WireError> {
        match tag {
            0 => self.cluster_id = nullable_span(r)?,
            1 if version >= REPLICA_STATE_FROM => {
                self.replica_id = r.i32()?;
                self.replica_epoch = r.i64()?;
                r.skip_tagged()?;
            }
            PRIVATE_TAG if version >= PRIVATE_FROM => {
                if let Some(len) = r.nullable_count(1)? {
                    r.take(len)?;
                    self.private = Some(Span::behind(r, len)?);
                }
            }
            _ => return Ok(Tagged::Unknown),
        }
        Ok(Tagged::Known)
    }
}

fn topic_form(version: i16) -> TopicForm {
    if version >= TOPIC_ID_FROM { TopicForm::Id } else { TopicForm::Name }
}

fn read_partition(r: &mut Reader<'_>, version: i16) -> Result<FetchPartition, WireError> {
    let mut partition = FetchPartition {
        index: r.i32()?,
        current_leader_epoch: if version >= 9 { LeaderEpoch::from_wire(r.i32()?) } else { None },
        fetch_offset: r.i64()?,
        last_fetched_epoch: if version >= 12 { LeaderEpoch::from_wire(r.i32()?) } else { None },
        log_start_offset: if version >= 5 { Offset::from_wire(r.i64()?) } else { None },
        partition_max_bytes: r.i32()?,
        replica_directory_id: Uuid::ZERO,
        high_watermark: None,
    };
    r.tagged(|tag, r| {
        match tag {
            0 if version >= 17 => partition.replica_directory_id = r.uuid()?,
            // The largest number says "not supported", like the field's absence.
            1 if version >= 18 => partition.high_watermark = Offset::from_wire(r.i64()?).filter(|o| o.get() < i64::MAX),
            _ => return Ok(Tagged::Unknown),
        }
        Ok(Tagged::Known)
    })?;
    Ok(partition)
}

#[cfg(test)]
mod tests;
