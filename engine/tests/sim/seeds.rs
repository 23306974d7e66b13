//! Random scenarios, one per seed.
//!
//! `SAKIA_SIM_SEEDS` (default 50) says how many, `SAKIA_SIM_START` (default 1) from which on, `SAKIA_SIM_SEED` runs one with
//! everything that happens in it. `SAKIA_SIM_ALL=1` goes on after a failure and lists the failing seeds.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::scenario;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

#[test]
#[expect(clippy::print_stderr, reason = "seeds that fail are told, with the command that repeats them")]
fn no_seed_loses_doubles_or_reorders_a_record() {
    if let Some(seed) = number("SAKIA_SIM_SEED") {
        let hash = scenario::run(seed);
        eprintln!("seed {seed} ended well; hash of its trace {hash:016x}");
        return;
    }
    let start = number("SAKIA_SIM_START").unwrap_or(1);
    let count = number("SAKIA_SIM_SEEDS").unwrap_or(50);
    let goes_on = std::env::var_os("SAKIA_SIM_ALL").is_some();
    let mut failed = Vec::new();
    for seed in start..start + count {
        if catch_unwind(AssertUnwindSafe(|| scenario::run(seed))).is_err() {
            eprintln!("again: SAKIA_SIM_SEED={seed} cargo test --release -p sakia-engine --test sim seeds");
            failed.push(seed);
            if !goes_on {
                break;
            }
        }
    }
    assert!(failed.is_empty(), "seeds that failed: {failed:?}");
}

#[test]
fn the_same_seed_runs_the_same_way_twice() {
    let first: Vec<u64> = (1..8).map(scenario::run).collect();
    let again: Vec<u64> = (1..8).map(scenario::run).collect();
    assert_eq!(first, again);
}
