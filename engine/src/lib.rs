//! The broker: connections, shards, partitions, the object path, the control shard.
//!
//! Path of a batch: `connection` → `api::produce` → `shard` → `log` → (`combiner` → bucket) → `fetcher` of a follower →
//! its `shard` → `replication` (high watermark) → the answer. ARCHITECTURE.md draws it.

pub mod api;
pub mod combiner;
pub mod connection;
pub mod control;
pub mod counters;
mod fetcher;
pub mod groups;
pub mod http;
pub mod limits;
pub mod log;
pub mod messages;
pub mod outbox;
pub mod placement;
pub mod process;
pub mod queue;
pub mod replication;
pub mod rpc;
pub mod select;
pub mod settings;
pub mod shard;
pub mod waiters;
pub mod wake;
