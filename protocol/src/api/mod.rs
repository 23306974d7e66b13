//! Kafka's requests by number (`ApiKey`) and its error codes (`error::ErrorCode`).

pub mod error;
mod key;

pub use key::ApiKey;
