//! The simulator: machines with disks, clocks and shards, in one thread, under a seed, in virtual time.
//!
//! The same scheduler as in production runs over `Simulated` drivers; a run is a function of its seed.
//! Reading order: `world` (what tests use), `controls` (faults), `state` (operations and time), `disk_operations`,
//! `network_operations`, `driver`; and the pure models `disk`, `network`, `clock`, `agenda`, `random`, `trace`.
//!
//! Invariant: virtual time moves only when no shard can run, or by the seeded cost of a step; nothing reads a real clock.
//! A failing run prints its seed; `World::new(seed)` and the same program repeat it.

mod agenda;
mod clock;
mod controls;
mod disk;
mod disk_operations;
mod driver;
mod network;
mod network_operations;
mod random;
mod state;
mod trace;
mod world;

pub use clock::WALL_CLOCK_START_MS;
pub use controls::{ClockControl, DiskControl, NetworkControl};
pub use disk::Failing;
pub use network::NetworkTimes;
pub use random::Random;
pub use state::Times;
pub use world::{Client, Crash, Machine, Stalled, World};
