//! A topic that comes and goes under one name, while everything else goes on.
//!
//! Checked at once: a topic holds what was acknowledged since it was created, and nothing of the topics that had its name
//! before (DESIGN 13.1, 13.3). It wants two replicas in sync, so a leader that has not heard of the deletion acknowledges
//! nothing.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use sakia_io::sim::Random;
use sakia_io::{now, sleep};
use sakia_protocol::batch::{BatchBuilder, Compression, for_each_record};
use tracing::debug;

use crate::history::{History, name_of};
use crate::kafka::{Kafka, ProducedTo, Read, Trouble, checked};
use crate::producer::encode;

const BYTES_MAX: usize = 1 << 20;

/// Creates, fills, reads and deletes the topic until the run is over; then it is left as it is.
pub async fn run(kafka: Rc<Kafka>, history: Rc<History>, name: String, wal: bool, mut random: Random) {
    let wal = wal.to_string();
    let configs = [("min.insync.replicas", "2"), ("remote.wal.storage.enable", wal.as_str())];
    for life in 0_u64.. {
        kafka.create_topic(&name, 1, 2, &configs).await;
        let mut acknowledged = BTreeMap::new();
        for number in 0..random.within(1..20) {
            let value = Bytes::from(format!("life{life}:{number} "));
            let base = until(&kafka, &name, async || produce(&kafka, &name, &value).await).await;
            acknowledged.insert(base, value);
        }
        let read = until(&kafka, &name, async || read_all(&kafka, &name).await).await;
        for (offset, value) in &read {
            let of_this_life = value.starts_with(format!("life{life}:").as_bytes());
            assert!(of_this_life, "{name} in life {life} holds {} at {offset}, at {:?}", name_of(value), now());
        }
        for (offset, value) in &acknowledged {
            assert!(read.get(offset) == Some(value), "{name}: {} at {offset} is gone, at {:?}", name_of(value), now());
        }
        if history.is_over.get() {
            break;
        }
        kafka.delete_topic(&name).await;
        sleep(random.duration(&(Duration::ZERO..Duration::from_millis(200)))).await;
    }
}

/// Tries until it is done, asking for metadata after each trouble.
async fn until<T>(kafka: &Kafka, name: &str, attempt: impl AsyncFn() -> Result<T, Trouble>) -> T {
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(trouble) => debug!(name, ?trouble, "again"),
        }
        sleep(Duration::from_millis(30)).await;
        let _ = kafka.refresh(&[name]).await;
    }
}

async fn produce(kafka: &Kafka, name: &str, value: &Bytes) -> Result<i64, Trouble> {
    let (id, view) = kafka.partition(name, 0).await?;
    let leader = view.leader.ok_or(Trouble::NoLeader)?;
    let records = encode(BatchBuilder::new(Compression::None), std::slice::from_ref(value));
    let row = kafka.produce(leader, ProducedTo { topic: name, id, partition: 0, acks: -1, records: &records }).await?;
    checked(row.error_code)?;
    Ok(row.base_offset)
}

/// Everything up to the high watermark, at the leader.
async fn read_all(kafka: &Kafka, name: &str) -> Result<BTreeMap<i64, Bytes>, Trouble> {
    let (id, view) = kafka.partition(name, 0).await?;
    let leader = view.leader.ok_or(Trouble::NoLeader)?;
    let end = kafka.offset(name, 0, -1).await?;
    let mut values = BTreeMap::new();
    let mut offset = 0;
    while offset < end {
        let read = Read { id, partition: 0, offset, leader_epoch: view.leader_epoch, bytes_max: 1 << 16, rack: "" };
        let row = kafka.fetch(leader, read).await?;
        checked(row.error_code)?;
        let records = row.records.unwrap_or_default();
        let seen = for_each_record(&records, BYTES_MAX, |placed| {
            let value = Bytes::copy_from_slice(placed.record.value.expect("values were sent"));
            offset = placed.offset.get() + 1;
            values.insert(placed.offset.get(), value);
        });
        seen.expect("what a broker sends is whole and right");
    }
    Ok(values)
}
