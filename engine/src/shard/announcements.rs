//! Records of `__remote_wal_log_metadata`: one per combined object, in the partition of the broker that wrote it (R24).
//!
//! ```text
//! key    kind u8 (0: created) · bucket u8 · broker epoch i64 · sequence u64      big-endian
//! value  prelude and manifest of the object
//! ```
//! Path: combiner → shard 0 → the shard that owns the partition → its log, acks=1, never waited for. No safety rule reads
//! this topic: what cannot be written now is dropped and counted.

use std::rc::Rc;

use bytes::{BufMut, Bytes, BytesMut};
use sakia_io::{TrySendError, wall_clock_ms};
use sakia_protocol::batch::{BatchBuilder, Compression, NewRecord};
use sakia_protocol::ids::PartitionKey;

use super::Shard;
use crate::messages::{Acks, ShardMessage, WrittenObject};

/// The topic of combined objects.
pub(crate) const WAL_METADATA_TOPIC: &str = "__remote_wal_log_metadata";

const KIND_CREATED: u8 = 0;

impl Shard {
    /// Sends objects to the owner of this broker's partition of the topic, or drops them.
    pub(super) fn announce(self: &Rc<Self>, objects: Vec<WrittenObject>) {
        let count = u64::try_from(objects.len()).unwrap_or(u64::MAX);
        let Some(key) = self.metadata_partition() else {
            self.counters.announcements_dropped.add(count);
            return;
        };
        let owner = self.placement.owner(&key);
        if owner == self.id {
            self.write_announcements(key, &objects);
            return;
        }
        let message = ShardMessage::WriteAnnouncements { key, objects };
        if let Err(TrySendError::Full(_) | TrySendError::Closed(_)) =
            self.addresses.shards[owner.index()].try_send(message)
        {
            self.counters.announcements_dropped.add(count);
        }
    }

    fn metadata_partition(&self) -> Option<PartitionKey> {
        self.with_image(|image| {
            let topic = image.topic_named(WAL_METADATA_TOPIC)?;
            let partition = *image.metadata_partitions.get(&self.settings.node_id)?;
            (partition.index() < topic.partitions.len()).then_some(PartitionKey { topic_id: topic.id, partition })
        })
    }

    /// Appends records; a broker that does not lead its partition at present drops them.
    pub(super) fn write_announcements(self: &Rc<Self>, key: PartitionKey, objects: &[WrittenObject]) {
        let timestamp_ms = wall_clock_ms();
        let mut batch = BatchBuilder::new(Compression::None);
        for object in objects {
            let key = record_key(object);
            batch.push(NewRecord { timestamp_ms, key: Some(&key), value: Some(&object.head), headers: &[] });
        }
        let appended = self.partition(&key).is_some_and(|partition| {
            batch.record_count() > 0 && partition.produce(self, &batch.build(), Acks::None).is_ok()
        });
        if !appended {
            self.counters.announcements_dropped.add(u64::try_from(objects.len()).unwrap_or(u64::MAX));
        }
    }
}

fn record_key(object: &WrittenObject) -> Bytes {
    let mut key = BytesMut::with_capacity(18);
    key.put_u8(KIND_CREATED);
    key.put_u8(object.object.bucket);
    key.put_i64(object.object.broker_epoch.get());
    key.put_u64(object.object.sequence);
    key.freeze()
}
