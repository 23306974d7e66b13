//! Looks at the disks of all brokers at the moment at which a client is told that a batch is committed.
//!
//! Invariant (DESIGN 13.1, R1): acks=all is answered for a batch only when `min.insync.replicas` replicas have stored it. A record
//! that is on fewer disks would be lost by faults that acks=all covers; here that shows without any of them. A disk shows a
//! write when it is completed, as a kill would leave it; whether the process still runs makes no difference.

use std::cell::Cell;
use std::collections::BTreeMap;

use bytes::Bytes;
use sakia_io::now;
use sakia_io::sim::Machine;
use sakia_protocol::batch::{for_each_record, headers};

use crate::cluster::FOLDER;
use crate::history::{Place, name_of};

/// Of so many answers one is looked at: logs are read from their start each time.
const ONE_IN: u64 = 8;

/// The disks of a cluster's brokers.
pub struct Witness {
    disks: Vec<Machine>,
    /// `min.insync.replicas` by topic, at most the number of its replicas.
    required: BTreeMap<String, usize>,
    answers: Cell<u64>,
}

impl Witness {
    pub fn new(disks: Vec<Machine>, required: BTreeMap<String, usize>) -> Self {
        Self { disks, required, answers: Cell::new(0) }
    }

    /// acks=all was answered for these values. The last one is looked for: what is stored before it is stored too.
    pub fn acknowledged(&self, place: &Place, base: i64, values: &[Bytes]) {
        let number = self.answers.get();
        self.answers.set(number + 1);
        let (Some(required), true) = (self.required.get(&place.0), number.is_multiple_of(ONE_IN)) else { return };
        let Some(last) = values.last() else { return };
        let offset = base + i64::try_from(values.len()).expect("a few") - 1;
        let holders = self.disks.iter().filter(|machine| holds(machine, place, offset, last)).count();
        assert!(
            holders >= *required,
            "{place:?} at {offset} ({}) is acknowledged with acks=all at {:?} and stands on {holders} of {required} disks",
            name_of(last),
            now().as_duration()
        );
    }
}

/// Whether the machine's disk holds this value at this offset.
fn holds(machine: &Machine, place: &Place, offset: i64, value: &Bytes) -> bool {
    let folder = format!("{FOLDER}/{}-{}", place.0, place.1);
    let Ok(names) = machine.disk().names(&folder) else { return false };
    let base_of = |name: &String| name.strip_suffix(".log").and_then(|base| base.parse::<i64>().ok());
    // Names are sorted, and offsets in them have one length.
    let segment = names.iter().rfind(|name| base_of(name).is_some_and(|base| base <= offset));
    let Some(segment) = segment else { return false };
    let Ok(content) = machine.disk().content(format!("{folder}/{segment}")) else { return false };
    let Some(batch) = headers(&content).find(|batch| offset < batch.header.next_offset().get()) else { return false };
    let mut is_there = false;
    // A batch that is not whole yet is not there.
    let read = for_each_record(batch.bytes, 64 << 20, |placed| {
        is_there |= placed.offset.get() == offset && placed.record.value == Some(value);
    });
    read.is_ok() && is_there
}
