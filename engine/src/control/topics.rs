//! The broker's own topics. Pure.

/// Offsets of consumer groups.
pub(super) const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// What was uploaded, for tools and readers (R24).
pub(super) const WAL_METADATA_TOPIC: &str = "__remote_wal_log_metadata";

/// Whether clients may not delete it.
pub(super) fn is_internal(name: &str) -> bool {
    name == OFFSETS_TOPIC || name == WAL_METADATA_TOPIC
}

/// Whether it keeps the number of partitions that it was created with: groups are spread over them by number.
pub(super) fn has_fixed_partitions(name: &str) -> bool {
    name == OFFSETS_TOPIC
}
