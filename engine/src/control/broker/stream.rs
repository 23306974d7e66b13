//! The metadata of the cluster on its way from the controller to the shards: a long poll, an image, then what changed.
//!
//! Path: MetadataStream → the image here → `Image` or `Delta` to every shard, in order, waiting for room.
//!
//! Invariant: a shard's first image holds this process's registration (R2); the events of one index arrive together; an
//! event that this binary does not know is never passed over.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sakia_controller::{Event, Image};
use sakia_io::sleep;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{BrokerEpoch, ControllerEpoch, MetadataIndex};
use sakia_protocol::messages::metadata_stream::{MetadataEvent, MetadataStreamRequest, MetadataStreamResponse};
use tracing::{debug, info, warn};

use super::Broker;
use crate::control::limits::{STREAM_GRACE, STREAM_WAIT};
use crate::log::checkpoint::FolderIdentity;
use crate::messages::{CombinerMessage, ShardMessage};

/// Pause after an answer that brought nothing because of an error.
const TROUBLE_PAUSE: Duration = Duration::from_millis(100);

/// Why the metadata cannot be followed.
pub(super) enum Trouble {
    /// Ask again.
    Later(String),
    /// Asking again cannot help: the process must end.
    Final(String),
}

/// The events of one index.
type Entry = (MetadataIndex, Vec<Event>);

impl Broker {
    /// Follows the cluster's metadata, for ever.
    pub(super) async fn follow_metadata(self: Rc<Self>) {
        loop {
            let Some(epoch) = self.registration.get() else {
                self.registered.wait().await;
                continue;
            };
            let trouble = match self.stream.call(&self.stream_request(epoch), 0, STREAM_WAIT + STREAM_GRACE).await {
                Ok(answer) => self.take_metadata(answer, epoch).await.err(),
                Err(error) => Some(Trouble::Later(error.to_string())),
            };
            match trouble {
                None => {}
                Some(Trouble::Later(reason)) => {
                    debug!(broker = %self.settings.node_id, "no metadata: {reason}");
                    sleep(TROUBLE_PAUSE).await;
                }
                Some(Trouble::Final(reason)) => {
                    self.fail(&reason);
                    return;
                }
            }
        }
    }

    fn stream_request(&self, epoch: BrokerEpoch) -> MetadataStreamRequest {
        let known = (!self.image.borrow().cluster_id.is_empty()).then(|| self.image.borrow().index);
        MetadataStreamRequest {
            broker_id: self.settings.node_id.get(),
            broker_epoch: epoch.get(),
            from_index: MetadataIndex::to_wire(known),
            max_wait_ms: i32::try_from(STREAM_WAIT.as_millis()).expect("a few seconds"),
        }
    }

    async fn take_metadata(&self, answer: MetadataStreamResponse, epoch: BrokerEpoch) -> Result<(), Trouble> {
        match ErrorCode::from_wire(answer.error_code) {
            ErrorCode::None => {}
            ErrorCode::OffsetOutOfRange => {
                return Err(Trouble::Final("the controller has lost metadata that this broker has seen".to_owned()));
            }
            code => return Err(Trouble::Later(code.name().to_owned())),
        }
        let controller_epoch = ControllerEpoch::from_wire(answer.controller_epoch).unwrap_or(ControllerEpoch::ZERO);
        if controller_epoch < self.controller_epoch.get() {
            return Err(Trouble::Later("an answer of an earlier controller".to_owned()));
        }
        self.controller_epoch.set(controller_epoch);
        if let Some(bytes) = &answer.image {
            let image = Image::decode(bytes).map_err(|error| unreadable(&error))?;
            self.replace_image(image, epoch).await?;
        }
        let commit = MetadataIndex::from_wire(answer.commit_index)
            .ok_or_else(|| Trouble::Later("a negative commit index".to_owned()))?;
        let mut entries = group(&answer.events)?;
        // Entries that changed nothing move the index too: the controller waits for it.
        if entries.back().is_none_or(|(last, _)| *last < commit) {
            entries.push_back((commit, Vec::new()));
        }
        let creates = |event: &Event| matches!(event, Event::TopicCreated(_) | Event::PartitionsAdded(_));
        for (index, events) in entries {
            if self.delivered.get() && events.iter().any(creates) {
                // Once for all entries of the answer.
                self.see(commit).await?;
            }
            self.apply(index, events, epoch).await?;
        }
        self.tell_combiner(epoch).await;
        Ok(())
    }

    async fn replace_image(&self, image: Image, epoch: BrokerEpoch) -> Result<(), Trouble> {
        let (index, known) = (image.index, self.image.borrow().index);
        if index < known {
            return Err(Trouble::Later(format!("an image at {index}, but {known} was seen")));
        }
        self.check_cluster(&image).await?;
        self.check_own(&image, epoch)?;
        *self.image.borrow_mut() = image;
        self.delivered.set(false);
        self.deliver_image(epoch).await
    }

    /// One cluster for the whole life of a process and of its data folder.
    async fn check_cluster(&self, image: &Image) -> Result<(), Trouble> {
        let changed = {
            let seen = self.image.borrow();
            !seen.cluster_id.is_empty() && seen.incarnation != image.incarnation
        };
        let known = self.cluster_id.borrow().clone();
        if changed || known.as_ref().is_some_and(|known| *known != image.cluster_id) {
            return Err(Trouble::Final("the controller belongs to another cluster than this broker".to_owned()));
        }
        if known.is_none() {
            let cluster = image.cluster_id.clone();
            let identity = FolderIdentity { node: self.settings.node_id, cluster, directory: self.directory };
            // Before a shard writes the first byte: whose folder this is must be known whenever it holds something.
            identity.write(&self.folder).await.map_err(|error| {
                Trouble::Final(format!("meta.properties cannot be written in {}: {error}", self.folder.display()))
            })?;
            *self.cluster_id.borrow_mut() = Some(image.cluster_id.clone());
        }
        Ok(())
    }

    /// Another process with this id was registered later: what it is told to lead is not ours.
    fn check_own(&self, image: &Image, epoch: BrokerEpoch) -> Result<(), Trouble> {
        let own = image.brokers.get(&self.settings.node_id);
        match own.filter(|own| own.incarnation != self.incarnation.get() && own.epoch > epoch) {
            Some(_) => Err(Trouble::Final("node.id was taken over by another process".to_owned())),
            None => Ok(()),
        }
    }

    async fn apply(&self, index: MetadataIndex, events: Vec<Event>, epoch: BrokerEpoch) -> Result<(), Trouble> {
        if index <= self.image.borrow().index {
            return Ok(());
        }
        {
            let mut image = self.image.borrow_mut();
            for event in &events {
                image.apply(index, event);
            }
            image.advance(index);
        }
        self.check_own(&self.image.borrow(), epoch)?;
        if !self.delivered.get() {
            return self.deliver_image(epoch).await;
        }
        let events: Arc<[Event]> = events.into();
        for shard in self.addresses.shards.iter() {
            // A shard that is gone has ended with its process.
            let _ = shard.send(ShardMessage::Delta { index, events: events.clone() }).await;
        }
        self.metadata_index.store(index.get(), Ordering::Release);
        Ok(())
    }

    /// Hands the image to every shard, if it holds this process's registration. Rule: R2.
    async fn deliver_image(&self, epoch: BrokerEpoch) -> Result<(), Trouble> {
        let index = self.image.borrow().index;
        if index.get() < epoch.get() {
            return Ok(());
        }
        let image = Arc::new(self.image.borrow().clone());
        self.judge_folders(&image).await?;
        info!(broker = %self.settings.node_id, %index, topics = image.topics().len(), "metadata image");
        for shard in self.addresses.shards.iter() {
            let _ = shard.send(ShardMessage::Image { index, image: image.clone() }).await;
        }
        self.delivered.set(true);
        self.metadata_index.store(index.get(), Ordering::Release);
        Ok(())
    }

    /// Once per registration, when the metadata shows it: objects are named by it.
    async fn tell_combiner(&self, epoch: BrokerEpoch) {
        let is_known = self.delivered.get() && self.image.borrow().index.get() >= epoch.get();
        if !is_known || self.combiner_knows.get() == Some(epoch) {
            return;
        }
        let incarnation = self.image.borrow().incarnation;
        if let Some(combiner) = &self.addresses.combiner {
            let message = CombinerMessage::Registered { broker_epoch: epoch, incarnation };
            if combiner.send(message).await.is_err() {
                warn!(broker = %self.settings.node_id, "the combiner is gone");
            }
        }
        self.combiner_knows.set(Some(epoch));
    }
}

fn unreadable(error: &sakia_controller::WireError) -> Trouble {
    Trouble::Final(format!("metadata that this broker cannot read, the controller may be newer: {error}"))
}

/// Events by index, in growing order.
fn group(events: &[MetadataEvent]) -> Result<VecDeque<Entry>, Trouble> {
    let mut entries: VecDeque<Entry> = VecDeque::new();
    for event in events {
        let index = MetadataIndex::from_wire(event.index);
        let index = index.ok_or_else(|| Trouble::Later("a negative metadata index".to_owned()))?;
        let (kind, version) = (event.kind.cast_unsigned(), event.version.cast_unsigned());
        let body = Event::decode_body(kind, version, &event.body).map_err(|error| unreadable(&error))?;
        match entries.back_mut() {
            Some((last, events)) if *last == index => events.push(body),
            Some((last, _)) if *last > index => {
                return Err(Trouble::Later("metadata indexes do not grow".to_owned()));
            }
            _ => entries.push_back((index, vec![body])),
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sakia_controller::event::MetadataPartitionAssigned;
    use sakia_protocol::ids::{BrokerId, PartitionIndex};

    use super::*;

    fn wire(index: i64) -> MetadataEvent {
        let event = MetadataPartitionAssigned { broker: BrokerId::new(1), partition: PartitionIndex::new(0) };
        let event = Event::from(event);
        let mut body = Vec::new();
        event.encode_body(&mut body);
        let (kind, version) = (event.kind().cast_signed(), event.version().cast_signed());
        MetadataEvent { index, kind, version, body: Bytes::from(body) }
    }

    #[test]
    fn events_of_one_index_stay_together() {
        let Ok(entries) = group(&[wire(4), wire(4), wire(7)]) else { panic!("well-formed") };
        let counts: Vec<(i64, usize)> = entries.iter().map(|(index, events)| (index.get(), events.len())).collect();
        assert_eq!(counts, [(4, 2), (7, 1)]);
    }

    #[test]
    fn an_event_of_a_newer_controller_ends_the_process_and_a_disordered_one_does_not() {
        let newer = MetadataEvent { kind: 900, ..wire(4) };
        assert!(matches!(group(&[newer]), Err(Trouble::Final(_))));
        assert!(matches!(group(&[wire(4), wire(3)]), Err(Trouble::Later(_))));
    }
}
