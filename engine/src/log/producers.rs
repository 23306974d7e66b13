//! What one partition knows of its idempotent producers: which batch may come next, and which was already here.
//!
//! Pure. Path: checked before a batch is copied into the tail, recorded after. Rebuilt from a snapshot and the batch headers
//! behind it, so it always equals what a replay of the log gives (`snapshot.rs` is the file).
//! The rules are Kafka's: the last five batches of a producer are remembered, and an exact repetition of one is answered
//! with the original's offsets (R4: when the original would be); an older epoch is fenced; in the same epoch the sequence
//! follows on, from 2^31-1 to 0; a new epoch starts at 0; of an unknown producer any sequence is taken.
//!
//! Invariant: at most `PRODUCER_IDS_MAX` producers, at most five batches each, oldest first.

use std::collections::BTreeMap;

use sakia_protocol::batch::{BatchHeader, BatchProducer};
use sakia_protocol::ids::{Offset, OffsetDelta, ProducerEpoch, ProducerId};
use smallvec::SmallVec;

use crate::log::limits::{PRODUCER_IDS_MAX, PRODUCER_WINDOW_BATCHES};

/// One batch of a producer that stands in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrittenBatch {
    /// Sequence number of its last record.
    pub last_sequence: i32,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Last offset minus base offset.
    pub offset_delta: OffsetDelta,
    /// Its largest timestamp (ms).
    pub timestamp_ms: i64,
}

impl WrittenBatch {
    /// Offset of its first record.
    #[must_use]
    pub fn base(&self) -> Offset {
        Offset::new(self.last_offset.get() - self.offset_delta.get())
    }

    /// Offset behind it.
    #[must_use]
    pub fn next(&self) -> Offset {
        self.last_offset.next()
    }

    fn first_sequence(&self) -> i32 {
        let first = (i64::from(self.last_sequence) - self.offset_delta.get()).rem_euclid(SEQUENCES);
        i32::try_from(first).expect("a remainder of 2^31 fits")
    }
}

/// One producer as the partition knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Producer {
    /// The newest epoch seen.
    pub epoch: ProducerEpoch,
    /// Its last batches in that epoch, oldest first; empty after a marker that raised the epoch.
    pub window: SmallVec<[WrittenBatch; PRODUCER_WINDOW_BATCHES]>,
    /// Timestamp of the last batch or marker (ms); decides when the producer is forgotten.
    pub last_timestamp_ms: i64,
    /// Epoch of the transaction coordinator that wrote the last marker; -1 if none did.
    pub coordinator_epoch: i32,
    /// First offset of the transaction that is open.
    pub open_transaction: Option<Offset>,
}

impl Producer {
    fn fresh(epoch: ProducerEpoch) -> Self {
        let window = SmallVec::new();
        Self { epoch, window, last_timestamp_ms: -1, coordinator_epoch: -1, open_transaction: None }
    }

    fn raise_to(&mut self, epoch: ProducerEpoch) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.window.clear();
        }
    }

    fn last_offset(&self) -> Option<Offset> {
        self.window.last().map(|batch| batch.last_offset)
    }
}

/// What to do with a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is new.
    Append,
    /// It stands in the log already; the answer names the original.
    Duplicate(WrittenBatch),
}

/// Why a batch is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProducerError {
    /// `INVALID_PRODUCER_EPOCH` (47).
    #[error("producer {id} wrote with epoch {epoch}, epoch {newest} was seen")]
    Fenced {
        /// Whose batch.
        id: ProducerId,
        /// The batch's epoch.
        epoch: ProducerEpoch,
        /// The newest one.
        newest: ProducerEpoch,
    },
    /// `OUT_OF_ORDER_SEQUENCE_NUMBER` (45).
    #[error("producer {id} wrote sequence {sequence}, {expected} was due")]
    OutOfOrder {
        /// Whose batch.
        id: ProducerId,
        /// Sequence of its first record.
        sequence: i32,
        /// The one that may come.
        expected: i32,
    },
    /// `INVALID_TXN_STATE` (48): a batch outside the transaction that this producer has open.
    #[error("producer {id} wrote a plain batch while its transaction is open")]
    InsideTransaction {
        /// Whose batch.
        id: ProducerId,
    },
}

/// Sequence numbers go from 0 to 2^31-1 and begin again.
const SEQUENCES: i64 = 1 << 31;

/// All producers of one partition.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Producers {
    entries: BTreeMap<ProducerId, Producer>,
}

impl Producers {
    /// Decides about a client's batch. Nothing changes.
    ///
    /// # Errors
    /// The batch must not be appended.
    pub fn check(&self, batch: &BatchHeader) -> Result<Verdict, ProducerError> {
        let Some(BatchProducer { id, epoch, base_sequence: Some(sequence) }) = batch.producer else {
            return Ok(Verdict::Append);
        };
        let Some(known) = self.entries.get(&id) else { return Ok(Verdict::Append) };
        if epoch < known.epoch {
            return Err(ProducerError::Fenced { id, epoch, newest: known.epoch });
        }
        if epoch > known.epoch {
            return in_order(id, sequence, 0);
        }
        let last_sequence = last_sequence(sequence, batch.last_offset_delta);
        let repeated = |old: &&WrittenBatch| old.first_sequence() == sequence && old.last_sequence == last_sequence;
        if let Some(original) = known.window.iter().find(repeated) {
            return Ok(Verdict::Duplicate(*original));
        }
        if known.open_transaction.is_some() && !batch.attributes.is_transactional() {
            return Err(ProducerError::InsideTransaction { id });
        }
        let expected = known.window.last().map_or(0, |last| last_sequence_next(last.last_sequence));
        in_order(id, sequence, expected)
    }

    /// Takes note of a batch that now stands in the log, with its final offsets; also of one that was replicated or read
    /// back, which is not checked again: what stands in the log is the truth.
    pub fn record(&mut self, batch: &BatchHeader) {
        let Some(producer) = batch.producer else { return };
        if batch.attributes.is_control() {
            self.record_marker(batch, producer);
            return;
        }
        let Some(sequence) = producer.base_sequence else { return };
        self.make_room(producer.id);
        let entry = self.entries.entry(producer.id).or_insert_with(|| Producer::fresh(producer.epoch));
        entry.raise_to(producer.epoch);
        if let Some(last) = entry.last_offset() {
            assert!(last < batch.base_offset, "a producer's batches are recorded in the order of the log");
        }
        if entry.window.len() == PRODUCER_WINDOW_BATCHES {
            entry.window.remove(0);
        }
        entry.window.push(WrittenBatch {
            last_sequence: last_sequence(sequence, batch.last_offset_delta),
            last_offset: batch.last_offset(),
            offset_delta: batch.last_offset_delta,
            timestamp_ms: batch.max_timestamp_ms,
        });
        entry.last_timestamp_ms = batch.max_timestamp_ms;
        if batch.attributes.is_transactional() {
            entry.open_transaction.get_or_insert(batch.base_offset);
        }
    }

    fn record_marker(&mut self, batch: &BatchHeader, producer: BatchProducer) {
        self.make_room(producer.id);
        let entry = self.entries.entry(producer.id).or_insert_with(|| Producer::fresh(producer.epoch));
        entry.raise_to(producer.epoch);
        entry.open_transaction = None;
        entry.last_timestamp_ms = batch.max_timestamp_ms;
    }

    /// Forgets producers that wrote nothing for `after_ms`, unless their transaction is open.
    pub fn expire(&mut self, now_ms: i64, after_ms: i64) {
        self.entries.retain(|_, producer| {
            producer.open_transaction.is_some() || now_ms.saturating_sub(producer.last_timestamp_ms) < after_ms
        });
    }

    /// Forgets producers whose last batch lies below `start`. At opening only: a replay from `start` would not know them
    /// either, while a running leader goes on to recognise their repetitions.
    pub fn forget_below(&mut self, start: Offset) {
        self.entries.retain(|_, producer| {
            producer.open_transaction.is_some() || producer.last_offset().is_none_or(|last| last >= start)
        });
    }

    /// The first offset of the oldest open transaction: the last stable offset lies no higher.
    #[must_use]
    pub fn first_open_transaction(&self) -> Option<Offset> {
        self.entries.values().filter_map(|producer| producer.open_transaction).min()
    }

    /// What is known of one producer.
    #[must_use]
    pub fn producer(&self, id: ProducerId) -> Option<&Producer> {
        self.entries.get(&id)
    }

    /// All, by id.
    pub fn iter(&self) -> impl Iterator<Item = (ProducerId, &Producer)> {
        self.entries.iter().map(|(id, producer)| (*id, producer))
    }

    /// How many are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes the longer windows of `recent`, which saw the same last batches.
    pub(super) fn refill(&mut self, recent: &Self) {
        for (id, producer) in &mut self.entries {
            let Some(seen) = recent.entries.get(id) else { continue };
            if seen.epoch == producer.epoch && seen.window.last() == producer.window.last() {
                producer.window.clone_from(&seen.window);
            }
        }
    }

    /// Puts back what a snapshot held.
    pub(super) fn restore(&mut self, id: ProducerId, producer: Producer) {
        self.entries.insert(id, producer);
    }

    /// At the bound the eighth that wrote longest ago goes, so that the search is paid once for many newcomers.
    fn make_room(&mut self, newcomer: ProducerId) {
        if self.entries.len() < PRODUCER_IDS_MAX || self.entries.contains_key(&newcomer) {
            return;
        }
        let mut by_age: Vec<(i64, ProducerId)> =
            self.entries.iter().map(|(id, producer)| (producer.last_timestamp_ms, *id)).collect();
        by_age.sort_unstable();
        for (_, id) in by_age.iter().take(PRODUCER_IDS_MAX / 8) {
            self.entries.remove(id);
        }
    }
}

fn in_order(id: ProducerId, sequence: i32, expected: i32) -> Result<Verdict, ProducerError> {
    if sequence == expected { Ok(Verdict::Append) } else { Err(ProducerError::OutOfOrder { id, sequence, expected }) }
}

fn last_sequence(first: i32, offset_delta: OffsetDelta) -> i32 {
    let last = (i64::from(first) + offset_delta.get()).rem_euclid(SEQUENCES);
    i32::try_from(last).expect("a remainder of 2^31 fits")
}

fn last_sequence_next(last: i32) -> i32 {
    last_sequence(last, OffsetDelta::new(1))
}

#[cfg(test)]
mod tests {
    use sakia_protocol::batch::Attributes;
    use sakia_protocol::ids::LeaderEpoch;

    use super::*;

    fn batch(id: i64, epoch: i16, sequence: i32, records: i64, base: i64) -> BatchHeader {
        BatchHeader {
            base_offset: Offset::new(base),
            len: 100,
            leader_epoch: Some(LeaderEpoch::ZERO),
            crc: 0,
            attributes: Attributes::default(),
            last_offset_delta: OffsetDelta::new(records - 1),
            base_timestamp_ms: 7,
            max_timestamp_ms: base,
            producer: Some(BatchProducer {
                id: ProducerId::new(id),
                epoch: ProducerEpoch::new(epoch),
                base_sequence: Some(sequence),
            }),
            record_count: u32::try_from(records).unwrap(),
        }
    }

    /// Ten batches of ten records: sequences 0..100 at offsets 1000..1100, epoch 3.
    fn ten() -> Producers {
        let mut producers = Producers::default();
        for number in 0..10 {
            producers.record(&batch(5, 3, number * 10, 10, 1000 + i64::from(number) * 10));
        }
        producers
    }

    fn code(answer: Result<Verdict, ProducerError>) -> i16 {
        match answer {
            Ok(_) => 0,
            Err(ProducerError::OutOfOrder { .. }) => 45,
            Err(ProducerError::Fenced { .. }) => 47,
            Err(ProducerError::InsideTransaction { .. }) => 48,
        }
    }

    #[test]
    fn epoch_and_sequence_rules_are_kafkas() {
        let cases = [
            ("the next sequence", batch(5, 3, 100, 4, 0), 0),
            ("a gap", batch(5, 3, 101, 4, 0), 45),
            ("older than the window", batch(5, 3, 40, 10, 0), 45),
            ("part of a batch in the window", batch(5, 3, 90, 5, 0), 45),
            ("an old epoch", batch(5, 2, 100, 1, 0), 47),
            ("an old epoch at zero", batch(5, 2, 0, 1, 0), 47),
            ("a new epoch at zero", batch(5, 4, 0, 1, 0), 0),
            ("a new epoch elsewhere", batch(5, 4, 100, 1, 0), 45),
            ("an unknown producer at any sequence", batch(6, 0, 30, 1, 0), 0),
        ];
        for (what, batch, expected) in cases {
            assert_eq!(code(ten().check(&batch)), expected, "{what}");
        }
    }

    #[test]
    fn each_of_the_last_five_batches_is_answered_with_its_offsets() {
        for number in 5..10 {
            let again = ten().check(&batch(5, 3, number * 10, 10, 0)).unwrap();
            let Verdict::Duplicate(original) = again else { panic!("{number} is a duplicate") };
            assert_eq!(original.base(), Offset::new(1000 + i64::from(number) * 10));
            assert_eq!(original.next(), Offset::new(1010 + i64::from(number) * 10));
        }
    }

    #[test]
    fn a_batch_without_producer_is_always_new() {
        let mut plain = batch(5, 3, 7, 1, 0);
        plain.producer = None;
        assert_eq!(ten().check(&plain), Ok(Verdict::Append));
    }

    #[test]
    fn sequences_wrap_from_the_largest_to_zero() {
        let mut producers = Producers::default();
        producers.record(&batch(5, 0, i32::MAX - 4, 5, 10));
        assert_eq!(code(producers.check(&batch(5, 0, 0, 1, 0))), 0);
        assert_eq!(code(producers.check(&batch(5, 0, i32::MAX, 1, 0))), 45);

        let mut inside = Producers::default();
        inside.record(&batch(5, 0, i32::MAX - 1, 5, 10));
        assert_eq!(code(inside.check(&batch(5, 0, 3, 1, 0))), 0);
        let again = inside.check(&batch(5, 0, i32::MAX - 1, 5, 0)).unwrap();
        assert!(matches!(again, Verdict::Duplicate(original) if original.base() == Offset::new(10)));
    }

    #[test]
    fn a_new_epoch_forgets_the_old_windows() {
        let mut producers = ten();
        producers.record(&batch(5, 4, 0, 10, 1100));
        assert_eq!(code(producers.check(&batch(5, 4, 90, 10, 0))), 45);
        assert_eq!(code(producers.check(&batch(5, 4, 10, 1, 0))), 0);
        assert_eq!(code(producers.check(&batch(5, 3, 90, 10, 0))), 47);
    }

    #[test]
    fn a_plain_batch_inside_an_open_transaction_is_refused_until_the_marker() {
        let mut producers = Producers::default();
        let mut first = batch(5, 0, 0, 1, 10);
        first.attributes = first.attributes.with_transactional();
        producers.record(&first);
        assert_eq!(producers.first_open_transaction(), Some(Offset::new(10)));
        assert_eq!(code(producers.check(&batch(5, 0, 1, 1, 0))), 48);

        let mut marker = batch(5, 0, 0, 1, 11);
        marker.attributes = marker.attributes.with_transactional().with_control();
        marker.producer = marker.producer.map(|producer| BatchProducer { base_sequence: None, ..producer });
        producers.record(&marker);
        assert_eq!(producers.first_open_transaction(), None);
        assert_eq!(code(producers.check(&batch(5, 0, 1, 1, 0))), 0);
    }

    #[test]
    fn a_producer_is_forgotten_when_its_time_has_passed_and_then_starts_anywhere() {
        let mut producers = ten();
        producers.expire(1090 + 86_399_999, 86_400_000);
        assert_eq!(producers.len(), 1);
        producers.expire(1090 + 86_400_000, 86_400_000);
        assert!(producers.is_empty());
        assert_eq!(code(producers.check(&batch(5, 3, 77, 1, 0))), 0);
    }

    #[test]
    fn producers_below_the_log_start_are_forgotten_at_opening() {
        let mut producers = ten();
        producers.forget_below(Offset::new(1099));
        assert_eq!(producers.len(), 1);
        producers.forget_below(Offset::new(1100));
        assert!(producers.is_empty());
    }

    #[test]
    fn at_the_bound_those_that_wrote_longest_ago_go() {
        let mut producers = Producers::default();
        let bound = i64::try_from(PRODUCER_IDS_MAX).unwrap();
        for id in 0..=bound {
            producers.record(&batch(id, 0, 0, 1, id));
        }
        assert!(producers.len() <= PRODUCER_IDS_MAX);
        assert!(producers.producer(ProducerId::new(0)).is_none());
        assert!(producers.producer(ProducerId::new(bound)).is_some());
    }
}
