//! The two sparse indexes of one segment: offset to position, timestamp to offset.
//!
//! Pure. The active segment's indexes live in memory and reach the disk at roll, checkpoint and clean stop, in Kafka's
//! layout, so that Kafka's tools read them. Both may be rebuilt from the log at any time; a damaged file is no loss.
//! ```text
//! .index      relative offset i32 BE | position i32 BE             8 bytes an entry
//! .timeindex  timestamp ms i64 BE    | relative offset i32 BE     12 bytes an entry
//! ```
//! An offset entry names the *last* offset of a batch and the position where that batch begins. A time entry (t, o) says:
//! no batch up to the one that ends at o has a timestamp above t. Invariant: entries rise strictly in offset, positions and
//! timestamps never fall.

use sakia_protocol::ids::Offset;

use crate::log::limits::INDEX_INTERVAL_BYTES;

/// Bytes of one entry of the offset index.
pub const OFFSET_ENTRY_BYTES: usize = 8;
/// Bytes of one entry of the time index.
pub const TIME_ENTRY_BYTES: usize = 12;

/// A segment of this length without an offset entry is suspicious.
const FEW_BATCHES_BYTES: u32 = 64 * 1024;

/// What the indexes need to know of one batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexedBatch {
    /// Offset of its last record.
    pub last: Offset,
    /// Where it begins in the segment.
    pub position: u32,
    /// Its length in bytes.
    pub len: u32,
    /// The largest timestamp in it (ms), or -1.
    pub max_timestamp_ms: i64,
}

/// The largest timestamp of a segment and the last offset of the batch that holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MaxTimestamp {
    /// Milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Last offset of the first batch with this timestamp.
    pub offset: Offset,
}

/// Why an index file is not believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IndexDamage {
    /// Not a whole number of entries.
    #[error("the length is no multiple of the entry size")]
    Length,
    /// No entry, for a segment that should have some.
    #[error("there is no entry")]
    Empty,
    /// An offset, position or timestamp goes back or is negative.
    #[error("an entry goes back")]
    Order,
    /// An entry lies behind the end of the segment.
    #[error("an entry lies behind the end of the segment")]
    BehindEnd,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OffsetEntry {
    relative: u32,
    position: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(Rust, packed(4))]
struct TimeEntry {
    timestamp_ms: i64,
    relative: u32,
}

/// Both indexes of one segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentIndex {
    base: Offset,
    offsets: Vec<OffsetEntry>,
    times: Vec<TimeEntry>,
    bytes_since_entry: u32,
    max_timestamp: Option<MaxTimestamp>,
}

impl SegmentIndex {
    /// Empty indexes of a segment that begins at `base`.
    #[must_use]
    pub fn new(base: Offset) -> Self {
        Self { base, offsets: Vec::new(), times: Vec::new(), bytes_since_entry: 0, max_timestamp: None }
    }

    /// The segment's base offset.
    #[must_use]
    pub fn base(&self) -> Offset {
        self.base
    }

    /// Takes note of the next batch. As in Kafka, an entry is made when more than the interval lies behind the last one.
    pub fn add(&mut self, batch: IndexedBatch) {
        if batch.max_timestamp_ms >= 0 && self.max_timestamp.is_none_or(|max| batch.max_timestamp_ms > max.timestamp_ms)
        {
            self.max_timestamp = Some(MaxTimestamp { timestamp_ms: batch.max_timestamp_ms, offset: batch.last });
        }
        if self.bytes_since_entry > INDEX_INTERVAL_BYTES {
            let entry = OffsetEntry { relative: self.relative(batch.last), position: batch.position };
            if let Some(last) = self.offsets.last() {
                assert!(last.relative < entry.relative, "offsets rise in a segment");
                assert!(last.position < entry.position, "positions rise in a segment");
            }
            self.offsets.push(entry);
            self.add_time_entry();
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry = self.bytes_since_entry.saturating_add(batch.len);
    }

    /// Where to begin a scan for `offset`: the start of a batch that ends at or before it, or 0.
    #[must_use]
    pub fn position_before(&self, offset: Offset) -> u32 {
        let Some(delta) = offset.since(self.base) else { return 0 };
        let found = self.offsets.partition_point(|entry| i64::from(entry.relative) <= delta.get());
        found.checked_sub(1).map_or(0, |at| self.offsets[at].position)
    }

    /// The batch start furthest into the segment that an entry names at or below `position`, for jumps towards a bound;
    /// with the last offset of that batch.
    #[must_use]
    pub fn entry_at_or_below(&self, position: u32) -> Option<(Offset, u32)> {
        let found = self.offsets.partition_point(|entry| entry.position <= position);
        let entry = self.offsets[found.checked_sub(1)?];
        Some((self.absolute(entry.relative), entry.position))
    }

    /// The last offset named by an entry and the start of its batch: where recovery of a part may begin.
    #[must_use]
    pub fn last_entry(&self) -> Option<(Offset, u32)> {
        self.offsets.last().map(|entry| (self.absolute(entry.relative), entry.position))
    }

    /// An offset up to which (inclusive) no batch has a timestamp above `timestamp_ms`; the segment's base if unknown.
    #[must_use]
    pub fn offset_before_timestamp(&self, timestamp_ms: i64) -> Offset {
        let found = self.times.partition_point(|entry| entry.timestamp_ms <= timestamp_ms);
        found.checked_sub(1).map_or(self.base, |at| self.absolute(self.times[at].relative))
    }

    /// The largest timestamp so far.
    #[must_use]
    pub fn max_timestamp(&self) -> Option<MaxTimestamp> {
        self.max_timestamp
    }

    /// Memory held by the entries, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.offsets.capacity() * size_of::<OffsetEntry>() + self.times.capacity() * size_of::<TimeEntry>()
    }

    /// Forgets every entry at or behind `position`. The largest timestamp is that of the remaining entries; the caller adds
    /// the batches behind `last_entry` again, which is at most one interval and one batch.
    pub fn cut(&mut self, position: u32) {
        let kept = self.offsets.partition_point(|entry| entry.position < position);
        self.offsets.truncate(kept);
        let last = self.offsets.last().copied();
        let kept_times = last.map_or(0, |last| self.times.partition_point(|entry| entry.relative <= last.relative));
        self.times.truncate(kept_times);
        self.max_timestamp = self.last_time_entry();
        self.bytes_since_entry = 0;
    }

    /// Adds a batch that `last_entry` may already name: used when a scan begins at that very batch.
    pub fn add_again(&mut self, batch: IndexedBatch) {
        if self.last_entry().is_some_and(|(_, position)| position == batch.position) {
            self.bytes_since_entry = batch.len;
            return;
        }
        self.add(batch);
    }

    /// The file `.index`.
    #[must_use]
    pub fn encode_offsets(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.offsets.len() * OFFSET_ENTRY_BYTES);
        for entry in &self.offsets {
            bytes.extend_from_slice(&entry.relative.to_be_bytes());
            bytes.extend_from_slice(&entry.position.to_be_bytes());
        }
        bytes
    }

    /// The file `.timeindex`. Its last entry is the largest timestamp of the whole segment, as Kafka writes it at roll.
    #[must_use]
    pub fn encode_times(&self) -> Vec<u8> {
        let mut complete = self.times.clone();
        if let Some(max) = self.max_timestamp {
            let entry = TimeEntry { timestamp_ms: max.timestamp_ms, relative: self.relative(max.offset) };
            if complete.last().is_none_or(|last| { last.relative } < entry.relative) {
                complete.push(entry);
            }
        }
        let mut bytes = Vec::with_capacity(complete.len() * TIME_ENTRY_BYTES);
        for entry in &complete {
            bytes.extend_from_slice(&{ entry.timestamp_ms }.to_be_bytes());
            bytes.extend_from_slice(&{ entry.relative }.to_be_bytes());
        }
        bytes
    }

    /// Reads both files back and checks them against the segment: `len` bytes of whole batches.
    ///
    /// # Errors
    /// What is wrong with them; the caller then rebuilds the index from the log.
    pub fn decode(base: Offset, len: u32, offsets: &[u8], times: &[u8]) -> Result<Self, IndexDamage> {
        let offsets = decode_offsets(offsets, len)?;
        let times = decode_times(times)?;
        // Only a segment without timestamps has no time entry, only one of few batches no offset entry: those are read again.
        if (times.is_empty() && len > 0) || (offsets.is_empty() && len > FEW_BATCHES_BYTES) {
            return Err(IndexDamage::Empty);
        }
        let mut index = Self { base, offsets, times, bytes_since_entry: 0, max_timestamp: None };
        index.max_timestamp = index.last_time_entry();
        let indexed = index.last_entry().map_or(0, |(_, position)| position);
        index.bytes_since_entry = len - indexed;
        Ok(index)
    }

    fn add_time_entry(&mut self) {
        let Some(max) = self.max_timestamp else { return };
        let entry = TimeEntry { timestamp_ms: max.timestamp_ms, relative: self.relative(max.offset) };
        if self.times.last().is_none_or(|last| { last.timestamp_ms } < entry.timestamp_ms) {
            self.times.push(entry);
        }
    }

    fn last_time_entry(&self) -> Option<MaxTimestamp> {
        let last = self.times.last()?;
        Some(MaxTimestamp { timestamp_ms: last.timestamp_ms, offset: self.absolute(last.relative) })
    }

    fn relative(&self, offset: Offset) -> u32 {
        let delta = offset.since(self.base).expect("a segment holds no offset below its base");
        u32::try_from(delta.get()).expect("a segment is rolled before its relative offsets leave 31 bits")
    }

    fn absolute(&self, relative: u32) -> Offset {
        Offset::new(self.base.get() + i64::from(relative))
    }
}

fn decode_offsets(bytes: &[u8], len: u32) -> Result<Vec<OffsetEntry>, IndexDamage> {
    let (entries, rest) = bytes.as_chunks::<OFFSET_ENTRY_BYTES>();
    if !rest.is_empty() {
        return Err(IndexDamage::Length);
    }
    let mut decoded: Vec<OffsetEntry> = Vec::with_capacity(entries.len());
    for &[a, b, c, d, e, f, g, h] in entries {
        let entry =
            OffsetEntry { relative: u32::from_be_bytes([a, b, c, d]), position: u32::from_be_bytes([e, f, g, h]) };
        let rises = decoded.last().is_none_or(|last| last.relative < entry.relative && last.position < entry.position);
        if !rises || entry.relative > i32::MAX.unsigned_abs() {
            return Err(IndexDamage::Order);
        }
        if entry.position >= len {
            return Err(IndexDamage::BehindEnd);
        }
        decoded.push(entry);
    }
    Ok(decoded)
}

fn decode_times(bytes: &[u8]) -> Result<Vec<TimeEntry>, IndexDamage> {
    let (entries, rest) = bytes.as_chunks::<TIME_ENTRY_BYTES>();
    if !rest.is_empty() {
        return Err(IndexDamage::Length);
    }
    let mut decoded: Vec<TimeEntry> = Vec::with_capacity(entries.len());
    for &[a, b, c, d, e, f, g, h, i, j, k, l] in entries {
        let entry = TimeEntry {
            timestamp_ms: i64::from_be_bytes([a, b, c, d, e, f, g, h]),
            relative: u32::from_be_bytes([i, j, k, l]),
        };
        let rises =
            decoded.last().is_none_or(|last| last.timestamp_ms <= entry.timestamp_ms && last.relative < entry.relative);
        if !rises || entry.timestamp_ms < 0 || entry.relative > i32::MAX.unsigned_abs() {
            return Err(IndexDamage::Order);
        }
        decoded.push(entry);
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(count: i64) -> SegmentIndex {
        let mut index = SegmentIndex::new(Offset::new(1000));
        for number in 0..count {
            index.add(batch(number));
        }
        index
    }

    fn batch(number: i64) -> IndexedBatch {
        IndexedBatch {
            last: Offset::new(1000 + number * 3 + 2),
            position: u32::try_from(number * 1500).unwrap(),
            len: 1500,
            max_timestamp_ms: 5000 + (number % 7) * 10 + number,
        }
    }

    #[test]
    fn a_scan_never_begins_behind_the_batch_that_holds_the_offset() {
        let index = filled(40);
        for offset in 1000..1120 {
            let start = i64::from(index.position_before(Offset::new(offset)));
            let holder = (offset - 1000) / 3 * 1500;
            assert!(start <= holder && holder - start <= 4096 + 1500 + 1500, "{offset}: {start} {holder}");
        }
        assert_eq!(index.position_before(Offset::new(3)), 0);
    }

    #[test]
    fn entries_name_last_offset_and_start_of_a_batch_as_kafka_writes_them() {
        let bytes = filled(8).encode_offsets();
        assert_eq!(bytes, [0, 0, 0, 11, 0, 0, 0x11, 0x94, 0, 0, 0, 20, 0, 0, 0x23, 0x28]);
    }

    #[test]
    fn no_batch_up_to_the_offset_found_is_younger_than_the_timestamp() {
        let index = filled(40);
        for timestamp in 4990..5110 {
            let upto = index.offset_before_timestamp(timestamp);
            for number in 0..40 {
                let batch = batch(number);
                if batch.last <= upto && upto > Offset::new(1000) {
                    assert!(batch.max_timestamp_ms <= timestamp);
                }
            }
        }
    }

    #[test]
    fn files_read_back_are_the_same_index() {
        for count in [0, 1, 3, 4, 40] {
            let index = filled(count);
            let len = u32::try_from(count * 1500).unwrap();
            let back =
                SegmentIndex::decode(Offset::new(1000), len, &index.encode_offsets(), &index.encode_times()).unwrap();
            assert_eq!(back.max_timestamp(), index.max_timestamp());
            assert_eq!(back.offsets, index.offsets);
            assert!(back.times.starts_with(&index.times));
        }
    }

    #[test]
    fn damaged_files_are_recognised() {
        let index = filled(40);
        let (offsets, times) = (index.encode_offsets(), index.encode_times());
        let read = |offsets: &[u8], times: &[u8], len| SegmentIndex::decode(Offset::new(1000), len, offsets, times);
        assert_eq!(read(&offsets[..9], &times, 60_000), Err(IndexDamage::Length));
        assert_eq!(read(&offsets, &times[..13], 60_000), Err(IndexDamage::Length));
        assert_eq!(read(&offsets, &times, 9000), Err(IndexDamage::BehindEnd));
        assert_eq!(read(&[0; 16], &times, 60_000), Err(IndexDamage::Order));
        assert_eq!(read(&offsets, &[], 60_000), Err(IndexDamage::Empty));
        assert_eq!(read(&[], &times, 1 << 20), Err(IndexDamage::Empty));
        assert_eq!(read(&offsets, &[0xff; 12], 60_000), Err(IndexDamage::Order));
    }

    #[test]
    fn a_cut_index_completed_by_a_scan_equals_one_that_never_held_more() {
        for kept in 0..40_i64 {
            let mut index = filled(40);
            index.cut(u32::try_from(kept * 1500).unwrap());
            let from = index.last_entry().map_or(0, |(_, position)| i64::from(position) / 1500);
            for number in from..kept {
                index.add_again(batch(number));
            }
            assert_eq!(index, filled(kept), "{kept}");
        }
    }
}
