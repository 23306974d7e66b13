//! How long the bucket takes for an object of usual size, seen through the client that the brokers use.

use std::time::Duration;

use bytes::Bytes;
use sakia_io::now;
use sakia_remote::ObjectStore;
use sakia_remote::key::ObjectKey;
use sakia_remote::store::s3::S3Credentials;
use sakia_remote::store::{CreateOnly, Put, StoreError};

use super::layout::{ACCESS_KEY, SECRET_KEY};
use crate::failure::Failure;
use crate::store;

/// Size of the probe: a combined object at medium load.
pub(super) const OBJECT_BYTES: usize = 400_000;
/// The first one opens the connection and is not counted.
const ROUNDS: usize = 6;

/// Medians.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    pub(super) put: Duration,
    pub(super) get: Duration,
}

/// Writes, reads and deletes an object a few times.
pub(super) fn measure(url: &str) -> Result<RoundTrip, Failure> {
    let credentials =
        S3Credentials { access_key: ACCESS_KEY.to_owned(), secret_key: SECRET_KEY.to_owned(), session_token: None };
    let opened = store::open_as(url, 1, credentials)?;
    let rounds = store::on_a_shard(move || async move {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(round(&opened.store).await?);
        }
        Ok::<_, StoreError>(rounds)
    })?;
    let rounds = rounds.map_err(|error| Failure::failed(format!("the bucket does not answer: {error}")))?;
    let median = |one: fn(&RoundTrip) -> Duration| {
        let mut times: Vec<Duration> = rounds.iter().skip(1).map(one).collect();
        times.sort_unstable();
        times[times.len() / 2]
    };
    Ok(RoundTrip { put: median(|round| round.put), get: median(|round| round.get) })
}

async fn round(store: &dyn ObjectStore) -> Result<RoundTrip, StoreError> {
    let key = ObjectKey::new("dev/round-trip");
    let parts = vec![Bytes::from(vec![b'x'; OBJECT_BYTES])];
    let started = now();
    store.put(Put { key: key.clone(), parts, create_only: CreateOnly::No }).await?;
    let written = now();
    let length = u64::try_from(OBJECT_BYTES).expect("usize fits u64");
    store.get(&key, 0..length).await?;
    let read = now();
    store.delete(vec![key]).await?;
    Ok(RoundTrip { put: written - started, get: read - written })
}
