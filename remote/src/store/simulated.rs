//! A bucket in memory, shared by all machines of a simulated world.
//!
//! Path: takes the place of `s3` under a seed: create-only is atomic, latencies are drawn from the bucket's own seed,
//! faults are switched on by the test, and a ledger counts what was answered.
//! Invariant: an attempt changes the bucket at one moment, halfway through its latency; one cut off before it changes
//! nothing, one cut off after it has happened. That is also what a dropped future leaves behind.

mod bucket;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use sakia_io::{sleep, wall_clock_ms};

use self::bucket::State;
use super::{
    ListedObject, Listing, ObjectStore, Put, StatusClass, StoreCounters, StoreCounts, StoreError, StoreFuture, Verb,
};
use crate::key::ObjectKey;
use crate::limits::DELETE_KEYS_MAX;

/// Time from request to answer; each attempt takes between 0.8 and 1.6 times as long.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Of a put.
    pub put: Duration,
    /// Of everything else.
    pub get: Duration,
    /// After which a client gives up an attempt that gets no answer.
    pub attempt_timeout: Duration,
}

impl Default for Latency {
    fn default() -> Self {
        Self { put: Duration::from_millis(5), get: Duration::from_millis(4), attempt_timeout: Duration::from_secs(2) }
    }
}

/// Reachability of a whole bucket.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Reach {
    /// Answers.
    #[default]
    Up,
    /// Nobody gets an answer; attempts end by their timeout and change nothing.
    Down,
}

/// What goes wrong, as a test switches it.
#[derive(Clone, Default, Debug)]
pub struct Faults {
    /// For everyone.
    pub reach: Reach,
    /// Names of clients that get no answer.
    pub cut_clients: BTreeSet<String>,
    /// Objects that are answered with 404 though they exist.
    pub hidden: BTreeSet<ObjectKey>,
    /// Of 1000 attempts, so many are answered with 503 and change nothing.
    pub slow_downs_per_mille: u32,
    /// Of 1000 puts, so many happen without an answer.
    pub lost_put_replies_per_mille: u32,
    /// The next so many puts happen without an answer.
    pub next_lost_put_replies: u32,
    /// The next so many create-only puts are answered with 409 and change nothing.
    pub next_conflicts: u32,
    /// Of 1000 gets, so many come back one byte short, as from a torn connection.
    pub short_gets_per_mille: u32,
    /// Added to every latency.
    pub slow: Duration,
}

/// The bucket. Clones share it.
#[derive(Clone)]
pub struct SimulatedBucket {
    state: Arc<Mutex<State>>,
    ledger: StoreCounters,
}

impl SimulatedBucket {
    /// An empty bucket whose chance is drawn from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with_latency(seed, Latency::default())
    }

    /// An empty bucket with other latencies.
    #[must_use]
    pub fn with_latency(seed: u64, latency: Latency) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(seed, latency))), ledger: StoreCounters::default() }
    }

    /// A client; its name is what [`Faults::cut_clients`] refers to.
    #[must_use]
    pub fn client(&self, name: &str) -> SimulatedStore {
        SimulatedStore { bucket: self.clone(), name: Arc::from(name), counters: StoreCounters::default() }
    }

    /// Switches faults.
    pub fn change_faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.lock().faults);
    }

    /// Every request answered, by verb and status class, and object bytes in (`sent`) and out (`received`).
    #[must_use]
    pub fn ledger(&self) -> StoreCounts {
        self.ledger.counts()
    }

    /// Names of all objects, in order.
    #[must_use]
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.lock().objects.keys().cloned().collect()
    }

    /// An object's bytes.
    #[must_use]
    pub fn object(&self, key: &ObjectKey) -> Option<Bytes> {
        self.lock().objects.get(key).map(|object| object.bytes.clone())
    }

    /// Replaces an object behind everyone's back: damage, or a stranger's object.
    pub fn overwrite(&self, key: &ObjectKey, bytes: Bytes) {
        let modified_ms = wall_clock_ms();
        self.lock().objects.insert(key.clone(), bucket::Object { bytes, modified_ms });
    }

    /// Removes an object behind everyone's back.
    pub fn remove(&self, key: &ObjectKey) {
        self.lock().objects.remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

/// One client of a simulated bucket.
#[derive(Clone)]
pub struct SimulatedStore {
    bucket: SimulatedBucket,
    name: Arc<str>,
    counters: StoreCounters,
}

impl SimulatedStore {
    /// One attempt: `apply` changes the bucket at one moment and says what is answered.
    async fn attempt<T>(
        self,
        verb: Verb,
        apply: impl FnOnce(&mut State) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut open = OpenAttempt { counters: &self.counters, verb, class: StatusClass::Unanswered };
        let (latency, attempt_timeout) = {
            let mut state = self.bucket.lock();
            (state.draw_latency(verb), state.latency.attempt_timeout)
        };
        sleep(latency / 2).await;
        let answer = self.bucket.lock().answer(&self.name, verb, apply);
        let Some(answer) = answer else {
            sleep(attempt_timeout).await;
            return Err(StoreError::Unknown { why: format!("no answer within {attempt_timeout:?}") });
        };
        let class = status_class(&answer.result);
        self.bucket.ledger.attempt(verb, class);
        if answer.reply_lost {
            sleep(attempt_timeout).await;
            return Err(StoreError::Unknown { why: format!("no answer within {attempt_timeout:?}") });
        }
        sleep(latency - latency / 2).await;
        open.class = class;
        answer.result
    }
}

/// Counts the attempt when it ends, also when its future is dropped.
struct OpenAttempt<'a> {
    counters: &'a StoreCounters,
    verb: Verb,
    class: StatusClass,
}

impl Drop for OpenAttempt<'_> {
    fn drop(&mut self) {
        self.counters.attempt(self.verb, self.class);
    }
}

fn status_class<T>(result: &Result<T, StoreError>) -> StatusClass {
    match result {
        Ok(_) | Err(StoreError::BadReply { .. }) => StatusClass::Success,
        Err(StoreError::Retry { .. } | StoreError::Unknown { .. }) => StatusClass::ServerError,
        Err(_) => StatusClass::ClientError,
    }
}

impl ObjectStore for SimulatedStore {
    fn put(&self, put: Put) -> StoreFuture<()> {
        let store = self.clone();
        Box::pin(async move {
            let length = put.length();
            let (sent, ledger) = (store.counters.clone(), store.bucket.ledger.clone());
            sent.sent(length);
            let modified_ms = wall_clock_ms();
            store
                .attempt(Verb::Put, move |state| {
                    let outcome = state.put(put, modified_ms);
                    if outcome.is_ok() {
                        ledger.sent(length);
                    }
                    outcome
                })
                .await
        })
    }

    fn get(&self, key: &ObjectKey, range: Range<u64>) -> StoreFuture<Bytes> {
        let (store, key) = (self.clone(), key.clone());
        Box::pin(async move {
            let (received, ledger) = (store.counters.clone(), store.bucket.ledger.clone());
            let bytes = store
                .attempt(Verb::Get, move |state| {
                    let outcome = state.get(&key, range);
                    if let Ok(bytes) = &outcome {
                        ledger.received(length(bytes));
                    }
                    outcome
                })
                .await?;
            received.received(length(&bytes));
            Ok(bytes)
        })
    }

    fn delete(&self, keys: Vec<ObjectKey>) -> StoreFuture<()> {
        assert!(keys.len() <= DELETE_KEYS_MAX, "one delete request has at most {DELETE_KEYS_MAX} keys");
        let store = self.clone();
        Box::pin(store.attempt(Verb::Delete, move |state| {
            for key in &keys {
                state.objects.remove(key);
            }
            Ok(())
        }))
    }

    fn list(&self, prefix: &str, after: Option<&ObjectKey>) -> StoreFuture<Listing> {
        let (store, prefix, after) = (self.clone(), prefix.to_owned(), after.cloned());
        Box::pin(store.attempt(Verb::List, move |state| Ok(state.list(&prefix, after.as_ref()))))
    }

    fn counters(&self) -> StoreCounters {
        self.counters.clone()
    }
}

fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).expect("usize fits u64")
}

#[cfg(test)]
mod tests;
