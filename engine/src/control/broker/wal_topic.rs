//! This broker's partition of `__remote_wal_log_metadata`, where it tells what it uploaded (R24).
//!
//! The controller numbers the partitions when brokers first register; here the topic is created and grown up to this
//! broker's number, each partition on the broker that writes it. Nobody waits for it: until it stands, what would be
//! written is dropped and counted.

use std::rc::Rc;
use std::time::Duration;

use sakia_controller::Image;
use sakia_io::{now, sleep};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{BrokerId, PartitionIndex};
use sakia_protocol::messages::create_partitions::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic,
};
use sakia_protocol::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use tracing::{debug, info};

use super::Broker;
use crate::control::limits::{WAL_TOPIC_PATIENCE, WAL_TOPIC_REQUEST_MAX};
use crate::control::topics::WAL_METADATA_TOPIC;
use crate::rpc::RpcError;

/// Between looks.
const LOOK: Duration = Duration::from_millis(500);

/// Records live as long as objects by default; segments roll often enough for that.
const CONFIGS: &[(&str, &str)] =
    &[("retention.ms", "3600000"), ("segment.ms", "600000"), ("remote.wal.storage.enable", "false")];

/// Whether brokers with lower numbers are waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Patience {
    /// Yes: their partitions belong on them.
    Waits,
    /// No: they may never come back, and partitions have no gaps.
    Over,
}

/// What is to be done next.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    /// Nothing: the partition stands.
    Done,
    /// Look again later.
    Wait,
    /// Partitions `first..` on these brokers; the topic does not exist if `first` is 0.
    Add { first: usize, owners: Vec<BrokerId> },
}

impl Broker {
    /// Works until this broker's partition stands.
    pub(super) async fn bring_wal_topic(self: Rc<Self>) {
        if self.addresses.combiner.is_none() {
            return;
        }
        let patient_until = now() + WAL_TOPIC_PATIENCE;
        loop {
            sleep(LOOK).await;
            let patience = if now() < patient_until { Patience::Waits } else { Patience::Over };
            let step = next_step(&self.image.borrow(), self.settings.node_id, patience);
            let asked = match step {
                Step::Done => return,
                Step::Wait => continue,
                Step::Add { first: 0, owners } => self.create_wal_topic(&owners).await,
                Step::Add { first, owners } => self.grow_wal_topic(first, &owners).await,
            };
            // Another broker may have been faster; the next look shows it.
            match asked {
                Ok(code) => debug!(code = code.name(), "{WAL_METADATA_TOPIC} was asked for"),
                Err(error) => info!(%error, "{WAL_METADATA_TOPIC} could not be asked for"),
            }
        }
    }

    async fn create_wal_topic(&self, owners: &[BrokerId]) -> Result<ErrorCode, RpcError> {
        let assign = |(owner, partition_index): (&BrokerId, i32)| CreatableReplicaAssignment {
            partition_index,
            broker_ids: vec![owner.get()],
        };
        let config = |(name, value): &(&str, &str)| CreatableTopicConfig {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        };
        let topic = CreatableTopic {
            name: WAL_METADATA_TOPIC.to_owned(),
            num_partitions: -1,
            replication_factor: -1,
            assignments: owners.iter().zip(0..).map(assign).collect(),
            configs: CONFIGS.iter().map(config).collect(),
        };
        let request = CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() };
        let answer = self.internal.call(&request, 7, WAL_TOPIC_REQUEST_MAX).await?;
        Ok(answer.topics.first().map_or(ErrorCode::UnknownServerError, |row| ErrorCode::from_wire(row.error_code)))
    }

    async fn grow_wal_topic(&self, first: usize, owners: &[BrokerId]) -> Result<ErrorCode, RpcError> {
        let assign = |owner: &BrokerId| CreatePartitionsAssignment { broker_ids: vec![owner.get()] };
        let topic = CreatePartitionsTopic {
            name: WAL_METADATA_TOPIC.to_owned(),
            count: i32::try_from(first + owners.len()).expect("broker ids are numbered below 2^31"),
            assignments: Some(owners.iter().map(assign).collect()),
        };
        let request = CreatePartitionsRequest { topics: vec![topic], ..CreatePartitionsRequest::default() };
        let answer = self.internal.call(&request, 3, WAL_TOPIC_REQUEST_MAX).await?;
        Ok(answer.results.first().map_or(ErrorCode::UnknownServerError, |row| ErrorCode::from_wire(row.error_code)))
    }
}

/// What is missing of the topic as far as this broker needs it. Pure.
fn next_step(image: &Image, me: BrokerId, patience: Patience) -> Step {
    let is_active = |id: BrokerId| image.brokers.get(&id).is_some_and(|broker| broker.is_active());
    let (Some(number), true) = (image.metadata_partitions.get(&me), is_active(me)) else { return Step::Wait };
    let first = image.topic_named(WAL_METADATA_TOPIC).map_or(0, |topic| topic.partitions.len());
    if number.index() < first {
        return Step::Done;
    }
    let owner_of = |number: usize| {
        let is_it = |row: &(&BrokerId, &PartitionIndex)| row.1.index() == number;
        image.metadata_partitions.iter().find(is_it).map(|(owner, _)| *owner)
    };
    let mut owners = Vec::new();
    for number in first..=number.index() {
        match owner_of(number).filter(|owner| is_active(*owner)) {
            Some(owner) => owners.push(owner),
            None if patience == Patience::Waits => return Step::Wait,
            None => owners.push(me),
        }
    }
    Step::Add { first, owners }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sakia_controller::image::{BrokerImage, Standing};
    use sakia_protocol::ids::{BrokerEpoch, Uuid};

    use super::*;

    /// Brokers 7, 8, … with partitions 0, 1, …
    fn image(standings: &[Standing]) -> Image {
        let mut image = Image::default();
        for (standing, number) in standings.iter().zip(0..) {
            let id = BrokerId::new(7 + number);
            let broker = BrokerImage {
                epoch: BrokerEpoch::new(1),
                incarnation: Uuid::ZERO,
                boot_id: Uuid::ZERO,
                log_folders: Vec::new(),
                rack: None,
                listeners: Vec::new(),
                features: BTreeMap::new(),
                standing: *standing,
            };
            image.brokers.insert(id, broker);
            image.metadata_partitions.insert(id, PartitionIndex::new(number));
        }
        image
    }

    #[test]
    fn each_partition_goes_to_its_broker_and_an_absent_one_is_waited_for_but_not_for_ever() {
        let [seven, nine] = [7, 9].map(BrokerId::new);
        let absent = image(&[Standing::Active, Standing::Fenced, Standing::Active]);
        let add = |owners: &[BrokerId]| Step::Add { first: 0, owners: owners.to_vec() };
        assert_eq!(next_step(&absent, seven, Patience::Waits), add(&[seven]));
        assert_eq!(next_step(&absent, nine, Patience::Waits), Step::Wait);
        assert_eq!(next_step(&absent, nine, Patience::Over), add(&[seven, nine, nine]));
        assert_eq!(next_step(&absent, BrokerId::new(8), Patience::Over), Step::Wait, "it does not serve yet");
    }
}
