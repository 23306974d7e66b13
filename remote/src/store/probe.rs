//! Asks a bucket at start whether it does what the log needs, and how fast.
//!
//! Path: broker start and `sakia dev`. A store that ignores `If-None-Match: *` would let two writers share a name, so
//! it is found here and not in a race.
//! Cost: two puts, one get, one delete of an object below 100 bytes.

use std::time::Duration;

use bytes::Bytes;
use sakia_io::now;

use super::{CreateOnly, ObjectStore, Put, StoreError};
use crate::key::ObjectKey;

/// Round trips of one small object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundTrips {
    /// Create.
    pub put: Duration,
    /// Read.
    pub get: Duration,
}

/// Why a bucket cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// It cannot be reached or refuses; may pass.
    #[error("bucket probe: {step}: {error}")]
    Store {
        /// Which request.
        step: &'static str,
        /// What came back.
        error: StoreError,
    },
    /// It replaced an object that it was told to create.
    #[error("bucket probe: the store ignores If-None-Match: *, so two writers could share a name; use another store")]
    NotCreateOnly,
    /// It gave back other bytes.
    #[error("bucket probe: the store gave back other bytes than were written")]
    OtherBytes,
}

/// Probes with an object under `key`, which must not be in use. It is deleted at the end.
pub async fn probe(store: &dyn ObjectStore, key: ObjectKey) -> Result<RoundTrips, ProbeError> {
    let failed = |step| move |error| ProbeError::Store { step, error };
    let body = Bytes::from(format!("sakia bucket probe {key}"));
    let put = Put { key: key.clone(), parts: vec![body.clone()], create_only: CreateOnly::Yes };
    let started = now();
    store.put(put.clone()).await.map_err(failed("put"))?;
    let put_done = now();
    let length = u64::try_from(body.len()).expect("usize fits u64");
    let read = store.get(&key, 0..length).await.map_err(failed("get"))?;
    let get_done = now();
    let again = store.put(put).await;
    store.delete(vec![key]).await.map_err(failed("delete"))?;
    if read != body {
        return Err(ProbeError::OtherBytes);
    }
    match again {
        Err(StoreError::Exists | StoreError::Conflict) => {}
        Ok(()) => return Err(ProbeError::NotCreateOnly),
        Err(error) => return Err(ProbeError::Store { step: "second put", error }),
    }
    Ok(RoundTrips { put: put_done - started, get: get_done - put_done })
}
