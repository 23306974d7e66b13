//! Looking at groups and deleting them.

use sakia_protocol::messages::describe_groups::DescribedGroup;
use sakia_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use sakia_protocol::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};

use super::*;

fn commit(rig: &mut Rig, topic: &str, member_id: &str, generation: i32) {
    let row = OffsetCommitRequestPartition { committed_offset: 1, ..Default::default() };
    let rows = OffsetCommitRequestTopic { name: topic.to_owned(), partitions: vec![row], ..Default::default() };
    let ticket = rig.ask(GroupBody::Commit(OffsetCommitRequest {
        group_id: GROUP.to_owned(),
        generation_id_or_member_epoch: generation,
        member_id: member_id.to_owned(),
        topics: vec![rows],
        ..Default::default()
    }));
    rig.answer(ticket).expect("it is answered");
}

fn describe(rig: &mut Rig, version: i16) -> DescribedGroup {
    let ticket = rig.ask(GroupBody::Describe { version, group_id: GROUP.to_owned() });
    match rig.answer(ticket) {
        Some(GroupAnswer::Describe(answer)) => answer,
        other => panic!("{other:?}"),
    }
}

fn listed(rig: &mut Rig, states: &[&str], types: &[&str]) -> Vec<String> {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let ticket = rig.ask(GroupBody::List { states: owned(states), types: owned(types) });
    match rig.answer(ticket) {
        Some(GroupAnswer::List { groups, .. }) => groups.into_iter().map(|group| group.group_state).collect(),
        other => panic!("{other:?}"),
    }
}

fn delete(rig: &mut Rig) -> ErrorCode {
    let ticket = rig.ask(GroupBody::Delete { group_id: GROUP.to_owned() });
    match rig.answer(ticket) {
        Some(GroupAnswer::Delete(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn delete_offset(rig: &mut Rig, topic: &str) -> (ErrorCode, Option<ErrorCode>) {
    let rows = vec![OffsetDeleteRequestPartition { partition_index: 0 }];
    let topics = vec![OffsetDeleteRequestTopic { name: topic.to_owned(), partitions: rows }];
    let ticket = rig.ask(GroupBody::DeleteOffsets(OffsetDeleteRequest { group_id: GROUP.to_owned(), topics }));
    match rig.answer(ticket) {
        Some(GroupAnswer::DeleteOffsets(answer)) => {
            let row = answer.topics.first().map(|topic| ErrorCode::from_wire(topic.partitions[0].error_code));
            (ErrorCode::from_wire(answer.error_code), row)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_group_that_does_not_exist_is_dead_and_from_version_6_an_error() {
    let mut rig = Rig::new();
    let old = describe(&mut rig, 5);
    assert_eq!((old.error_code, old.group_state.as_str()), (0, "Dead"));
    let new = describe(&mut rig, 6);
    assert_eq!((ErrorCode::from_wire(new.error_code), new.group_state.as_str()), (ErrorCode::GroupIdNotFound, "Dead"));
    assert_eq!(delete(&mut rig), ErrorCode::GroupIdNotFound);
    assert_eq!(delete_offset(&mut rig, "t").0, ErrorCode::GroupIdNotFound);
}

#[test]
fn a_stable_group_shows_its_members_with_their_parts() {
    let mut rig = Rig::new();
    let (leader, _) = rig.stable_pair();
    let shown = describe(&mut rig, 5);
    assert_eq!((shown.group_state.as_str(), shown.protocol_type.as_str()), ("Stable", "consumer"));
    assert_eq!(shown.protocol_data, "range");
    let member = shown.members.iter().find(|member| member.member_id == leader).expect("it is a member");
    assert_eq!((&member.member_assignment[..], member.client_host.as_str()), (&b"one"[..], "/10.0.0.1"));
    assert_eq!(member.member_metadata, subscription(&["t"]));
    rig.join_new();
    let shown = describe(&mut rig, 5);
    assert_eq!((shown.group_state.as_str(), shown.protocol_data.as_str()), ("PreparingRebalance", ""));
    assert!(shown.members.iter().all(|member| member.member_assignment.is_empty()));
}

#[test]
fn lists_are_filtered_by_state_and_type() {
    let mut rig = Rig::new();
    rig.stable_pair();
    assert_eq!(listed(&mut rig, &[], &[]), ["Stable"]);
    assert_eq!(listed(&mut rig, &["stable", "Empty"], &["Classic"]), ["Stable"]);
    assert!(listed(&mut rig, &["Empty"], &[]).is_empty());
    assert!(listed(&mut rig, &[], &["consumer"]).is_empty());
}

#[test]
fn only_a_group_without_members_is_deleted_and_then_for_good() {
    let mut rig = Rig::new();
    let (leader, other) = rig.stable_pair();
    commit(&mut rig, "t", &leader, 2);
    assert_eq!(delete(&mut rig), ErrorCode::NonEmptyGroup);
    rig.leave(&leader, None);
    rig.leave(&other, None);
    assert_eq!(delete(&mut rig), ErrorCode::None);
    assert!(rig.coordinator.is_empty());
    rig.restart();
    assert!(rig.coordinator.is_empty());
}

#[test]
fn a_commit_that_is_under_way_does_not_bring_a_deleted_group_back() {
    let mut rig = Rig::new();
    commit(&mut rig, "t", "", -1);
    rig.hold();
    let row = OffsetCommitRequestPartition { committed_offset: 7, ..Default::default() };
    let rows = OffsetCommitRequestTopic { name: "t".to_owned(), partitions: vec![row], ..Default::default() };
    let late = rig.ask(GroupBody::Commit(OffsetCommitRequest {
        group_id: GROUP.to_owned(),
        generation_id_or_member_epoch: -1,
        topics: vec![rows],
        ..Default::default()
    }));
    let deleted = rig.ask(GroupBody::Delete { group_id: GROUP.to_owned() });
    rig.let_go(Ok(()));
    assert!(rig.answer(late).is_some());
    assert_eq!(rig.answer(deleted), Some(GroupAnswer::Delete(ErrorCode::None)));
    assert!(rig.coordinator.is_empty());
    rig.restart();
    assert!(rig.coordinator.is_empty(), "the log says the same");
}

#[test]
fn offsets_of_topics_that_are_read_are_not_deleted() {
    let mut rig = Rig::new();
    let (leader, _) = rig.stable_pair();
    commit(&mut rig, "t", &leader, 2);
    commit(&mut rig, "u", &leader, 2);
    assert_eq!(delete_offset(&mut rig, "t"), (ErrorCode::None, Some(ErrorCode::GroupSubscribedToTopic)));
    assert_eq!(delete_offset(&mut rig, "u"), (ErrorCode::None, Some(ErrorCode::None)));
    assert_eq!(rig.group().offsets.len(), 1);
}

#[test]
fn offsets_of_a_deleted_topic_go_with_it() {
    let mut rig = Rig::new();
    commit(&mut rig, "t", "", -1);
    commit(&mut rig, "u", "", -1);
    let effects = rig.coordinator.on_topic_deleted("t", rig.clock());
    rig.take(effects);
    rig.restart();
    assert_eq!(rig.group().offsets.len(), 1);
    assert!(rig.group().offsets.of("u", 0).is_some());
}
