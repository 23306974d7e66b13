//! The broker's own topics. Pure.

/// Offsets of consumer groups.
pub(super) const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// What was uploaded, for tools and readers (R24).
pub(super) const WAL_METADATA_TOPIC: &str = "__remote_wal_log_metadata";

/// Whether clients may neither delete nor grow it.
pub(super) fn is_internal(name: &str) -> bool {
    name == OFFSETS_TOPIC || name == WAL_METADATA_TOPIC
}
