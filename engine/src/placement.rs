//! Which shard owns a partition. Pure.
//!
//! `crc32c(topic id ‖ partition) mod shards`, behind a type, so that a partition can be moved later.

use sakia_protocol::ids::{BrokerId, PartitionKey};

use crate::messages::ShardId;

/// The map from partitions to shards of one broker.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    shards: usize,
}

impl Placement {
    /// A placement over this many shards.
    #[must_use]
    pub fn new(shards: usize) -> Self {
        assert!(shards > 0, "a broker has at least one shard");
        Self { shards }
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// The owner of a partition.
    #[must_use]
    pub fn owner(&self, key: &PartitionKey) -> ShardId {
        let crc = crc32c::crc32c(key.topic_id.as_bytes());
        let crc = crc32c::crc32c_append(crc, &key.partition.get().to_be_bytes());
        ShardId::new(usize::try_from(crc).expect("a CRC fits a word") % self.shards)
    }

    /// Where the fetcher of a leader broker lives.
    #[must_use]
    pub fn fetcher(&self, leader: BrokerId) -> ShardId {
        ShardId::new(usize::try_from(leader.get()).expect("broker ids are not negative") % self.shards)
    }
}
