//! What a shard does by the clock: lending at the end of a turn, the ISR, retention, checkpoints, clean stop.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sakia_io::{Class, Reply, Task, sleep, spawn, wall_clock_ms};
use sakia_protocol::ids::PartitionKey;
use tracing::{error, warn};

use super::{Partition, Shard};
use crate::log::LogError;
use crate::messages::{CheckpointRow, ShardCheckpoint};
use crate::wake::Wake;

/// How often ISRs and uploads are looked at: well below the fallback delay and the lag time.
const LOOK: Duration = Duration::from_millis(100);

/// A log without appends for this long gives its memory back.
const IDLE: Duration = Duration::from_secs(10);

/// Logs that are being closed at a clean stop.
const LOGS_CLOSED_AT_ONCE: usize = 32;

/// Partitions with appended bytes that are not lent yet.
#[derive(Default)]
pub struct Lending {
    keys: RefCell<Vec<PartitionKey>>,
    wake: Wake,
}

impl Lending {
    /// The partition has bytes to lend.
    pub fn mark(&self, key: PartitionKey) {
        self.keys.borrow_mut().push(key);
        self.wake.wake();
    }
}

impl Shard {
    fn every_partition(&self) -> Vec<Rc<Partition>> {
        self.partitions.borrow().values().cloned().collect()
    }

    /// Lends what was appended in this turn, all partitions together.
    pub(super) async fn lend(self: Rc<Self>) {
        loop {
            self.lending.wake.wait().await;
            for key in self.lending.keys.take() {
                if let Some(partition) = self.partition(&key) {
                    partition.lend_ready(&self);
                }
            }
        }
    }

    /// Looks after ISRs and uploads, for ever.
    pub(super) async fn look_after_replicas(self: Rc<Self>) {
        loop {
            sleep(LOOK).await;
            for partition in self.every_partition() {
                partition.upkeep(&self);
            }
            let age = self.settings.wal.retention / 2;
            if let Some(before) = sakia_io::now().as_duration().checked_sub(age) {
                self.index.borrow_mut().expire(before);
            }
        }
    }

    /// Rolls, syncs by time and deletes by retention, for ever.
    pub(super) async fn look_after_logs(self: Rc<Self>) {
        let interval = self.settings.retention_check.min(Duration::from_secs(1));
        let mut since_retention = Duration::ZERO;
        loop {
            sleep(interval).await;
            since_retention += interval;
            let retention = since_retention >= self.settings.retention_check;
            if retention {
                since_retention = Duration::ZERO;
            }
            for partition in self.every_partition() {
                if self.partition(&partition.key()).is_none_or(|known| !Rc::ptr_eq(&known, &partition)) {
                    // Deleted while another one was looked after.
                    continue;
                }
                match look_after(&partition, retention).await {
                    Ok(()) | Err(LogError::Closed) => {}
                    Err(error) => self.folder_failed(partition.key(), &error),
                }
            }
        }
    }

    /// What the checkpoint files hold of this shard.
    pub(super) fn checkpoint_state(&self) -> ShardCheckpoint {
        ShardCheckpoint { rows: self.checkpoint_rows(), is_complete: self.is_complete() }
    }

    fn checkpoint_rows(&self) -> Vec<CheckpointRow> {
        let partitions = self.partitions.borrow();
        let rows = partitions.values().map(|partition| CheckpointRow {
            topic: partition.topic().to_owned(),
            partition: partition.key().partition,
            recovery_point: partition.log().recovery_point(),
            log_start: partition.log().start(),
            high_watermark: partition.high_watermark(),
        });
        rows.collect()
    }

    /// R6: a failed log folder. With one folder the process stops: what it has acknowledged is on other replicas or on
    /// this disk, and a broker that goes on would only pretend.
    pub(super) fn folder_failed(&self, key: PartitionKey, error: &LogError) {
        match error {
            LogError::Closed => {}
            LogError::Offline(why) => {
                error!(partition = %key, "the log folder failed: {why}");
                self.folder.has_failed.store(true, Ordering::Relaxed);
                self.failure.raise();
            }
            other => warn!(partition = %key, "a log could not be served: {other}"),
        }
    }

    /// A planned stop begins, or the registration is given up: nothing more is appended for producers, and what was is to be on
    /// every replica in sync before the controller chooses the next leader among them. So acks=1 loses nothing either.
    pub(super) fn hand_over(self: &Rc<Self>, reply: Reply<()>) {
        self.handing_over.set(self.handing_over.get() + 1);
        let partitions = self.every_partition();
        let answers: Vec<_> = partitions.iter().filter_map(|partition| partition.everything_committed()).collect();
        spawn(Class::Foreground, async move {
            for answer in answers {
                let _ = answer.await;
            }
            let _ = reply.send(());
        })
        .detach();
    }

    /// The hand-over of a registration that was given up is over.
    pub(super) fn resume(&self) {
        self.handing_over.set(self.handing_over.get().checked_sub(1).expect("only a hand-over is ended"));
    }

    /// Clean stop: nothing more is acknowledged, everything appended is written, logs are closed, several at a time: each
    /// waits for the disk's syncs.
    pub(super) async fn close(self: &Rc<Self>, reconciling: Task<()>) {
        self.stopping.set(true);
        self.drop_releases();
        self.wake_reconcile();
        reconciling.await;
        let partitions = self.every_partition();
        for partition in &partitions {
            partition.idle(self);
        }
        let mut partitions = partitions.into_iter();
        let mut closing = VecDeque::new();
        loop {
            let room = LOGS_CLOSED_AT_ONCE - closing.len();
            closing.extend(partitions.by_ref().take(room).map(|partition| spawn(Class::Foreground, close(partition))));
            let Some(first) = closing.pop_front() else { return };
            first.await;
        }
    }
}

async fn close(partition: Rc<Partition>) {
    partition.drain().await;
    if let Err(error) = partition.log().close().await {
        warn!(partition = %partition.key(), "a log could not be closed: {error}");
    }
}

/// One log's share: rolls by age, syncs by time, forgets; deletes by retention when that is due.
async fn look_after(partition: &Partition, retention: bool) -> Result<(), LogError> {
    let log = partition.log();
    log.roll_if_due(wall_clock_ms());
    log.flush_if_due().await?;
    log.release_if_idle(IDLE);
    if retention {
        log.expire_producers(wall_clock_ms());
        log.apply_retention(wall_clock_ms(), partition.high_watermark()).await?;
    }
    Ok(())
}
