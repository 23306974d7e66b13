//! Empty → PreparingRebalance → CompletingRebalance, and back by new joins and by time.

use super::*;

#[test]
fn from_version_4_a_new_member_first_gets_an_id() {
    let mut rig = Rig::new();
    let first = rig.join_with(4, asking("", None));
    let first = rig.joined(first);
    assert_eq!(error(&first), ErrorCode::MemberIdRequired);
    assert!(first.member_id.starts_with("client-"), "{}", first.member_id);
    assert_eq!(rig.state(), (State::Empty, 0));
    let again = rig.join(&first.member_id);
    let again = rig.joined(again);
    assert_eq!((error(&again), again.generation_id, &again.leader), (ErrorCode::None, 1, &first.member_id));
    assert_eq!(again.members.len(), 1);
    assert_eq!(again.protocol_name.as_deref(), Some("range"));
    assert_eq!(rig.state(), (State::CompletingRebalance, 1));
}

#[test]
fn an_id_that_was_given_out_is_kept_for_the_session_time() {
    let mut rig = Rig::new();
    let first = rig.join_with(4, asking("", None));
    let member_id = rig.joined(first).member_id;
    rig.until(10_000);
    assert!(rig.coordinator.is_empty(), "nothing is left of it");
    let late = rig.join(&member_id);
    assert_eq!(error(&rig.joined(late)), ErrorCode::UnknownMemberId);
}

#[test]
fn the_first_round_waits_and_goes_on_waiting_while_members_come() {
    let mut rig = Rig::with(GroupSettings::default());
    let first = rig.join_new();
    rig.until(2_000);
    let second = rig.join_new();
    rig.until(5_999);
    assert!(rig.waits(first) && rig.waits(second), "3 s, then 3 s more since somebody came");
    rig.until(6_000);
    let (first, second) = (rig.joined(first), rig.joined(second));
    assert_eq!((first.generation_id, second.generation_id), (1, 1));
    assert_eq!(first.members.len(), 2, "the first to come leads");
    assert!(second.members.is_empty());
    assert_eq!(second.leader, first.member_id);
}

#[test]
fn the_first_round_ends_after_the_rebalance_timeout_whoever_comes() {
    let mut rig = Rig::with(GroupSettings::default());
    let mut request = asking("", None);
    request.rebalance_timeout_ms = 7_000;
    let first = rig.join_with(3, request.clone());
    for second in 1..7 {
        rig.until(second * 1000);
        rig.join_with(3, request.clone());
    }
    rig.until(6_999);
    assert!(rig.waits(first));
    rig.until(7_000);
    assert_eq!(rig.joined(first).members.len(), 7);
}

#[test]
fn a_new_member_makes_all_others_join_again_and_who_does_not_is_dropped() {
    let mut rig = Rig::new();
    let (leader, other) = rig.stable_pair();
    let third = rig.join_new();
    assert_eq!(rig.state(), (State::PreparingRebalance, 2));
    assert_eq!(rig.heartbeat(&leader, None, 2), ErrorCode::RebalanceInProgress);
    let again = rig.join(&other);
    for now in (5_000..60_000).step_by(5_000) {
        // The leader says that it lives, but does not come.
        rig.until(now);
        rig.heartbeat(&leader, None, 2);
    }
    assert!(rig.waits(third) && rig.waits(again));
    rig.until(60_000);
    let (third, again) = (rig.joined(third), rig.joined(again));
    assert_eq!((third.generation_id, again.generation_id), (3, 3));
    assert_eq!(again.leader, other, "the oldest of those that came leads");
    assert_eq!(rig.group().size(), 2);
    assert_eq!(rig.heartbeat(&leader, None, 2), ErrorCode::UnknownMemberId);
}

#[test]
fn a_follower_that_joins_unchanged_gets_the_same_generation_and_a_leader_starts_a_round() {
    let mut rig = Rig::new();
    let (leader, other) = rig.stable_pair();
    let again = rig.join(&other);
    let again = rig.joined(again);
    assert_eq!((error(&again), again.generation_id, again.leader), (ErrorCode::None, 2, leader.clone()));
    assert_eq!(rig.state(), (State::Stable, 2));
    let again = rig.join(&leader);
    assert!(rig.waits(again));
    assert_eq!(rig.state(), (State::PreparingRebalance, 2));
}

#[test]
fn a_follower_that_joins_with_other_metadata_starts_a_round() {
    let mut rig = Rig::new();
    let (_, other) = rig.stable_pair();
    let mut request = asking(&other, None);
    request.protocols[0].metadata = subscription(&["t", "u"]);
    let again = rig.join_with(5, request);
    assert!(rig.waits(again));
    assert_eq!(rig.state(), (State::PreparingRebalance, 2));
}

#[test]
fn a_join_whose_answer_was_lost_is_answered_again_while_the_assignment_is_awaited() {
    let mut rig = Rig::new();
    let first = rig.join_new();
    let first = rig.joined(first);
    let again = rig.join(&first.member_id);
    let again = rig.joined(again);
    assert_eq!((again.generation_id, again.members.len()), (1, 1));
    assert_eq!(rig.state(), (State::CompletingRebalance, 1));
}

#[test]
fn joins_that_cannot_be_are_refused_by_name() {
    let mut rig = Rig::new();
    let mut refused = |change: &dyn Fn(&mut JoinGroupRequest)| {
        let mut request = asking("", None);
        change(&mut request);
        let ticket = rig.join_with(3, request);
        error(&rig.joined(ticket))
    };
    assert_eq!(refused(&|r| r.group_id.clear()), ErrorCode::InvalidGroupId);
    assert_eq!(refused(&|r| r.session_timeout_ms = 5_999), ErrorCode::InvalidSessionTimeout);
    assert_eq!(refused(&|r| r.session_timeout_ms = 1_800_001), ErrorCode::InvalidSessionTimeout);
    assert_eq!(refused(&|r| r.member_id = "who".to_owned()), ErrorCode::UnknownMemberId);
    assert_eq!(refused(&|r| r.protocols.clear()), ErrorCode::InconsistentGroupProtocol);
    assert_eq!(refused(&|r| r.protocol_type.clear()), ErrorCode::InconsistentGroupProtocol);
    assert!(rig.coordinator.is_empty(), "a refused join leaves no group");
    rig.stable_pair();
    let mut other = asking("", None);
    other.protocols = protocols(&["cooperative-sticky"]);
    let ticket = rig.join_with(3, other);
    assert_eq!(error(&rig.joined(ticket)), ErrorCode::InconsistentGroupProtocol);
    let mut other = asking("", None);
    other.protocol_type = "connect".to_owned();
    let ticket = rig.join_with(3, other);
    assert_eq!(error(&rig.joined(ticket)), ErrorCode::InconsistentGroupProtocol);
    assert_eq!(rig.state(), (State::Stable, 2));
}

#[test]
fn a_full_group_takes_nobody_but_keeps_its_members() {
    let settings = GroupSettings { initial_rebalance_delay: Duration::ZERO, group_size_max: 2, ..Default::default() };
    let mut rig = Rig::with(settings);
    let (leader, _) = rig.stable_pair();
    let third = rig.join_new();
    assert_eq!(error(&rig.joined(third)), ErrorCode::GroupMaxSizeReached);
    let again = rig.join(&leader);
    assert!(rig.waits(again), "a member may join again");
}

#[test]
fn the_protocol_is_the_one_that_most_members_prefer_of_those_that_all_speak() {
    let mut rig = Rig::with(GroupSettings::default());
    let mut tickets = Vec::new();
    for names in [&["a", "b", "c"][..], &["c", "b"], &["c", "b", "d"]] {
        let mut request = asking("", None);
        request.protocols = protocols(names);
        tickets.push(rig.join_with(3, request));
    }
    rig.until(60_000);
    let leader = rig.joined(tickets[0]);
    assert_eq!(leader.protocol_name.as_deref(), Some("c"));
}

#[test]
fn while_loading_and_after_resigning_everybody_is_told() {
    let mut rig = Rig::new();
    rig.stable_pair();
    let waiting = rig.join_new();
    let coordinator = std::mem::replace(&mut rig.coordinator, Coordinator::new(GroupSettings::default()));
    let effects = coordinator.resign();
    rig.take(effects);
    assert_eq!(error(&rig.joined(waiting)), ErrorCode::NotCoordinator);
    let early = rig.join_new();
    assert_eq!(error(&rig.joined(early)), ErrorCode::CoordinatorLoadInProgress);
}

#[test]
fn a_member_that_was_never_heard_of_again_while_it_waits_to_join_first_is_dropped() {
    let mut rig = Rig::new();
    let (leader, other) = rig.stable_pair();
    let mut request = asking("", None);
    request.rebalance_timeout_ms = 1_000_000;
    let patient = rig.join_with(3, request);
    for now in (5_000..=300_000).step_by(5_000) {
        rig.until(now);
        rig.heartbeat(&leader, None, 2);
        rig.heartbeat(&other, None, 2);
    }
    assert_eq!(error(&rig.joined(patient)), ErrorCode::UnknownMemberId);
}
