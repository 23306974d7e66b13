//! What happens at which virtual time: events in the order of their time, and of their entry within one time.
//!
//! Pure. Invariant: the order depends on times and entries only, never on addresses or hashes.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::moment::Moment;

pub(crate) struct Agenda<E> {
    entries: BinaryHeap<Entry<E>>,
    entered: u64,
}

struct Entry<E> {
    at: Moment,
    number: u64,
    event: E,
}

impl<E> Agenda<E> {
    pub(crate) fn new() -> Agenda<E> {
        Agenda { entries: BinaryHeap::new(), entered: 0 }
    }

    pub(crate) fn enter(&mut self, at: Moment, event: E) {
        self.entered += 1;
        self.entries.push(Entry { at, number: self.entered, event });
    }

    pub(crate) fn next_at(&self) -> Option<Moment> {
        self.entries.peek().map(|entry| entry.at)
    }

    /// The first event whose time has come.
    pub(crate) fn take_due(&mut self, now: Moment) -> Option<E> {
        if self.next_at()? > now {
            return None;
        }
        self.entries.pop().map(|entry| entry.event)
    }
}

impl<E> Ord for Entry<E> {
    /// Reversed: the heap gives its greatest entry, which is to be the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn events_come_by_time_and_within_one_time_in_the_order_of_their_entry() {
        let at = |millis| Moment::START + Duration::from_millis(millis);
        let mut agenda = Agenda::new();
        for (millis, event) in [(3, 'd'), (1, 'a'), (2, 'b'), (2, 'c'), (9, 'z')] {
            agenda.enter(at(millis), event);
        }
        let due: String = std::iter::from_fn(|| agenda.take_due(at(3))).collect();
        assert_eq!(due, "abcd");
        assert_eq!(agenda.next_at(), Some(at(9)));
    }
}
