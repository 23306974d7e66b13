//! Consumers that remember every value they saw.
//!
//! Path: Fetch at the leader, at another replica, or wherever the leader sends a client of a zone (KIP-392) → `History`,
//! which fails the run when an offset shows a second value.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use sakia_io::{now, sleep};
use sakia_protocol::api::error::ErrorCode;
use tracing::debug;

use crate::history::{History, Place};
use crate::kafka::{Kafka, PartitionView, Read};

/// From whom a consumer reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// The leader.
    Leader,
    /// Another replica than the leader, where there is one.
    Follower,
    /// Whom the leader names for a client of this zone.
    Zone(String),
}

/// A consumer of one partition.
pub struct Consumer {
    kafka: Rc<Kafka>,
    history: Rc<History>,
    place: Place,
    source: Source,
    name: String,
    /// The replica that the leader named.
    preferred: Cell<Option<i32>>,
    /// The next offset.
    pub position: Cell<i64>,
    /// Records that came from another replica than the leader.
    pub from_followers: Cell<u64>,
}

impl Consumer {
    pub fn new(kafka: Rc<Kafka>, history: Rc<History>, place: &Place, source: Source) -> Rc<Self> {
        let name = format!("consumer of {}-{} at {source:?}", place.0, place.1);
        Rc::new(Self {
            kafka,
            history,
            place: place.clone(),
            source,
            name,
            preferred: Cell::new(None),
            position: Cell::new(0),
            from_followers: Cell::new(0),
        })
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads for ever.
    pub async fn run(self: Rc<Self>) {
        loop {
            if !self.read_once().await {
                self.preferred.set(None);
                sleep(Duration::from_millis(20)).await;
                let _ = self.kafka.refresh(&[&self.place.0]).await;
            }
        }
    }

    /// One fetch; `false` if the metadata should be looked at.
    async fn read_once(&self) -> bool {
        let index = usize::try_from(self.place.1).expect("not negative");
        let Ok((id, view)) = self.kafka.partition(&self.place.0, index).await else { return false };
        let Some(from) = self.choose(&view) else { return false };
        let rack = match &self.source {
            Source::Zone(zone) if Some(from) == view.leader => zone.as_str(),
            _ => "",
        };
        let offset = self.position.get();
        let read =
            Read { id, partition: self.place.1, offset, leader_epoch: view.leader_epoch, bytes_max: 1 << 16, rack };
        let row = match self.kafka.fetch(from, read).await {
            Ok(row) => row,
            Err(trouble) => {
                debug!(consumer = self.name, ?trouble, "no answer");
                return false;
            }
        };
        if let Some(preferred) = Some(row.preferred_read_replica).filter(|id| *id >= 0) {
            self.preferred.set(Some(preferred));
            return true;
        }
        match ErrorCode::from_wire(row.error_code) {
            ErrorCode::None => {}
            code => {
                debug!(consumer = self.name, code = code.name(), from, offset, "refused");
                let is_leader = view.leader == Some(from);
                assert!(
                    code != ErrorCode::OffsetOutOfRange || !is_leader,
                    "{} is told by the leader {from} (epoch {}) at {:?} that {offset} is out of range",
                    self.name,
                    view.leader_epoch,
                    now().as_duration()
                );
                return false;
            }
        }
        let records = row.records.unwrap_or_default();
        let next = self.history.read(&self.place, &self.name, offset, row.high_watermark, &records);
        if view.leader != Some(from) {
            self.from_followers.set(self.from_followers.get() + u64::try_from(next - offset).expect("it grows"));
        }
        self.position.set(next);
        true
    }

    fn choose(&self, view: &PartitionView) -> Option<i32> {
        match &self.source {
            Source::Leader => view.leader,
            Source::Zone(_) => self.preferred.get().or(view.leader),
            Source::Follower => view.replicas.iter().copied().find(|id| Some(*id) != view.leader).or(view.leader),
        }
    }
}
