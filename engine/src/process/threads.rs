//! The threads of a broker process: how they are started, and how they end.
//!
//! Path: `run_broker` makes the mailboxes, starts the owner shards and the combiner; at the end they are stopped in the order
//! in which nothing is lost, or halted at once when the process cannot go on.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};

use sakia_io::{Receiver, Reply, Sender, ShardHandle, ShardSpec, Signal, Spawner, mailbox, oneshot, timeout};
use tracing::warn;

use super::StoreFactory;
use super::home::join;
use crate::combiner::{self, BucketState, CombinerStart};
use crate::counters::BrokerCounters;
use crate::limits::{COMBINER_MAILBOX, CONTROL_MAILBOX, SHARD_MAILBOX, STOP_LIMIT};
use crate::messages::{Addresses, CombinerMessage, ControlMessage, ShardCheckpoint, ShardId, ShardMessage};
use crate::settings::Settings;
use crate::shard::{self, FolderState, ShardStart};

/// Handles of the threads beside the control shard.
pub(super) type Handles = Arc<Mutex<Vec<ShardHandle>>>;

/// The receiving ends of a broker's mailboxes.
pub(super) struct Inboxes {
    pub(super) shards: Vec<Receiver<ShardMessage>>,
    pub(super) combiner: Receiver<CombinerMessage>,
    pub(super) control: Receiver<ControlMessage>,
}

/// Mailboxes for every thread; the combiner is reached only if there is a bucket.
pub(super) fn mailboxes(shards: usize, store: Option<&StoreFactory>) -> (Addresses, Inboxes) {
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..shards).map(|_| mailbox::<ShardMessage>(SHARD_MAILBOX)).unzip();
    let (control, control_inbox) = mailbox::<ControlMessage>(CONTROL_MAILBOX);
    let (combiner, combiner_inbox) = mailbox::<CombinerMessage>(COMBINER_MAILBOX);
    let addresses = Addresses { shards: senders.into(), combiner: store.is_some().then_some(combiner), control };
    (addresses, Inboxes { shards: inboxes, combiner: combiner_inbox, control: control_inbox })
}

/// What the threads of a broker share.
pub(super) struct Threads<'a> {
    pub(super) spawner: &'a dyn Spawner,
    pub(super) settings: &'a Arc<Settings>,
    pub(super) addresses: &'a Addresses,
    pub(super) counters: Arc<BrokerCounters>,
    pub(super) bucket: BucketState,
    pub(super) failure: &'a Signal,
    pub(super) handles: &'a Handles,
}

/// What only owner shards need.
pub(super) struct ForShards {
    pub(super) folder: FolderState,
    pub(super) checkpoint: Sender<Reply<()>>,
    pub(super) listen: Vec<SocketAddr>,
    pub(super) applied: Arc<[Arc<AtomicI64>]>,
}

/// What only the combiner needs.
pub(super) struct ForCombiner {
    pub(super) store: StoreFactory,
    pub(super) prefix: String,
    pub(super) metadata_index: Arc<AtomicI64>,
}

impl Threads<'_> {
    /// Starts the owner shards, and the combiner if there is a bucket. Those that were started when one could not be are for
    /// the caller to `halt`.
    pub(super) fn start(
        &self,
        shards: Vec<Receiver<ShardMessage>>,
        with: &ForShards,
        combiner: Receiver<CombinerMessage>,
        bucket: Option<ForCombiner>,
    ) -> Result<(), String> {
        let sessions = Arc::new(AtomicU64::new(1));
        let connections = Arc::new(AtomicUsize::new(0));
        for (number, inbox) in shards.into_iter().enumerate() {
            let start = ShardStart {
                id: ShardId::new(number),
                settings: self.settings.clone(),
                inbox,
                addresses: self.addresses.clone(),
                counters: self.counters.clone(),
                folder: with.folder.clone(),
                checkpoint: with.checkpoint.clone(),
                listen: with.listen.clone(),
                applied: with.applied[number].clone(),
                failure: self.failure.clone(),
                bucket: self.bucket.clone(),
                sessions: sessions.clone(),
                connections: connections.clone(),
            };
            let cpu = self.settings.shard_cpus.get(number).copied();
            let spec = ShardSpec { name: format!("shard-{number}"), cpu };
            self.keep(self.spawner.start(spec, Box::new(move || Box::pin(shard::run(start)))))
                .map_err(|why| format!("cannot start shard {number}: {why}"))?;
        }
        let Some(bucket) = bucket else { return Ok(()) };
        self.start_combiner(combiner, bucket).map_err(|why| format!("cannot start the combiner: {why}"))
    }

    /// The store is made on the combiner's own thread.
    fn start_combiner(&self, inbox: Receiver<CombinerMessage>, bucket: ForCombiner) -> io::Result<()> {
        let ForCombiner { store, prefix, metadata_index } = bucket;
        let start = CombinerStart {
            settings: self.settings.clone(),
            inbox,
            shards: self.addresses.shards.clone(),
            control: self.addresses.control.clone(),
            counters: self.counters.clone(),
            metadata_index,
            prefix,
            bucket: self.bucket.clone(),
        };
        let spec = ShardSpec { name: "combiner".to_owned(), cpu: self.settings.combiner_cpu };
        let main = Box::new(move || -> Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(async move { combiner::run(start, store()).await })
        });
        self.keep(self.spawner.start(spec, main))
    }

    fn keep(&self, started: io::Result<ShardHandle>) -> io::Result<()> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).push(started?);
        Ok(())
    }
}

/// Closes every log, all shards at once; gives what the checkpoint files are to hold. A shard that does not end in time is
/// left: its next start recovers.
pub(super) async fn stop_shards(addresses: &Addresses) -> Option<ShardCheckpoint> {
    let mut answers = Vec::new();
    let mut whole = ShardCheckpoint { rows: Vec::new(), is_complete: true };
    let asked = timeout(STOP_LIMIT, async {
        for shard in addresses.shards.iter() {
            let (reply, answer) = oneshot();
            shard.send(ShardMessage::Stop { reply }).await.ok()?;
            answers.push(answer);
        }
        for answer in answers {
            join(&mut whole, answer.await?);
        }
        Some(())
    });
    let stopped = asked.await;
    if !matches!(stopped, Ok(Some(()))) {
        warn!("a shard did not stop in time");
        return None;
    }
    Some(whole)
}

/// Lets what is in flight to the bucket end.
pub(super) async fn stop_combiner(addresses: &Addresses) {
    let Some(combiner) = &addresses.combiner else { return };
    let (reply, answer) = oneshot();
    let asked = timeout(STOP_LIMIT, async {
        let _ = combiner.send(CombinerMessage::Stop { reply }).await;
        answer.await
    });
    if asked.await.is_err() {
        warn!("objects were in flight when the combiner was stopped");
    }
}

/// Ends all threads at once: the process cannot go on, and what goes on would acknowledge (R6).
pub(super) async fn halt(addresses: &Addresses) {
    for shard in addresses.shards.iter() {
        // One that is gone, or does not take messages any more, ends with the process.
        let _ = timeout(STOP_LIMIT, shard.send(ShardMessage::Halt)).await;
    }
    if let Some(combiner) = &addresses.combiner {
        let (reply, _) = oneshot();
        let _ = timeout(STOP_LIMIT, combiner.send(CombinerMessage::Stop { reply })).await;
    }
}
