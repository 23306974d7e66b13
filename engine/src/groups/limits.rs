//! Bounds of group coordination, each with its reason and what happens at it.

use std::time::Duration;

/// Groups of one partition of `__consumer_offsets`. At the bound a new group gets COORDINATOR_NOT_AVAILABLE 15.
pub const GROUPS_MAX: usize = 100_000;

/// Members of one group, whatever `group.max.size` says: all of them are in one record. At the bound
/// GROUP_MAX_SIZE_REACHED 81.
pub const MEMBERS_MAX: usize = 10_000;

/// Partitions for which one group holds an offset. At the bound INVALID_COMMIT_OFFSET_SIZE 28 for the partition.
pub const OFFSETS_PER_GROUP_MAX: usize = 200_000;

/// Longest metadata of a committed offset, in bytes (`offset.metadata.max.bytes`). Above it OFFSET_METADATA_TOO_LARGE 12.
pub const OFFSET_METADATA_BYTES_MAX: usize = 4096;

/// How long a member that never joined before may wait for its first generation: its client is gone by then.
pub const FIRST_JOIN_MAX: Duration = Duration::from_secs(300);

/// Longest `client_id` that becomes part of a member id, in bytes; what is longer is cut.
pub const MEMBER_ID_PREFIX_BYTES_MAX: usize = 255;

/// Between two looks for offsets past their retention (Kafka's default of `offsets.retention.check.interval.ms`).
pub const RETENTION_LOOK: Duration = Duration::from_secs(600);

/// Shortest wait between two rounds to which nobody came.
pub const NOBODY_CAME_PAUSE: Duration = Duration::from_secs(1);
