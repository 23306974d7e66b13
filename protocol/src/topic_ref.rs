//! A topic as Produce and Fetch call it: by name in old versions, by id in new ones.
//!
//! Shared by the borrowed views of both requests and by the writer of Fetch responses. Pure.

use std::ops::Range;

use bytes::Bytes;

use crate::codec::{Reader, WireError};
use crate::ids::TopicId;

/// Name or id of a topic, borrowed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TopicRef<'a> {
    /// By name.
    Name(&'a str),
    /// By id.
    Id(TopicId),
}

/// How one version of a request calls topics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TopicForm {
    Name,
    Id,
}

/// A range of a frame. Frames are below 2 GiB, so half the size of a `Range<usize>` is enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// The `len` bytes in front of the reader's position.
    pub(crate) fn behind(r: &Reader<'_>, len: usize) -> Result<Self, WireError> {
        let end = u32::try_from(r.position()).map_err(|_| WireError::TooLarge(r.position()))?;
        let len = u32::try_from(len).map_err(|_| WireError::TooLarge(len))?;
        Ok(Self { start: end - len, end })
    }

    pub(crate) fn range(self) -> Range<usize> {
        let widen = |value: u32| usize::try_from(value).expect("usize has at least 32 bits");
        widen(self.start)..widen(self.end)
    }

    pub(crate) fn slice(self, frame: &Bytes) -> Bytes {
        frame.slice(self.range())
    }

    /// The text of a span that was read as a string.
    pub(crate) fn text(self, frame: &Bytes) -> &str {
        std::str::from_utf8(&frame[self.range()]).expect("the reader checked that it is UTF-8")
    }
}

/// A string's place in the frame, or null.
pub(crate) fn nullable_span(r: &mut Reader<'_>) -> Result<Option<Span>, WireError> {
    match r.nullable_str()? {
        None => Ok(None),
        Some(text) => Span::behind(r, text.len()).map(Some),
    }
}

/// One topic of a view: what it is called, and which of the flat list of partitions are its own.
#[derive(Clone, Debug)]
pub(crate) struct TopicEntry {
    name: TopicName,
    /// In the view's list of partitions.
    pub(crate) partitions: Range<usize>,
}

#[derive(Clone, Copy, Debug)]
enum TopicName {
    Span(Span),
    Id(TopicId),
}

impl TopicEntry {
    /// Reads what the topic is called; its partitions are set once they are read.
    pub(crate) fn read(r: &mut Reader<'_>, form: TopicForm) -> Result<Self, WireError> {
        let name = match form {
            TopicForm::Name => TopicName::Span(nullable_span(r)?.ok_or(WireError::Null)?),
            TopicForm::Id => TopicName::Id(r.uuid()?),
        };
        Ok(Self { name, partitions: 0..0 })
    }

    pub(crate) fn topic<'a>(&self, frame: &'a Bytes) -> TopicRef<'a> {
        match self.name {
            TopicName::Span(span) => TopicRef::Name(span.text(frame)),
            TopicName::Id(id) => TopicRef::Id(id),
        }
    }
}

/// Partitions one request may name. Kafka's brokers carry a few thousand each; the bound keeps a frame of 100 MiB full
/// of six-byte partitions from becoming a gigabyte of entries. More is refused as malformed.
pub const PARTITIONS_MAX: usize = 1 << 18;

/// Entries a view keeps room for between two requests of one connection.
const ENTRIES_KEPT: usize = 1024;

/// Empties a view's list, and gives memory back that only an unusual request needed.
pub(crate) fn empty<T>(list: &mut Vec<T>) {
    list.clear();
    list.shrink_to(ENTRIES_KEPT);
}

/// Checks a list's new length against [`PARTITIONS_MAX`].
pub(crate) fn check_partitions(count: usize) -> Result<(), WireError> {
    if count > PARTITIONS_MAX { Err(WireError::TooLarge(count)) } else { Ok(()) }
}
