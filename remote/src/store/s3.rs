//! S3 and what speaks its protocol, behind store threads.
//!
//! Path: a shard's call → bounded queue → store thread (tokio, AWS SDK) → one-shot reply. Everything that decides
//! (retries, hedges, what to put) stays on the shards; here one call is one attempt.
//! Invariant: no tokio type leaves this folder.

mod body;
mod client;
mod thread;

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use sakia_io::oneshot;

use self::client::S3Client;
use self::thread::{Request, StoreReply};
use super::{Listing, ObjectStore, Put, StoreCounters, StoreError, StoreFuture};
use crate::key::ObjectKey;
use crate::limits::{DELETE_KEYS_MAX, STORE_QUEUE_MAX};
use crate::url::StorageUrl;

/// Keys to sign with.
#[derive(Clone, PartialEq, Eq)]
pub struct S3Credentials {
    /// `remote.wal.s3.access.key` or `AWS_ACCESS_KEY_ID`.
    pub access_key: String,
    /// `remote.wal.s3.secret.key` or `AWS_SECRET_ACCESS_KEY`.
    pub secret_key: String,
    /// `AWS_SESSION_TOKEN`.
    pub session_token: Option<String>,
}

impl S3Credentials {
    /// From the usual variables; `variable` reads one. `None` if a key is missing or empty.
    #[must_use]
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let present = |name| variable(name).filter(|value| !value.is_empty());
        Some(Self {
            access_key: present("AWS_ACCESS_KEY_ID")?,
            secret_key: present("AWS_SECRET_ACCESS_KEY")?,
            session_token: present("AWS_SESSION_TOKEN"),
        })
    }
}

impl fmt::Debug for S3Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S3Credentials({}, secret not shown)", self.access_key)
    }
}

/// How to reach a bucket.
#[derive(Clone, Debug)]
pub struct S3Settings {
    /// Where.
    pub url: StorageUrl,
    /// As whom.
    pub credentials: S3Credentials,
    /// `remote.wal.store.threads`, at least 1.
    pub threads: usize,
    /// For a new connection.
    pub connect_timeout: Duration,
    /// For one attempt with its whole body.
    pub attempt_timeout: Duration,
    /// After which an unused connection is closed.
    pub idle_timeout: Duration,
}

impl S3Settings {
    /// One thread, 1 s to connect, 4 s per attempt, connections idle for at most 15 s.
    #[must_use]
    pub fn new(url: StorageUrl, credentials: S3Credentials) -> Self {
        Self {
            url,
            credentials,
            threads: 1,
            connect_timeout: Duration::from_secs(1),
            attempt_timeout: Duration::from_secs(4),
            idle_timeout: Duration::from_secs(15),
        }
    }
}

/// A bucket behind store threads. Clones share them; they end when the last clone is dropped.
#[derive(Clone)]
pub struct S3Store {
    queue: flume::Sender<Request>,
    counters: StoreCounters,
}

impl S3Store {
    /// Starts the store threads. Nothing is sent yet.
    pub fn open(settings: &S3Settings) -> std::io::Result<Self> {
        assert!(settings.threads > 0, "there is a store thread");
        let (queue, requests) = flume::bounded(STORE_QUEUE_MAX);
        let counters = StoreCounters::default();
        for number in 0..settings.threads {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let (settings, requests) = (settings.clone(), requests.clone());
            let counters = counters.clone();
            std::thread::Builder::new().name(format!("store-{number}")).spawn(move || {
                let client = S3Client::new(&settings, counters);
                runtime.block_on(thread::run(client, requests));
            })?;
        }
        Ok(Self { queue, counters })
    }

    fn ask<T: Send + 'static>(&self, request: impl FnOnce(StoreReply<T>) -> Request) -> StoreFuture<T> {
        let (reply, answer) = oneshot();
        let request = request(reply);
        let queue = self.queue.clone();
        Box::pin(async move {
            let gone = || StoreError::Unknown { why: "store thread is gone".to_owned() };
            queue.send_async(request).await.map_err(|_| gone())?;
            answer.await.unwrap_or_else(|| Err(gone()))
        })
    }
}

impl ObjectStore for S3Store {
    fn put(&self, put: Put) -> StoreFuture<()> {
        self.ask(|reply| Request::Put(put, reply))
    }

    fn get(&self, key: &ObjectKey, range: Range<u64>) -> StoreFuture<Bytes> {
        let key = key.clone();
        self.ask(|reply| Request::Get(key, range, reply))
    }

    fn delete(&self, keys: Vec<ObjectKey>) -> StoreFuture<()> {
        assert!(keys.len() <= DELETE_KEYS_MAX, "one delete request has at most {DELETE_KEYS_MAX} keys");
        self.ask(|reply| Request::Delete(keys, reply))
    }

    fn list(&self, prefix: &str, after: Option<&ObjectKey>) -> StoreFuture<Listing> {
        let (prefix, after) = (prefix.to_owned(), after.cloned());
        self.ask(|reply| Request::List(prefix, after, reply))
    }

    fn counters(&self) -> StoreCounters {
        self.counters.clone()
    }
}
