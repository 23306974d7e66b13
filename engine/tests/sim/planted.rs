//! Known mistakes, switched on one at a time: each must be found, by the invariant that it breaks, within a few seeds, and the
//! same seeds must pass without it. A mistake that passes shows what the scenarios or the checks lack.
//!
//! Odd seeds run a scenario that steers towards the place of the mistake, even ones what `seeds` runs.
//! Runs with the feature `planted` only: `cargo test --release --workspace --features sakia-engine/planted --test sim planted`.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use sakia_io::planted::{Plant, Planted};
use sakia_io::sim::Random;

use crate::places;
use crate::recovery;
use crate::scenario;
use crate::steered::Steered;

thread_local! {
    /// What this thread panics of is expected, and read instead of shown.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// A mistake and what must come of it.
struct Case {
    bug: Planted,
    /// Parts of the messages of the invariants that it may break.
    breaks: &'static [&'static str],
    /// Runs that meet it.
    place: Place,
    /// It must be found in so many seeds.
    seeds: u64,
}

/// Where a mistake shows.
enum Place {
    /// In a scenario with small things drawn, or by chance in what `seeds` runs.
    Steered(fn(&mut Random) -> Steered),
    /// In another test, which does not know of it.
    Test(fn()),
}

impl Case {
    fn run(&self, seed: u64) {
        match self.place {
            Place::Steered(_) if seed.is_multiple_of(2) => {
                scenario::run(seed);
            }
            Place::Steered(steered) => {
                steered(&mut Random::seeded(seed)).run(seed);
            }
            Place::Test(test) => test(),
        }
    }

    /// What the run of a seed fails with, if it does.
    fn failure(&self, seed: u64) -> Option<String> {
        IS_QUIET.set(true);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let _plant = Plant::new(self.bug);
            self.run(seed);
        }));
        IS_QUIET.set(false);
        let panic = ended.err()?;
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).or(Some("no text".to_owned()))
    }

    /// Runs seeds until one fails.
    #[expect(clippy::print_stderr, reason = "which seed finds a mistake is worth knowing, and shown on demand")]
    fn is_found(&self) {
        be_quiet_when_asked();
        let mut seeds = 1..=self.seeds;
        let Some((seed, why)) = seeds.find_map(|seed| Some((seed, self.failure(seed)?))) else {
            panic!("{:?} passes {} seeds", self.bug, self.seeds);
        };
        eprintln!("{:?} is found by seed {seed}: {why}", self.bug);
        assert!(
            self.breaks.iter().any(|text| why.contains(text)),
            "seed {seed} finds {:?} by something else than what it breaks: {why}",
            self.bug
        );
        (1..=seed).for_each(|seed| self.run(seed));
    }
}

/// Failures that are looked for are not told like those that are not.
fn be_quiet_when_asked() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let told = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                told(info);
            }
        }));
    });
}

const STANDS_ON: &str = "is acknowledged with acks=all at";
const GONE: &str = "an acknowledged batch is gone";
const TWO_VALUES: &str = "has two committed values";
const COMMITTED_AS: &str = "was committed as";
const WAS_ACKNOWLEDGED: &str = "was acknowledged and is gone";

#[test]
fn a_memory_end_that_a_follower_reports_is_found() {
    let case = Case {
        bug: Planted::MemoryEndReported,
        breaks: &[STANDS_ON, GONE, TWO_VALUES, COMMITTED_AS],
        place: Place::Steered(places::slow_disks),
        seeds: 60,
    };
    case.is_found();
}

#[test]
fn a_memory_end_that_a_leader_counts_is_found() {
    let case = Case {
        bug: Planted::MemoryEndCounted,
        breaks: &[STANDS_ON, GONE, TWO_VALUES, COMMITTED_AS],
        place: Place::Steered(places::slow_disks),
        seeds: 60,
    };
    case.is_found();
}

#[test]
fn a_leader_epoch_that_is_used_again_is_found() {
    let case = Case {
        bug: Planted::EpochReused,
        breaks: &["differs on brokers", TWO_VALUES, COMMITTED_AS, GONE, WAS_ACKNOWLEDGED],
        place: Place::Steered(places::everything_killed_while_a_follower_is_ahead),
        seeds: 120,
    };
    case.is_found();
}

#[test]
fn an_unclean_return_that_is_taken_for_clean_is_found() {
    let case = Case {
        bug: Planted::UncleanReturnKept,
        breaks: &[GONE, TWO_VALUES, COMMITTED_AS, WAS_ACKNOWLEDGED, "is out of range"],
        place: Place::Steered(places::power_lost_and_the_other_killed),
        seeds: 60,
    };
    case.is_found();
}

#[test]
fn a_duplicate_that_is_answered_early_is_found() {
    let case = Case {
        bug: Planted::DuplicateAnsweredEarly,
        breaks: &[STANDS_ON, GONE, TWO_VALUES, COMMITTED_AS],
        place: Place::Steered(places::unanswered_until_sent_again),
        seeds: 60,
    };
    case.is_found();
}

#[test]
fn memory_that_is_used_again_while_it_is_lent_is_found() {
    let case = Case {
        bug: Planted::ChunkReused,
        breaks: &["fails its check", "that fail their check"],
        place: Place::Steered(places::much_is_lent_to_a_slow_bucket),
        seeds: 60,
    };
    case.is_found();
}

#[test]
fn a_result_of_an_earlier_leadership_that_is_applied_is_found() {
    let case = Case {
        bug: Planted::OldResultApplied,
        breaks: &["nothing is appended while the log is being truncated"],
        place: Place::Steered(places::late_answers_of_a_deposed_leader),
        seeds: 30,
    };
    case.is_found();
}

#[test]
fn a_waiter_that_outlives_its_leadership_is_found() {
    let case = Case {
        bug: Planted::OldWaiterAnswered,
        breaks: &[TWO_VALUES, COMMITTED_AS, STANDS_ON, GONE],
        place: Place::Steered(places::a_leader_comes_back_and_follows),
        seeds: 60,
    };
    case.is_found();
}

#[test]
fn an_index_that_is_not_cut_is_found() {
    let case = Case {
        bug: Planted::IndexNotCut,
        breaks: &["was left behind by a truncation"],
        place: Place::Steered(places::a_leader_comes_back_and_follows),
        seeds: 60,
    };
    case.is_found();
}

#[test]
fn a_joiner_that_is_not_waited_for_is_found() {
    let case = Case {
        bug: Planted::PendingMemberIgnored,
        breaks: &[GONE, TWO_VALUES, COMMITTED_AS, WAS_ACKNOWLEDGED, "is out of range"],
        place: Place::Steered(places::a_leader_dies_before_it_hears_of_a_joiner),
        seeds: 120,
    };
    case.is_found();
}

#[test]
fn an_old_image_that_is_believed_is_found() {
    let case = Case {
        bug: Planted::OldImageBelieved,
        breaks: &["the image knows less than the folder"],
        place: Place::Test(recovery::a_controller_restored_from_an_old_copy_costs_no_folder),
        seeds: 1,
    };
    case.is_found();
}
