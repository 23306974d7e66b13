//! Truncation by leader epochs: whatever the series of leaders, logs that talk to one leader become equal, and nothing that
//! both sides hold is cut.

use super::super::fetch_plan::FetchRefusal;
use super::super::truncation::truncate_to;
use super::*;

/// A log is the list of its records' epochs; a record is its offset and its epoch.
#[derive(Clone, PartialEq, Debug, Default)]
struct Log(Vec<i32>);

impl Log {
    fn epochs(&self) -> EpochCache {
        let mut cache = EpochCache::default();
        for (offset, epoch) in self.0.iter().enumerate() {
            let _ = cache.assign(LeaderEpoch::new(*epoch), at(i64::try_from(offset).expect("short")));
        }
        cache
    }

    fn end(&self) -> i64 {
        i64::try_from(self.0.len()).expect("short")
    }

    fn common(&self, other: &Self) -> usize {
        self.0.iter().zip(&other.0).take_while(|(a, b)| a == b).count()
    }
}

/// What one fetch of `follower` from `leader` does; `false` when there is nothing left to do.
fn fetch_once(leader: &Log, follower: &mut Log, epoch: i32, epoch_start: i64, records_max: usize) -> bool {
    let mut start = leadership(&[OTHER], leader.end());
    start.leader_epoch = LeaderEpoch::new(epoch);
    start.epoch_start = at(epoch_start);
    let state = LeaderState::new(start, ms(0));
    let cache = leader.epochs();
    let log = LeaderLog { start: Offset::ZERO, appended: at(leader.end()), epochs: &cache };
    let mut asked = fetch(OTHER, (1, 1), follower.end());
    asked.leader_epoch = Some(LeaderEpoch::new(epoch));
    asked.last_epoch = follower.0.last().map(|last| LeaderEpoch::new(*last));
    match check_fetch(asked, &state, log) {
        Ok(_) => {
            let from = follower.0.len();
            assert_eq!(follower.common(leader), from, "a fetch that passes continues the leader's log");
            let new: Vec<i32> = leader.0[from..].iter().take(records_max).copied().collect();
            follower.0.extend(&new);
            !new.is_empty()
        }
        Err(FetchRefusal::Diverging(parting)) => {
            let common = follower.common(leader);
            let cut = truncate_to(&follower.epochs(), at(follower.end()), parting).expect("each answer cuts something");
            let cut = usize::try_from(cut.get()).expect("short");
            assert!(cut >= common, "cut to {cut}, but {common} records are common");
            follower.0.truncate(cut);
            true
        }
        Err(refusal) => panic!("{refusal:?} is no answer here"),
    }
}

#[test]
fn any_series_of_leaders_ends_with_equal_logs() {
    for seed in 0..2000 {
        let run = std::panic::catch_unwind(|| {
            let mut dice = Dice::new(seed);
            let mut logs = vec![Log::default(); 3];
            let mut epoch = 0;
            let (mut leader, mut epoch_start) = (0, 0);
            for _ in 0..60 {
                match dice.roll(6) {
                    0 => {
                        // Anybody may lead, also one that knows the least: an unclean election.
                        epoch += 1;
                        leader = dice.roll(3);
                        epoch_start = logs[leader].end();
                    }
                    1 | 2 => logs[leader].0.extend(vec![epoch; dice.roll(4)]),
                    _ => {
                        let follower = (leader + 1 + dice.roll(2)) % 3;
                        let from = logs[leader].clone();
                        fetch_once(&from, &mut logs[follower], epoch, epoch_start, 1 + dice.roll(3));
                    }
                }
            }
            let from = logs[leader].clone();
            for (number, log) in logs.iter_mut().enumerate() {
                let mut rounds = 0;
                while number != leader && fetch_once(&from, log, epoch, epoch_start, 100) {
                    rounds += 1;
                    assert!(rounds < 100, "it does not end");
                }
                assert_eq!(*log, from);
            }
        });
        assert!(run.is_ok(), "seed {seed}");
    }
}

#[test]
fn fetches_of_another_leadership_are_refused_by_name() {
    let leader = LeaderState::new(leadership(&[OTHER], 10), ms(0));
    let cache = one_epoch();
    let log = LeaderLog { start: at(5), appended: at(10), epochs: &cache };
    let ask = |leader_epoch: Option<i32>, end: i64| {
        let mut asked = fetch(OTHER, (1, 1), end);
        asked.leader_epoch = leader_epoch.map(LeaderEpoch::new);
        check_fetch(asked, &leader, log).err()
    };
    assert_eq!(ask(Some(2), 10), Some(FetchRefusal::FencedLeaderEpoch));
    assert_eq!(ask(Some(4), 10), Some(FetchRefusal::UnknownLeaderEpoch));
    assert_eq!(ask(None, 10), Some(FetchRefusal::FencedLeaderEpoch));
    assert_eq!(ask(Some(3), 4), Some(FetchRefusal::OutOfRange));
    assert_eq!(ask(Some(3), 10), None);
    assert!(matches!(ask(Some(3), 11), Some(FetchRefusal::Diverging(_))));
}
