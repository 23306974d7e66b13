//! Random scenarios, one per seed.
//!
//! `SAKIA_SIM_SEEDS` (default 50) says how many, `SAKIA_SIM_START` (default 1) from which on, `SAKIA_SIM_SEED` runs one with
//! everything that happens in it. `SAKIA_SIM_ALL=1` goes on after a failure and lists the failing seeds.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;

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
    let next = AtomicU64::new(start);
    let failed = Mutex::new(Vec::new());
    let work = || {
        while goes_on || failed.lock().expect("seeds panic elsewhere").is_empty() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= start + count {
                break;
            }
            if catch_unwind(AssertUnwindSafe(|| scenario::run(seed))).is_err() {
                eprintln!("again: SAKIA_SIM_SEED={seed} cargo test --release -p sakia-engine --test sim seeds");
                failed.lock().expect("seeds panic elsewhere").push(seed);
            }
        }
    };
    // A run takes one thread; runs share nothing.
    let threads = available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().expect("seeds panic elsewhere");
    assert!(failed.is_empty(), "seeds that failed: {failed:?}");
}

#[test]
fn the_same_seed_runs_the_same_way_twice() {
    let first: Vec<u64> = (1..8).map(scenario::run).collect();
    let again: Vec<u64> = (1..8).map(scenario::run).collect();
    assert_eq!(first, again);
}
