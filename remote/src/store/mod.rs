//! The object store as the broker sees it: put, range get, delete, list.
//!
//! Reading order: this page, [`counters`], [`retry`] (Pure), [`settled`] (one create-only put to its certain end),
//! [`classify`] (Pure: what an answer means), [`probe`] (does the bucket do what we need), then the two stores: [`simulated`] and, with feature `s3`, `s3`.
//! Invariant: one call of the trait is one attempt: no store retries by itself, so that attempts can be counted and
//! equal the bucket's ledger.

pub mod classify;
pub mod counters;
pub mod probe;
pub mod retry;
#[cfg(feature = "s3")]
pub mod s3;
pub mod settled;
pub mod simulated;

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;

use bytes::Bytes;

pub use counters::{StatusClass, StoreCounters, StoreCounts, Verb};
pub use simulated::{SimulatedBucket, SimulatedStore};

use crate::key::ObjectKey;

/// A future on one shard.
pub type LocalBoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What every call of a store gives.
pub type StoreFuture<T> = LocalBoxFuture<'static, Result<T, StoreError>>;

/// Whether a put may replace an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateOnly {
    /// Refuse with [`StoreError::Exists`] if the name is taken.
    Yes,
    /// Replace.
    No,
}

/// One object to write.
#[derive(Clone, Debug)]
pub struct Put {
    /// Its name.
    pub key: ObjectKey,
    /// Its bytes in order; sent without joining.
    pub parts: Vec<Bytes>,
    /// Whether the name must be free.
    pub create_only: CreateOnly,
}

impl Put {
    /// Bytes of all parts.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.parts.iter().map(|part| u64::try_from(part.len()).expect("usize fits u64")).sum()
    }
}

/// One listed object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedObject {
    /// Its name.
    pub key: ObjectKey,
    /// Its length in bytes.
    pub length: u64,
    /// When it was written, by the bucket's clock.
    pub modified_ms: i64,
}

/// One page of a listing, in order of names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    /// At most 1000.
    pub objects: Vec<ListedObject>,
    /// Whether names follow after the last one.
    pub more: More,
}

/// Whether a listing goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum More {
    /// Ask again with the last name as `after`.
    Yes,
    /// This was the last page.
    No,
}

/// Why an attempt did not do what it should, ordered by what the caller does next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Nothing was changed; try again after a while (503, 429, connection refused, expired credentials).
    #[error("try again: {why}")]
    Retry {
        /// Status or cause.
        why: String,
    },
    /// No answer, or one that says nothing: a put may or may not have happened. Try again with the same bytes.
    #[error("outcome unknown: {why}")]
    Unknown {
        /// Status or cause.
        why: String,
    },
    /// 409: another create of this name is under way. Try again.
    #[error("another create of this name is under way")]
    Conflict,
    /// 412: the name is taken. Read it to learn by whom.
    #[error("the name is taken")]
    Exists,
    /// 404: no such object.
    #[error("no such object")]
    Missing,
    /// The object ends before the asked range does.
    #[error("range ends at {asked}, the object at {length:?}")]
    OutOfRange {
        /// Exclusive end of the range.
        asked: u64,
        /// Length of the object, if the store told it.
        length: Option<u64>,
    },
    /// The reply is not the answer to this request: wrong length, range or status. Try once more, then do without.
    #[error("reply does not fit the request: {why}")]
    BadReply {
        /// What differs.
        why: String,
    },
    /// 403, 400, 501: rights or settings are wrong; reported, tried again slowly.
    #[error("refused: {why}")]
    Refused {
        /// Status and code of the store.
        why: String,
    },
}

/// A bucket. Object safe; futures stay on the caller's shard and own all they need.
///
/// A dropped future leaves a request behind that may still be carried out.
pub trait ObjectStore {
    /// Writes one object.
    fn put(&self, put: Put) -> StoreFuture<()>;

    /// Reads exactly the bytes `range` of one object, or fails.
    fn get(&self, key: &ObjectKey, range: Range<u64>) -> StoreFuture<Bytes>;

    /// Deletes at most [`crate::limits::DELETE_KEYS_MAX`] objects with one request; missing ones count as deleted.
    fn delete(&self, keys: Vec<ObjectKey>) -> StoreFuture<()>;

    /// Lists names that begin with `prefix` and follow `after`, one page.
    fn list(&self, prefix: &str, after: Option<&ObjectKey>) -> StoreFuture<Listing>;

    /// What was sent so far.
    fn counters(&self) -> StoreCounters;
}
