//! The rules, one test each, and two claims over random commands.

use std::collections::BTreeMap;
use std::sync::Arc;

use sakia_protocol::ids::{
    BrokerEpoch, BrokerId, LeaderEpoch, MetadataIndex, PartitionEpoch, PartitionIndex, PartitionKey, TopicId, Uuid,
};

use super::{Decision, decide};
use crate::command::*;
use crate::error::CommandError;
use crate::event::Event;
use crate::image::*;
use crate::limits::PRODUCER_ID_BLOCK;

/// An image and the index of its next command.
#[derive(Clone)]
struct Cluster {
    image: Image,
}

fn id(number: i32) -> BrokerId {
    BrokerId::new(number)
}

fn topic_id(number: u8) -> TopicId {
    Uuid::from_bytes([number; 16])
}

fn key(number: i32) -> PartitionKey {
    PartitionKey { topic_id: topic_id(1), partition: PartitionIndex::new(number) }
}

fn registration(broker: i32, process: u8) -> RegisterBroker {
    RegisterBroker {
        broker: id(broker),
        incarnation: Uuid::from_bytes([process; 16]),
        previous_broker_epoch: None,
        boot_id: Uuid::ZERO,
        log_folders: vec![Uuid::from_bytes([200; 16])],
        rack: Some(format!("az{broker}")),
        listeners: vec![Listener {
            name: "PLAINTEXT".to_owned(),
            host: "localhost".to_owned(),
            port: 9092,
            protocol: SecurityProtocol::Plaintext,
        }],
        features: BTreeMap::new(),
    }
}

impl Cluster {
    /// Brokers 1, 2, ... registered and active.
    fn with_brokers(count: i32) -> Self {
        let mut cluster = Self { image: Image::default() };
        let activation =
            ActivateController { node: id(9), cluster_id: "abc".to_owned(), incarnation: Uuid::from_bytes([1; 16]) };
        cluster.apply(activation).unwrap();
        for broker in 1..=count {
            cluster.apply(registration(broker, u8::try_from(broker).unwrap())).unwrap();
            cluster.unfence(broker);
        }
        cluster
    }

    fn apply(&mut self, command: impl Into<Command>) -> Result<Decision, CommandError> {
        let index = MetadataIndex::new(self.image.index.get() + 1);
        let result = decide(&self.image, index, &command.into());
        for event in result.iter().flat_map(|decision| &decision.events) {
            self.image.apply(index, event);
        }
        self.image.advance(index);
        result
    }

    fn epoch(&self, broker: i32) -> BrokerEpoch {
        self.image.brokers[&id(broker)].epoch
    }

    fn fence(&mut self, broker: i32) -> Decision {
        let broker_epoch = self.epoch(broker);
        self.apply(FenceBroker { broker: id(broker), broker_epoch }).unwrap()
    }

    fn unfence(&mut self, broker: i32) -> Decision {
        let broker_epoch = self.epoch(broker);
        self.apply(UnfenceBroker { broker: id(broker), broker_epoch }).unwrap()
    }

    /// Topic 1 with these replicas.
    fn create(&mut self, assignments: &[&[i32]]) {
        self.create_with(assignments, &[]);
    }

    fn create_with(&mut self, assignments: &[&[i32]], configs: &[(&str, &str)]) {
        let assignments = assignments.iter().map(|replicas| replicas.iter().copied().map(id).collect()).collect();
        let configs = configs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.apply(CreateTopic { topic_id: topic_id(1), name: "orders".to_owned(), configs, assignments }).unwrap();
    }

    fn partition(&self) -> &PartitionImage {
        self.image.partition(&key(0)).unwrap()
    }

    fn isr(&self) -> Vec<i32> {
        self.partition().isr.iter().map(|member| member.broker.get()).collect()
    }

    fn leader(&self) -> Option<i32> {
        self.partition().leader.map(BrokerId::get)
    }

    fn leader_epoch(&self) -> i32 {
        self.partition().leader_epoch.get()
    }

    /// The change that the present leader would send for this ISR.
    fn change(&self, isr: &[i32]) -> AlterPartition {
        let partition = self.partition();
        let leader = partition.leader.unwrap();
        let member = |&broker: &i32| IsrMember { broker: id(broker), broker_epoch: self.epoch(broker) };
        AlterPartition {
            broker: leader,
            broker_epoch: self.epoch(leader.get()),
            changes: vec![IsrChange {
                key: key(0),
                leader_epoch: partition.leader_epoch,
                partition_epoch: partition.partition_epoch,
                isr: isr.iter().map(member).collect(),
                recovery: LeaderRecovery::Recovered,
            }],
        }
    }

    fn refusal(&mut self, command: AlterPartition) -> CommandError {
        let decision = self.apply(command).unwrap();
        assert_eq!(decision.events, []);
        decision.refused.into_iter().next().unwrap().1
    }

    /// The process of a broker dies and another one registers.
    fn restart(&mut self, broker: i32, change: impl FnOnce(&mut RegisterBroker)) {
        self.fence(broker);
        let mut command = registration(broker, 100);
        change(&mut command);
        self.apply(command).unwrap();
    }
}

#[test]
fn activation_raises_the_controller_epoch_and_keeps_the_cluster_id() {
    let mut cluster = Cluster::with_brokers(0);
    let other = ActivateController { node: id(8), cluster_id: "other".to_owned(), incarnation: Uuid::ZERO };
    cluster.apply(other).unwrap();
    assert_eq!(cluster.image.controller_epoch.get(), 2);
    assert_eq!((cluster.image.controller_id, cluster.image.cluster_id.as_str()), (Some(id(8)), "abc"));
    assert_eq!(cluster.image.incarnation, Uuid::from_bytes([1; 16]));
}

#[test]
fn a_proposal_of_a_deposed_controller_is_refused() {
    let cluster = Cluster::with_brokers(0);
    let proposal = |epoch| Proposal {
        controller_epoch: sakia_protocol::ids::ControllerEpoch::new(epoch),
        wall_clock_ms: 0,
        command: registration(1, 1).into(),
    };
    let index = MetadataIndex::new(50);
    assert_eq!(super::decide_proposal(&cluster.image, index, &proposal(0)), Err(CommandError::NotController));
    assert!(super::decide_proposal(&cluster.image, index, &proposal(1)).is_ok());
}

#[test]
fn the_broker_epoch_is_the_index_of_the_registration_and_the_broker_is_fenced() {
    let mut cluster = Cluster::with_brokers(0);
    cluster.apply(registration(1, 1)).unwrap();
    assert_eq!(cluster.epoch(1).get(), cluster.image.index.get());
    assert!(cluster.image.brokers[&id(1)].is_fenced());
}

#[test]
fn the_same_process_may_register_again_and_keeps_its_epoch() {
    let mut cluster = Cluster::with_brokers(1);
    let epoch = cluster.epoch(1);
    let decision = cluster.apply(registration(1, 1)).unwrap();
    assert_eq!(decision.events.len(), 1);
    assert_eq!(cluster.epoch(1), epoch);
    assert!(cluster.image.brokers[&id(1)].is_active(), "it stays unfenced");
}

#[test]
fn another_process_cannot_register_while_the_first_is_unfenced() {
    let mut cluster = Cluster::with_brokers(1);
    let refused = cluster.apply(registration(1, 2));
    assert_eq!(refused, Err(CommandError::DuplicateRegistration { broker: id(1) }));
    assert_eq!(refused.unwrap_err().code(), 101);
}

#[test]
fn each_broker_gets_a_dense_metadata_partition_at_its_first_registration_for_ever() {
    let mut cluster = Cluster::with_brokers(0);
    for broker in [7, 3, 50] {
        cluster.apply(registration(broker, 1)).unwrap();
    }
    cluster.apply(RemoveBroker { broker: id(3) }).unwrap();
    cluster.apply(registration(3, 2)).unwrap();
    assert_eq!(cluster.apply(AssignMetadataPartition { broker: id(3) }).unwrap().events, []);
    let numbers: Vec<i32> = cluster.image.metadata_partitions.values().map(|number| number.get()).collect();
    assert_eq!(numbers, [1, 0, 2], "brokers 3, 7, 50");
}

#[test]
fn fencing_moves_every_leadership_in_replica_order_in_one_entry() {
    let mut cluster = Cluster::with_brokers(3);
    cluster.create(&[&[1, 3, 2], &[2, 1, 3], &[1, 2, 3]]);
    let decision = cluster.fence(1);
    assert_eq!(decision.events.len(), 4, "the fence and three partitions");
    let leaders: Vec<_> = cluster.image.partitions().map(|(_, partition)| partition.leader).collect();
    assert_eq!(leaders, [Some(id(3)), Some(id(2)), Some(id(2))]);
    let epochs: Vec<_> = cluster.image.partitions().map(|(_, partition)| partition.leader_epoch.get()).collect();
    assert_eq!(epochs, [1, 0, 1], "a leader that stays keeps its epoch");
    assert!(cluster.image.partitions().all(|(_, partition)| !partition.in_isr(id(1))));
    assert!(cluster.image.partitions().all(|(_, partition)| partition.partition_epoch.get() == 1));
}

#[test]
fn the_last_in_sync_replica_stays_in_the_isr_without_leading_and_leads_again_when_it_is_back() {
    let mut cluster = Cluster::with_brokers(2);
    cluster.create(&[&[1, 2]]);
    cluster.fence(2);
    cluster.fence(1);
    assert_eq!((cluster.isr(), cluster.leader()), (vec![1], None));
    assert_eq!(cluster.partition().last_known_leader, Some(id(1)));
    cluster.unfence(2);
    assert_eq!(cluster.leader(), None, "a replica that is not in sync does not lead");
    let before = cluster.leader_epoch();
    cluster.unfence(1);
    assert_eq!((cluster.leader(), cluster.leader_epoch()), (Some(1), before + 1));
    assert_eq!(cluster.partition().last_known_leader, None);
}

#[test]
fn fencing_twice_changes_nothing_and_a_stale_epoch_is_refused() {
    let mut cluster = Cluster::with_brokers(1);
    cluster.fence(1);
    assert_eq!(cluster.fence(1).events, []);
    let stale = FenceBroker { broker: id(1), broker_epoch: BrokerEpoch::new(1) };
    assert_eq!(cluster.apply(stale), Err(CommandError::StaleBrokerEpoch { broker: id(1) }));
}

#[test]
fn a_controlled_shutdown_moves_leaderships_and_a_sole_replica_is_left_without_leader() {
    let mut cluster = Cluster::with_brokers(3);
    cluster.create(&[&[1, 2], &[1, 3]]);
    cluster.fence(3);
    let broker_epoch = cluster.epoch(1);
    cluster.apply(ControlledShutdown { broker: id(1), broker_epoch }).unwrap();
    assert_eq!(cluster.image.brokers[&id(1)].standing, Standing::ShuttingDown);
    let leaders: Vec<_> = cluster.image.partitions().map(|(_, partition)| partition.leader).collect();
    assert_eq!(leaders, [Some(id(2)), None]);
    assert!(cluster.image.partition(&key(1)).unwrap().in_isr(id(1)));
}

#[test]
fn a_broker_that_stops_is_in_sync_until_it_is_fenced_so_that_the_death_of_its_successor_loses_nothing() {
    let mut cluster = Cluster::with_brokers(2);
    cluster.create(&[&[1, 2]]);
    let broker_epoch = cluster.epoch(1);
    cluster.apply(ControlledShutdown { broker: id(1), broker_epoch }).unwrap();
    assert_eq!((cluster.isr(), cluster.leader()), (vec![1, 2], Some(2)));
    let mut alive = cluster.clone();
    alive.fence(1);
    assert_eq!((alive.isr(), alive.leader()), (vec![2], Some(2)));
    // The successor had lost its power before, and nobody had noticed.
    cluster.fence(2);
    assert_eq!((cluster.isr(), cluster.leader()), (vec![1], None));
    cluster.fence(1);
    cluster.restart(2, |_| {});
    cluster.unfence(2);
    assert_eq!((cluster.isr(), cluster.leader()), (vec![1], None), "an unclean return leads nothing");
    let broker_epoch = cluster.epoch(1);
    cluster.restart(1, |command| command.previous_broker_epoch = Some(broker_epoch));
    cluster.unfence(1);
    assert_eq!((cluster.isr(), cluster.leader()), (vec![1], Some(1)));
}

#[test]
fn a_new_process_raises_the_leader_epoch_of_what_it_led() {
    // Rule: R2: also when nobody else can lead, and the same broker leads again.
    let mut cluster = Cluster::with_brokers(1);
    cluster.create(&[&[1]]);
    let before = cluster.leader_epoch();
    let broker_epoch = cluster.epoch(1);
    cluster.restart(1, |command| command.previous_broker_epoch = Some(broker_epoch));
    assert_eq!(cluster.leader(), None);
    cluster.unfence(1);
    assert_eq!(cluster.leader(), Some(1));
    assert!(cluster.leader_epoch() > before);
    assert_eq!(cluster.partition().recovery, LeaderRecovery::Recovered);
    assert_eq!(cluster.partition().isr, [IsrMember { broker: id(1), broker_epoch: cluster.epoch(1) }]);
}

#[test]
fn a_stop_under_the_same_kernel_boot_is_clean_if_the_log_folders_are_there() {
    let boot = Uuid::from_bytes([5; 16]);
    for (folders_stand, expected) in [(true, LeaderRecovery::Recovered), (false, LeaderRecovery::Recovering)] {
        let mut cluster = Cluster::with_brokers(0);
        cluster.apply(RegisterBroker { boot_id: boot, ..registration(1, 1) }).unwrap();
        cluster.unfence(1);
        cluster.create(&[&[1]]);
        cluster.restart(1, |command| {
            command.boot_id = boot;
            if !folders_stand {
                command.log_folders = vec![Uuid::from_bytes([201; 16])];
            }
        });
        cluster.unfence(1);
        assert_eq!(cluster.partition().recovery, expected);
    }
}

#[test]
fn an_unclean_return_leaves_every_isr_and_elr_and_the_last_eligible_one_leads_uncleanly() {
    // Rule: R3.
    let mut cluster = Cluster::with_brokers(2);
    cluster.create_with(&[&[1, 2]], &[("min.insync.replicas", "2")]);
    cluster.fence(2);
    assert_eq!(cluster.partition().elr, [id(2)], "the high watermark stands while one of two is in sync");
    cluster.restart(2, |_| {});
    assert_eq!((cluster.isr(), cluster.partition().elr.len()), (vec![1], 0));
    cluster.restart(1, |_| {});
    assert_eq!((cluster.isr(), cluster.leader()), (vec![], None));
    assert_eq!(cluster.partition().last_known_leader, Some(id(1)));
    cluster.unfence(2);
    assert_eq!(cluster.leader(), None, "only the last eligible one may lead");
    cluster.unfence(1);
    assert_eq!((cluster.isr(), cluster.leader()), (vec![1], Some(1)));
    assert_eq!(cluster.partition().recovery, LeaderRecovery::Recovering);
}

#[test]
fn an_unclean_return_next_to_an_eligible_replica_hands_it_the_leadership() {
    let mut cluster = Cluster::with_brokers(2);
    cluster.create_with(&[&[1, 2]], &[("min.insync.replicas", "2")]);
    cluster.fence(2);
    cluster.unfence(2);
    cluster.restart(1, |_| {});
    assert_eq!((cluster.isr(), cluster.leader()), (vec![2], Some(2)), "from the ELR");
    assert_eq!(cluster.partition().recovery, LeaderRecovery::Recovered);
    assert_eq!(cluster.partition().elr, []);
}

#[test]
fn a_clean_return_keeps_its_eligibility() {
    let mut cluster = Cluster::with_brokers(2);
    cluster.create_with(&[&[1, 2]], &[("min.insync.replicas", "2")]);
    let broker_epoch = cluster.epoch(2);
    cluster.restart(2, |command| command.previous_broker_epoch = Some(broker_epoch));
    assert_eq!(cluster.partition().elr, [id(2)]);
    cluster.unfence(2);
    cluster.fence(1);
    assert_eq!(cluster.leader(), Some(2));
}

#[test]
fn unclean_election_waits_for_nobody_when_the_topic_allows_it() {
    let mut cluster = Cluster::with_brokers(2);
    cluster.create_with(&[&[1, 2]], &[("unclean.leader.election.enable", "true")]);
    cluster.fence(2);
    cluster.unfence(2);
    cluster.fence(1);
    assert_eq!((cluster.leader(), cluster.isr()), (Some(2), vec![2]));
    assert_eq!(cluster.partition().recovery, LeaderRecovery::Recovering);
}

#[test]
fn a_leader_changes_its_isr_and_the_partition_epoch_grows() {
    let mut cluster = Cluster::with_brokers(3);
    cluster.create(&[&[1, 2, 3]]);
    let command = cluster.change(&[1, 2]);
    cluster.apply(command).unwrap();
    assert_eq!((cluster.isr(), cluster.leader_epoch()), (vec![1, 2], 0));
    assert_eq!(cluster.partition().partition_epoch.get(), 1);
    let command = cluster.change(&[1, 2, 3]);
    cluster.apply(command).unwrap();
    assert_eq!(cluster.isr(), [1, 2, 3]);
}

#[test]
fn an_isr_that_is_stated_again_changes_the_partition_epoch_alone() {
    // Rule: R11. It ends what the leader had proposed before and whose fate it does not know.
    let mut cluster = Cluster::with_brokers(2);
    cluster.create(&[&[1, 2]]);
    let lost = cluster.change(&[1]);
    let command = cluster.change(&[1, 2]);
    cluster.apply(command).unwrap();
    assert_eq!((cluster.isr(), cluster.partition().partition_epoch.get()), (vec![1, 2], 1));
    assert_eq!(cluster.refusal(lost), CommandError::InvalidUpdateVersion);
}

#[test]
fn an_isr_change_is_refused_by_kafkas_rules() {
    let mut cluster = Cluster::with_brokers(4);
    cluster.create(&[&[1, 2, 3]]);
    let good = cluster.change(&[1, 2]);
    cluster.apply(good.clone()).unwrap();
    let invalid = |error: CommandError| assert_eq!(error.code(), 42, "{error}");
    assert_eq!(cluster.refusal(good), CommandError::InvalidUpdateVersion);
    let with = |cluster: &Cluster, isr: &[i32], change: &dyn Fn(&mut IsrChange)| {
        let mut command = cluster.change(isr);
        change(&mut command.changes[0]);
        command
    };
    let newer = with(&cluster, &[1], &|change| change.partition_epoch = PartitionEpoch::new(9));
    assert_eq!(cluster.refusal(newer), CommandError::NotController);
    let newer = with(&cluster, &[1], &|change| change.leader_epoch = LeaderEpoch::new(1));
    assert_eq!(cluster.refusal(newer), CommandError::NotController);
    let foreign = with(&cluster, &[1, 4], &|_| {});
    invalid(cluster.refusal(foreign));
    let headless = with(&cluster, &[2], &|_| {});
    invalid(cluster.refusal(headless));
    let double = with(&cluster, &[1, 2, 2], &|_| {});
    invalid(cluster.refusal(double));
    let recovering = with(&cluster, &[1], &|change| change.recovery = LeaderRecovery::Recovering);
    invalid(cluster.refusal(recovering));
    let stale = with(&cluster, &[1, 3], &|change| change.isr[1].broker_epoch = BrokerEpoch::new(1));
    assert_eq!(cluster.refusal(stale), CommandError::IneligibleReplica { broker: id(3) });
    let mut follower = cluster.change(&[1, 2]);
    (follower.broker, follower.broker_epoch) = (id(2), cluster.epoch(2));
    invalid(cluster.refusal(follower));
    cluster.fence(3);
    let fenced = with(&cluster, &[1, 3], &|_| {});
    assert_eq!(cluster.refusal(fenced), CommandError::IneligibleReplica { broker: id(3) });
    let old = cluster.change(&[1, 2]);
    let leader_epoch = cluster.partition().leader_epoch;
    cluster.apply(MoveLeader { key: key(0), leader_epoch, to: id(2) }).unwrap();
    assert_eq!(cluster.refusal(old), CommandError::FencedLeaderEpoch);
}

#[test]
fn a_partition_is_refused_for_itself_and_a_stale_broker_for_all() {
    let mut cluster = Cluster::with_brokers(2);
    cluster.create(&[&[1, 2]]);
    let mut command = cluster.change(&[1]);
    let mut unknown = command.changes[0].clone();
    unknown.key.partition = PartitionIndex::new(7);
    let twice = command.changes[0].clone();
    command.changes = vec![unknown, command.changes[0].clone(), twice];
    let decision = cluster.apply(command.clone()).unwrap();
    assert_eq!(decision.events.len(), 1);
    assert_eq!(decision.refused[0], (0, CommandError::UnknownPartition));
    assert_eq!(decision.refused[1].0, 2, "a partition named twice");
    command.broker_epoch = BrokerEpoch::new(1);
    assert_eq!(cluster.apply(command), Err(CommandError::StaleBrokerEpoch { broker: id(1) }));
}

#[test]
fn recovery_ends_when_the_leader_says_so() {
    let mut cluster = Cluster::with_brokers(1);
    cluster.create(&[&[1]]);
    cluster.restart(1, |_| {});
    cluster.unfence(1);
    assert_eq!(cluster.partition().recovery, LeaderRecovery::Recovering);
    let command = cluster.change(&[1]);
    cluster.apply(command).unwrap();
    assert_eq!(cluster.partition().recovery, LeaderRecovery::Recovered);
}

#[test]
fn elections_by_an_administrator() {
    let mut cluster = Cluster::with_brokers(3);
    cluster.create(&[&[1, 2]]);
    let elect = |election| ElectLeaders { election, partitions: vec![key(0)] };
    let refusal = |decision: Decision| decision.refused.into_iter().next().unwrap().1;
    let needless = cluster.apply(elect(Election::Preferred)).unwrap();
    assert_eq!(refusal(needless), CommandError::ElectionNotNeeded);
    cluster.fence(1);
    let impossible = cluster.apply(elect(Election::Preferred)).unwrap();
    assert_eq!(refusal(impossible), CommandError::PreferredLeaderNotAvailable);
    cluster.unfence(1);
    let command = cluster.change(&[2, 1]);
    cluster.apply(command).unwrap();
    let before = cluster.leader_epoch();
    cluster.apply(elect(Election::Preferred)).unwrap();
    assert_eq!((cluster.leader(), cluster.leader_epoch()), (Some(1), before + 1));
    cluster.fence(2);
    cluster.fence(1);
    let nobody = cluster.apply(elect(Election::Unclean)).unwrap();
    assert_eq!(refusal(nobody), CommandError::EligibleLeadersNotAvailable);
    cluster.unfence(2);
    cluster.apply(elect(Election::Unclean)).unwrap();
    assert_eq!((cluster.leader(), cluster.partition().recovery), (Some(2), LeaderRecovery::Recovering));
}

#[test]
fn a_leadership_moves_to_a_live_in_sync_replica_only() {
    let mut cluster = Cluster::with_brokers(3);
    cluster.create(&[&[1, 2, 3]]);
    cluster.fence(3);
    let leader_epoch = cluster.partition().leader_epoch;
    let refused = cluster.apply(MoveLeader { key: key(0), leader_epoch, to: id(3) });
    assert_eq!(refused, Err(CommandError::EligibleLeadersNotAvailable));
    cluster.apply(MoveLeader { key: key(0), leader_epoch, to: id(2) }).unwrap();
    assert_eq!((cluster.leader(), cluster.isr()), (Some(2), vec![1, 2]));
    let again = cluster.apply(MoveLeader { key: key(0), leader_epoch, to: id(1) });
    assert_eq!(again, Err(CommandError::FencedLeaderEpoch));
}

#[test]
fn topic_names_follow_kafkas_rules() {
    let long = "x".repeat(250);
    for name in ["", ".", "..", "a b", "ä", "a/b", long.as_str()] {
        assert_eq!(super::check_topic_name(name).unwrap_err().code(), 17, "{name}");
    }
    let longest = "x".repeat(249);
    for name in ["a", "...", "__consumer_offsets", "A-1_b.c", longest.as_str()] {
        super::check_topic_name(name).unwrap();
    }
}

#[test]
fn a_topic_is_refused_if_its_name_is_taken_or_collides_or_its_replicas_cannot_be() {
    let mut cluster = Cluster::with_brokers(2);
    let create = |name: &str, number, replicas: &[&[i32]]| CreateTopic {
        topic_id: topic_id(number),
        name: name.to_owned(),
        configs: Configs::new(),
        assignments: replicas.iter().map(|ids| ids.iter().copied().map(id).collect()).collect(),
    };
    cluster.apply(create("a.b", 1, &[&[1, 2]])).unwrap();
    let mut code = |command| cluster.apply(command).unwrap_err().code();
    assert_eq!(code(create("a.b", 2, &[&[1]])), 36);
    assert_eq!(code(create("a_b", 2, &[&[1]])), 17);
    assert_eq!(code(create("c", 1, &[&[1]])), 42, "the id is in use");
    assert_eq!(code(create("c", 2, &[])), 37);
    assert_eq!(code(create("c", 2, &[&[]])), 39);
    assert_eq!(code(create("c", 2, &[&[1, 1]])), 39);
    assert_eq!(code(create("c", 2, &[&[1], &[1, 2]])), 39);
    assert_eq!(code(create("c", 2, &[&[3]])), 39, "not registered");
    cluster.fence(2);
    assert_eq!(cluster.apply(create("c", 2, &[&[2]])).unwrap_err().code(), 39, "not live");
    cluster.apply(create("c", 2, &[&[2, 1]])).unwrap();
    let partition = &cluster.image.topic_named("c").unwrap().partitions[0];
    assert_eq!((partition.leader, partition.isr.len()), (Some(id(1)), 1), "the live one leads");
}

#[test]
fn a_deleted_topic_frees_its_name() {
    let mut cluster = Cluster::with_brokers(1);
    cluster.create(&[&[1]]);
    cluster.apply(DeleteTopic { topic_id: topic_id(1) }).unwrap();
    assert!(cluster.image.topic_named("orders").is_none());
    assert_eq!(cluster.apply(DeleteTopic { topic_id: topic_id(1) }).unwrap_err().code(), 100);
    cluster.create(&[&[1]]);
}

#[test]
fn partitions_are_added_behind_those_the_proposer_saw() {
    let mut cluster = Cluster::with_brokers(2);
    cluster.create(&[&[1, 2]]);
    let add = |first, replicas: &[i32]| CreatePartitions {
        topic_id: topic_id(1),
        first: PartitionIndex::new(first),
        assignments: vec![replicas.iter().copied().map(id).collect()],
    };
    cluster.apply(add(1, &[2, 1])).unwrap();
    assert_eq!(cluster.image.partition(&key(1)).unwrap().leader, Some(id(2)));
    assert_eq!(cluster.apply(add(1, &[2, 1])), Err(CommandError::InvalidPartitions));
    assert_eq!(cluster.apply(add(2, &[2])).unwrap_err().code(), 39, "another replication factor");
}

#[test]
fn configuration_is_changed_incrementally_in_log_order() {
    let mut cluster = Cluster::with_brokers(1);
    let set = |operation, name: &str, value: &str| SetConfigs {
        resource: ConfigResource::Cluster,
        changes: vec![ConfigChange { name: name.to_owned(), operation, value: value.to_owned() }],
    };
    cluster.apply(set(ConfigOperation::Append, "list", "a,b")).unwrap();
    cluster.apply(set(ConfigOperation::Append, "list", "b, c")).unwrap();
    assert_eq!(cluster.image.configs[&ConfigResource::Cluster]["list"], "a,b,c");
    cluster.apply(set(ConfigOperation::Subtract, "list", "b")).unwrap();
    assert_eq!(cluster.image.configs[&ConfigResource::Cluster]["list"], "a,c");
    assert_eq!(cluster.apply(set(ConfigOperation::Set, "list", "a,c")).unwrap().events, []);
    cluster.apply(set(ConfigOperation::Delete, "list", "")).unwrap();
    assert!(!cluster.image.configs.contains_key(&ConfigResource::Cluster), "empty maps are not kept");
}

#[test]
fn a_lower_min_insync_empties_the_elr_in_the_same_entry() {
    let mut cluster = Cluster::with_brokers(2);
    cluster.create_with(&[&[1, 2]], &[("min.insync.replicas", "2")]);
    cluster.fence(2);
    assert_eq!(cluster.partition().elr, [id(2)]);
    let set = |resource| SetConfigs {
        resource,
        changes: vec![ConfigChange {
            name: "min.insync.replicas".to_owned(),
            operation: ConfigOperation::Set,
            value: "1".to_owned(),
        }],
    };
    assert_eq!(cluster.apply(set(ConfigResource::Broker(id(1)))).unwrap_err().code(), 40);
    let decision = cluster.apply(set(ConfigResource::Topic(topic_id(1)))).unwrap();
    assert_eq!(decision.events.len(), 2);
    assert_eq!(cluster.partition().elr, []);
    cluster.unfence(2);
    cluster.fence(1);
    assert_eq!(cluster.leader(), None, "broker 2 may lack what was acknowledged meanwhile");
}

#[test]
fn producer_ids_are_handed_out_in_blocks_once() {
    let mut cluster = Cluster::with_brokers(1);
    let broker_epoch = cluster.epoch(1);
    let ask = AllocateProducerIds { broker: id(1), broker_epoch };
    let first = |decision: Decision| match &decision.events[..] {
        [Event::ProducerIdsAllocated(block)] => block.first,
        other => panic!("{other:?}"),
    };
    assert_eq!(first(cluster.apply(ask.clone()).unwrap()), 0);
    assert_eq!(first(cluster.apply(ask).unwrap()), PRODUCER_ID_BLOCK);
    let stale = AllocateProducerIds { broker: id(1), broker_epoch: BrokerEpoch::new(1) };
    assert_eq!(cluster.apply(stale).unwrap_err().code(), 77);
}

#[test]
fn a_removed_broker_leads_nothing_and_is_gone() {
    let mut cluster = Cluster::with_brokers(2);
    cluster.create(&[&[1, 2]]);
    cluster.apply(RemoveBroker { broker: id(1) }).unwrap();
    assert_eq!((cluster.leader(), cluster.isr()), (Some(2), vec![2]));
    assert!(!cluster.image.brokers.contains_key(&id(1)));
    assert_eq!(cluster.apply(RemoveBroker { broker: id(1) }).unwrap_err().code(), 102);
}

/// A number from a sequence that is the same everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn broker(&mut self) -> BrokerId {
        id(i32::try_from(self.below(5)).unwrap())
    }

    fn byte(&mut self, bound: u64) -> u8 {
        u8::try_from(self.below(bound)).unwrap()
    }
}

fn random_command(dice: &mut Dice, image: &Image) -> Command {
    let broker = dice.broker();
    let broker_epoch = image.brokers.get(&broker).map_or(BrokerEpoch::ZERO, |found| found.epoch);
    let topic = topic_id(dice.byte(6) + 1);
    let some_key = PartitionKey { topic_id: topic, partition: PartitionIndex::new(i32::from(dice.byte(3))) };
    let replicas = |dice: &mut Dice| vec![dice.broker(), dice.broker()];
    match dice.below(20) {
        0..3 => {
            let process = dice.byte(200);
            let mut command = RegisterBroker { broker, ..registration(broker.get(), process) };
            command.previous_broker_epoch = (dice.below(2) == 0).then_some(broker_epoch);
            command.into()
        }
        3..6 => UnfenceBroker { broker, broker_epoch }.into(),
        6..9 => FenceBroker { broker, broker_epoch }.into(),
        9 => ControlledShutdown { broker, broker_epoch }.into(),
        10 if dice.below(5) == 0 => RemoveBroker { broker }.into(),
        10 | 11 => {
            let name = format!("topic-{topic}");
            let configs = [("min.insync.replicas".to_owned(), (dice.below(3) + 1).to_string())].into();
            let assignments = vec![replicas(dice), replicas(dice)];
            CreateTopic { topic_id: topic, name, configs, assignments }.into()
        }
        12 if dice.below(4) == 0 => DeleteTopic { topic_id: topic }.into(),
        12 => CreatePartitions { topic_id: topic, first: PartitionIndex::new(2), assignments: vec![replicas(dice)] }
            .into(),
        13..16 => {
            let Some(partition) = image.partition(&some_key) else {
                return AllocateProducerIds { broker, broker_epoch }.into();
            };
            let leader = partition.leader.unwrap_or(broker);
            let epoch = |broker| image.brokers.get(&broker).map_or(BrokerEpoch::ZERO, |found| found.epoch);
            let members = partition.replicas.iter().filter(|member| **member == leader || dice.below(2) == 0);
            let isr = members.map(|&broker| IsrMember { broker, broker_epoch: epoch(broker) }).collect();
            let (leader_epoch, partition_epoch) = (partition.leader_epoch, partition.partition_epoch);
            let recovery = LeaderRecovery::Recovered;
            let change = IsrChange { key: some_key, leader_epoch, partition_epoch, isr, recovery };
            AlterPartition { broker: leader, broker_epoch: epoch(leader), changes: vec![change] }.into()
        }
        16 => {
            let election = if dice.below(3) == 0 { Election::Unclean } else { Election::Preferred };
            ElectLeaders { election, partitions: vec![some_key] }.into()
        }
        17 => {
            let leader_epoch = image.partition(&some_key).map_or(LeaderEpoch::ZERO, |found| found.leader_epoch);
            MoveLeader { key: some_key, leader_epoch, to: broker }.into()
        }
        18 => SetConfigs {
            resource: if dice.below(2) == 0 { ConfigResource::Cluster } else { ConfigResource::Topic(topic) },
            changes: vec![ConfigChange {
                name: "min.insync.replicas".to_owned(),
                operation: if dice.below(2) == 0 { ConfigOperation::Set } else { ConfigOperation::Delete },
                value: (dice.below(2) + 1).to_string(),
            }],
        }
        .into(),
        _ => AssignMetadataPartition { broker }.into(),
    }
}

/// What must hold after any command.
fn check(before: &Image, after: &Image, index: MetadataIndex) {
    for (key, partition) in after.partitions() {
        assert!(partition.isr.iter().all(|member| partition.replicas.contains(&member.broker)));
        assert!(partition.elr.iter().all(|broker| !partition.in_isr(*broker)), "ELR and ISR share no member");
        if let Some(leader) = partition.leader {
            let broker = &after.brokers[&leader];
            assert!(broker.is_active() && partition.in_isr(leader), "{key} at {index}: a leader is live and in sync");
            assert!(broker.epoch.get() <= index.get());
            let member = partition.isr.iter().find(|member| member.broker == leader).unwrap();
            assert_eq!(member.broker_epoch, broker.epoch, "it was found in sync as this process");
        }
        for member in &partition.isr {
            let sole = partition.isr.len() == 1;
            let broker = after.brokers.get(&member.broker);
            assert!(sole || broker.is_some_and(|broker| !broker.is_fenced()), "only the last member may be away");
            assert!(sole || broker.is_some_and(|broker| broker.epoch == member.broker_epoch));
        }
        let Some(old) = before.partition(&key).filter(|_| before.topic(&key.topic_id).is_some()) else { continue };
        assert!(partition.leader_epoch >= old.leader_epoch && partition.partition_epoch >= old.partition_epoch);
        if partition != old {
            assert_eq!(partition.partition_epoch, old.partition_epoch.next());
        }
        if partition.leader != old.leader {
            assert_eq!(partition.leader_epoch, old.leader_epoch.next());
        } else if let Some(leader) = partition.leader {
            let same = before.brokers[&leader].epoch == after.brokers[&leader].epoch;
            assert!(same, "Rule: R2: another process leads in another epoch");
        }
    }
}

#[test]
fn random_commands_keep_the_invariants_and_give_equal_bytes_on_every_node() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let (mut one, mut follower) = (Image::default(), Image::default());
        for number in 1..400 {
            let index = MetadataIndex::new(number);
            let command = random_command(&mut dice, &one);
            let proposal = Proposal {
                controller_epoch: sakia_protocol::ids::ControllerEpoch::ZERO,
                wall_clock_ms: number,
                command,
            };
            let proposal = Proposal::decode(&proposal.encode()).unwrap();
            let before = one.clone();
            let result = decide(&one, index, &proposal.command);
            assert_eq!(result, decide(&follower, index, &proposal.command));
            for event in result.iter().flat_map(|decision| &decision.events) {
                one.apply(index, event);
                let mut body = Vec::new();
                event.encode_body(&mut body);
                let received = Event::decode_body(event.kind(), event.version(), &body).unwrap();
                follower.apply(index, &received);
                follower.apply(index, &received);
            }
            one.advance(index);
            follower.advance(index);
            check(&before, &one, index);
        }
        assert_eq!(one.encode(), follower.encode(), "seed {seed}");
        assert_eq!(Image::decode(&one.encode()).unwrap(), one);
    }
}

#[test]
fn a_damaged_image_is_refused() {
    let mut cluster = Cluster::with_brokers(2);
    cluster.create(&[&[1, 2]]);
    let bytes = cluster.image.encode();
    for place in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 4;
        assert!(Image::decode(&damaged).is_err(), "byte {place}");
        assert!(Image::decode(&bytes[..place]).is_err(), "cut at {place}");
    }
}

#[test]
fn a_damaged_proposal_is_refused_and_a_newer_one_is_named() {
    let proposal = Proposal {
        controller_epoch: sakia_protocol::ids::ControllerEpoch::new(3),
        wall_clock_ms: 5,
        command: DeleteTopic { topic_id: topic_id(1) }.into(),
    };
    let bytes = proposal.encode();
    for place in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 4;
        assert!(Proposal::decode(&damaged).is_err(), "byte {place}");
    }
    let mut newer = bytes[..bytes.len() - 4].to_vec();
    newer[4] = 9;
    newer.extend_from_slice(&crc32c::crc32c(&newer).to_be_bytes());
    let error = Proposal::decode(&newer).unwrap_err();
    assert_eq!(error, crate::WireError::Unknown { what: "command", kind: 8, version: 9 });
}

#[test]
fn golden_bytes_of_a_proposal() {
    let command = FenceBroker { broker: id(1), broker_epoch: BrokerEpoch::new(2) }.into();
    let epoch = sakia_protocol::ids::ControllerEpoch::new(3);
    let bytes = Proposal { controller_epoch: epoch, wall_clock_ms: 4, command }.encode();
    let head = [1, 0, 3, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2];
    assert_eq!(bytes[..bytes.len() - 4], head);
    assert_eq!(bytes[bytes.len() - 4..], crc32c::crc32c(&head).to_be_bytes());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A cluster in which every field of an image is set, and the events that made it.
fn rich_cluster() -> (Cluster, Vec<Event>) {
    let mut cluster = Cluster::with_brokers(0);
    let activation = ActivateController { node: id(9), cluster_id: String::new(), incarnation: Uuid::ZERO };
    let mut events = cluster.apply(activation).unwrap().events;
    let features = [("sakia.wal".to_owned(), FeatureRange { min: 0, max: 1 })].into();
    let first = RegisterBroker { boot_id: Uuid::from_bytes([6; 16]), features, ..registration(1, 1) };
    events.extend(cluster.apply(first).unwrap().events);
    events.extend(cluster.unfence(1).events);
    cluster.apply(registration(2, 2)).unwrap();
    cluster.unfence(2);
    let assignments = vec![vec![id(1), id(2)]];
    let configs = [("min.insync.replicas".to_owned(), "2".to_owned())].into();
    let create = CreateTopic { topic_id: topic_id(1), name: "orders".to_owned(), configs, assignments };
    events.extend(cluster.apply(create).unwrap().events);
    let add = CreatePartitions {
        topic_id: topic_id(1),
        first: PartitionIndex::new(1),
        assignments: vec![vec![id(2), id(1)]],
    };
    events.extend(cluster.apply(add).unwrap().events);
    events.extend(cluster.fence(2).events);
    cluster.fence(1);
    let change = ConfigChange { name: "a".to_owned(), operation: ConfigOperation::Set, value: "b".to_owned() };
    let set = SetConfigs { resource: ConfigResource::Group("g".to_owned()), changes: vec![change] };
    events.extend(cluster.apply(set).unwrap().events);
    let broker_epoch = cluster.epoch(1);
    events.extend(cluster.apply(AllocateProducerIds { broker: id(1), broker_epoch }).unwrap().events);
    let mut other = Cluster { image: cluster.image.clone() };
    events.extend(other.apply(DeleteTopic { topic_id: topic_id(1) }).unwrap().events);
    events.extend(other.apply(RemoveBroker { broker: id(2) }).unwrap().events);
    (cluster, events)
}

#[test]
fn golden_bytes_of_an_image() {
    let (cluster, _) = rich_cluster();
    let golden = include_str!("../../testdata/image-1.hex").trim();
    assert_eq!(hex(&cluster.image.encode()), golden, "a change of format is a new version");
}

#[test]
fn golden_bytes_of_every_event() {
    let (_, events) = rich_cluster();
    let lines: Vec<String> = events
        .iter()
        .map(|event| {
            let mut body = Vec::new();
            event.encode_body(&mut body);
            assert_eq!(Event::decode_body(event.kind(), event.version(), &body).as_ref(), Ok(event));
            assert!(Event::decode_body(event.kind(), event.version(), &body[1..]).is_err());
            format!("{} {} {}", event.kind(), event.version(), hex(&body))
        })
        .collect();
    let kinds: std::collections::BTreeSet<u16> = events.iter().map(Event::kind).collect();
    assert_eq!(kinds.len(), 11, "all kinds");
    let golden: Vec<&str> = include_str!("../../testdata/events-1.txt").lines().collect();
    assert_eq!(lines, golden, "a change of format is a new version");
}

#[test]
fn an_image_that_is_read_elsewhere_does_not_change() {
    let mut cluster = Cluster::with_brokers(2);
    cluster.create(&[&[1, 2]]);
    let seen = Arc::new(cluster.image.clone());
    cluster.fence(1);
    assert_eq!(seen.partition(&key(0)).unwrap().leader, Some(id(1)));
}
