//! Registration, fencing, unfencing, shutdown and removal of brokers.
//!
//! Everything that a broker loses or gets with its change stands in the same entry, so no image shows a fenced leader
//! or a new process leading in an old epoch. Pure.

use sakia_io::planted::{Planted, is_planted};
use sakia_protocol::ids::{BrokerEpoch, BrokerId, MetadataIndex, PartitionIndex};

use super::settle_all;
use crate::command::{
    AssignMetadataPartition, ControlledShutdown, FenceBroker, RegisterBroker, RemoveBroker, UnfenceBroker,
};
use crate::election::{Brokers, Happening};
use crate::error::CommandError;
use crate::event::{BrokerRegistered, BrokerRemoved, BrokerStandingChanged, Event, MetadataPartitionAssigned};
use crate::image::{BrokerImage, Image, IsrMember, PartitionImage, Standing};
use crate::limits::{BROKER_IDS_MAX, BROKERS_MAX, REGISTRATION_ITEMS_MAX, TEXT_BYTES_MAX};

/// Registers a process. The same process may register again and keeps its epoch.
pub(super) fn register(
    image: &Image,
    index: MetadataIndex,
    command: &RegisterBroker,
) -> Result<Vec<Event>, CommandError> {
    check_bounds(image, command)?;
    let known = image.brokers.get(&command.broker);
    if let Some(known) = known.filter(|known| known.incarnation == command.incarnation) {
        return Ok(vec![registered(command, known.epoch, known.standing)]);
    }
    if known.is_some_and(|known| !known.is_fenced()) {
        return Err(CommandError::DuplicateRegistration { broker: command.broker });
    }
    let epoch = BrokerEpoch::new(index.get());
    let mut events = vec![registered(command, epoch, Standing::Fenced)];
    let member = IsrMember { broker: command.broker, broker_epoch: epoch };
    let clean = known.is_some_and(|known| is_clean(known, command));
    let brokers = Brokers::with(image, command.broker, epoch, Standing::Fenced);
    events.extend(settle_all(image, &brokers, |_, partition| {
        if !involves(partition, command.broker) {
            return None;
        }
        Some(match clean {
            true => Happening::CleanReturn { member },
            false => Happening::UncleanReturn { broker: command.broker },
        })
    }));
    events.extend(metadata_partition(image, command.broker));
    Ok(events)
}

pub(super) fn fence(image: &Image, command: &FenceBroker) -> Result<Vec<Event>, CommandError> {
    let broker = present(image, command.broker, command.broker_epoch)?;
    match broker.standing {
        Standing::Fenced => Ok(Vec::new()),
        _ => Ok(take_away(image, command.broker, command.broker_epoch, Standing::Fenced)),
    }
}

pub(super) fn unfence(image: &Image, command: &UnfenceBroker) -> Result<Vec<Event>, CommandError> {
    let broker = present(image, command.broker, command.broker_epoch)?;
    if broker.standing != Standing::Fenced {
        return Ok(Vec::new());
    }
    let brokers = Brokers::with(image, command.broker, command.broker_epoch, Standing::Active);
    let mut events = vec![standing(command.broker, command.broker_epoch, Standing::Active)];
    events.extend(settle_all(image, &brokers, |_, partition| {
        let waits = partition.leader.is_none() && partition.replicas.contains(&command.broker);
        waits.then_some(Happening::Brokers { without: None })
    }));
    Ok(events)
}

pub(super) fn shut_down(image: &Image, command: &ControlledShutdown) -> Result<Vec<Event>, CommandError> {
    let broker = present(image, command.broker, command.broker_epoch)?;
    match broker.standing {
        Standing::Active => Ok(stop_leading(image, command.broker, command.broker_epoch)),
        Standing::Fenced | Standing::ShuttingDown => Ok(Vec::new()),
    }
}

pub(super) fn remove(image: &Image, command: &RemoveBroker) -> Result<Vec<Event>, CommandError> {
    let RemoveBroker { broker } = *command;
    let known = image.brokers.get(&broker).ok_or(CommandError::BrokerNotRegistered { broker })?;
    let brokers = Brokers::without(image, broker);
    let mut events = vec![Event::BrokerRemoved(BrokerRemoved { broker, broker_epoch: known.epoch })];
    events.extend(leave(image, &brokers, broker));
    Ok(events)
}

pub(super) fn assign_metadata_partition(
    image: &Image,
    command: &AssignMetadataPartition,
) -> Result<Vec<Event>, CommandError> {
    let AssignMetadataPartition { broker } = *command;
    image.brokers.get(&broker).ok_or(CommandError::BrokerNotRegistered { broker })?;
    Ok(metadata_partition(image, broker).into_iter().collect())
}

/// Rule: R3. A stop under the same kernel boot is clean because completed writes outlive the process; in both cases
/// only if every log folder is still there.
fn is_clean(known: &BrokerImage, command: &RegisterBroker) -> bool {
    let stopped = command.previous_broker_epoch == Some(known.epoch);
    let same_boot = !known.boot_id.is_zero() && known.boot_id == command.boot_id;
    let folders_stand = known.log_folders.iter().all(|folder| command.log_folders.contains(folder));
    (stopped || same_boot || is_planted(Planted::UncleanReturnKept)) && folders_stand
}

fn involves(partition: &PartitionImage, broker: BrokerId) -> bool {
    partition.in_isr(broker) || partition.elr.contains(&broker)
}

fn take_away(image: &Image, broker: BrokerId, epoch: BrokerEpoch, to: Standing) -> Vec<Event> {
    let brokers = Brokers::with(image, broker, epoch, to);
    let mut events = vec![standing(broker, epoch, to)];
    events.extend(leave(image, &brokers, broker));
    events
}

/// Its leaderships go to others. It stays in the ISRs until it is fenced: whoever leads now may be dead already, and then
/// the one that stops is the last that holds what was acknowledged.
fn stop_leading(image: &Image, broker: BrokerId, epoch: BrokerEpoch) -> Vec<Event> {
    let brokers = Brokers::with(image, broker, epoch, Standing::ShuttingDown);
    let mut events = vec![standing(broker, epoch, Standing::ShuttingDown)];
    events.extend(settle_all(image, &brokers, |_, partition| {
        (partition.leader == Some(broker)).then_some(Happening::Brokers { without: None })
    }));
    events
}

fn leave(image: &Image, brokers: &Brokers<'_>, broker: BrokerId) -> Vec<Event> {
    settle_all(image, brokers, |_, partition| {
        partition.in_isr(broker).then_some(Happening::Brokers { without: Some(broker) })
    })
}

fn present(image: &Image, broker: BrokerId, epoch: BrokerEpoch) -> Result<&BrokerImage, CommandError> {
    image.broker_at(broker, epoch).ok_or(CommandError::StaleBrokerEpoch { broker })
}

fn standing(broker: BrokerId, broker_epoch: BrokerEpoch, standing: Standing) -> Event {
    Event::BrokerStandingChanged(BrokerStandingChanged { broker, broker_epoch, standing })
}

fn registered(command: &RegisterBroker, epoch: BrokerEpoch, standing: Standing) -> Event {
    Event::BrokerRegistered(BrokerRegistered {
        broker: command.broker,
        registration: BrokerImage {
            epoch,
            incarnation: command.incarnation,
            boot_id: command.boot_id,
            log_folders: command.log_folders.clone(),
            rack: command.rack.clone(),
            listeners: command.listeners.clone(),
            features: command.features.clone(),
            standing,
        },
    })
}

/// Rule: R24: numbers are dense although broker ids have gaps, and stay for ever.
fn metadata_partition(image: &Image, broker: BrokerId) -> Option<Event> {
    if image.metadata_partitions.contains_key(&broker) {
        return None;
    }
    let number = i32::try_from(image.metadata_partitions.len()).expect("bounded by the registrations ever made");
    let partition = PartitionIndex::new(number);
    Some(Event::MetadataPartitionAssigned(MetadataPartitionAssigned { broker, partition }))
}

fn check_bounds(image: &Image, command: &RegisterBroker) -> Result<(), CommandError> {
    let new = !image.brokers.contains_key(&command.broker);
    if new && image.brokers.len() >= BROKERS_MAX {
        return Err(CommandError::TooMany { what: "brokers", max: BROKERS_MAX });
    }
    let unseen = !image.metadata_partitions.contains_key(&command.broker);
    if unseen && image.metadata_partitions.len() >= BROKER_IDS_MAX {
        return Err(CommandError::TooMany { what: "broker ids", max: BROKER_IDS_MAX });
    }
    let items = [command.listeners.len(), command.log_folders.len(), command.features.len()];
    if items.into_iter().any(|count| count > REGISTRATION_ITEMS_MAX) {
        return Err(CommandError::TooMany { what: "items of a registration", max: REGISTRATION_ITEMS_MAX });
    }
    let hosts = command.listeners.iter().flat_map(|listener| [&listener.name, &listener.host]);
    if hosts.chain(&command.rack).chain(command.features.keys()).any(|text| text.len() > TEXT_BYTES_MAX) {
        return Err(CommandError::TooMany { what: "bytes of text", max: TEXT_BYTES_MAX });
    }
    Ok(())
}
