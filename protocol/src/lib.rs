//! Kafka's wire: ids, codec, messages, record batches. No I/O.
pub mod ids;
