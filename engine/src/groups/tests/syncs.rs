//! CompletingRebalance → Stable, staying in it, and leaving.

use super::*;

#[test]
fn the_assignment_is_stored_before_anybody_gets_it() {
    let mut rig = Rig::new();
    let first = rig.join_new();
    let first = rig.joined(first).member_id;
    rig.hold();
    let sync = rig.sync(&first, 1, &[(&first, "all")]);
    assert!(rig.waits(sync));
    assert_eq!(rig.state(), (State::CompletingRebalance, 1));
    rig.let_go(Ok(()));
    let answer = rig.synced(sync);
    assert_eq!((answer.error_code, &answer.assignment[..]), (0, &b"all"[..]));
    assert_eq!(answer.protocol_name.as_deref(), Some("range"));
    assert_eq!(rig.state(), (State::Stable, 1));
    let again = rig.sync(&first, 1, &[]);
    assert_eq!(rig.synced(again).assignment, "all");
}

#[test]
fn an_assignment_that_could_not_be_stored_starts_a_round() {
    let mut rig = Rig::new();
    let first = rig.join_new();
    let first = rig.joined(first).member_id;
    rig.hold();
    let sync = rig.sync(&first, 1, &[(&first, "all")]);
    rig.let_go(Err(ErrorCode::NotEnoughReplicas));
    assert_eq!(ErrorCode::from_wire(rig.synced(sync).error_code), ErrorCode::CoordinatorNotAvailable);
    assert_eq!(rig.state(), (State::PreparingRebalance, 1));
    let again = rig.join(&first);
    assert_eq!(rig.joined(again).generation_id, 2);
}

#[test]
fn an_assignment_of_a_generation_that_is_over_is_forgotten() {
    let mut rig = Rig::new();
    let first = rig.join_new();
    let first = rig.joined(first).member_id;
    rig.hold();
    let sync = rig.sync(&first, 1, &[(&first, "all")]);
    let second = rig.join_new();
    assert_eq!(ErrorCode::from_wire(rig.synced(sync).error_code), ErrorCode::RebalanceInProgress);
    rig.let_go(Ok(()));
    assert_eq!(rig.state(), (State::PreparingRebalance, 1));
    let again = rig.join(&first);
    assert_eq!((rig.joined(again).generation_id, rig.joined(second).generation_id), (2, 2));
}

#[test]
fn syncs_that_cannot_be_are_refused_by_name() {
    let mut rig = Rig::new();
    let unknown = rig.sync("who", 1, &[]);
    assert_eq!(ErrorCode::from_wire(rig.synced(unknown).error_code), ErrorCode::UnknownMemberId);
    let (leader, other) = rig.stable_pair();
    let old = rig.sync(&leader, 1, &[]);
    assert_eq!(ErrorCode::from_wire(rig.synced(old).error_code), ErrorCode::IllegalGeneration);
    let stranger = rig.sync("who", 2, &[]);
    assert_eq!(ErrorCode::from_wire(rig.synced(stranger).error_code), ErrorCode::UnknownMemberId);
    let wrong = rig.ask(GroupBody::Sync(SyncGroupRequest {
        group_id: GROUP.to_owned(),
        generation_id: 2,
        member_id: other,
        protocol_name: Some("sticky".to_owned()),
        ..Default::default()
    }));
    assert_eq!(ErrorCode::from_wire(rig.synced(wrong).error_code), ErrorCode::InconsistentGroupProtocol);
    rig.join_new();
    let late = rig.sync(&leader, 2, &[]);
    assert_eq!(ErrorCode::from_wire(rig.synced(late).error_code), ErrorCode::RebalanceInProgress);
}

#[test]
fn members_that_never_fetch_their_assignment_are_dropped() {
    let mut rig = Rig::new();
    let (leader, other) = rig.stable_pair();
    let third = rig.join_new();
    let (a, b) = (rig.join(&leader), rig.join(&other));
    let (third, _, _) = (rig.joined(third), rig.joined(a), rig.joined(b));
    rig.sync(&leader, 3, &[]);
    rig.sync(&other, 3, &[]);
    assert_eq!(rig.state(), (State::Stable, 3));
    for now in (5_000..=60_000).step_by(5_000) {
        rig.until(now);
        for member in [&leader, &other, &third.member_id] {
            rig.heartbeat(member, None, 3);
        }
    }
    assert_eq!(rig.state(), (State::PreparingRebalance, 3));
    assert_eq!(rig.group().size(), 2, "the one without an assignment is gone");
}

#[test]
fn heartbeats_are_judged_by_member_and_generation() {
    let mut rig = Rig::new();
    assert_eq!(rig.heartbeat("who", None, 1), ErrorCode::UnknownMemberId);
    let (leader, other) = rig.stable_pair();
    assert_eq!(rig.heartbeat(&leader, None, 2), ErrorCode::None);
    assert_eq!(rig.heartbeat(&leader, None, 1), ErrorCode::IllegalGeneration);
    assert_eq!(rig.heartbeat("who", None, 2), ErrorCode::UnknownMemberId);
    assert_eq!(rig.heartbeat(&other, Some("i"), 2), ErrorCode::UnknownMemberId);
}

#[test]
fn a_silent_member_is_dropped_after_its_session_and_the_others_share_anew() {
    let mut rig = Rig::new();
    let (leader, other) = rig.stable_pair();
    rig.until(9_000);
    rig.heartbeat(&leader, None, 2);
    rig.until(9_999);
    assert_eq!(rig.state(), (State::Stable, 2));
    rig.until(10_000);
    assert_eq!(rig.state(), (State::PreparingRebalance, 2));
    let again = rig.join(&leader);
    assert_eq!(rig.joined(again).generation_id, 3);
    assert_eq!(rig.heartbeat(&other, None, 2), ErrorCode::UnknownMemberId);
}

#[test]
fn who_leaves_is_gone_at_once_and_the_last_one_leaves_an_empty_group() {
    let mut rig = Rig::new();
    let (leader, other) = rig.stable_pair();
    assert_eq!(rig.leave("who", None), ErrorCode::UnknownMemberId);
    assert_eq!(rig.leave(&leader, None), ErrorCode::None);
    assert_eq!(rig.state(), (State::PreparingRebalance, 2));
    let again = rig.join(&other);
    let again = rig.joined(again);
    assert_eq!((again.generation_id, again.leader), (3, other.clone()));
    assert_eq!(rig.leave(&other, None), ErrorCode::None);
    assert_eq!(rig.state(), (State::Empty, 4));
    let request = LeaveGroupRequest { group_id: GROUP.to_owned(), member_id: other, ..Default::default() };
    let old = rig.ask(GroupBody::Leave { version: 2, request });
    match rig.answer(old) {
        Some(GroupAnswer::Leave(answer)) => assert_eq!(answer.error_code, ErrorCode::UnknownMemberId.code()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_promised_id_that_is_given_back_no_longer_holds_up_the_round() {
    let mut rig = Rig::new();
    let (leader, other) = rig.stable_pair();
    let promised = rig.join_with(4, asking("", None));
    let promised = rig.joined(promised).member_id;
    let (a, b) = (rig.join(&leader), rig.join(&other));
    assert!(rig.waits(a), "somebody is about to join");
    assert_eq!(rig.leave(&promised, None), ErrorCode::None);
    assert_eq!((rig.joined(a).generation_id, rig.joined(b).generation_id), (3, 3));
}

#[test]
fn dynamic_members_go_on_after_a_restart_of_the_coordinator() {
    let mut rig = Rig::new();
    let (leader, other) = rig.stable_pair();
    rig.restart();
    assert_eq!(rig.state(), (State::Stable, 2));
    for (member, part) in [(&leader, "one"), (&other, "two")] {
        assert_eq!(rig.heartbeat(member, None, 2), ErrorCode::None);
        let sync = rig.sync(member, 2, &[]);
        assert_eq!(rig.synced(sync).assignment, part);
    }
    rig.until(10_000);
    assert_eq!(rig.group().size(), 0, "a fresh session, and no longer");
}
