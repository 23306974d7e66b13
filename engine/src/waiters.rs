//! Who waits for a partition: produce requests for an end, readers for a change.
//!
//! Invariant: a waiter is told exactly once, or finds its question dropped when the partition goes.

use std::collections::BTreeMap;

use sakia_io::planted::{Planted, is_planted};
use sakia_io::{Answer, Reply, Signal, oneshot};
use sakia_protocol::ids::Offset;

use crate::limits::WAITERS_PER_PARTITION_MAX;
use crate::messages::Waiting;

/// What a produce request waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// The leader's stored end (acks=1).
    Stored,
    /// The high watermark (acks=all).
    HighWatermark,
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reached {
    /// The end is there.
    End,
    /// The partition is led elsewhere now, or went offline.
    LeadershipLost,
}

#[derive(Default)]
struct Ends {
    number: u64,
    waiting: BTreeMap<(Offset, u64), Reply<Reached>>,
}

impl Ends {
    fn wait(&mut self, end: Offset) -> Answer<Reached> {
        let (reply, answer) = oneshot();
        self.number += 1;
        self.waiting.insert((end, self.number), reply);
        answer
    }

    fn reached(&mut self, end: Offset) {
        while let Some(entry) = self.waiting.first_entry() {
            if entry.key().0 > end {
                break;
            }
            let _ = entry.remove().send(Reached::End);
        }
    }

    fn fail(&mut self) {
        while let Some((_, reply)) = self.waiting.pop_first() {
            let _ = reply.send(Reached::LeadershipLost);
        }
    }
}

/// The waiters of one partition.
#[derive(Default)]
pub struct Waiters {
    stored: Ends,
    high_watermark: Ends,
    /// By connection: a connection waits once, its next fetch replaces what an earlier one left.
    readers: BTreeMap<u64, Signal>,
    replicas: BTreeMap<u64, Signal>,
}

impl Waiters {
    /// Waits for an end. The answer is `None` if the partition went.
    pub fn wait(&mut self, until: Until, end: Offset) -> Answer<Reached> {
        match until {
            Until::Stored => self.stored.wait(end),
            Until::HighWatermark => self.high_watermark.wait(end),
        }
    }

    /// The stored end moved.
    pub fn stored(&mut self, end: Offset) {
        self.stored.reached(end);
    }

    /// The high watermark moved.
    pub fn high_watermark(&mut self, end: Offset) {
        self.high_watermark.reached(end);
        self.changed();
    }

    /// Something that readers may want has changed. They read again and, if need be, wait again.
    pub fn changed(&mut self) {
        std::mem::take(&mut self.readers).values().for_each(Signal::raise);
        self.replicas_changed();
    }

    /// Something that followers may want has changed.
    pub fn replicas_changed(&mut self) {
        std::mem::take(&mut self.replicas).values().for_each(Signal::raise);
    }

    /// A reader found too little and will wait. At the bound one more is not woken by changes: its own time ends its wait.
    /// Nobody is woken to make room, else those that wait on an idle partition would wake each other for ever.
    pub fn add_reader(&mut self, reader: Waiting) {
        add(&mut self.readers, reader);
    }

    /// A follower's fetch is parked.
    pub fn add_replica(&mut self, replica: Waiting) {
        add(&mut self.replicas, replica);
    }

    /// Leadership went: nobody here can be answered.
    pub fn leadership_lost(&mut self) {
        if !is_planted(Planted::OldWaiterAnswered) {
            self.stored.fail();
            self.high_watermark.fail();
        }
        self.changed();
    }
}

fn add(waiting: &mut BTreeMap<u64, Signal>, reader: Waiting) {
    if waiting.len() < WAITERS_PER_PARTITION_MAX || waiting.contains_key(&reader.session) {
        waiting.insert(reader.session, reader.signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(session: usize) -> Waiting {
        Waiting { session: session.try_into().unwrap(), signal: Signal::new() }
    }

    #[test]
    fn readers_beyond_the_bound_wake_nobody_and_a_change_wakes_those_that_are_known() {
        let mut waiters = Waiters::default();
        let readers: Vec<Waiting> = (0..=WAITERS_PER_PARTITION_MAX).map(reader).collect();
        for waiting in &readers {
            waiters.add_reader(waiting.clone());
        }
        assert!(readers.iter().all(|waiting| !waiting.signal.is_raised()), "the partition is idle");
        let again = reader(3);
        waiters.add_reader(again.clone());
        waiters.changed();
        let woken = readers.iter().filter(|waiting| waiting.signal.is_raised()).count();
        assert_eq!((woken, again.signal.is_raised()), (WAITERS_PER_PARTITION_MAX - 1, true));
    }
}
