//! From the cluster's metadata to the roles of this shard's partitions.
//!
//! Path: control shard → `replace_image`/`apply_events` (at once, in order) → `reconcile` (partitions are removed one after
//! another; logs are opened and roles begin and end several at a time) → the applied index, which the control shard reports.
//!
//! Invariant: a role is begun only under a registration of this broker that the image holds, so an epoch that was
//! assigned before it is never led (R2). One partition is brought to its role by one task at a time. Removals wait for
//! nobody but the disk, so whoever waits for a folder (`release`) gets it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use sakia_controller::image::{ConfigResource, PartitionImage, Standing};
use sakia_controller::{Event, Image};
use sakia_io::{Class, Reply, oneshot, random_u64, sleep, spawn, wall_clock_ms};
use sakia_protocol::ids::{BrokerEpoch, BrokerId, MetadataIndex, Offset, PartitionKey};
use tracing::{error, info, warn};

use super::{Partition, Shard, log_settings};
use crate::log::folder::{PartitionFolder, StrayFolder, delete_partition, set_aside, take_back, topic_of};
use crate::log::{Log, LogError, Opening};
use crate::messages::ShardMessage;
use crate::settings::TopicSettings;
use crate::wake::Wake;

/// Logs of one shard that are opened at once: an opening waits for the disk again and again.
const LOGS_OPENED_AT_ONCE: usize = 8;

/// Pause before a partition that could not be opened is tried again; it doubles up to the longest.
const OPEN_RETRY_MIN: Duration = Duration::from_millis(100);
const OPEN_RETRY_MAX: Duration = Duration::from_mins(1);

/// What the data folder said at start.
#[derive(Clone, Default)]
pub struct FolderState {
    /// The folder.
    pub path: PathBuf,
    /// How each partition that has a folder is opened, and its high watermark.
    pub partitions: Arc<BTreeMap<PartitionFolder, (Opening, Option<Offset>)>>,
    /// A write or sync in the folder has failed.
    pub has_failed: Arc<AtomicBool>,
    /// Folders that an earlier run had set aside.
    pub strays: Arc<[StrayFolder]>,
}

/// Partitions whose role may have to change. Removals come first: a new topic may have the name of one that is gone.
#[derive(Default)]
pub(super) struct Pending {
    removals: RefCell<BTreeSet<PartitionKey>>,
    keys: RefCell<BTreeSet<PartitionKey>>,
    /// Those that are being brought to their role.
    present: RefCell<BTreeSet<PartitionKey>>,
    wake: Wake,
    /// Who waits for the folder of a partition.
    releases: RefCell<Vec<(PartitionKey, Reply<()>)>>,
    /// Everything of some image was brought about once.
    has_settled: Cell<bool>,
    /// Partitions that could not be brought to their role, with the attempts so far: each is tried again.
    failed: RefCell<BTreeMap<PartitionKey, u32>>,
}

impl Pending {
    /// A partition is to be looked at: it stands in one of the sets, as the metadata wants it now.
    fn note(&self, key: PartitionKey, gone: Gone) {
        let (into, other) = match gone {
            Gone::Yes => (&self.removals, &self.keys),
            Gone::No => (&self.keys, &self.removals),
        };
        other.borrow_mut().remove(&key);
        into.borrow_mut().insert(key);
    }

    fn next_removal(&self) -> Option<PartitionKey> {
        self.take_first(&self.removals)
    }

    /// The next one whose role is not a removal, if there is room for another task.
    fn next_role(&self) -> Option<PartitionKey> {
        let has_room = self.present.borrow().len() < LOGS_OPENED_AT_ONCE;
        has_room.then(|| self.take_first(&self.keys)).flatten()
    }

    /// Takes the first of a set that no task is at, for a task.
    fn take_first(&self, set: &RefCell<BTreeSet<PartitionKey>>) -> Option<PartitionKey> {
        let mut present = self.present.borrow_mut();
        let key = set.borrow().iter().find(|key| !present.contains(*key)).copied()?;
        set.borrow_mut().remove(&key);
        present.insert(key);
        Some(key)
    }

    fn holds(&self, key: &PartitionKey) -> bool {
        [&self.present, &self.removals, &self.keys].into_iter().any(|set| set.borrow().contains(key))
    }

    fn is_empty(&self) -> bool {
        [&self.present, &self.removals, &self.keys].into_iter().all(|set| set.borrow().is_empty())
    }
}

/// Whether a partition is to be removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gone {
    Yes,
    No,
}

/// What the metadata wants of one partition here.
enum Target {
    /// Nothing: the topic is gone, or this broker is no replica.
    Gone,
    /// A replica without role: nobody leads, or this broker is fenced.
    Idle,
    /// It leads.
    Lead { record: Box<PartitionImage>, my_epoch: BrokerEpoch },
    /// It follows.
    Follow { record: Box<PartitionImage>, leader: BrokerId },
}

impl Shard {
    /// The cluster as it is; whatever differs from what the shard knew is reconciled.
    pub(super) fn replace_image(self: &Rc<Self>, index: MetadataIndex, image: &Image) {
        let before = self.image.replace(image.clone());
        self.topic_settings.borrow_mut().clear();
        self.metadata_index.set(Some(index));
        for topic in before.topics().filter(|topic| image.topic(&topic.id).is_none()) {
            self.coordination.topic_deleted(self, &topic.name);
        }
        let mine: Vec<PartitionKey> = self.with_image(|image| {
            image.partitions().map(|(key, _)| key).filter(|key| self.placement.owner(key) == self.id).collect()
        });
        let known: Vec<PartitionKey> = self.partitions.borrow().keys().copied().collect();
        self.note(mine.into_iter().chain(known));
        self.brokers_changed();
        self.pending.wake.wake();
    }

    /// What changed, in order.
    pub(super) fn apply_events(self: &Rc<Self>, index: MetadataIndex, events: &[Event]) {
        for event in events {
            let touched = self.touched_by(event);
            self.image.borrow_mut().apply(index, event);
            if let Event::TopicDeleted(event) = event {
                self.coordination.topic_deleted(self, &event.name);
            }
            if matches!(event, Event::ConfigsSet(_) | Event::TopicDeleted(_)) {
                self.topic_settings.borrow_mut().clear();
            }
            let after = self.touched_by(event);
            self.note(touched.into_iter().chain(after).filter(|key| self.placement.owner(key) == self.id));
            if matches!(event, Event::BrokerRegistered(_) | Event::BrokerStandingChanged(_) | Event::BrokerRemoved(_)) {
                self.brokers_changed();
            }
        }
        self.metadata_index.set(Some(index));
        self.pending.wake.wake();
    }

    fn note(&self, keys: impl Iterator<Item = PartitionKey>) {
        for key in keys {
            let gone = if matches!(self.target(&key), Target::Gone) { Gone::Yes } else { Gone::No };
            self.pending.note(key, gone);
        }
    }

    /// Partitions that an event may concern, as the image stands.
    fn touched_by(&self, event: &Event) -> Vec<PartitionKey> {
        let of_topic = |id| self.with_image(|image| image.topic(id).map(|topic| topic.keys().collect()));
        match event {
            Event::TopicCreated(event) => event.topic.keys().collect(),
            Event::TopicDeleted(event) => of_topic(&event.topic_id).unwrap_or_default(),
            Event::PartitionsAdded(event) => of_topic(&event.topic_id).unwrap_or_default(),
            Event::PartitionChanged(event) => vec![event.key],
            Event::ConfigsSet(event) => match &event.resource {
                ConfigResource::Topic(id) => of_topic(id).unwrap_or_default(),
                _ => self.partitions.borrow().keys().copied().collect(),
            },
            // This broker's own standing decides whether it has roles at all.
            Event::BrokerRegistered(event) if event.broker == self.settings.node_id => self.all_keys(),
            Event::BrokerStandingChanged(event) if event.broker == self.settings.node_id => self.all_keys(),
            _ => Vec::new(),
        }
    }

    fn all_keys(&self) -> Vec<PartitionKey> {
        self.with_image(|image| image.partitions().map(|(key, _)| key).collect())
    }

    /// Registrations of brokers that may join an ISR.
    pub(super) fn live_brokers(&self) -> Vec<(BrokerId, BrokerEpoch)> {
        self.with_image(|image| {
            let live = image.brokers.iter().filter(|(_, broker)| broker.standing == Standing::Active);
            live.map(|(id, broker)| (*id, broker.epoch)).collect()
        })
    }

    fn brokers_changed(&self) {
        let live: BTreeMap<BrokerId, BrokerEpoch> = self.live_brokers().into_iter().collect();
        for partition in self.partitions.borrow().values() {
            partition.brokers_changed(&live);
        }
        self.fetchers.brokers_changed();
    }

    /// Brings partitions to where the metadata wants them, until the shard stops.
    pub(super) async fn reconcile(self: Rc<Self>, applied: Arc<AtomicI64>) {
        loop {
            self.pending.wake.wait().await;
            while !self.stopping.get() {
                if let Some(key) = self.pending.next_removal() {
                    self.clone().bring_noted(key).await;
                } else if let Some(key) = self.pending.next_role() {
                    spawn(Class::Foreground, self.clone().bring_noted(key)).detach();
                } else {
                    break;
                }
            }
            if self.stopping.get() {
                if self.pending.present.borrow().is_empty() {
                    return;
                }
                continue;
            }
            if !self.pending.is_empty() {
                continue;
            }
            if let Some(index) = self.metadata_index.get() {
                self.pending.has_settled.set(true);
                applied.store(index.get(), Ordering::Release);
            }
            self.count_roles();
        }
    }

    /// Brings one partition to its role. What fails is tried again, unless the folder failed.
    async fn bring_noted(self: Rc<Self>, key: PartitionKey) {
        match self.bring(key).await {
            Ok(()) => drop(self.pending.failed.borrow_mut().remove(&key)),
            Err(error) => self.bring_failed(key, &error),
        }
        self.pending.present.borrow_mut().remove(&key);
        self.answer_releases();
        self.pending.wake.wake();
    }

    /// One partition that cannot be opened keeps no other from being served; whoever mends its files need not restart the
    /// broker.
    fn bring_failed(self: &Rc<Self>, key: PartitionKey, error: &LogError) {
        if self.stopping.get() {
            return;
        }
        let topic = self.with_image(|image| image.topic(&key.topic_id).map(|topic| topic.name.clone()));
        let topic = topic.unwrap_or_else(|| key.topic_id.to_string());
        let attempts = {
            let mut failed = self.pending.failed.borrow_mut();
            let attempts = failed.entry(key).or_default();
            *attempts += 1;
            *attempts
        };
        if let LogError::Offline(_) = error {
            error!(topic, partition = %key.partition, "a partition could not be brought to its role: {error}");
            self.folder_failed(key, error);
            return;
        }
        let pause = OPEN_RETRY_MIN.saturating_mul(1 << attempts.min(16)).min(OPEN_RETRY_MAX);
        let seconds = pause.as_secs_f64();
        error!(topic, partition = %key.partition, attempts, seconds, "a partition could not be brought to its role, trying again: {error}");
        let shard = self.clone();
        spawn(Class::Foreground, async move {
            sleep(pause).await;
            let still_fails = shard.pending.failed.borrow().get(&key) == Some(&attempts);
            if still_fails {
                shard.note(std::iter::once(key));
                shard.pending.wake.wake();
            }
        })
        .detach();
    }

    /// Lets the task that brings roles about look again.
    pub(super) fn wake_reconcile(&self) {
        self.pending.wake.wake();
    }

    /// Whether every log that the metadata wants here was opened.
    pub(super) fn is_complete(&self) -> bool {
        self.pending.has_settled.get() && self.pending.failed.borrow().is_empty()
    }

    /// A shard waits until nothing here uses the folder of this partition.
    pub(super) fn release(&self, key: PartitionKey, reply: Reply<()>) {
        if !self.stopping.get() {
            self.pending.releases.borrow_mut().push((key, reply));
            self.answer_releases();
        }
    }

    /// The shard ends and lets nothing go any more. Whoever waits learns it from the reply that does not come.
    pub(super) fn drop_releases(&self) {
        drop(self.pending.releases.take());
    }

    fn answer_releases(&self) {
        let waiting = self.pending.releases.take();
        let used = |key: &PartitionKey| self.pending.holds(key) || self.partitions.borrow().contains_key(key);
        let (kept, free): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(key, _)| used(key));
        self.pending.releases.replace(kept);
        for (_, reply) in free {
            // The other shard may have ended.
            let _ = reply.send(());
        }
    }

    async fn bring(self: &Rc<Self>, key: PartitionKey) -> Result<(), LogError> {
        match self.target(&key) {
            Target::Gone => self.remove(key).await,
            Target::Idle => {
                if let Some(partition) = self.partition(&key) {
                    partition.idle(self);
                    self.coordination.resign(self, key);
                }
                Ok(())
            }
            Target::Lead { record, my_epoch } => {
                let partition = self.open(key).await?;
                let Some(partition) = partition else { return Ok(()) };
                partition.cut_ended().await;
                partition.lead(self, &record, my_epoch);
                self.coordination.lead(self, &partition, record.leader_epoch);
                Ok(())
            }
            Target::Follow { record, leader } => {
                let partition = self.open(key).await?;
                let Some(partition) = partition else { return Ok(()) };
                self.coordination.resign(self, key);
                partition.cut_ended().await;
                partition.follow(self, &record, leader);
                Ok(())
            }
        }
    }

    fn target(&self, key: &PartitionKey) -> Target {
        let me = self.settings.node_id;
        self.with_image(|image| {
            let Some(record) = image.partition(key) else { return Target::Gone };
            if !record.replicas.contains(&me) {
                return Target::Gone;
            }
            let registration = image.brokers.get(&me).filter(|broker| broker.standing != Standing::Fenced);
            match (record.leader, registration) {
                (Some(leader), Some(broker)) if leader == me => {
                    Target::Lead { record: Box::new(record.clone()), my_epoch: broker.epoch }
                }
                (Some(leader), _) if leader != me => Target::Follow { record: Box::new(record.clone()), leader },
                _ => Target::Idle,
            }
        })
    }

    /// The partition, opened if it is not; `None` if its topic went meanwhile.
    async fn open(self: &Rc<Self>, key: PartitionKey) -> Result<Option<Rc<Partition>>, LogError> {
        let topic = self.with_image(|image| image.topic(&key.topic_id).cloned());
        let Some(topic) = topic else { return Ok(None) };
        let settings = self.topic_settings(&topic);
        if let Some(partition) = self.partition(&key) {
            partition.set_settings(self, settings);
            return Ok(Some(partition));
        }
        let folder = PartitionFolder { topic: topic.name.clone(), partition: key.partition };
        let (log, high_watermark) = self.open_log(&folder, key, &settings).await?;
        let partition = Partition::new(self, key, &topic.name, settings, log, high_watermark);
        self.partitions.borrow_mut().insert(key, partition.clone());
        Ok(Some(partition))
    }

    /// Opens a log. A folder that an earlier topic of the same name left is set aside first; one that was set aside and is this
    /// topic's after all is taken back. What the data folder said at the start is true only for the log that it was said of.
    async fn open_log(
        self: &Rc<Self>,
        folder: &PartitionFolder,
        key: PartitionKey,
        settings: &TopicSettings,
    ) -> Result<(Log, Offset), LogError> {
        let path = self.folder.path.join(folder.name());
        let failed = |why| LogError::at_opening(&path, &why);
        let (opening, high_watermark) = match topic_of(&path).await.map_err(failed)? {
            Some(found) if found == key.topic_id => self.folder.partitions.get(folder).copied().unwrap_or_default(),
            Some(found) => {
                self.wait_for_release(PartitionKey { topic_id: found, ..key }).await?;
                // Whoever deleted that topic here has deleted its folder too; else it was deleted behind this broker's back.
                if topic_of(&path).await.map_err(failed)?.is_some() {
                    warn!(folder = %path.display(), topic = %found, "setting aside what an earlier topic of this name left");
                    set_aside(&self.folder.path, folder, wall_clock_ms()).await.map_err(failed)?;
                }
                Default::default()
            }
            None => {
                self.take_back(folder, key).await.map_err(failed)?;
                Default::default()
            }
        };
        let log = Log::open(&path, &folder.topic, key, log_settings(settings), self.arena.clone(), opening).await?;
        Ok((log, high_watermark.unwrap_or(Offset::ZERO)))
    }

    /// The cluster did not know this topic once, and knows it again: its controller had been restored from an old copy.
    async fn take_back(&self, folder: &PartitionFolder, key: PartitionKey) -> io::Result<()> {
        for stray in self.folder.strays.iter().filter(|stray| stray.was(folder)) {
            if topic_of(&self.folder.path.join(&stray.name)).await? == Some(key.topic_id) {
                warn!(folder = stray.name, "the cluster knows this topic again, taking its folder back");
                return take_back(&self.folder.path, stray, folder).await;
            }
        }
        Ok(())
    }

    /// Waits until the owner of an earlier topic's partition, here or on another shard, has let its folder go. Its removal was
    /// told before the topic that is opened here, and waits for an opening of that earlier partition at most: so a chain of
    /// waits leads to ever earlier topics, and ends.
    ///
    /// # Errors
    /// The owner ends, with the process.
    async fn wait_for_release(self: &Rc<Self>, key: PartitionKey) -> Result<(), LogError> {
        let (reply, released) = oneshot();
        let delivered = self.deliver(self.placement.owner(&key), ShardMessage::Release { key, reply }).await;
        if delivered && released.await.is_some() { Ok(()) } else { Err(LogError::Closed) }
    }

    async fn delete_folder(&self, folder: &PartitionFolder) -> Result<(), LogError> {
        let failed = |why| LogError::Offline(format!("deleting {} failed: {why}", folder.name()));
        delete_partition(&self.folder.path, folder, random_u64()).await.map_err(failed)
    }

    /// Stops a partition and deletes its folder: its topic is gone, or its replica was moved away.
    async fn remove(self: &Rc<Self>, key: PartitionKey) -> Result<(), LogError> {
        let Some(partition) = self.partition(&key) else { return Ok(()) };
        info!(topic = partition.topic(), partition = %key.partition, "deleting a partition");
        self.coordination.resign(self, key);
        partition.stop(self);
        partition.drain().await;
        match partition.log().close().await {
            // What a failed disk keeps is deleted all the same, if it can be.
            Ok(()) | Err(LogError::Closed | LogError::Offline(_)) => {}
            Err(error) => return Err(error),
        }
        let folder = PartitionFolder { topic: partition.topic().to_owned(), partition: key.partition };
        self.delete_folder(&folder).await?;
        // Until here the folder is in use (`release`).
        self.partitions.borrow_mut().remove(&key);
        Ok(())
    }

    fn count_roles(&self) {
        let partitions = self.partitions.borrow();
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let shard = self.id.index().to_string();
        let led = partitions.values().filter(|partition| partition.is_leader()).count();
        let under = partitions.values().filter(|partition| partition.is_under_replicated()).count();
        self.counters.partitions.with(&[&shard]).set(number(partitions.len()));
        self.counters.leader_partitions.with(&[&shard]).set(number(led));
        self.counters.under_replicated.with(&[&shard]).set(number(under));
    }
}
