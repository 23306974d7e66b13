//! One create-only put, taken to an end that is known.
//!
//! Path: combiner → here → one or more attempts of [`super::ObjectStore::put`], each with the same bytes.
//! Rule: R13. 409 and unknown outcomes are tried again; on 412 the head that stands there is read: our own object id
//! and length means that an earlier attempt of ours arrived, anything else that another writer holds the stream.
//! A dropped future leaves the outcome unknown: the object may appear later.

use sakia_io::{now, random_u64, sleep};

use super::retry::{Decision, Retries, RetryPolicy};
use super::{ObjectStore, StoreError};
use crate::frozen::FrozenObject;
use crate::object::{ObjectId, read_head};

/// The object stands in the bucket, once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// An attempt said so.
    Created,
    /// An attempt whose answer was lost had created it.
    FoundOwn,
}

/// The object does not stand, or it is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsettled {
    /// Another object has the name: this stream is over, the broker registers anew.
    #[error("name {key} is taken by another writer: {found}")]
    Fenced {
        /// The name.
        key: String,
        /// What stands there.
        found: Found,
    },
    /// Not within the policy. Whether the object stands is not known; its name is never used for other bytes.
    #[error("no certain outcome after {attempts} attempts: {last}")]
    GaveUp {
        /// Puts and reads that failed.
        attempts: u32,
        /// The last failure.
        last: StoreError,
    },
}

/// What stands under a name that we wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// An object of ours by layout, with another identity.
    Object(ObjectId),
    /// Something else.
    Foreign,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Object(id) => write!(f, "object {id}"),
            Self::Foreign => f.write_str("no object of ours"),
        }
    }
}

/// Puts `object` until it is known to stand, a stranger holds its name, or the policy ends.
pub async fn put_settled(
    store: &dyn ObjectStore,
    object: &FrozenObject,
    policy: RetryPolicy,
) -> Result<Settled, Unsettled> {
    let mut retries = Retries::new(policy, now().as_duration());
    loop {
        let outcome = match store.put(object.put()).await {
            Ok(()) => return Ok(Settled::Created),
            Err(StoreError::Exists) => whose(store, object).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(Owner::Own) => return Ok(Settled::FoundOwn),
            Ok(Owner::Other(found)) => return Err(Unsettled::Fenced { key: object.key().to_string(), found }),
            Err(error) => match retries.decide(&error, now().as_duration(), random_u64()) {
                Decision::After(wait) => sleep(wait).await,
                Decision::GiveUp => return Err(Unsettled::GaveUp { attempts: retries.failed(), last: error }),
            },
        }
    }
}

enum Owner {
    Own,
    Other(Found),
}

/// Reads the head that stands under the object's name. `Err`: not known, try again.
async fn whose(store: &dyn ObjectStore, object: &FrozenObject) -> Result<Owner, StoreError> {
    let length = u64::from(object.reference().head_length());
    match store.get(object.key(), 0..length).await {
        // The head holds the random id and the object's length, and every byte of it was ours to choose.
        Ok(bytes) if bytes == *object.head() => Ok(Owner::Own),
        Ok(bytes) => {
            let found = read_head(&bytes).map_or(Found::Foreign, |head| Found::Object(head.object_id()));
            Ok(Owner::Other(found))
        }
        // Shorter than our head: certainly not ours.
        Err(StoreError::OutOfRange { .. }) => Ok(Owner::Other(Found::Foreign)),
        // Deleted between put and get, by age or by hand: the next put creates it.
        Err(StoreError::Missing) => Err(StoreError::Retry { why: "object vanished after 412".to_owned() }),
        Err(error) => Err(error),
    }
}
