//! The control plane of a process: how brokers and controller speak, and what each does with it.
//!
//! Reading order: `broker` (registration, heartbeats, the metadata stream, what shards ask the control shard for), then
//! `controller` (the requests of the CONTROLLER listener, over `sakia_controller`).
//!
//! Invariant: nobody waits for the control plane without a bound, and nothing here is on the path of a batch.

pub mod broker;
pub mod controller;
pub mod limits;
mod topics;

#[cfg(test)]
mod tests;
