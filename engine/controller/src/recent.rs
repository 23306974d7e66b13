//! The last events, for brokers that follow the log. Pure.

use std::collections::VecDeque;

use sakia_protocol::ids::MetadataIndex;

use crate::event::Event;
use crate::limits::RECENT_EVENTS_MAX;

/// A bounded row of events. All events of an index are in it or none.
#[derive(Debug)]
pub(crate) struct RecentEvents {
    /// All events above this index are here.
    after: MetadataIndex,
    events: VecDeque<(MetadataIndex, Event)>,
}

impl RecentEvents {
    /// Nothing yet; what comes stands above `after`.
    pub(crate) const fn new(after: MetadataIndex) -> Self {
        Self { after, events: VecDeque::new() }
    }

    /// Adds the events of one entry, all of them.
    pub(crate) fn add(&mut self, index: MetadataIndex, events: Vec<Event>) {
        let last = self.events.back().map_or(self.after, |(last, _)| *last);
        assert!(index > last || events.is_empty(), "events of {index} behind those of {last}");
        self.events.extend(events.into_iter().map(|event| (index, event)));
        while self.events.len() > RECENT_EVENTS_MAX
            && let Some(&(oldest, _)) = self.events.front()
        {
            while self.events.front().is_some_and(|(index, _)| *index == oldest) {
                self.events.pop_front();
            }
            self.after = oldest;
        }
    }

    /// All events above `index`; `None` if some of them are gone.
    pub(crate) fn after(&self, index: MetadataIndex) -> Option<Vec<(MetadataIndex, Event)>> {
        if index < self.after {
            return None;
        }
        let start = self.events.partition_point(|(other, _)| *other <= index);
        Some(self.events.range(start..).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use sakia_protocol::ids::{BrokerId, PartitionIndex};

    use super::*;
    use crate::event::MetadataPartitionAssigned;

    fn some(count: usize) -> Vec<Event> {
        let event = MetadataPartitionAssigned { broker: BrokerId::new(1), partition: PartitionIndex::new(0) };
        vec![event.into(); count]
    }

    #[test]
    fn an_entry_is_kept_whole_or_not_at_all() {
        let mut recent = RecentEvents::new(MetadataIndex::new(5));
        recent.add(MetadataIndex::new(6), some(3));
        recent.add(MetadataIndex::new(7), some(RECENT_EVENTS_MAX - 2));
        assert_eq!(recent.after(MetadataIndex::new(5)), None);
        assert_eq!(recent.after(MetadataIndex::new(6)).map(|events| events.len()), Some(RECENT_EVENTS_MAX - 2));
        assert_eq!(recent.after(MetadataIndex::new(9)), Some(Vec::new()));
    }

    #[test]
    fn an_entry_larger_than_the_bound_is_passed_over_by_the_image() {
        let mut recent = RecentEvents::new(MetadataIndex::ZERO);
        recent.add(MetadataIndex::new(1), some(RECENT_EVENTS_MAX + 1));
        assert_eq!(recent.after(MetadataIndex::ZERO), None);
        assert_eq!(recent.after(MetadataIndex::new(1)), Some(Vec::new()));
    }
}
