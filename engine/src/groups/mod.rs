//! The coordinator of classic consumer groups: who is a member, who reads what, how far each group has read.
//!
//! Path: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit and their kin → the owner shard of the group's partition
//! of `__consumer_offsets` ([`partition`]) → [`Coordinators`] → [`Coordinator`] → one [`group`] → [`Effects`]: answers, and
//! records that must be committed before what waits for them is answered.
//! Reading order: `request`, `group`, `join`, `sync`, `membership`, `offsets`, `coordinator`, `coordinators`, `records`.
//!
//! Everything here is pure: time and fresh ids come in with each call, records and answers go out as effects.

mod admin;
pub mod coordinator;
pub mod coordinators;
pub mod group;
mod join;
pub mod limits;
mod member;
mod membership;
pub mod offsets;
pub mod partition;
pub mod records;
pub mod request;
mod subscription;
mod sync;
mod turn;

#[cfg(test)]
mod tests;

pub use coordinator::Coordinator;
pub use coordinators::Coordinators;
pub use partition::partition_for;
pub use records::GroupRecord;
pub use request::{Append, AppendNumber, Clock, Effects, GroupAnswer, GroupBody, GroupRequest, GroupSettings, Ticket};
