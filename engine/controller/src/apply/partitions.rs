//! Changes of single partitions: the ISR by its leader, the leader by an administrator or a plan.
//!
//! Source: Kafka's checks of AlterPartition, in its order, with KIP-903. Pure.

use sakia_protocol::ids::PartitionKey;

use super::Decision;
use crate::command::{AlterPartition, ElectLeaders, Election, IsrChange, MoveLeader};
use crate::election::{Brokers, Happening, Rules, Unclean, settle};
use crate::error::CommandError;
use crate::event::{Event, PartitionChanged};
use crate::image::{Image, LeaderRecovery, PartitionImage, TopicImage};

pub(super) fn alter(image: &Image, command: &AlterPartition) -> Result<Decision, CommandError> {
    let AlterPartition { broker, broker_epoch, ref changes } = *command;
    image.broker_at(broker, broker_epoch).ok_or(CommandError::StaleBrokerEpoch { broker })?;
    let keys = changes.iter().map(|change| change.key);
    Ok(each(keys, |place| alter_one(image, command, changes.get(place).expect("one change per key"))))
}

pub(super) fn elect(image: &Image, command: &ElectLeaders) -> Decision {
    each(command.partitions.iter().copied(), |place| {
        let key = command.partitions.get(place).expect("one election per key");
        elect_one(image, key, command.election)
    })
}

pub(super) fn move_leader(image: &Image, command: &MoveLeader) -> Result<Vec<Event>, CommandError> {
    let MoveLeader { key, leader_epoch, to } = *command;
    let (topic, before) = find(image, &key)?;
    if leader_epoch < before.leader_epoch {
        return Err(CommandError::FencedLeaderEpoch);
    }
    if leader_epoch > before.leader_epoch {
        return Err(CommandError::NotController);
    }
    if before.leader == Some(to) {
        return Err(CommandError::ElectionNotNeeded);
    }
    let brokers = Brokers::now(image);
    if !before.in_isr(to) || brokers.candidate(to).is_none() {
        return Err(CommandError::EligibleLeadersNotAvailable);
    }
    let after = settle(before, Happening::Move { to }, &brokers, Rules::of(image, topic));
    Ok(vec![changed(key, after.expect("another leader is a change"))])
}

/// Decides each item for itself. A partition named twice is refused the second time: its second item was made without
/// the result of the first.
fn each(
    keys: impl Iterator<Item = PartitionKey>,
    mut decide: impl FnMut(usize) -> Result<Option<Event>, CommandError>,
) -> Decision {
    let mut decision = Decision::default();
    let mut seen = std::collections::BTreeSet::new();
    for (place, key) in keys.enumerate() {
        let twice = Err(CommandError::InvalidRequest { reason: "a partition is named twice" });
        match if seen.insert(key) { decide(place) } else { twice } {
            Ok(event) => decision.events.extend(event),
            Err(error) => decision.refused.push((place, error)),
        }
    }
    decision
}

fn alter_one(image: &Image, command: &AlterPartition, change: &IsrChange) -> Result<Option<Event>, CommandError> {
    let (topic, before) = find(image, &change.key)?;
    check_epochs(command, change, before)?;
    check_isr(image, command, change, before)?;
    let (isr, recovery) = (change.isr.clone(), change.recovery);
    let happening = Happening::Isr { isr, recovery };
    let after = settle(before, happening, &Brokers::now(image), Rules::of(image, topic));
    Ok(after.map(|partition| changed(change.key, partition)))
}

fn check_epochs(command: &AlterPartition, change: &IsrChange, before: &PartitionImage) -> Result<(), CommandError> {
    if change.leader_epoch > before.leader_epoch || change.partition_epoch > before.partition_epoch {
        return Err(CommandError::NotController); // the sender knows more than this image
    }
    if change.leader_epoch < before.leader_epoch {
        return Err(CommandError::FencedLeaderEpoch);
    }
    if before.leader != Some(command.broker) {
        return Err(CommandError::InvalidRequest { reason: "the sender is not the leader" });
    }
    if change.partition_epoch < before.partition_epoch {
        return Err(CommandError::InvalidUpdateVersion);
    }
    Ok(())
}

fn check_isr(
    image: &Image,
    command: &AlterPartition,
    change: &IsrChange,
    before: &PartitionImage,
) -> Result<(), CommandError> {
    let invalid = |reason| Err(CommandError::InvalidRequest { reason });
    let members = || change.isr.iter().map(|member| member.broker);
    if members().enumerate().any(|(place, broker)| members().take(place).any(|earlier| earlier == broker)) {
        return invalid("a broker is named twice");
    }
    if !members().all(|broker| before.replicas.contains(&broker)) {
        return invalid("the wanted ISR has a broker that is no replica");
    }
    if !members().any(|broker| broker == command.broker) {
        return invalid("the wanted ISR lacks the leader");
    }
    if change.recovery == LeaderRecovery::Recovering {
        if before.recovery == LeaderRecovery::Recovered {
            return invalid("recovery cannot begin without an election");
        }
        if change.isr.len() > 1 {
            return invalid("a recovering leader is alone in its ISR");
        }
    }
    let eligible = |broker, epoch| image.broker_at(broker, epoch).is_some_and(crate::image::BrokerImage::is_active);
    match change.isr.iter().find(|member| !eligible(member.broker, member.broker_epoch)) {
        Some(member) => Err(CommandError::IneligibleReplica { broker: member.broker }),
        None => Ok(()),
    }
}

fn elect_one(image: &Image, key: &PartitionKey, election: Election) -> Result<Option<Event>, CommandError> {
    let (topic, before) = find(image, key)?;
    let brokers = Brokers::now(image);
    let rules = Rules::of(image, topic);
    let after = match election {
        Election::Preferred => {
            let first = before.replicas.first().copied();
            if first.is_some() && first == before.leader {
                return Err(CommandError::ElectionNotNeeded);
            }
            let available = first.filter(|&to| before.in_isr(to) && brokers.candidate(to).is_some());
            let to = available.ok_or(CommandError::PreferredLeaderNotAvailable)?;
            settle(before, Happening::Move { to }, &brokers, rules)
        }
        Election::Unclean => {
            if before.leader.is_some() {
                return Err(CommandError::ElectionNotNeeded);
            }
            let rules = Rules { unclean: Unclean::Allowed, ..rules };
            let after = settle(before, Happening::Brokers { without: None }, &brokers, rules);
            Some(after.filter(|after| after.leader.is_some()).ok_or(CommandError::EligibleLeadersNotAvailable)?)
        }
    };
    Ok(after.map(|partition| changed(*key, partition)))
}

fn find<'a>(image: &'a Image, key: &PartitionKey) -> Result<(&'a TopicImage, &'a PartitionImage), CommandError> {
    let topic = image.topic(&key.topic_id).ok_or(CommandError::UnknownTopicId { topic_id: key.topic_id })?;
    let partition = topic.partitions.get(key.partition.index()).ok_or(CommandError::UnknownPartition)?;
    Ok((topic, partition))
}

fn changed(key: PartitionKey, partition: PartitionImage) -> Event {
    Event::PartitionChanged(PartitionChanged { key, partition })
}
