//! The product under the simulator: real broker and controller code, several machines, a bucket and clients in one thread,
//! under a seed, in virtual time (DESIGN 9, 13).
//!
//! Reading order: `cluster` (machines and processes), `kafka` (a client's view of a cluster), `history` (what clients were
//! told, and the invariants that can be checked at once), `witness` (the disks at that moment), `producer`, `consumer`, `churn`,
//! `commits`, `checks` (the invariants of a cluster at rest), `scenario` (what happens in a seed), `steered` (what is chosen), then
//! the tests: `smoke`, `seeds`, `places`, `recovery`, `liveness`, `clocks`, `damage`; and `planted`, which shows that the checks
//! see what they are for.
//!
//! `SAKIA_SIM_SEEDS=500 SAKIA_SIM_START=1000 cargo test --release -p sakia-engine --test sim seeds` runs other seeds;
//! `SAKIA_SIM_SEED=1234` one of them, with a line for everything that happens.

mod checks;
mod churn;
mod clocks;
mod cluster;
mod commits;
mod consumer;
mod damage;
mod history;
mod kafka;
mod liveness;
mod places;
#[cfg(feature = "planted")]
mod planted;
mod producer;
mod recovery;
mod scenario;
mod seeds;
mod smoke;
mod steered;
mod trace;
mod witness;
