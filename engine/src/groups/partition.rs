//! Which partition of `__consumer_offsets` keeps a group. Pure.
//!
//! Kafka's rule: Java's `String.hashCode` over UTF-16 units, its absolute value (0 for the smallest integer, as Kafka's
//! `Utils.abs`), modulo the number of partitions. Clients and tools rely on it.

use sakia_protocol::ids::PartitionIndex;

/// The partition of a group among `count`.
#[must_use]
pub fn partition_for(group_id: &str, count: i32) -> PartitionIndex {
    assert!(count > 0, "a topic has partitions");
    let hash = group_id.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    PartitionIndex::new(hash.checked_abs().unwrap_or(0) % count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_lie_where_java_puts_them() {
        // Java: "a".hashCode() = 97, "my-group".hashCode() = -1906497762, "\u{1f600}".hashCode() = 1772899.
        for (group, partition) in [("", 0), ("a", 47), ("my-group", 12), ("\u{1f600}", 49)] {
            assert_eq!(partition_for(group, 50).get(), partition, "{group}");
        }
    }

    #[test]
    fn the_smallest_hash_goes_to_partition_0() {
        // "polygenelubricants" is known for the hash code -2147483648.
        assert_eq!(partition_for("polygenelubricants", 50).get(), 0);
    }
}
