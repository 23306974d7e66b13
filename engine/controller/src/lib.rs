//! The metadata quorum: what the cluster agrees on, one log, one image.
//!
//! Reading order: `image` (what is known), `command` (what is proposed), `apply` (what it does, checked in log order),
//! `event` (what brokers see), `election` and `placement` (the rules), `sessions` (who is alive); then the acting half:
//! `store` (the log on disk), `snapshot`, `state_machine`, `runtime` and `network` (what raft stands on), `controller`.
//!
//! Invariant: openraft is named in this crate only, and no type of it leaves.

pub mod apply;
pub mod command;
mod controller;
mod election;
pub mod error;
pub mod event;
pub mod image;
pub mod limits;
mod network;
mod node_types;
pub mod placement;
mod raft_types;
mod recent;
mod runtime;
pub mod sessions;
mod snapshot;
mod state_machine;
mod store;
mod watch;
mod wire;

pub use apply::{Decision, decide};
pub use command::{Command, Proposal};
pub use controller::Controller;
pub use error::CommandError;
pub use event::Event;
pub use image::Image;
pub use node_types::{Committed, ControllerConfig, OpenError, ProposeError};
pub use sessions::{Heartbeat, HeartbeatAnswer, Wish};
pub use store::{OpenLogError, ReplayError};
pub use wire::WireError;
