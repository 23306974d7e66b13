//! groups-2: who may commit offsets, and what a fetch shows.

use sakia_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use sakia_protocol::messages::offset_fetch::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponsePartitions,
};

use super::super::limits::OFFSET_METADATA_BYTES_MAX;
use super::*;

fn row(partition: i32, offset: i64, metadata: &str) -> OffsetCommitRequestPartition {
    OffsetCommitRequestPartition {
        partition_index: partition,
        committed_offset: offset,
        committed_leader_epoch: 4,
        committed_metadata: Some(metadata.to_owned()),
    }
}

fn committing(member_id: &str, generation: i32, partitions: Vec<OffsetCommitRequestPartition>) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: GROUP.to_owned(),
        generation_id_or_member_epoch: generation,
        member_id: member_id.to_owned(),
        topics: vec![OffsetCommitRequestTopic { name: "t".to_owned(), partitions, ..Default::default() }],
        ..Default::default()
    }
}

fn codes(rig: &mut Rig, ticket: Ticket) -> Vec<(i32, ErrorCode)> {
    match rig.answer(ticket) {
        Some(GroupAnswer::Commit(answer)) => {
            let rows = answer.topics.iter().flat_map(|topic| &topic.partitions);
            rows.map(|row| (row.partition_index, ErrorCode::from_wire(row.error_code))).collect()
        }
        other => panic!("no answer to a commit: {other:?}"),
    }
}

fn commit(rig: &mut Rig, member_id: &str, generation: i32, offset: i64) -> ErrorCode {
    let ticket = rig.ask(GroupBody::Commit(committing(member_id, generation, vec![row(0, offset, "")])));
    let codes = codes(rig, ticket);
    assert_eq!(codes.len(), 1);
    codes[0].1
}

fn fetch(rig: &mut Rig, topics: Option<Vec<i32>>) -> Vec<OffsetFetchResponsePartitions> {
    let topics = topics.map(|partition_indexes| {
        vec![OffsetFetchRequestTopics { name: "t".to_owned(), partition_indexes, ..Default::default() }]
    });
    let asked = OffsetFetchRequestGroup { group_id: GROUP.to_owned(), topics, ..Default::default() };
    let ticket = rig.ask(GroupBody::FetchOffsets(asked));
    match rig.answer(ticket) {
        Some(GroupAnswer::FetchOffsets(answer)) => {
            assert_eq!(answer.error_code, 0);
            answer.topics.into_iter().flat_map(|topic| topic.partitions).collect()
        }
        other => panic!("no answer to a fetch of offsets: {other:?}"),
    }
}

fn offset(rig: &mut Rig) -> i64 {
    fetch(rig, Some(vec![0]))[0].committed_offset
}

#[test]
fn without_members_anybody_may_commit_who_claims_no_generation() {
    let mut rig = Rig::new();
    assert_eq!(commit(&mut rig, "", 0, 5), ErrorCode::IllegalGeneration, "no such group");
    assert_eq!(commit(&mut rig, "who", 3, 5), ErrorCode::IllegalGeneration);
    assert_eq!(offset(&mut rig), -1);
    assert!(rig.coordinator.is_empty());
    assert_eq!(commit(&mut rig, "", -1, 5), ErrorCode::None);
    assert_eq!(offset(&mut rig), 5);
    assert_eq!(rig.state(), (State::Empty, 0));
    assert_eq!(commit(&mut rig, "", -1, 6), ErrorCode::None);
    assert_eq!(commit(&mut rig, "who", 0, 7), ErrorCode::UnknownMemberId);
    assert_eq!(offset(&mut rig), 6);
}

#[test]
fn with_members_only_a_member_of_the_generation_may_commit() {
    let mut rig = Rig::new();
    let (leader, other) = rig.stable_pair();
    assert_eq!(commit(&mut rig, "", -1, 1), ErrorCode::UnknownMemberId, "somebody else while members are active");
    assert_eq!(commit(&mut rig, &leader, 1, 1), ErrorCode::IllegalGeneration);
    assert_eq!(commit(&mut rig, &leader, -1, 1), ErrorCode::IllegalGeneration);
    assert_eq!(commit(&mut rig, "who", 2, 1), ErrorCode::UnknownMemberId);
    assert_eq!(offset(&mut rig), -1);
    assert_eq!(commit(&mut rig, &leader, 2, 1), ErrorCode::None);
    // While the others join again it may still say how far it came.
    let third = rig.join_new();
    assert_eq!(commit(&mut rig, &leader, 2, 2), ErrorCode::None);
    let (a, b) = (rig.join(&leader), rig.join(&other));
    assert_eq!([third, a, b].map(|ticket| rig.joined(ticket).generation_id), [3; 3]);
    assert_eq!(commit(&mut rig, &leader, 3, 3), ErrorCode::RebalanceInProgress, "it waits for sync");
    assert_eq!(offset(&mut rig), 2);
}

#[test]
fn a_commit_is_a_sign_of_life() {
    let mut rig = Rig::new();
    let (leader, other) = rig.stable_pair();
    for now in [8_000, 16_000, 24_000] {
        rig.until(now);
        assert_eq!(commit(&mut rig, &leader, 2, 1), ErrorCode::None);
        assert_eq!(commit(&mut rig, &other, 2, 1), ErrorCode::None);
    }
    assert_eq!(rig.state(), (State::Stable, 2));
}

#[test]
fn metadata_up_to_the_bound_is_kept_and_more_is_refused_for_its_partition_alone() {
    let mut rig = Rig::new();
    let (fits, exceeds) = ("x".repeat(OFFSET_METADATA_BYTES_MAX), "x".repeat(OFFSET_METADATA_BYTES_MAX + 1));
    let rows = vec![row(0, 1, &fits), row(1, 2, &exceeds), row(2, 3, "")];
    let ticket = rig.ask(GroupBody::Commit(committing("", -1, rows)));
    let expected = [(0, ErrorCode::None), (1, ErrorCode::OffsetMetadataTooLarge), (2, ErrorCode::None)];
    assert_eq!(codes(&mut rig, ticket), expected);
    let shown = fetch(&mut rig, Some(vec![0, 1, 2]));
    assert_eq!(shown[0].metadata.as_deref(), Some(fits.as_str()));
    assert_eq!((shown[0].committed_offset, shown[0].committed_leader_epoch), (1, 4));
    assert_eq!((shown[1].committed_offset, shown[1].error_code), (-1, 0));
    assert_eq!(shown[2].committed_offset, 3);
    assert_eq!(fetch(&mut rig, None).len(), 2, "all that are committed");
}

#[test]
fn an_offset_shows_when_its_record_stands_and_not_at_all_if_it_does_not() {
    let mut rig = Rig::new();
    commit(&mut rig, "", -1, 5);
    rig.hold();
    let ticket = rig.ask(GroupBody::Commit(committing("", -1, vec![row(0, 9, "")])));
    assert!(rig.waits(ticket));
    assert_eq!(offset(&mut rig), 5);
    rig.let_go(Err(ErrorCode::RequestTimedOut));
    assert_eq!(codes(&mut rig, ticket), [(0, ErrorCode::CoordinatorNotAvailable)]);
    assert_eq!(offset(&mut rig), 5);
    rig.hold();
    let ticket = rig.ask(GroupBody::Commit(committing("", -1, vec![row(0, 9, "")])));
    rig.let_go(Ok(()));
    assert_eq!(codes(&mut rig, ticket), [(0, ErrorCode::None)]);
    rig.restart();
    assert_eq!(offset(&mut rig), 9);
}

#[test]
fn the_first_commit_of_a_group_that_fails_leaves_no_group() {
    let mut rig = Rig::new();
    rig.hold();
    let ticket = rig.ask(GroupBody::Commit(committing("", -1, vec![row(0, 9, "")])));
    assert_eq!(rig.coordinator.len(), 1);
    rig.let_go(Err(ErrorCode::NotLeaderOrFollower));
    assert_eq!(codes(&mut rig, ticket), [(0, ErrorCode::NotCoordinator)]);
    assert!(rig.coordinator.is_empty());
}

#[test]
fn offsets_are_forgotten_after_their_retention() {
    let day = 24 * 60 * 60 * 1000;
    let mut rig = Rig::new();
    commit(&mut rig, "", -1, 5);
    let mut with_retention = committing("", -1, vec![row(1, 6, "")]);
    with_retention.retention_time_ms = 10 * i64::try_from(day).expect("small");
    let ticket = rig.ask(GroupBody::Commit(with_retention));
    codes(&mut rig, ticket);
    rig.restart();
    rig.until(7 * day - 1);
    let effects = rig.coordinator.expire_offsets(rig.clock());
    assert!(effects.is_empty());
    rig.until(7 * day);
    let effects = rig.coordinator.expire_offsets(rig.clock());
    rig.take(effects);
    assert_eq!(offset(&mut rig), -1);
    assert_eq!(fetch(&mut rig, None).len(), 1, "its client asked for 10 days");
    rig.until(10 * day);
    let effects = rig.coordinator.expire_offsets(rig.clock());
    rig.take(effects);
    assert!(rig.coordinator.is_empty(), "nothing is left, so the group goes too");
    rig.restart();
    assert!(rig.coordinator.is_empty());
}

#[test]
fn offsets_of_a_live_group_are_kept_while_their_topic_is_subscribed() {
    let day = 24 * 60 * 60 * 1000;
    let mut rig = Rig::new();
    let (leader, other) = rig.stable_pair();
    commit(&mut rig, &leader, 2, 5);
    let mut foreign = committing(&leader, 2, vec![row(0, 6, "")]);
    foreign.topics[0].name = "u".to_owned();
    let ticket = rig.ask(GroupBody::Commit(foreign));
    codes(&mut rig, ticket);
    rig.now = 8 * day;
    let effects = rig.coordinator.expire_offsets(rig.clock());
    rig.take(effects);
    assert_eq!(offset(&mut rig), 5);
    assert_eq!(fetch(&mut rig, None).len(), 1, "nobody reads topic u");
    rig.leave(&leader, None);
    rig.leave(&other, None);
    let effects = rig.coordinator.expire_offsets(rig.clock());
    rig.take(effects);
    assert_eq!(offset(&mut rig), 5, "the retention begins when the group is left");
    rig.now = 15 * day;
    let effects = rig.coordinator.expire_offsets(rig.clock());
    rig.take(effects);
    assert!(rig.coordinator.is_empty());
}
