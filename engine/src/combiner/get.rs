//! From references to slices: one GET per object and follower broker.
//!
//! Path: `CombinerMessage::Get` (a fetcher) → one task per object → checked slices to the owner shards, straight.
//!
//! Invariant: a slice that leaves here passed every check of `sakia_remote::get`; whether it continues the log is the
//! owner shard's decision. An object that cannot be read is reported to everybody who wanted it (R12).

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use sakia_io::{Class, now, sleep, spawn, timeout};
use sakia_remote::StoreError;
use sakia_remote::get::{GetError, SliceBytes, Wanted, open_wanted};
use tracing::warn;

use super::put::micros;
use super::{Combiner, Matter};
use crate::messages::{Named, Replicated, ReplicatedBytes, ShardMessage, WantedObject, WantedSlice};
use crate::replication::get_trouble::{BreakerView, FailureTime};
use crate::replication::{Admission, GetFailure, GetTrouble, GetVerdict};

/// Why an object could not be used.
enum ReadFailure {
    Store(StoreError),
    Damaged(GetError),
}

impl Combiner {
    /// Begins to read objects. Each is a task; how many there are is bounded by the fetchers, one reply each.
    pub(super) fn get(self: &Rc<Self>, objects: Vec<WantedObject>) {
        for object in objects {
            spawn(Class::Foreground, self.clone().read(object)).detach();
        }
    }

    async fn read(self: Rc<Self>, object: WantedObject) {
        let mut trouble = GetTrouble::new(now().as_duration());
        loop {
            let patience = trouble.patience(self.failure_time());
            let failure = match self.attempt(&object, patience).await {
                Ok(slices) => return self.hand_over(&object, slices).await,
                Err(failure) => failure,
            };
            let (kind, why) = match &failure {
                ReadFailure::Store(StoreError::Missing) => (GetFailure::Missing, "missing".to_owned()),
                ReadFailure::Store(StoreError::OutOfRange { .. }) => (GetFailure::Damaged, "shorter".to_owned()),
                ReadFailure::Store(error) => (GetFailure::Other, error.to_string()),
                ReadFailure::Damaged(error) => (GetFailure::Damaged, error.to_string()),
            };
            let breaker = if self.breaker.borrow().is_open() { BreakerView::Open } else { BreakerView::Closed };
            let time = self.failure_time();
            match trouble.failed(kind, breaker, time) {
                GetVerdict::Again { after } => sleep(after).await,
                GetVerdict::Bytes => {
                    if let Some(objects) = self.quiet.more(Matter::Get, 1, time.now) {
                        warn!(object = ?object.object.object, objects, "an object could not be read, asking for bytes: {why}");
                    }
                    return self.report_failure(&object, kind).await;
                }
            }
        }
    }

    fn failure_time(&self) -> FailureTime {
        FailureTime { now: now().as_duration(), fallback_after: self.settings.wal.fallback_after }
    }

    /// One GET, given up after `patience`; what the store still does about it is counted there.
    async fn attempt(&self, object: &WantedObject, patience: Duration) -> Result<Vec<SliceBytes>, ReadFailure> {
        let unavailable = |why: &str| ReadFailure::Store(StoreError::Retry { why: why.to_owned() });
        let space = self.space().ok_or_else(|| unavailable("not registered"))?;
        let sent_at = now();
        if let Admission::Refused { .. } = self.breaker.borrow_mut().admit(sent_at.as_duration()) {
            return Err(unavailable("the bucket's breaker is open"));
        }
        let key = object.object.object.key(&space);
        let asked = self.store.get(&key, 0..u64::from(object.object.get_end));
        let unanswered = |_| Err(StoreError::Unknown { why: format!("no answer within {patience:?}") });
        let result = timeout(patience, asked).await.unwrap_or_else(unanswered);
        let answered_at = now();
        match &result {
            Ok(_) | Err(StoreError::Missing | StoreError::OutOfRange { .. }) => {
                self.bucket_works();
            }
            Err(_) => self.bucket_fails(),
        }
        let bytes: Bytes = result.map_err(ReadFailure::Store)?;
        self.counters.object_gets.increment();
        self.counters.get_micros.record(micros(answered_at - sent_at));
        let mut wanted = Wanted::default();
        for slice in object.wanted.iter() {
            wanted.insert(slice.key, slice.stored, slice.leader_epoch);
        }
        open_wanted(&object.object, &bytes, &wanted).map_err(ReadFailure::Damaged)
    }

    async fn hand_over(&self, object: &WantedObject, slices: Vec<SliceBytes>) {
        let mut by_shard: BTreeMap<usize, Vec<Replicated>> = BTreeMap::new();
        for slice in slices {
            let header = slice.header;
            // In the order of the fetch's rows, which is that of the keys.
            let found = object.wanted.binary_search_by_key(&header.key, |wanted| wanted.key);
            let Some(wanted) = found.ok().map(|place| &object.wanted[place]) else { continue };
            by_shard.entry(wanted.shard.index()).or_default().push(Replicated {
                key: header.key,
                generation: wanted.generation,
                leader_epoch: wanted.leader_epoch,
                what: ReplicatedBytes::Slice { object: object.object.object, header, bytes: slice.bytes },
            });
        }
        self.send(by_shard).await;
    }

    /// Only partitions that the leader named the object for lack what was in it; the others go on.
    async fn report_failure(&self, object: &WantedObject, failure: GetFailure) {
        let mut by_shard: BTreeMap<usize, Vec<Replicated>> = BTreeMap::new();
        let named = object.wanted.iter().filter(|wanted| wanted.named == Named::Yes);
        for WantedSlice { key, shard, generation, leader_epoch, .. } in named.copied() {
            let what = ReplicatedBytes::ObjectFailed { object: object.object.object, failure };
            let row = Replicated { key, generation, leader_epoch, what };
            by_shard.entry(shard.index()).or_default().push(row);
        }
        self.send(by_shard).await;
    }

    async fn send(&self, by_shard: BTreeMap<usize, Vec<Replicated>>) {
        for (shard, rows) in by_shard {
            let _ = self.shards[shard].send(ShardMessage::Replicated(rows)).await;
        }
    }
}
