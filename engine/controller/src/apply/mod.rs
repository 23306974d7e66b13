//! What a command does at its place in the log: events, or a refusal.
//!
//! Path: from a committed entry to the image and to every broker. Read `mod.rs`, then `brokers`, `topics`,
//! `partitions`, `configs`.
//!
//! A command is checked here and nowhere else, in log order, so a controller that was deposed, or that decided on an
//! old image, cannot get a wrong decision into the log. Invariant: the result depends on image, index and command only.
//! Pure.

mod brokers;
mod configs;
mod partitions;
mod topics;

pub use topics::check_topic_name;

#[cfg(test)]
mod tests;

use sakia_protocol::ids::{ControllerEpoch, MetadataIndex};

use crate::command::{ActivateController, AllocateProducerIds, Command, Proposal};
use crate::election::{Brokers, Happening, Rules, settle};
use crate::error::CommandError;
use crate::event::{ControllerActivated, Event, PartitionChanged, ProducerIdsAllocated};
use crate::image::{Image, PartitionImage, TopicImage};
use crate::limits::PRODUCER_ID_BLOCK;

/// What an accepted command does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Changes of the image, in order.
    pub events: Vec<Event>,
    /// Items of a list command (`AlterPartition`, `ElectLeaders`) that were refused: place in the list, and why.
    pub refused: Vec<(usize, CommandError)>,
}

impl From<Vec<Event>> for Decision {
    fn from(events: Vec<Event>) -> Self {
        Self { events, refused: Vec::new() }
    }
}

/// Decides a proposal; the proposer's controller epoch must be the present one.
///
/// # Errors
/// `NotController` for another epoch; else as `decide`.
pub fn decide_proposal(image: &Image, index: MetadataIndex, proposal: &Proposal) -> Result<Decision, CommandError> {
    let activates = matches!(proposal.command, Command::ActivateController(_));
    if !activates && proposal.controller_epoch != image.controller_epoch {
        return Err(CommandError::NotController);
    }
    decide(image, index, &proposal.command)
}

/// Decides a command that stands at `index` of the log.
///
/// # Errors
/// Why it is refused; nothing changes then.
pub fn decide(image: &Image, index: MetadataIndex, command: &Command) -> Result<Decision, CommandError> {
    match command {
        Command::ActivateController(command) => Ok(activate(image, command).into()),
        Command::RegisterBroker(command) => brokers::register(image, index, command).map(Into::into),
        Command::FenceBroker(command) => brokers::fence(image, command).map(Into::into),
        Command::UnfenceBroker(command) => brokers::unfence(image, command).map(Into::into),
        Command::ControlledShutdown(command) => brokers::shut_down(image, command).map(Into::into),
        Command::RemoveBroker(command) => brokers::remove(image, command).map(Into::into),
        Command::AssignMetadataPartition(command) => brokers::assign_metadata_partition(image, command).map(Into::into),
        Command::CreateTopic(command) => topics::create(image, command).map(Into::into),
        Command::DeleteTopic(command) => topics::delete(image, command).map(Into::into),
        Command::CreatePartitions(command) => topics::add_partitions(image, command).map(Into::into),
        Command::AlterPartition(command) => partitions::alter(image, command),
        Command::ElectLeaders(command) => Ok(partitions::elect(image, command)),
        Command::MoveLeader(command) => partitions::move_leader(image, command).map(Into::into),
        Command::SetConfigs(command) => configs::set(image, command).map(Into::into),
        Command::AllocateProducerIds(command) => allocate_producer_ids(image, command).map(Into::into),
    }
}

fn activate(image: &Image, command: &ActivateController) -> Vec<Event> {
    let first = image.cluster_id.is_empty();
    vec![Event::ControllerActivated(ControllerActivated {
        controller: command.node,
        controller_epoch: next_controller_epoch(image),
        cluster_id: if first { &command.cluster_id } else { &image.cluster_id }.clone(),
        incarnation: if first { command.incarnation } else { image.incarnation },
    })]
}

fn next_controller_epoch(image: &Image) -> ControllerEpoch {
    let next = image.controller_epoch.get().checked_add(1);
    ControllerEpoch::new(next.expect("controller epochs stay below 2^31"))
}

fn allocate_producer_ids(image: &Image, command: &AllocateProducerIds) -> Result<Vec<Event>, CommandError> {
    let &AllocateProducerIds { broker, broker_epoch } = command;
    image.broker_at(broker, broker_epoch).ok_or(CommandError::StaleBrokerEpoch { broker })?;
    let first = image.next_producer_id;
    Ok(vec![Event::ProducerIdsAllocated(ProducerIdsAllocated {
        broker,
        broker_epoch,
        first,
        count: PRODUCER_ID_BLOCK,
    })])
}

/// Settles every partition for which `happening` says that something happens, in order of key.
fn settle_all(
    image: &Image,
    brokers: &Brokers<'_>,
    mut happening: impl FnMut(&TopicImage, &PartitionImage) -> Option<Happening>,
) -> Vec<Event> {
    let mut events = Vec::new();
    for topic in image.topics() {
        let rules = Rules::of(image, topic);
        for (key, before) in topic.keys().zip(&topic.partitions) {
            let after = happening(topic, before).and_then(|what| settle(before, what, brokers, rules));
            events.extend(after.map(|partition| Event::PartitionChanged(PartitionChanged { key, partition })));
        }
    }
    events
}
