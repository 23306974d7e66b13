//! Finding the offset that belongs to a time (ListOffsets by timestamp).
//!
//! Path: segments by their largest timestamp, then the time index, then the batches from there on, then the records of one
//! batch. A compressed batch is decompressed under a bound.

use bytes::Bytes;
use sakia_protocol::batch::{BatchHeader, BatchRecords};
use sakia_protocol::ids::Offset;

use crate::log::limits::{BATCH_BYTES_MAX, SCAN_BYTES};
use crate::log::{AtLeastOne, Log, LogError};

/// What is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimestampQuery {
    /// The first record at or after this time (ms).
    At(i64),
    /// The first record with the largest time of all.
    Max,
}

impl Log {
    /// The time (ms) and offset of the record asked for, among those from `start` on and below `below`; `None` if there is none.
    ///
    /// # Errors
    /// As `read`.
    pub async fn offset_for_timestamp(
        &self,
        query: TimestampQuery,
        below: Offset,
    ) -> Result<Option<(i64, Offset)>, LogError> {
        match query {
            TimestampQuery::At(timestamp_ms) => self.first_at_or_after(timestamp_ms, below).await,
            TimestampQuery::Max => self.largest(below).await,
        }
    }

    async fn first_at_or_after(&self, timestamp_ms: i64, below: Offset) -> Result<Option<(i64, Offset)>, LogError> {
        for base in self.segment_bases() {
            let Some(max_ms) = self.max_timestamp_of(base).await? else { continue };
            if max_ms < timestamp_ms {
                continue;
            }
            let from = {
                let state = self.0.state.borrow();
                let index = state.segment(base).and_then(|segment| segment.index.as_ref());
                index.map_or(base, |index| index.offset_before_timestamp(timestamp_ms))
            };
            if let Some(found) = self.scan_for(from.max(self.start()), timestamp_ms, below).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    async fn largest(&self, below: Offset) -> Result<Option<(i64, Offset)>, LogError> {
        let mut largest: Option<(i64, Offset)> = None;
        for base in self.segment_bases() {
            let Some(max_ms) = self.max_timestamp_of(base).await? else { continue };
            if largest.is_none_or(|(known, _)| max_ms > known) {
                largest = Some((max_ms, base));
            }
        }
        let Some((max_ms, base)) = largest else { return Ok(None) };
        let from = {
            let state = self.0.state.borrow();
            let max = state.segment(base).and_then(|segment| segment.max_timestamp);
            max.map_or(base, |max| max.offset)
        };
        self.scan_for(from.max(self.start()), max_ms, below).await
    }

    /// The first record from `from` on, and below `below`, with at least this time.
    async fn scan_for(
        &self,
        mut from: Offset,
        timestamp_ms: i64,
        below: Offset,
    ) -> Result<Option<(i64, Offset)>, LogError> {
        loop {
            let read = self.read(from, below, SCAN_BYTES, AtLeastOne::Yes).await?;
            if read.is_empty() {
                return Ok(None);
            }
            for piece in &read.bytes {
                if let Some(found) = self.search_piece(piece, timestamp_ms)? {
                    return Ok(Some(found));
                }
            }
            from = read.next;
        }
    }

    fn search_piece(&self, piece: &Bytes, timestamp_ms: i64) -> Result<Option<(i64, Offset)>, LogError> {
        let mut at = 0;
        let start = self.start();
        while at < piece.len() {
            let batch = BatchHeader::parse(&piece[at..]).expect("a read gives whole batches");
            if batch.max_timestamp_ms >= timestamp_ms
                && let Some(found) =
                    search_batch(&piece[at..], timestamp_ms, start).map_err(|what| self.broken(&batch, what))?
            {
                return Ok(Some(found));
            }
            at += batch.len;
        }
        Ok(None)
    }

    fn broken(&self, batch: &BatchHeader, what: String) -> LogError {
        let base = self.0.state.borrow().segment_at(batch.base_offset).base;
        LogError::Damaged { file: self.segment_path(base), position: 0, what }
    }

    fn segment_bases(&self) -> Vec<Offset> {
        self.0.state.borrow().segments.iter().map(|segment| segment.base).collect()
    }

    /// The largest timestamp of a segment; reads its index if it is not known yet. `None` for a segment without timestamps, or one
    /// that has gone meanwhile.
    pub(super) async fn max_timestamp_of(&self, base: Offset) -> Result<Option<i64>, LogError> {
        let known = self.0.state.borrow().segment(base).map(|segment| segment.max_timestamp_known);
        match known {
            None => return Ok(None),
            Some(true) => {}
            Some(false) => {
                self.readable(base).await?;
            }
        }
        let state = self.0.state.borrow();
        Ok(state.segment(base).and_then(|segment| segment.max_timestamp).map(|max| max.timestamp_ms))
    }
}

fn search_batch(bytes: &[u8], timestamp_ms: i64, start: Offset) -> Result<Option<(i64, Offset)>, String> {
    let records = BatchRecords::open(bytes, BATCH_BYTES_MAX).map_err(|error| error.to_string())?;
    for record in records.iter() {
        let record = record.map_err(|error| error.to_string())?;
        if record.timestamp_ms >= timestamp_ms && record.offset >= start {
            return Ok(Some((record.timestamp_ms, record.offset)));
        }
    }
    Ok(None)
}
