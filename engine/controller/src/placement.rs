//! Which brokers get the replicas of new partitions: Kafka's spread.
//!
//! Path: the proposer of CreateTopic and CreatePartitions calls this; its answer is part of the command.
//! Racks are visited in turn, so leaders go round all brokers and the replicas of a partition lie in different racks as
//! long as there are racks; brokers without a rack count as one rack. Fenced and stopping brokers get nothing.
//! Source: the idea of Kafka's StripedReplicaPlacer. Pure: chance comes in as `seed`.

use std::collections::BTreeMap;

use sakia_protocol::ids::BrokerId;

use crate::error::CommandError;
use crate::image::Image;

/// Chooses replicas for `count` partitions with `replication` replicas each, of the active brokers in `image`.
/// `first` is the number of the first partition, so that partitions added later continue the round; `seed` is random
/// per topic, or any fixed number in tests.
///
/// # Errors
/// `InvalidReplicationFactor` if there are fewer active brokers than replicas.
pub fn place(image: &Image, wanted: Wanted, seed: u64) -> Result<Vec<Vec<BrokerId>>, CommandError> {
    let order = alternate_racks(image, seed);
    let live = order.len();
    if wanted.replication == 0 || wanted.replication > live {
        return Err(CommandError::InvalidReplicationFactor { live });
    }
    let start = remainder(seed, live);
    let turns = wanted.first..wanted.first.saturating_add(wanted.count);
    Ok(turns.map(|number| replicas(&order, start, number, wanted.replication)).collect())
}

/// What to place.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Number of the first new partition.
    pub first: usize,
    /// How many partitions.
    pub count: usize,
    /// Replicas of each.
    pub replication: usize,
}

/// A live broker and its rack.
type Place = (BrokerId, String);

/// Active brokers, one of each rack in turn. Racks and brokers start at a place drawn from the seed.
fn alternate_racks(image: &Image, seed: u64) -> Vec<Place> {
    let mut racks: BTreeMap<String, Vec<BrokerId>> = BTreeMap::new();
    for (&id, broker) in image.brokers.iter().filter(|(_, broker)| broker.is_active()) {
        racks.entry(broker.rack.clone().unwrap_or_default()).or_default().push(id);
    }
    for brokers in racks.values_mut() {
        let turn = remainder(seed.rotate_left(32), brokers.len());
        brokers.rotate_left(turn);
    }
    let longest = racks.values().map(Vec::len).max().unwrap_or(0);
    let of_turn = |turn: usize| racks.iter().filter_map(move |(rack, ids)| Some((*ids.get(turn)?, rack.clone())));
    (0..longest).flat_map(of_turn).collect()
}

/// Leader at `start + number`; then, going on from a place that shifts once per whole round, first brokers in racks not
/// used yet, then the others.
fn replicas(order: &[Place], start: usize, number: usize, replication: usize) -> Vec<BrokerId> {
    let live = order.len();
    let leader = (start + number) % live;
    let shift = number / live;
    let followers = (0..live - 1).map(|step| (leader + 1 + (shift + step) % (live - 1)) % live);
    let mut candidates: Vec<&Place> = followers.filter_map(|place| order.get(place)).collect();
    let mut chosen = vec![order.get(leader).expect("taken modulo the number of brokers")];
    while chosen.len() < replication {
        let used = |rack: &String| chosen.iter().filter(|(_, other)| other == rack).count();
        let best = (0..candidates.len()).min_by_key(|&at| candidates.get(at).map(|(_, rack)| used(rack)));
        chosen.push(candidates.remove(best.expect("replication is at most the number of brokers")));
    }
    chosen.into_iter().map(|(id, _)| *id).collect()
}

fn remainder(seed: u64, divisor: usize) -> usize {
    let divisor = u64::try_from(divisor.max(1)).expect("a count of brokers");
    usize::try_from(seed % divisor).expect("below a usize")
}
