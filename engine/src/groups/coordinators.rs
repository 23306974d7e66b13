//! The coordinators of one shard: one per partition of `__consumer_offsets` that is led here.
//!
//! Pure. A request for a partition that is not led here gets NOT_COORDINATOR: the client asks FindCoordinator again.

use std::collections::BTreeMap;
use std::time::Duration;

use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::PartitionIndex;

use super::coordinator::Coordinator;
use super::request::{AppendNumber, Clock, Effects, GroupRequest, GroupSettings, Ticket};

/// Coordinators by partition.
#[derive(Debug)]
pub struct Coordinators {
    settings: GroupSettings,
    led: BTreeMap<PartitionIndex, Coordinator>,
}

impl Coordinators {
    /// None yet.
    #[must_use]
    pub fn new(settings: GroupSettings) -> Self {
        Self { settings, led: BTreeMap::new() }
    }

    /// This shard leads the partition: its log is to be replayed into the coordinator that is returned, then
    /// [`Coordinator::loaded`]. An older leadership must have been resigned.
    pub fn lead(&mut self, partition: PartitionIndex) -> &mut Coordinator {
        let before = self.led.insert(partition, Coordinator::new(self.settings.clone()));
        assert!(before.is_none(), "partition {partition} of the offsets topic is led twice");
        self.led.get_mut(&partition).expect("it was just inserted")
    }

    /// The coordinator of a partition that is led here.
    pub fn get_mut(&mut self, partition: PartitionIndex) -> Option<&mut Coordinator> {
        self.led.get_mut(&partition)
    }

    /// The partitions that are led here.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionIndex> {
        self.led.keys().copied()
    }

    /// The leadership ended: everybody who waits is answered.
    pub fn resign(&mut self, partition: PartitionIndex) -> Effects {
        self.led.remove(&partition).map(Coordinator::resign).unwrap_or_default()
    }

    /// Takes a request for a group of this partition.
    pub fn handle(
        &mut self,
        partition: PartitionIndex,
        ticket: Ticket,
        request: GroupRequest,
        clock: Clock,
    ) -> Effects {
        match self.led.get_mut(&partition) {
            Some(coordinator) => coordinator.handle(ticket, request, clock),
            None => Effects::answer(ticket, request.body.refused(ErrorCode::NotCoordinator)),
        }
    }

    /// An append of this partition ended.
    pub fn append_finished(
        &mut self,
        partition: PartitionIndex,
        number: AppendNumber,
        stored: Result<(), ErrorCode>,
        clock: Clock,
    ) -> Effects {
        let coordinator = self.led.get_mut(&partition);
        coordinator.map(|coordinator| coordinator.append_finished(number, stored, clock)).unwrap_or_default()
    }

    /// When [`Self::on_time`] has something to do at the earliest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.led.values().filter_map(Coordinator::next_deadline).min()
    }

    /// Time passed: what it brought about, by partition.
    pub fn on_time(&mut self, clock: Clock) -> Vec<(PartitionIndex, Effects)> {
        self.each(|coordinator| coordinator.on_time(clock))
    }

    /// Forgets offsets past their retention, by partition. A coordinator that loads does not know yet what it keeps: it is
    /// looked at next time.
    pub fn expire_offsets(&mut self, clock: Clock) -> Vec<(PartitionIndex, Effects)> {
        self.each(|coordinator| match coordinator.is_loading() {
            true => Effects::default(),
            false => coordinator.expire_offsets(clock),
        })
    }

    /// A topic is gone: its offsets are forgotten. A coordinator that loads keeps them until their retention.
    pub fn on_topic_deleted(&mut self, topic: &str, clock: Clock) -> Vec<(PartitionIndex, Effects)> {
        self.each(|coordinator| match coordinator.is_loading() {
            true => Effects::default(),
            false => coordinator.on_topic_deleted(topic, clock),
        })
    }

    fn each(&mut self, mut act: impl FnMut(&mut Coordinator) -> Effects) -> Vec<(PartitionIndex, Effects)> {
        let turns = self.led.iter_mut().map(|(partition, coordinator)| (*partition, act(coordinator)));
        turns.filter(|(_, effects)| !effects.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use sakia_protocol::ids::Offset;

    use super::*;
    use crate::groups::offsets::Committed;
    use crate::groups::records::GroupRecord;

    #[test]
    fn a_coordinator_that_loads_forgets_nothing() {
        let partition = PartitionIndex::new(0);
        let committed = Committed {
            offset: Offset::new(9),
            leader_epoch: None,
            metadata: String::new(),
            committed_ms: 0,
            expires_ms: None,
        };
        let record = GroupRecord::Offset {
            group_id: "g".to_owned(),
            topic: "t".to_owned(),
            partition: 3,
            committed: Some(committed),
        };
        let late = Clock { now: Duration::ZERO, wall_ms: i64::MAX };
        let mut coordinators = Coordinators::new(GroupSettings::default());
        let loading = coordinators.lead(partition);
        loading.replay(&record.key().unwrap(), record.value().unwrap().as_ref()).unwrap();
        assert!(coordinators.expire_offsets(late).is_empty());
        assert!(coordinators.on_topic_deleted("t", late).is_empty());
        coordinators.get_mut(partition).unwrap().loaded(late);
        assert!(coordinators.on_topic_deleted("u", late).is_empty());
        let forgotten = coordinators.on_topic_deleted("t", late);
        assert_eq!(forgotten.len(), 1);
        assert_eq!((forgotten[0].0, forgotten[0].1.appends.len()), (partition, 1), "a tombstone is written");
    }
}
