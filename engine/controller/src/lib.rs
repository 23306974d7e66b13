//! The metadata quorum: what the cluster agrees on, one log, one image.
//!
//! Reading order: `image` (what is known), `command` (what is proposed), `apply` (what it does, checked in log order),
//! `event` (what brokers see), `election` and `placement` (the rules); then the acting half: `log_store`,
//! `state_machine`, `raft`, `controller`.
//!
//! Invariant: openraft is named in this crate only, and no type of it leaves.

pub mod apply;
pub mod command;
mod election;
pub mod error;
pub mod event;
pub mod image;
pub mod limits;
pub mod placement;
mod wire;

pub use apply::{Decision, decide};
pub use command::{Command, Proposal};
pub use error::CommandError;
pub use event::Event;
pub use image::Image;
pub use wire::WireError;
