//! Kafka's requests by number (`ApiKey`) and its error codes (`error::ErrorCode`).

pub mod error;
mod key;

pub use key::ApiKey;

use crate::codec::{Decode, Encode};

/// A request with its key and the type of its response.
pub trait Request: Decode + Encode {
    /// Which request this is.
    const KEY: ApiKey;
    /// What comes back.
    type Response: Decode + Encode;
}
