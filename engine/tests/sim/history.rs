//! What clients were told, and what must hold of it at once.
//!
//! Invariants of DESIGN 13 checked here, at the moment at which they break: nobody sees an offset with two values, and
//! nothing at or above the high watermark of the same answer (3), and no bytes that fail their checksum (7); what was acknowledged to acks=all is never seen with
//! another value (1), and stands on as many disks as were promised (`witness`); a producer is never told two places for one
//! record (4).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use sakia_io::now;
use sakia_protocol::batch::{check_replicated, for_each_record};

use crate::witness::Witness;

/// Largest batch after decompression; tests do not compress.
const BYTES_MAX: usize = 64 << 20;

/// A partition by name.
pub type Place = (String, i32);

/// What was promised with an answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Promise {
    /// acks=1: the leader has stored it.
    Leader,
    /// acks=all: it is committed.
    All,
}

/// What is known of one partition.
#[derive(Default)]
pub struct PartitionHistory {
    /// Committed values: what a consumer saw, and what acks=all was answered for.
    pub committed: BTreeMap<i64, Bytes>,
    /// Records that were acknowledged, by whichever promise.
    pub acknowledged: usize,
    /// Records of each writer that were sent, and how they were promised (`None`: acks=0).
    pub writers: BTreeMap<String, (Option<Promise>, u64)>,
    /// Records from which on a writer sent again under another identity. What it had sent under the first one, and was not
    /// told about, may be there as well.
    pub sent_anew: BTreeMap<String, Vec<u64>>,
}

/// Everything that clients of one run were told. Shared by all of them.
#[derive(Default)]
pub struct History {
    pub partitions: RefCell<BTreeMap<Place, PartitionHistory>>,
    /// Clients finish what they are at and end.
    pub is_over: Cell<bool>,
    /// Clients that have not ended.
    pub running: Cell<usize>,
    /// Looks at the disks when acks=all is answered.
    pub witness: RefCell<Option<Witness>>,
}

impl History {
    pub fn new() -> Rc<Self> {
        Rc::new(Self::default())
    }

    /// Reads what is known of a partition.
    pub fn with<T>(&self, place: &Place, read: impl FnOnce(&mut PartitionHistory) -> T) -> T {
        read(self.partitions.borrow_mut().entry(place.clone()).or_default())
    }

    /// A batch was acknowledged. What acks=1 promised may be lost with its leader.
    pub fn acknowledged(&self, place: &Place, base: i64, values: &[Bytes], promise: Promise) {
        self.with(place, |partition| partition.acknowledged += values.len());
        if promise == Promise::All {
            for (offset, value) in (base..).zip(values) {
                self.commit(place, offset, value, "acks=all was answered for");
            }
            if let Some(witness) = &*self.witness.borrow() {
                witness.acknowledged(place, base, values);
            }
        }
    }

    /// A consumer's answer: gives the offset after its last record.
    pub fn read(&self, place: &Place, who: &str, from: i64, high_watermark: i64, records: &Bytes) -> i64 {
        let mut next = from;
        for batch in check_replicated(records) {
            if let Err(end) = batch {
                panic!("{who} was sent bytes of {place:?} at {from} that fail their check: {end}");
            }
        }
        let seen = for_each_record(records, BYTES_MAX, |placed| {
            let offset = placed.offset.get();
            assert!(
                offset < high_watermark,
                "{who} read {place:?} at {offset}, at or above the high watermark {high_watermark} of the same answer"
            );
            let value = Bytes::copy_from_slice(placed.record.value.expect("producers send values"));
            self.commit(place, offset, &value, who);
            if offset >= from {
                assert_eq!(offset, next, "{who} reads {place:?} without holes");
                next = offset + 1;
            }
        });
        seen.expect("batches whose checksum is right hold records");
        next
    }

    fn commit(&self, place: &Place, offset: i64, value: &Bytes, who: &str) {
        self.with(place, |partition| {
            let known = partition.committed.entry(offset).or_insert_with(|| value.clone());
            assert!(
                known == value,
                "{place:?} at {offset} has two committed values, {} and {}; the second: {who}, at {:?}",
                name_of(known),
                name_of(value),
                now().as_duration()
            );
        });
    }
}

/// The part of a value that names its record.
pub fn name_of(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == b' ').unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// Writer and number of a value.
pub fn writer_and_number(value: &[u8]) -> (String, u64) {
    let name = name_of(value);
    let (writer, number) = name.split_once(':').expect("values are writer:number");
    (writer.to_owned(), number.parse().expect("a number"))
}
