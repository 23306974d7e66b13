//! Which brokers get the replicas of new partitions: Kafka's spread.
//!
//! Path: the proposer of CreateTopic and CreatePartitions calls this; its answer is part of the command.
//! Racks are visited in turn, so leaders go round all brokers and the replicas of a partition lie in different racks as
//! long as there are racks; brokers without a rack count as one rack. Fenced and stopping brokers get nothing.
//! Source: the idea of Kafka's StripedReplicaPlacer. Pure: chance comes in as `seed`.

use std::collections::BTreeMap;

use sakia_protocol::ids::{BrokerId, TopicId};

use crate::error::CommandError;
use crate::image::Image;

/// Chooses replicas for `count` partitions with `replication` replicas each, of the active brokers in `image`.
/// `first` is the number of the first partition, so that partitions added later continue the round; `seed` is
/// `seed` of the topic.
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

/// The seed for a topic's partitions: of its (random) id, so that partitions added later continue the round.
#[must_use]
pub fn seed(topic_id: &TopicId) -> u64 {
    let (first, _) = topic_id.as_bytes().split_first_chunk().expect("16 bytes are more than 8");
    u64::from_be_bytes(*first)
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

#[cfg(test)]
mod tests {
    use sakia_protocol::ids::{BrokerEpoch, MetadataIndex, Uuid};

    use super::*;
    use crate::event::BrokerRegistered;
    use crate::image::{BrokerImage, Standing};

    fn image(racks: &[Option<&str>]) -> Image {
        let mut image = Image::default();
        for (number, rack) in (1..).zip(racks) {
            let registration = BrokerImage {
                epoch: BrokerEpoch::new(1),
                incarnation: Uuid::ZERO,
                boot_id: Uuid::ZERO,
                log_folders: Vec::new(),
                rack: rack.map(str::to_owned),
                listeners: Vec::new(),
                features: BTreeMap::new(),
                standing: if *rack == Some("fenced") { Standing::Fenced } else { Standing::Active },
            };
            let event = BrokerRegistered { broker: BrokerId::new(number), registration };
            image.apply(MetadataIndex::new(1), &event.into());
        }
        image
    }

    fn wanted(count: usize, replication: usize) -> Wanted {
        Wanted { first: 0, count, replication }
    }

    /// How often each broker is named, least and most.
    fn spread(named: impl Iterator<Item = BrokerId>) -> (usize, usize) {
        let mut counts: BTreeMap<BrokerId, usize> = BTreeMap::new();
        for broker in named {
            *counts.entry(broker).or_default() += 1;
        }
        (*counts.values().min().unwrap(), *counts.values().max().unwrap())
    }

    #[test]
    fn leaders_go_round_all_brokers_and_followers_are_spread() {
        let image = image(&[None; 5]);
        for seed in 0..50 {
            let placed = place(&image, wanted(20, 3), seed).unwrap();
            assert_eq!(spread(placed.iter().map(|replicas| replicas[0])), (4, 4));
            let (least, most) = spread(placed.iter().flatten().copied());
            assert!(least >= 10 && most <= 14, "{least} to {most} of 12");
        }
    }

    #[test]
    fn replicas_lie_in_different_racks_first() {
        let image = image(&[Some("a"), Some("a"), Some("b"), Some("b"), Some("c")]);
        let rack = |broker: &BrokerId| image.brokers[broker].rack.clone();
        for seed in 0..50 {
            for replicas in place(&image, wanted(10, 3), seed).unwrap() {
                let racks: std::collections::BTreeSet<_> = replicas.iter().map(rack).collect();
                assert_eq!(racks.len(), 3, "{replicas:?}");
            }
        }
    }

    #[test]
    fn no_broker_holds_two_replicas_of_a_partition() {
        let image = image(&[Some("a"), Some("a"), Some("b"), None]);
        for replicas in place(&image, wanted(30, 4), 7).unwrap() {
            assert_eq!(spread(replicas.into_iter()), (1, 1));
        }
    }

    #[test]
    fn fenced_brokers_get_nothing_and_too_few_live_ones_are_refused() {
        let image = image(&[Some("a"), Some("fenced"), Some("b")]);
        let placed = place(&image, wanted(9, 2), 3).unwrap();
        assert!(placed.iter().flatten().all(|broker| *broker != BrokerId::new(2)));
        let refused = place(&image, wanted(1, 3), 3);
        assert_eq!(refused, Err(CommandError::InvalidReplicationFactor { live: 2 }));
        assert!(place(&image, wanted(1, 0), 3).is_err());
    }

    #[test]
    fn partitions_added_later_continue_the_round() {
        let image = image(&[None; 4]);
        let all = place(&image, wanted(9, 2), 11).unwrap();
        let later = place(&image, Wanted { first: 4, count: 5, replication: 2 }, 11).unwrap();
        assert_eq!(all[4..], later);
    }
}
