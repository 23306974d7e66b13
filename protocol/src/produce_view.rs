//! A Produce request, versions 3 to 13, as places in its frame.
//!
//! ```text
//! transactional_id nullable string · acks i16 · timeout_ms i32 · topics [
//!   name string (3..=12) or topic_id uuid (13) · partitions [ index i32 · records nullable bytes · tags ] · tags ] · tags
//! ```
//! Compact and tagged from version 9. Versions 0 to 2 are listed for old clients but refused here.
//!
//! Path: from the connection's frame to the owner shards; the first step of a produced batch. Pure.
//!
//! Cost: none per partition but 16 bytes in a list that is reused by the next request; records are neither read nor
//! copied. A view keeps its frame alive until it is cleared.

use std::ops::RangeInclusive;

use bytes::Bytes;

use crate::codec::{Form, Reader, WireError};
use crate::topic_ref::{Span, TopicEntry, TopicForm, TopicRef, check_partitions, empty, nullable_span};

/// Versions this view reads.
pub const PRODUCE_VERSIONS: RangeInclusive<i16> = 3..=13;
const COMPACT_FROM: i16 = 9;
const TOPIC_ID_FROM: i16 = 13;

/// Which replicas must hold a batch before it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acks {
    /// 0: none; there is no response.
    None,
    /// 1: the leader.
    Leader,
    /// -1: all in sync.
    All,
}

impl Acks {
    /// From the wire; `None` is INVALID_REQUIRED_ACKS.
    #[must_use]
    pub const fn from_wire(value: i16) -> Option<Self> {
        match value {
            0 => Some(Self::None),
            1 => Some(Self::Leader),
            -1 => Some(Self::All),
            _ => None,
        }
    }
}

/// See the module. One per connection, filled by each request.
#[derive(Debug, Default)]
pub struct ProduceView {
    frame: Bytes,
    acks: i16,
    timeout_ms: i32,
    transactional_id: Option<Span>,
    topics: Vec<TopicEntry>,
    partitions: Vec<PartitionEntry>,
}

#[derive(Clone, Copy, Debug)]
struct PartitionEntry {
    index: i32,
    records: Option<Span>,
}

/// One topic of the request.
#[derive(Clone, Copy, Debug)]
pub struct ProduceTopic<'a> {
    view: &'a ProduceView,
    entry: &'a TopicEntry,
}

/// One partition of the request.
#[derive(Clone, Copy, Debug)]
pub struct ProducePartition<'a> {
    frame: &'a Bytes,
    entry: PartitionEntry,
}

impl ProduceView {
    /// A view of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the request whose body starts at byte `body_at` of `frame` and ends with it. What the view held before is
    /// dropped; after an error it holds nothing.
    ///
    /// # Errors
    /// `Version` outside [`PRODUCE_VERSIONS`]; else as the fields, `TooLarge` for more partitions than
    /// [`PARTITIONS_MAX`](crate::topic_ref::PARTITIONS_MAX), `Trailing`.
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
        self.transactional_id = None;
        empty(&mut self.topics);
        empty(&mut self.partitions);
    }

    fn fill(&mut self, frame: &Bytes, body_at: usize, version: i16) -> Result<(), WireError> {
        if !PRODUCE_VERSIONS.contains(&version) {
            return Err(WireError::Version(version));
        }
        let r = &mut Reader::new(frame);
        r.take(body_at)?;
        r.set_form(Form::of(version, COMPACT_FROM));
        let topic_form = if version >= TOPIC_ID_FROM { TopicForm::Id } else { TopicForm::Name };
        self.transactional_id = nullable_span(r)?;
        self.acks = r.i16()?;
        self.timeout_ms = r.i32()?;
        // A topic takes at least its name's length (or id) and its count.
        for _ in 0..r.count(2)? {
            self.topic(r, topic_form)?;
        }
        r.skip_tagged()?;
        r.end()
    }

    fn topic(&mut self, r: &mut Reader<'_>, form: TopicForm) -> Result<(), WireError> {
        let mut topic = TopicEntry::read(r, form)?;
        let first = self.partitions.len();
        // A partition takes at least its index and its length.
        let count = r.count(5)?;
        check_partitions(first + count)?;
        for _ in 0..count {
            let index = r.i32()?;
            let records = match r.nullable_count(1)? {
                None => None,
                Some(len) => {
                    r.take(len)?;
                    Some(Span::behind(r, len)?)
                }
            };
            r.skip_tagged()?;
            self.partitions.push(PartitionEntry { index, records });
        }
        r.skip_tagged()?;
        topic.partitions = first..self.partitions.len();
        check_partitions(self.topics.len() + 1)?;
        self.topics.push(topic);
        Ok(())
    }

    /// Which replicas must hold the batches; `None` is INVALID_REQUIRED_ACKS.
    #[must_use]
    pub fn acks(&self) -> Option<Acks> {
        Acks::from_wire(self.acks)
    }

    /// How long to wait for them, in ms.
    #[must_use]
    pub fn timeout_ms(&self) -> i32 {
        self.timeout_ms
    }

    /// The producer's transaction, if it has one.
    #[must_use]
    pub fn transactional_id(&self) -> Option<&str> {
        self.transactional_id.map(|span| span.text(&self.frame))
    }

    /// Partitions of all topics.
    #[must_use]
    pub fn partition_count(&self) -> usize {
        self.partitions.len()
    }

    /// The topics in the order of the request, in which the response names them too.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = ProduceTopic<'_>> {
        self.topics.iter().map(|entry| ProduceTopic { view: self, entry })
    }
}

impl<'a> ProduceTopic<'a> {
    /// Its name or id.
    #[must_use]
    pub fn topic(&self) -> TopicRef<'a> {
        self.entry.topic(&self.view.frame)
    }

    /// Its partitions in the order of the request.
    pub fn partitions(&self) -> impl ExactSizeIterator<Item = ProducePartition<'a>> + use<'a> {
        let view = self.view;
        view.partitions[self.entry.partitions.clone()]
            .iter()
            .map(move |&entry| ProducePartition { frame: &view.frame, entry })
    }
}

impl<'a> ProducePartition<'a> {
    /// Its number as sent; may be negative, which is an unknown partition.
    #[must_use]
    pub fn index(&self) -> i32 {
        self.entry.index
    }

    /// The records field, a slice that keeps the frame alive; a null field is an empty one.
    #[must_use]
    pub fn records(&self) -> Bytes {
        self.entry.records.map_or_else(Bytes::new, |span| span.slice(self.frame))
    }

    /// The records field, borrowed.
    #[must_use]
    pub fn records_bytes(&self) -> &'a [u8] {
        self.entry.records.map_or(&[], |span| &self.frame[span.range()])
    }
}

#[cfg(test)]
mod tests;
