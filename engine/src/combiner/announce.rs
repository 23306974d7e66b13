//! What is written into `__remote_wal_log_metadata`: objects in the order of their sequence (R24). Pure.
//!
//! Objects are published as they stand; the topic's order is that of the sequence, so an object that overtook another
//! waits here for it. An object that was given up is stepped over.
//! Bound: as many heads as PUTs are in flight.

use std::collections::BTreeMap;

use bytes::Bytes;

/// Heads (prelude and manifest) of one stream that are not announced yet.
#[derive(Default, Debug)]
pub(super) struct Announcements {
    next: u64,
    finished: BTreeMap<u64, Option<Bytes>>,
}

impl Announcements {
    /// The put of `sequence` ended; `None`: it was given up. Gives what can be announced now, in order.
    pub(super) fn finish(&mut self, sequence: u64, head: Option<Bytes>) -> Vec<(u64, Bytes)> {
        self.finished.insert(sequence, head);
        let mut ready = Vec::new();
        while let Some(head) = self.finished.remove(&self.next) {
            ready.extend(head.map(|head| (self.next, head)));
            self.next += 1;
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_announced_in_order_and_given_up_objects_are_stepped_over() {
        let mut announcements = Announcements::default();
        let head = Bytes::from_static(b"head");
        assert_eq!(announcements.finish(1, Some(head.clone())), vec![]);
        assert_eq!(announcements.finish(2, None), vec![]);
        assert_eq!(announcements.finish(0, Some(head.clone())), vec![(0, head.clone()), (1, head.clone())]);
        assert_eq!(announcements.finish(3, Some(head.clone())), vec![(3, head)]);
        assert!(announcements.finished.is_empty());
    }
}
