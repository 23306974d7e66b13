//! From the cluster's metadata to the roles of this shard's partitions.
//!
//! Path: control shard → `replace_image`/`apply_events` (at once, in order) → `reconcile` (a task: logs are opened, roles
//! begin and end) → the applied index, which the control shard reports.
//!
//! Invariant: a role is begun only under a registration of this broker that the image holds, so an epoch that was
//! assigned before it is never led (R2).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use sakia_controller::image::{ConfigResource, PartitionImage, Standing};
use sakia_controller::{Event, Image};
use sakia_io::random_u64;
use sakia_protocol::ids::{BrokerEpoch, BrokerId, MetadataIndex, Offset, PartitionKey};
use tracing::{error, info, warn};

use super::{Partition, Shard, log_settings};
use crate::log::folder::{PartitionFolder, delete_partition};
use crate::log::{Log, LogError, Opening};
use crate::settings::TopicSettings;
use crate::wake::Wake;

/// What the data folder said at start.
#[derive(Clone, Default)]
pub struct FolderState {
    /// The folder.
    pub path: PathBuf,
    /// How each partition that has a folder is opened, and its high watermark.
    pub partitions: Arc<BTreeMap<PartitionFolder, (Opening, Option<Offset>)>>,
}

/// Partitions whose role may have to change.
#[derive(Default)]
pub(super) struct Pending {
    keys: RefCell<BTreeSet<PartitionKey>>,
    wake: Wake,
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
        *self.image.borrow_mut() = image.clone();
        self.topic_settings.borrow_mut().clear();
        self.metadata_index.set(Some(index));
        let mine: Vec<PartitionKey> = self.with_image(|image| {
            image.partitions().map(|(key, _)| key).filter(|key| self.placement.owner(key) == self.id).collect()
        });
        let known: Vec<PartitionKey> = self.partitions.borrow().keys().copied().collect();
        self.pending.keys.borrow_mut().extend(mine.into_iter().chain(known));
        self.brokers_changed();
        self.pending.wake.wake();
    }

    /// What changed, in order.
    pub(super) fn apply_events(self: &Rc<Self>, index: MetadataIndex, events: &[Event]) {
        for event in events {
            let touched = self.touched_by(event);
            self.image.borrow_mut().apply(index, event);
            if matches!(event, Event::ConfigsSet(_) | Event::TopicDeleted(_)) {
                self.topic_settings.borrow_mut().clear();
            }
            let after = self.touched_by(event);
            let mut keys = self.pending.keys.borrow_mut();
            keys.extend(touched.into_iter().chain(after).filter(|key| self.placement.owner(key) == self.id));
            drop(keys);
            if matches!(event, Event::BrokerRegistered(_) | Event::BrokerStandingChanged(_) | Event::BrokerRemoved(_)) {
                self.brokers_changed();
            }
        }
        self.metadata_index.set(Some(index));
        self.pending.wake.wake();
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
        let known: Vec<BrokerId> = self.with_image(|image| image.brokers.keys().copied().collect());
        for partition in self.partitions.borrow().values() {
            for broker in known.iter().copied() {
                partition.broker_changed(broker, live.get(&broker).copied());
            }
        }
        self.fetchers.brokers_changed();
    }

    /// Brings partitions to where the metadata wants them, for ever.
    pub(super) async fn reconcile(self: Rc<Self>, applied: Arc<AtomicI64>) {
        loop {
            self.pending.wake.wait().await;
            loop {
                let key = self.pending.keys.borrow_mut().pop_first();
                let Some(key) = key else { break };
                if let Err(error) = self.bring(key).await {
                    error!(partition = %key, "a partition could not be brought to its role: {error}");
                    self.folder_failed(key, &error);
                }
            }
            if let Some(index) = self.metadata_index.get() {
                applied.store(index.get(), Ordering::Release);
            }
            self.count_roles();
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
                partition.lead(self, &record, my_epoch);
                self.coordination.lead(self, &partition, record.leader_epoch);
                Ok(())
            }
            Target::Follow { record, leader } => {
                let partition = self.open(key).await?;
                let Some(partition) = partition else { return Ok(()) };
                self.coordination.resign(self, key);
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
        let (opening, high_watermark) = self.folder.partitions.get(&folder).copied().unwrap_or_default();
        let log = self.open_log(&folder, key, &settings, opening).await?;
        let high_watermark = high_watermark.unwrap_or(Offset::ZERO);
        let partition = Partition::new(self, key, &topic.name, settings, log, high_watermark);
        self.partitions.borrow_mut().insert(key, partition.clone());
        Ok(Some(partition))
    }

    /// Opens a log. A folder that an earlier topic of the same name left is deleted first: its topic is gone for good.
    async fn open_log(
        &self,
        folder: &PartitionFolder,
        key: PartitionKey,
        settings: &TopicSettings,
        opening: Opening,
    ) -> Result<Log, LogError> {
        let path = self.folder.path.join(folder.name());
        let settings = log_settings(settings);
        match Log::open(&path, &folder.topic, key, settings, self.arena.clone(), opening).await {
            Err(LogError::OtherTopic { found, .. }) => {
                warn!(folder = %path.display(), topic = %found, "deleting what an earlier topic of this name left");
                self.delete_folder(folder).await?;
                Log::open(&path, &folder.topic, key, settings, self.arena.clone(), Opening::default()).await
            }
            opened => opened,
        }
    }

    async fn delete_folder(&self, folder: &PartitionFolder) -> Result<(), LogError> {
        let failed = |why| LogError::Offline(format!("deleting {} failed: {why}", folder.name()));
        delete_partition(&self.folder.path, folder, random_u64()).await.map_err(failed)
    }

    /// Stops a partition and deletes its folder: its topic is gone, or its replica was moved away.
    async fn remove(self: &Rc<Self>, key: PartitionKey) -> Result<(), LogError> {
        let removed = self.partitions.borrow_mut().remove(&key);
        let Some(partition) = removed else { return Ok(()) };
        info!(topic = partition.topic(), partition = %key.partition, "deleting a partition");
        self.coordination.resign(self, key);
        partition.stop(self);
        partition.end_writer();
        match partition.log().close().await {
            // What a failed disk keeps is deleted all the same, if it can be.
            Ok(()) | Err(LogError::Closed | LogError::Offline(_)) => {}
            Err(error) => return Err(error),
        }
        self.delete_folder(&PartitionFolder { topic: partition.topic().to_owned(), partition: key.partition }).await
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
