//! Bytes in the object store.
//!
//! Path of a combined object: ready ranges of many partitions → [`pack`] freezes a plan → [`frozen`] fixes head and
//! positions ([`object`] is the layout, [`key`] the name) → [`store`] puts it → a [`reference`](mod@reference) travels in a replica's
//! Fetch ([`wal_tag`]) → [`get`] opens what came back. Beside the path: [`garbage`] deletes by age, [`cost`] turns
//! attempts into dollars, [`url`] reads the setting that names the bucket, [`limits`] holds every bound.
//!
//! Reading order: `key`, `object`, `pack`, `frozen`, `reference`, `wal_tag`, `get`, `store`.
//! Invariant: everything outside `store` is pure: no I/O, no clock, no chance.

mod batches;
pub mod cost;
pub mod frozen;
pub mod garbage;
pub mod get;
pub mod key;
pub mod limits;
pub mod object;
pub mod pack;
pub mod reference;
pub mod store;
#[cfg(test)]
mod testing;
pub mod url;
pub mod wal_tag;
mod wire;

pub use frozen::FrozenObject;
pub use key::ObjectKey;
pub use reference::{ObjectReference, ReferencedObject};
pub use store::{ObjectStore, StoreError};
