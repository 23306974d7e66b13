//! Claims about whole logs, in the simulator and on io_uring.
//!
//! `harness` has batches and worlds; `model` compares with a vector; `crash` stops the machine at every step; `damage` spoils
//! files; `claims` are single rules; `uring` runs on a real folder.

mod claims;
mod crash;
mod damage;
mod harness;
mod model;
mod uring;
