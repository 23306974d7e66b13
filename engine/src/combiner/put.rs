//! From ready ranges to published objects.
//!
//! Path: `offer` (inbox) → `pack` (one task: freezes whatever is due while a PUT slot is free) → `upload` (one task per
//! object) → `Published` or `Returned` to the owner shards.
//!
//! Invariant: `puts_in_flight` ≤ `combiner.thread.pool.size`; while the bucket's breaker is open only single probes are
//! sent, and ranges older than the fallback delay go back to their shards (R12).

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use sakia_io::{Class, now, random_bytes, spawn, timeout, wall_clock_ms};
use sakia_protocol::ids::PartitionKey;
use sakia_remote::frozen::Identity;
use sakia_remote::object::ObjectId;
use sakia_remote::pack::{FrozenPlan, Offered, ReadyRange};
use sakia_remote::store::retry::RetryPolicy;
use sakia_remote::store::settled::{Unsettled, put_settled};
use sakia_remote::{FrozenObject, ObjectReference};
use tracing::{error, warn};

use super::{BUCKET, Combiner, Matter};
use crate::messages::{PublishedSlice, ReturnedRange, ShardMessage, WrittenObject};
use crate::replication::Admission;

impl Combiner {
    /// Queues ranges; what does not fit goes back at once, and its followers get bytes.
    pub(super) fn offer(self: &Rc<Self>, ranges: Vec<ReadyRange>) {
        let at = now().as_duration();
        let mut refused = Vec::new();
        {
            let mut packer = self.packer.borrow_mut();
            for range in ranges {
                if let Offered::Full(range) = packer.offer(range, at) {
                    refused.push(range);
                }
            }
        }
        self.give_back(refused);
        self.wake.wake();
    }

    /// Freezes objects as they fall due. Ends when the combiner stops and nothing is in flight.
    pub(super) async fn pack(self: Rc<Self>) {
        loop {
            while let Some(plan) = self.next_plan() {
                self.puts_in_flight.set(self.puts_in_flight.get() + 1);
                spawn(Class::Foreground, self.clone().upload(plan)).detach();
            }
            if self.stopping.get() {
                if self.puts_in_flight.get() == 0 {
                    let rest = self.packer.borrow_mut().take_expired(Duration::MAX);
                    self.give_back(rest);
                    return;
                }
                self.wake.wait().await;
                continue;
            }
            match self.next_look() {
                Some(after) => drop(timeout(after, self.wake.wait()).await),
                None => self.wake.wait().await,
            }
        }
    }

    fn next_plan(&self) -> Option<FrozenPlan> {
        let at = now().as_duration();
        self.expire(at);
        self.open.borrow().as_ref()?;
        let slots = self.settings.wal.puts_in_flight.saturating_sub(self.puts_in_flight.get());
        let mut packer = self.packer.borrow_mut();
        if slots == 0 || packer.due(at)? > Duration::ZERO {
            return None;
        }
        match self.breaker.borrow_mut().admit(at) {
            Admission::Refused { .. } => None,
            Admission::Go | Admission::Probe => packer.freeze(at, slots),
        }
    }

    /// Ranges that waited for the fallback delay go back: their followers get bytes (R12).
    fn expire(&self, at: Duration) {
        let Some(limit) = at.checked_sub(self.settings.wal.fallback_after) else { return };
        let expired = self.packer.borrow_mut().take_expired(limit);
        if !expired.is_empty() {
            if let Some(ranges) = self.quiet.more(Matter::Returned, expired.len(), at) {
                warn!(ranges, "ranges waited too long for the bucket; followers get record bytes");
            }
            self.give_back(expired);
        }
    }

    /// When to look again without being woken.
    fn next_look(&self) -> Option<Duration> {
        let at = now().as_duration();
        let packer = self.packer.borrow();
        let due = packer.due(at)?;
        let slots = self.puts_in_flight.get() < self.settings.wal.puts_in_flight;
        let expires = packer.oldest_at().map(|oldest| (oldest + self.settings.wal.fallback_after).saturating_sub(at));
        let blocked = self.breaker.borrow().is_open() || self.open.borrow().is_none() || !slots;
        if !blocked {
            return Some(due);
        }
        // While the breaker is open or no slot is free: look a few times per window, and when the oldest range expires.
        Some(expires.unwrap_or(due).min(self.settings.wal.interval.max(Duration::from_millis(5))))
    }

    /// Puts one object and tells the shards what became of it.
    async fn upload(self: Rc<Self>, plan: FrozenPlan) {
        let oldest_at = plan.oldest_at;
        let object = self.name(plan);
        let sent_at = now();
        let outcome = put_settled(&*self.store, &object, self.patience()).await;
        let answered_at = now();
        self.note_put(&object);
        self.puts_in_flight.set(self.puts_in_flight.get() - 1);
        // The slot is free, whatever the shards do with the news.
        self.wake.wake();
        match outcome {
            Ok(_) => {
                self.bucket_works();
                self.counters.put_micros.record(micros(answered_at - sent_at));
                self.counters.publish_micros.record(micros(answered_at.as_duration().saturating_sub(oldest_at)));
                self.count_object(&object);
                self.publish(&object).await;
                self.announce(&object, Some(object.head().clone()));
            }
            Err(Unsettled::GaveUp { attempts, last }) => {
                self.bucket_fails();
                if let Some(objects) = self.quiet.more(Matter::Put, 1, answered_at.as_duration()) {
                    warn!(object = %object.key(), attempts, objects, "an object could not be put: {last}");
                }
                self.give_back_object(&object).await;
                self.announce(&object, None);
            }
            Err(fenced @ Unsettled::Fenced { .. }) => {
                // The bucket answered; until the next registration followers get bytes.
                error!("object stream ended: {fenced}");
                self.bucket_works();
                self.end_stream(object.reference().stream());
                self.give_back_object(&object).await;
            }
        }
    }

    /// Gives a plan its place in the stream. Panics if no stream is open: `next_plan` looked.
    fn name(&self, plan: FrozenPlan) -> FrozenObject {
        let space = self.space().expect("a stream has names");
        let mut open = self.open.borrow_mut();
        let open = open.as_mut().expect("a plan is frozen only while a stream is open");
        let sequence = open.next_sequence;
        open.next_sequence += 1;
        let created_at_ms = wall_clock_ms();
        open.garbage.note(sequence, created_at_ms);
        let identity = Identity {
            object_id: ObjectId::from_bytes(random_bytes()),
            bucket: BUCKET,
            stream: open.stream,
            sequence,
            created_at_ms,
            metadata_index: self.applied(),
        };
        FrozenObject::new(&space, identity, plan)
    }

    /// The object is as old as the end of its put: an unknown outcome may still create it.
    fn note_put(&self, object: &FrozenObject) {
        if let Some(open) = self.open.borrow_mut().as_mut()
            && open.stream == object.reference().stream()
        {
            open.garbage.note(object.reference().sequence, wall_clock_ms());
        }
    }

    /// Tells the metadata topic about objects whose turn it is (R24). Never waits: what finds no room is dropped there.
    fn announce(&self, object: &FrozenObject, head: Option<Bytes>) {
        let reference = object.reference();
        let ready = match self.open.borrow_mut().as_mut() {
            Some(open) if open.stream == reference.stream() => open.announcements.finish(reference.sequence, head),
            _ => return,
        };
        if ready.is_empty() {
            return;
        }
        let written = ready
            .into_iter()
            .map(|(sequence, head)| WrittenObject { object: ObjectReference { sequence, ..reference }, head });
        let written: Vec<WrittenObject> = written.collect();
        let count = u64::try_from(written.len()).unwrap_or(u64::MAX);
        if self.shards[0].try_send(ShardMessage::Announce(written)).is_err() {
            self.counters.announcements_dropped.add(count);
        }
    }

    fn patience(&self) -> RetryPolicy {
        RetryPolicy { deadline: self.settings.wal.fallback_after, ..RetryPolicy::default() }
    }

    fn count_object(&self, object: &FrozenObject) {
        self.counters.objects.increment();
        self.counters.object_bytes.add(u64::from(object.reference().object_length));
        let first = object.slices().first().map(|slice| slice.header.key);
        if object.slices().iter().any(|slice| Some(slice.header.key) != first) {
            self.counters.objects_of_several.increment();
        }
    }

    async fn publish(&self, object: &FrozenObject) {
        let mut by_shard: BTreeMap<usize, Vec<PublishedSlice>> = BTreeMap::new();
        for slice in object.slices() {
            by_shard.entry(slice.shard).or_default().push(PublishedSlice {
                key: slice.header.key,
                generation: slice.generation,
                leader_epoch: slice.header.leader_epoch,
                base: slice.header.base,
                next: slice.header.next,
                object: object.reference(),
                slice: slice.number,
                start: position(slice.header.start),
                end: position(slice.header.end),
            });
        }
        for (shard, slices) in by_shard {
            let _ = self.shards[shard].send(ShardMessage::Published(slices)).await;
        }
    }

    async fn give_back_object(&self, object: &FrozenObject) {
        let mut by_shard: BTreeMap<usize, Vec<ReturnedRange>> = BTreeMap::new();
        for slice in object.slices() {
            let key = slice.header.key;
            let range = returned(key, slice.generation, slice.header.base, slice.header.next);
            by_shard.entry(slice.shard).or_default().push(range);
        }
        for (shard, ranges) in by_shard {
            let _ = self.shards[shard].send(ShardMessage::Returned(ranges)).await;
        }
    }

    /// Gives ranges back from the inbox or the packing task, which must not wait: one task per shard does.
    fn give_back(&self, ranges: Vec<ReadyRange>) {
        let mut by_shard: BTreeMap<usize, Vec<ReturnedRange>> = BTreeMap::new();
        for range in ranges {
            let back = returned(range.key, range.generation, range.base, range.next);
            by_shard.entry(range.shard).or_default().push(back);
        }
        for (shard, ranges) in by_shard {
            let shard = self.shards[shard].clone();
            spawn(Class::Foreground, async move {
                let _ = shard.send(ShardMessage::Returned(ranges)).await;
            })
            .detach();
        }
    }
}

fn returned(
    key: PartitionKey,
    generation: u64,
    base: sakia_protocol::ids::Offset,
    next: sakia_protocol::ids::Offset,
) -> ReturnedRange {
    ReturnedRange { key, generation, base, next }
}

fn position(at: u64) -> u32 {
    u32::try_from(at).expect("positions in an object are below OBJECT_LENGTH_MAX")
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
