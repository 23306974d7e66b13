//! groups-1: static members across restarts of members and of the coordinator.

use super::*;

/// Instances i1 (leader) and i2 in a stable group of generation 2: their member ids.
fn pair(rig: &mut Rig) -> (String, String) {
    let first = rig.join_static("", "i1");
    let first = rig.joined(first).member_id;
    let second = rig.join_static("", "i2");
    let again = rig.join_static(&first, "i1");
    rig.joined(again);
    let second = rig.joined(second).member_id;
    let leads = rig.sync(&first, 2, &[(&first, "one"), (&second, "two")]);
    let follows = rig.sync(&second, 2, &[]);
    assert_eq!((&rig.synced(leads).assignment[..], &rig.synced(follows).assignment[..]), (&b"one"[..], &b"two"[..]));
    assert_eq!(rig.state(), (State::Stable, 2));
    (first, second)
}

#[test]
fn a_restarted_member_takes_its_place_without_a_rebalance() {
    let mut rig = Rig::new();
    let (first, second) = pair(&mut rig);
    let back = rig.join_static("", "i2");
    let back = rig.joined(back);
    assert_eq!((error(&back), back.generation_id, &back.leader), (ErrorCode::None, 2, &first));
    assert_ne!(back.member_id, second);
    assert!(back.member_id.starts_with("i2-"));
    assert_eq!(rig.heartbeat(&first, Some("i1"), 2), ErrorCode::None, "the other sees no rebalance");
    let sync = rig.sync(&back.member_id, 2, &[]);
    assert_eq!(rig.synced(sync).assignment, "two");
    assert_eq!(rig.heartbeat(&second, Some("i2"), 2), ErrorCode::FencedInstanceId);
    let sync = rig.ask(GroupBody::Sync(SyncGroupRequest {
        group_id: GROUP.to_owned(),
        generation_id: 2,
        member_id: second.clone(),
        group_instance_id: Some("i2".to_owned()),
        ..Default::default()
    }));
    assert_eq!(ErrorCode::from_wire(rig.synced(sync).error_code), ErrorCode::FencedInstanceId);
    let old = rig.join_static(&second, "i2");
    assert_eq!(error(&rig.joined(old)), ErrorCode::FencedInstanceId);
    assert_eq!(rig.leave(&second, Some("i2")), ErrorCode::FencedInstanceId);
}

#[test]
fn a_restarted_leader_does_not_share_anew() {
    for version in [5, 9] {
        let mut rig = Rig::new();
        let (first, _) = pair(&mut rig);
        let back = rig.join_with(version, asking("", Some("i1")));
        let back = rig.joined(back);
        assert_eq!((error(&back), back.generation_id), (ErrorCode::None, 2));
        if version >= 9 {
            assert!(back.skip_assignment);
            assert_eq!((&back.leader, back.members.len()), (&back.member_id, 2));
        } else {
            assert_eq!((&back.leader, back.members.len()), (&first, 0), "it is told that another one leads");
        }
        let sync = rig.sync(&back.member_id, 2, &[]);
        assert_eq!(rig.synced(sync).assignment, "one");
        assert_eq!(rig.state(), (State::Stable, 2));
    }
}

#[test]
fn a_restarted_member_with_another_subscription_starts_a_round() {
    let mut rig = Rig::new();
    pair(&mut rig);
    let mut request = asking("", Some("i2"));
    request.protocols[0].metadata = subscription(&["t", "u"]);
    let back = rig.join_with(9, request);
    assert!(rig.waits(back));
    assert_eq!(rig.state(), (State::PreparingRebalance, 2));
}

#[test]
fn members_and_their_ids_survive_a_restart_of_the_coordinator() {
    let mut rig = Rig::new();
    let (first, second) = pair(&mut rig);
    let back = rig.join_static("", "i2");
    let back = rig.joined(back).member_id;
    rig.restart();
    assert_eq!(rig.state(), (State::Stable, 2));
    assert_eq!(rig.heartbeat(&first, Some("i1"), 2), ErrorCode::None);
    assert_eq!(rig.heartbeat(&back, Some("i2"), 2), ErrorCode::None);
    assert_eq!(rig.heartbeat(&second, Some("i2"), 2), ErrorCode::FencedInstanceId);
    let again = rig.join_static("", "i1");
    assert_eq!(rig.joined(again).generation_id, 2, "and a restart of the member right after it");
}

#[test]
fn of_two_first_joins_of_one_instance_exactly_one_survives() {
    let mut rig = Rig::new();
    let (first, _) = pair(&mut rig);
    let one = rig.join_static("", "i3");
    assert_eq!(rig.state(), (State::PreparingRebalance, 2));
    let two = rig.join_static("", "i3");
    assert_eq!(error(&rig.joined(one)), ErrorCode::FencedInstanceId);
    assert!(rig.waits(two));
    assert_eq!(rig.group().size(), 3);
    rig.join_static(&first, "i1");
    rig.join_static("", "i2");
    assert_eq!(error(&rig.joined(two)), ErrorCode::None);
}

#[test]
fn a_member_that_is_replaced_while_it_waits_for_its_assignment_is_told() {
    let mut rig = Rig::new();
    let (first, second) = pair(&mut rig);
    let again = rig.join_static(&first, "i1");
    let other = rig.join_static("", "i2");
    rig.joined(again);
    let second_now = rig.joined(other).member_id;
    assert_ne!(second_now, second);
    let waiting = rig.sync(&second_now, 3, &[]);
    let newer = rig.join_static("", "i2");
    assert_eq!(ErrorCode::from_wire(rig.synced(waiting).error_code), ErrorCode::FencedInstanceId);
    assert!(rig.waits(newer));
    assert_eq!(rig.state(), (State::PreparingRebalance, 3));
}

#[test]
fn a_replacement_that_cannot_be_stored_leaves_the_old_member_in_place() {
    let mut rig = Rig::new();
    let (_, second) = pair(&mut rig);
    rig.hold();
    let back = rig.join_static("", "i2");
    assert!(rig.waits(back));
    rig.let_go(Err(ErrorCode::NotEnoughReplicas));
    assert_eq!(error(&rig.joined(back)), ErrorCode::CoordinatorNotAvailable);
    assert_eq!(rig.heartbeat(&second, Some("i2"), 2), ErrorCode::None);
}

#[test]
fn a_static_member_that_stays_away_keeps_its_place_in_a_round_but_not_beyond_its_session() {
    let mut rig = Rig::new();
    let (first, _) = pair(&mut rig);
    rig.until(5_000);
    let again = rig.join_static(&first, "i1");
    assert!(rig.waits(again), "the round waits for i2");
    rig.until(9_999);
    assert_eq!(rig.group().size(), 2);
    rig.until(10_000);
    let again = rig.joined(again);
    assert_eq!((again.generation_id, again.members.len()), (3, 1), "its partitions move");
}

#[test]
fn a_round_that_ends_before_the_session_keeps_the_absent_static_member_as_a_member() {
    let mut rig = Rig::new();
    let mut request = asking("", Some("i1"));
    request.session_timeout_ms = 100_000;
    let first = rig.join_with(9, request.clone());
    let first = rig.joined(first).member_id;
    let mut other = request.clone();
    other.group_instance_id = Some("i2".to_owned());
    rig.join_with(9, other);
    request.member_id = first;
    let again = rig.join_with(9, request.clone());
    rig.joined(again);
    assert_eq!(rig.state(), (State::CompletingRebalance, 2));
    let again = rig.join_with(9, {
        request.protocols[0].metadata = subscription(&["u"]);
        request
    });
    rig.until(60_000);
    let again = rig.joined(again);
    assert_eq!((again.generation_id, again.members.len()), (3, 2), "i2 still counts");
}

#[test]
fn static_members_leave_by_instance_id_alone() {
    let mut rig = Rig::new();
    pair(&mut rig);
    assert_eq!(rig.leave("", Some("i9")), ErrorCode::UnknownMemberId);
    assert_eq!(rig.leave("", Some("i2")), ErrorCode::None);
    assert_eq!(rig.group().size(), 1);
}
