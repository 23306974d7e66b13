//! Who leads a partition, and who is in sync, after something changed: Kafka's rules with KIP-966.
//!
//! Path: `apply` says what happened (a broker goes, comes, a leader wants another ISR); this file gives the partition's
//! next record, or says that nothing changes.
//!
//! Invariant: the leader is an active broker and a member of the ISR; the leader epoch grows with each change of leader,
//! the partition epoch with each change at all; ELR and ISR share no member.
//! Source: Kafka `PartitionChangeBuilder`, read for its behaviour. Pure.

use std::collections::BTreeMap;

use sakia_io::planted::{Planted, is_planted};
use sakia_protocol::ids::{BrokerEpoch, BrokerId};

use crate::image::{BrokerImage, Image, IsrMember, LeaderRecovery, PartitionImage, Standing, TopicImage};

const MIN_INSYNC: &str = "min.insync.replicas";
const UNCLEAN: &str = "unclean.leader.election.enable";

/// The brokers as they will be after the entry that is being applied.
#[derive(Clone)]
pub(crate) struct Brokers<'a> {
    image: &'a BTreeMap<BrokerId, BrokerImage>,
    changed: Option<(BrokerId, Option<(BrokerEpoch, Standing)>)>,
}

impl<'a> Brokers<'a> {
    pub(crate) const fn now(image: &'a Image) -> Self {
        Self { image: &image.brokers, changed: None }
    }

    pub(crate) const fn with(image: &'a Image, broker: BrokerId, epoch: BrokerEpoch, standing: Standing) -> Self {
        Self { image: &image.brokers, changed: Some((broker, Some((epoch, standing)))) }
    }

    pub(crate) const fn without(image: &'a Image, broker: BrokerId) -> Self {
        Self { image: &image.brokers, changed: Some((broker, None)) }
    }

    fn look_up(&self, broker: BrokerId) -> Option<(BrokerEpoch, Standing)> {
        match self.changed {
            Some((changed, state)) if changed == broker => state,
            _ => self.image.get(&broker).map(|found| (found.epoch, found.standing)),
        }
    }

    /// The broker as a new member of an ISR, if it may lead.
    pub(crate) fn candidate(&self, broker: BrokerId) -> Option<IsrMember> {
        match self.look_up(broker) {
            Some((broker_epoch, Standing::Active)) => Some(IsrMember { broker, broker_epoch }),
            _ => None,
        }
    }
}

/// The settings of a topic that elections depend on.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) min_insync: usize,
    pub(crate) unclean: Unclean,
}

/// Whether a replica that may lack acknowledged records may lead.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unclean {
    Refused,
    Allowed,
}

impl Rules {
    /// A topic's rules: its own entry, else the cluster's dynamic one, else Kafka's defaults.
    pub(crate) fn of(image: &Image, topic: &TopicImage) -> Self {
        let min_insync = image.topic_config(topic, MIN_INSYNC).and_then(|text| text.trim().parse().ok()).unwrap_or(1);
        let allowed = image.topic_config(topic, UNCLEAN).is_some_and(|text| text.trim().eq_ignore_ascii_case("true"));
        Self { min_insync, unclean: if allowed { Unclean::Allowed } else { Unclean::Refused } }
    }
}

/// Whether a configuration entry changes who is eligible.
pub(crate) fn decides_eligibility(config: &str) -> bool {
    config == MIN_INSYNC
}

/// What happens to a partition.
pub(crate) enum Happening {
    /// Brokers came or went; the ISR loses `without`, if anybody. The last member stays.
    Brokers { without: Option<BrokerId> },
    /// A broker comes back and may lack stored records: it leaves ISR and ELR even as the last one. Rule: R3.
    UncleanReturn { broker: BrokerId },
    /// The last in-sync replica registered again after a clean stop: its membership gets the new epoch.
    CleanReturn { member: IsrMember },
    /// The leader wants this ISR; it was checked.
    Isr { isr: Vec<IsrMember>, recovery: LeaderRecovery },
    /// This broker shall lead; it was checked to be an active member of the ISR.
    Move { to: BrokerId },
    /// Settings changed.
    Settings,
}

/// The record after `happening`, or `None` if it stays as it is.
pub(crate) fn settle(
    before: &PartitionImage,
    happening: Happening,
    brokers: &Brokers<'_>,
    rules: Rules,
) -> Option<PartitionImage> {
    let mut after = before.clone();
    let mut wanted = None;
    let mut gone = None;
    // An ISR that the leader states again ends what it had proposed on this partition epoch: it must see a new one (R11).
    let confirms = matches!(happening, Happening::Isr { .. });
    match happening {
        Happening::Brokers { without } => {
            after.isr.retain(|member| Some(member.broker) != without);
            if after.isr.is_empty() {
                after.isr.clone_from(&before.isr);
            }
        }
        Happening::UncleanReturn { broker } => {
            after.isr.retain(|member| member.broker != broker);
            gone = Some(broker);
        }
        Happening::CleanReturn { member } => {
            after.isr.retain(|other| other.broker != member.broker);
            if after.isr.is_empty() && before.in_isr(member.broker) {
                after.isr.push(member);
            }
        }
        Happening::Isr { isr, recovery } => {
            after.isr = isr;
            after.recovery = recovery;
        }
        Happening::Move { to } => wanted = Some(to),
        Happening::Settings => {}
    }
    after.elr = next_elr(before, &after.isr, gone, rules);
    elect(before, &mut after, wanted, brokers, rules);
    remember_leader(before, &mut after, gone);
    if after == *before && !confirms {
        return None;
    }
    if after.leader != before.leader && !returns_in_its_epoch(before, &after) {
        after.leader_epoch = before.leader_epoch.next();
    }
    after.partition_epoch = before.partition_epoch.next();
    check(&after);
    Some(after)
}

/// A mistake for tests of the simulator, else never (Rule: R2).
fn returns_in_its_epoch(before: &PartitionImage, after: &PartitionImage) -> bool {
    let last = before.leader.or(before.last_known_leader);
    is_planted(Planted::EpochReused) && after.leader.is_none_or(|leader| Some(leader) == last)
}

/// The record of a new partition: all active replicas are in sync, the first of them leads.
pub(crate) fn first_record(replicas: &[BrokerId], brokers: &Brokers<'_>) -> Option<PartitionImage> {
    let isr: Vec<IsrMember> = replicas.iter().filter_map(|&broker| brokers.candidate(broker)).collect();
    let leader = isr.first()?.broker;
    Some(PartitionImage {
        replicas: replicas.to_vec(),
        isr,
        elr: Vec::new(),
        last_known_leader: None,
        leader: Some(leader),
        leader_epoch: sakia_protocol::ids::LeaderEpoch::ZERO,
        partition_epoch: sakia_protocol::ids::PartitionEpoch::ZERO,
        recovery: LeaderRecovery::Recovered,
    })
}

/// While the ISR is below min.insync.replicas the high watermark stands still, so whoever left it then stays eligible.
fn next_elr(before: &PartitionImage, isr: &[IsrMember], gone: Option<BrokerId>, rules: Rules) -> Vec<BrokerId> {
    if isr.len() >= rules.min_insync {
        return Vec::new();
    }
    let eligible = |broker: &BrokerId| before.in_isr(*broker) || before.elr.contains(broker);
    let in_isr = |broker: &BrokerId| isr.iter().any(|member| member.broker == *broker);
    let replicas = before.replicas.iter().copied();
    replicas.filter(|broker| eligible(broker) && !in_isr(broker) && gone != Some(*broker)).collect()
}

fn elect(
    before: &PartitionImage,
    after: &mut PartitionImage,
    wanted: Option<BrokerId>,
    brokers: &Brokers<'_>,
    rules: Rules,
) {
    let in_sync = |broker: &BrokerId| after.in_isr(*broker) && brokers.candidate(*broker).is_some();
    let stays = wanted.or(before.leader).filter(in_sync);
    if let Some(leader) = stays.or_else(|| after.replicas.iter().copied().find(in_sync)) {
        after.leader = Some(leader);
        return;
    }
    let live = |broker: &BrokerId| brokers.candidate(*broker);
    if let Some(member) = after.replicas.iter().filter(|broker| after.elr.contains(broker)).find_map(live) {
        after.elr.retain(|broker| *broker != member.broker);
        after.isr = vec![member];
        after.leader = Some(member.broker);
        return;
    }
    let nobody_eligible = after.isr.is_empty() && after.elr.is_empty();
    let last_known = before.last_known_leader.filter(|_| nobody_eligible).and_then(|broker| live(&broker));
    let any = || after.replicas.iter().find_map(live).filter(|_| rules.unclean == Unclean::Allowed);
    match last_known.or_else(any) {
        Some(member) => {
            after.isr = vec![member];
            after.elr.clear();
            after.leader = Some(member.broker);
            after.recovery = LeaderRecovery::Recovering;
        }
        None => after.leader = None,
    }
}

fn remember_leader(before: &PartitionImage, after: &mut PartitionImage, gone: Option<BrokerId>) {
    if after.leader.is_some() {
        after.last_known_leader = None;
        return;
    }
    let was_eligible = |broker: BrokerId| before.in_isr(broker) || before.elr.contains(&broker);
    let last_eligible = gone.filter(|&broker| was_eligible(broker) && after.isr.is_empty() && after.elr.is_empty());
    after.last_known_leader = last_eligible.or(before.leader).or(before.last_known_leader);
}

fn check(partition: &PartitionImage) {
    assert!(partition.leader.is_none_or(|leader| partition.in_isr(leader)), "the leader is in the ISR");
    assert!(!partition.elr.iter().any(|broker| partition.in_isr(*broker)), "ELR and ISR share no member");
    let replicas = &partition.replicas;
    assert!(partition.isr.iter().all(|member| replicas.contains(&member.broker)), "the ISR consists of replicas");
}
