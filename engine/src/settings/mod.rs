//! Settings of a process: every key is declared once, in `table.rs`, with type, unit, default, range and effect.
//!
//! Path: from `server.properties` (a map of texts) to `Settings` (typed values) at start. A key in no table is refused
//! with the nearest name; a key that Kafka knows and Sakia cannot use is accepted with a warning or refused with the
//! reason, as its row says. `docs/SETTINGS.md` is printed from the same table.

mod broker;
mod table;
mod topic;
mod values;

pub use broker::{Listener, Role, Settings};
pub use table::{BROKER, Effect, Kind, Setting, TOPIC, find, markdown};
pub use topic::{CleanupPolicy, TopicSettings, WalAck};
pub use values::{SettingsError, Values, Warning};
