//! R9 and R12 from the leader's side: references, bytes, or nothing yet.

use super::super::fetch_plan::{BytesReason, Plan, ReplyBudget, Situation, plan};
use super::super::progress::HandedBy;
use super::super::upload::{GaveUp, UploadProgress};
use super::super::wal_index::{HeldLog, WalIndex};
use super::*;

const FALLBACK: Duration = Duration::from_millis(1000);

struct Case {
    leader: LeaderState,
    upload: Option<UploadProgress>,
    index: WalIndex,
    appended: i64,
}

impl Case {
    fn new(stored: i64) -> Self {
        let mut index = WalIndex::new(1 << 20);
        index.open(key(), 1);
        Self {
            leader: LeaderState::new(leadership(&[OTHER], stored), ms(0)),
            upload: Some(UploadProgress::new(Offset::ZERO, FALLBACK)),
            index,
            appended: stored,
        }
    }

    fn upload(&mut self) -> &mut UploadProgress {
        self.upload.as_mut().expect("this case has uploads")
    }

    fn publish(&mut self, slice: IndexedSlice) {
        let epochs = one_epoch();
        let held = HeldLog { local_start: Offset::ZERO, appended: at(self.appended), epochs: &epochs };
        self.index.insert(key(), 1, slice, held, ms(0));
        self.upload().published(slice.base, slice.next);
    }

    fn ask(&mut self, asked: ReplicaFetch, now: u64) -> Plan {
        self.ask_within(asked, now, &mut ReplyBudget::new(1 << 20))
    }

    fn ask_within(&mut self, asked: ReplicaFetch, now: u64, budget: &mut ReplyBudget) -> Plan {
        let taken = checked(asked, &self.leader, self.appended);
        self.leader.on_follower_fetch(&taken, ms(now));
        let situation = Situation {
            key: key(),
            leader: &self.leader,
            upload: self.upload.as_ref(),
            index: &self.index,
            bytes_max: 1 << 20,
            fallback_after: FALLBACK,
            now: ms(now),
        };
        let plan = plan(&taken, situation, budget);
        let given = match &plan {
            Plan::References(slices) => slices.last().map(|slice| (slice.next, HandedBy::Reference)),
            Plan::Bytes { below, .. } => Some((*below, HandedBy::Bytes)),
            Plan::Empty { .. } => None,
        };
        self.leader.on_answered(OTHER, asked.stamp, given, ms(now));
        plan
    }
}

fn bytes(from: i64, below: i64, why: BytesReason) -> Plan {
    Plan::Bytes { from: at(from), below: at(below), why }
}

#[test]
fn a_reference_is_handed_out_once_in_a_session() {
    let mut case = Case::new(20);
    case.upload().lend(at(20), ms(0));
    case.publish(slice(1, 0, 10));
    case.publish(slice(2, 10, 20));
    assert_eq!(case.ask(fetch(OTHER, (1, 1), 0), 1), Plan::References(vec![slice(1, 0, 10), slice(2, 10, 20)]));
    assert_eq!(case.ask(fetch(OTHER, (1, 2), 0), 2), Plan::Empty { until: Some(ms(1001)) });
    assert_eq!(case.ask(fetch(OTHER, (1, 3), 10), 3), Plan::Empty { until: Some(ms(1003)) }, "it gets on");
    // A new session has lost what the old one was given.
    assert_eq!(case.ask(fetch(OTHER, (2, 1), 10), 4), Plan::References(vec![slice(2, 10, 20)]));
    assert_eq!(case.ask(fetch(OTHER, (2, 2), 20), 5), Plan::Empty { until: None });
}

#[test]
fn more_references_do_not_put_off_the_bytes_of_a_follower_that_stores_nothing() {
    let mut case = Case::new(20);
    case.upload().lend(at(20), ms(0));
    case.publish(slice(1, 0, 10));
    assert_eq!(case.ask(fetch(OTHER, (1, 1), 0), 1), Plan::References(vec![slice(1, 0, 10)]));
    case.publish(slice(2, 10, 20));
    assert_eq!(case.ask(fetch(OTHER, (1, 2), 0), 600), Plan::References(vec![slice(2, 10, 20)]));
    assert_eq!(case.ask(fetch(OTHER, (1, 3), 0), 1001), bytes(0, 20, BytesReason::NoProgress));
}

#[test]
fn bytes_in_flight_are_waited_for_until_the_fallback_time() {
    let mut case = Case::new(20);
    case.upload().lend(at(20), ms(100));
    assert_eq!(case.ask(fetch(OTHER, (1, 1), 0), 200), Plan::Empty { until: Some(ms(1100)) });
    assert_eq!(case.ask(fetch(OTHER, (1, 2), 0), 1100), bytes(0, 20, BytesReason::UploadLate));
}

#[test]
fn trouble_ends_in_bytes_at_once_and_a_success_ends_in_references_again() {
    let mut case = Case::new(20);
    case.upload().lend(at(20), ms(0));
    assert_eq!(case.upload().give_up_if_due(at(20), ms(1000)), GaveUp::Yes);
    assert_eq!(case.ask(fetch(OTHER, (1, 1), 0), 1001), bytes(0, 20, BytesReason::UploadLate));
    // More is produced and offered: still no waiting for the bucket.
    case.appended = 30;
    case.leader.on_stored(at(30), ms(1010));
    case.upload().lend(at(30), ms(1010));
    assert_eq!(case.ask(fetch(OTHER, (1, 2), 20), 1011), bytes(20, 30, BytesReason::UploadLate));
    case.publish(slice(5, 20, 30));
    case.appended = 40;
    case.leader.on_stored(at(40), ms(1020));
    case.upload().lend(at(40), ms(1020));
    assert_eq!(case.ask(fetch(OTHER, (1, 3), 30), 1021), Plan::Empty { until: Some(ms(2020)) });
    case.publish(slice(6, 30, 40));
    assert_eq!(case.ask(fetch(OTHER, (1, 4), 30), 1022), Plan::References(vec![slice(6, 30, 40)]));
}

#[test]
fn bytes_fill_a_hole_only_up_to_the_next_slice() {
    let mut case = Case::new(40);
    case.upload().lend(at(10), ms(0));
    case.publish(slice(1, 0, 10));
    case.upload().skip_to(at(20));
    case.upload().lend(at(40), ms(0));
    case.publish(slice(2, 20, 40));
    assert_eq!(case.ask(fetch(OTHER, (1, 1), 10), 1), bytes(10, 20, BytesReason::Behind));
    assert_eq!(case.ask(fetch(OTHER, (1, 2), 20), 2), Plan::References(vec![slice(2, 20, 40)]));
}

#[test]
fn the_leader_obeys_bytes_until_and_then_goes_back_to_references() {
    let mut case = Case::new(30);
    case.upload().lend(at(30), ms(0));
    case.publish(slice(1, 0, 10));
    case.publish(slice(2, 10, 30));
    assert!(matches!(case.ask(fetch(OTHER, (1, 1), 0), 1), Plan::References(_)));
    let mut asked = fetch(OTHER, (1, 2), 0);
    asked.bytes_until = Some(at(10));
    assert_eq!(case.ask(asked, 2), bytes(0, 30, BytesReason::BytesUntil));
    // Under way: not sent a second time while the follower stores them.
    asked.stamp.epoch = 3;
    assert!(matches!(case.ask(asked, 3), Plan::Empty { until: Some(_) }));
    case.leader.on_stored(at(40), ms(4));
    case.appended = 40;
    case.upload().lend(at(40), ms(4));
    case.publish(slice(3, 30, 40));
    assert_eq!(case.ask(fetch(OTHER, (1, 4), 30), 5), Plan::References(vec![slice(3, 30, 40)]));
}

#[test]
fn references_that_lead_to_nothing_are_replaced_by_bytes() {
    let mut case = Case::new(20);
    case.upload().lend(at(20), ms(0));
    case.publish(slice(1, 0, 20));
    assert!(matches!(case.ask(fetch(OTHER, (1, 1), 0), 1), Plan::References(_)));
    assert!(matches!(case.ask(fetch(OTHER, (1, 2), 0), 1000), Plan::Empty { .. }));
    assert_eq!(case.ask(fetch(OTHER, (1, 3), 0), 1001), bytes(0, 20, BytesReason::NoProgress));
}

#[test]
fn without_an_object_path_everything_is_bytes_and_only_what_is_stored() {
    let mut case = Case::new(20);
    case.upload = None;
    case.appended = 25;
    assert_eq!(case.ask(fetch(OTHER, (1, 1), 0), 1), bytes(0, 20, BytesReason::NoReferences));
    assert_eq!(case.ask(fetch(OTHER, (1, 2), 0), 2), Plan::Empty { until: Some(ms(1001)) }, "under way");
    assert_eq!(case.ask(fetch(OTHER, (1, 3), 20), 3), Plan::Empty { until: None });
    assert_eq!(case.ask(fetch(OTHER, (2, 1), 0), 4), bytes(0, 20, BytesReason::NoReferences), "a new session");
    let mut case = Case::new(20);
    case.upload().lend(at(20), ms(0));
    case.publish(slice(1, 0, 20));
    let mut asked = fetch(OTHER, (1, 1), 0);
    asked.wants = Wants::Bytes;
    assert_eq!(case.ask(asked, 1), bytes(0, 20, BytesReason::NoReferences));
}

#[test]
fn references_count_as_the_bytes_of_their_gets_each_object_once() {
    let mut case = Case::new(60);
    case.upload().lend(at(60), ms(0));
    // Three slices of 200 bytes behind 200 bytes of head: their GETs read 400, 400 and 400.
    for (sequence, base) in [(1, 0), (2, 20), (3, 40)] {
        case.publish(slice(sequence, base, base + 20));
    }
    let mut budget = ReplyBudget::new(900);
    let plan = case.ask_within(fetch(OTHER, (1, 1), 0), 1, &mut budget);
    assert_eq!(plan, Plan::References(vec![slice(1, 0, 20), slice(2, 20, 40)]));
    assert_eq!(budget.bytes_left(), 100);
    assert_eq!(budget.objects(), [(object(1), 400), (object(2), 400)]);
    // The first of a reply is given whatever its size.
    let mut small = ReplyBudget::new(1);
    let plan = case.ask_within(fetch(OTHER, (2, 1), 0), 2, &mut small);
    assert_eq!(plan, Plan::References(vec![slice(1, 0, 20)]));
}

#[test]
fn slices_of_an_older_epoch_come_as_bytes() {
    let mut case = Case::new(20);
    let mut old = slice(1, 0, 10);
    old.leader_epoch = LeaderEpoch::new(2);
    let epochs = epochs(&[(2, 0), (3, 10)]);
    let held = HeldLog { local_start: Offset::ZERO, appended: at(20), epochs: &epochs };
    case.index.insert(key(), 1, old, held, ms(0));
    case.upload = Some(UploadProgress::new(at(10), FALLBACK));
    case.upload().lend(at(20), ms(0));
    assert_eq!(case.ask(fetch(OTHER, (1, 1), 0), 1), bytes(0, 10, BytesReason::Behind));
}

#[test]
fn a_follower_is_given_no_more_than_it_can_keep() {
    let megabytes = |sequence: u64, base: i64| {
        let whole = ObjectReference { object_length: 8 << 20, ..object(sequence) };
        IndexedSlice { object: whole, start: 200, end: 8 << 20, ..slice(sequence, base, base + 10) }
    };
    let mut case = Case::new(100);
    case.upload().lend(at(100), ms(0));
    for number in 0..10 {
        case.publish(megabytes(number, i64::try_from(number).expect("few") * 10));
    }
    let (mut given, mut end) = (0, 0);
    for request in 1..40 {
        let mut budget = ReplyBudget::new(1 << 20);
        match case.ask_within(fetch(OTHER, (1, request), end), request, &mut budget) {
            Plan::References(slices) => given += slices.len(),
            Plan::Empty { .. } => {
                assert!((1..=3).contains(&given), "{given} objects of 8 MiB are under way");
                end += 10;
                given -= 1;
            }
            Plan::Bytes { .. } => panic!("references are the rule"),
        }
        if end == 100 {
            return;
        }
    }
    panic!("the follower gets everything, a few at a time; it is at {end}");
}
