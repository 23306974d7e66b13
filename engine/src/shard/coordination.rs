//! Group coordinators at work: what `groups` decides, done.
//!
//! Path: `api::groups` → the shard that leads the group's partition of `__consumer_offsets` → `Coordinators` (pure) → its
//! effects: answers go out, records are appended here with acks=all, and what waits for them is told when they are
//! committed.
//!
//! Invariant: records of one coordinator are appended in the order in which it gave them; an effect of an older
//! leadership is dropped (the coordinator that waited for it was resigned).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use sakia_io::{Class, Reply, now, sleep, spawn, timeout, wall_clock_ms};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::batch::{BatchBuilder, Compression, NewRecord, for_each_record};
use sakia_protocol::ids::{LeaderEpoch, PartitionIndex, PartitionKey};
use tracing::{debug, info, warn};

use super::partition::{Appending, Partition};
use super::{Shard, partition::read_error};
use crate::groups::coordinators::Coordinators;
use crate::groups::limits::RETENTION_LOOK;
use crate::groups::{Append, Clock, Effects, GroupAnswer, GroupRequest, GroupSettings, Ticket};
use crate::limits::{DECOMPRESSED_BYTES_MAX, OFFSETS_COMMIT_LIMIT, REPLAY_BYTES};
use crate::log::{AtLeastOne, LogError};
use crate::messages::{Acks, Refusal};
use crate::settings::Settings;
use crate::wake::Wake;

/// The topic of committed offsets and groups.
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Coordinators of the `__consumer_offsets` partitions led on one shard.
pub struct Coordination {
    coordinators: RefCell<Coordinators>,
    waiting: RefCell<BTreeMap<Ticket, Reply<GroupAnswer>>>,
    led: RefCell<BTreeMap<PartitionKey, LeaderEpoch>>,
    next_ticket: Cell<u64>,
    wake: Wake,
}

impl Coordination {
    /// No coordinators yet.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let groups = &settings.groups;
        let settings = GroupSettings {
            initial_rebalance_delay: groups.initial_delay,
            session_timeout_min: groups.session_min,
            session_timeout_max: groups.session_max,
            group_size_max: groups.members_max,
            offsets_retention: groups.offsets_retention,
            ..GroupSettings::default()
        };
        Self {
            coordinators: RefCell::new(Coordinators::new(settings)),
            waiting: RefCell::default(),
            led: RefCell::default(),
            next_ticket: Cell::new(0),
            wake: Wake::default(),
        }
    }

    /// Takes a request for the coordinator of this partition.
    pub(super) fn take(&self, shard: &Rc<Shard>, key: PartitionKey, request: GroupRequest, reply: Reply<GroupAnswer>) {
        let ticket = Ticket(self.next_ticket.get());
        self.next_ticket.set(ticket.0 + 1);
        self.waiting.borrow_mut().insert(ticket, reply);
        let effects = self.coordinators.borrow_mut().handle(key.partition, ticket, request, clock());
        self.carry_out(shard, key, effects);
    }

    /// A partition is led here: if it is one of the offsets topic, its coordinator loads.
    pub(super) fn lead(&self, shard: &Rc<Shard>, partition: &Rc<Partition>, epoch: LeaderEpoch) {
        if partition.topic() != OFFSETS_TOPIC {
            return;
        }
        let key = partition.key();
        if self.is_led(key, epoch) {
            return;
        }
        self.resign(shard, key);
        debug!(partition = %key.partition, %epoch, "group coordinator loads");
        self.led.borrow_mut().insert(key, epoch);
        self.coordinators.borrow_mut().lead(key.partition);
        spawn(Class::Foreground, load(shard.clone(), partition.clone(), epoch)).detach();
    }

    /// A partition, of whichever topic, is no longer led here.
    pub(super) fn resign(&self, shard: &Rc<Shard>, key: PartitionKey) {
        if self.led.borrow_mut().remove(&key).is_some() {
            debug!(partition = %key.partition, "group coordinator resigns");
            let effects = self.coordinators.borrow_mut().resign(key.partition);
            self.carry_out(shard, key, effects);
        }
    }

    fn is_led(&self, key: PartitionKey, epoch: LeaderEpoch) -> bool {
        self.led.borrow().get(&key) == Some(&epoch)
    }

    /// Sends answers, appends records.
    fn carry_out(&self, shard: &Rc<Shard>, key: PartitionKey, effects: Effects) {
        for (ticket, answer) in effects.answers {
            if let Some(reply) = self.waiting.borrow_mut().remove(&ticket) {
                let _ = reply.send(answer);
            }
        }
        for append in effects.appends {
            self.append(shard, key, append);
        }
        self.wake.wake();
    }

    /// Appends at once, in order; the commit is awaited in a task of its own.
    fn append(&self, shard: &Rc<Shard>, key: PartitionKey, append: Append) {
        let Some(epoch) = self.led.borrow().get(&key).copied() else { return };
        let number = append.number;
        let begun = begin(shard, key, &append);
        let shard = shard.clone();
        spawn(Class::Foreground, async move {
            let stored = match begun {
                Err(refusal) => Err(refusal.code),
                Ok((partition, appending)) => match timeout(OFFSETS_COMMIT_LIMIT, partition.settle(appending)).await {
                    Ok(outcome) => outcome.map(drop).map_err(|refusal| refusal.code),
                    Err(_) => Err(ErrorCode::RequestTimedOut),
                },
            };
            if let Err(code) = stored {
                debug!(partition = %key.partition, code = code.name(), "records of a group could not be stored");
            }
            let coordination = &shard.coordination;
            if coordination.is_led(key, epoch) {
                let effects =
                    coordination.coordinators.borrow_mut().append_finished(key.partition, number, stored, clock());
                coordination.carry_out(&shard, key, effects);
            }
        })
        .detach();
    }

    /// Lets coordinators act when their time has come, for ever.
    pub(super) async fn keep_time(shard: Rc<Shard>) {
        let coordination = &shard.coordination;
        loop {
            let deadline = coordination.coordinators.borrow().next_deadline();
            match deadline {
                None => coordination.wake.wait().await,
                Some(deadline) => {
                    let left = deadline.saturating_sub(now().as_duration());
                    let _ = timeout(left, coordination.wake.wait()).await;
                }
            }
            if deadline.is_none_or(|deadline| now().as_duration() < deadline) {
                continue;
            }
            let due = coordination.coordinators.borrow_mut().on_time(clock());
            coordination.carry_out_all(&shard, due);
        }
    }

    /// Forgets offsets past their retention, for ever.
    pub(super) async fn keep_retention(shard: Rc<Shard>) {
        loop {
            sleep(RETENTION_LOOK).await;
            let expired = shard.coordination.coordinators.borrow_mut().expire_offsets(clock());
            shard.coordination.carry_out_all(&shard, expired);
        }
    }

    /// A topic is gone: groups forget how far they have read it.
    pub(super) fn topic_deleted(&self, shard: &Rc<Shard>, topic: &str) {
        let forgotten = self.coordinators.borrow_mut().on_topic_deleted(topic, clock());
        self.carry_out_all(shard, forgotten);
    }

    fn carry_out_all(&self, shard: &Rc<Shard>, by_partition: Vec<(PartitionIndex, Effects)>) {
        let topic_id = shard.with_image(|image| image.topic_named(OFFSETS_TOPIC).map(|topic| topic.id));
        // Without the topic its partitions are about to be resigned.
        let Some(topic_id) = topic_id else { return };
        for (partition, effects) in by_partition {
            self.carry_out(shard, PartitionKey { topic_id, partition }, effects);
        }
    }
}

/// Builds the batch of an append and puts it into the partition's log.
fn begin(shard: &Rc<Shard>, key: PartitionKey, append: &Append) -> Result<(Rc<Partition>, Appending), Refusal> {
    let partition = shard.partition(&key).ok_or_else(|| Refusal::code(ErrorCode::NotCoordinator))?;
    let mut batch = BatchBuilder::new(Compression::None);
    let timestamp_ms = wall_clock_ms();
    for record in &append.records {
        let unwritable = |error| Refusal::with_message(ErrorCode::UnknownServerError, format!("{error}"));
        let key = record.key().map_err(unwritable)?;
        let value = record.value().map_err(unwritable)?;
        batch.push(NewRecord { timestamp_ms, key: Some(&key), value: value.as_deref(), headers: &[] });
    }
    let batch = batch.build();
    let appending = partition.produce(shard, &batch, Acks::All)?;
    Ok((partition, appending))
}

/// Replays the partition into its coordinator. A log that cannot be read is tried again: groups wait meanwhile.
async fn load(shard: Rc<Shard>, partition: Rc<Partition>, epoch: LeaderEpoch) {
    let key = partition.key();
    let index = key.partition;
    let mut from = partition.log().start();
    let end = partition.log().appended();
    while from < end {
        if !shard.coordination.is_led(key, epoch) {
            return;
        }
        let below = partition.log().stored().min(end);
        if from >= below {
            // Appended and not yet written, as a follower: a moment.
            sleep(Duration::from_millis(1)).await;
            continue;
        }
        match partition.log().read(from, below, REPLAY_BYTES, AtLeastOne::Yes).await {
            Ok(read) => {
                for bytes in &read.bytes {
                    replay(&shard, index, bytes);
                }
                from = read.next;
            }
            Err(LogError::OutOfRange { start, .. }) if start > from => from = start,
            Err(error) => {
                warn!(partition = %partition.key(), code = read_error(&error).name(), "offsets cannot be loaded: {error}");
                sleep(Duration::from_secs(1)).await;
            }
        }
    }
    if shard.coordination.is_led(key, epoch) {
        if let Some(coordinator) = shard.coordination.coordinators.borrow_mut().get_mut(index) {
            coordinator.loaded(clock());
            info!(partition = %index, groups = coordinator.len(), "group coordinator is ready");
        }
        shard.coordination.wake.wake();
    }
}

fn replay(shard: &Shard, index: PartitionIndex, bytes: &Bytes) {
    let mut coordinators = shard.coordination.coordinators.borrow_mut();
    let Some(coordinator) = coordinators.get_mut(index) else { return };
    let read = for_each_record(bytes, DECOMPRESSED_BYTES_MAX, |placed| {
        let Some(key) = placed.record.key else { return };
        let value = placed.record.value.map(Bytes::copy_from_slice);
        if let Err(error) = coordinator.replay(&Bytes::copy_from_slice(key), value.as_ref()) {
            warn!(partition = %index, offset = %placed.offset, "a record of the offsets topic is skipped: {error}");
        }
    });
    if let Err(error) = read {
        warn!(partition = %index, "a batch of the offsets topic is skipped: {error}");
    }
}

fn clock() -> Clock {
    Clock { now: now().as_duration(), wall_ms: wall_clock_ms() }
}
