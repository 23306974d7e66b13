//! Replication as rules: who holds what, what is committed, what a replica gets, what it does with it.
//!
//! Path: a follower's Fetch → [`fetch_plan`] checks it → [`leader`] takes its state ([`progress`]) and moves the high
//! watermark → [`fetch_plan`] decides references ([`wal_index`]) or bytes ([`upload`] knows how far the bucket is) → the
//! follower's [`follower`] decides what to append, [`truncation`] where two logs part, [`breaker`] and [`get_trouble`]
//! when to ask for bytes instead. [`read_replica`] sends consumers to followers. Reading order: as listed.
//!
//! Everything here is pure: time comes in as the duration since the broker's start, and nothing is read or sent.

pub mod breaker;
pub mod fetch_plan;
pub mod follower;
pub mod get_trouble;
pub mod leader;
pub mod limits;
pub mod progress;
pub mod read_replica;
pub mod truncation;
pub mod upload;
pub mod wal_index;

#[cfg(test)]
mod tests;

pub use breaker::{Admission, Breaker};
pub use fetch_plan::{BytesReason, CheckedFetch, FetchRefusal, LeaderLog, Plan, ReplicaFetch, ReplyBudget};
pub use follower::{FetchedSlice, FollowerState, Offer};
pub use get_trouble::{GetFailure, GetTrouble, GetVerdict};
pub use leader::{AcksAll, IsrProposal, LeaderState, Leadership};
pub use progress::{FetchVerdict, HandedBy, Progress, SessionStamp};
pub use upload::UploadProgress;
pub use wal_index::{IndexedSlice, WalIndex};
