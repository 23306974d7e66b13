//! Why a client's batch is refused, in the words of the Produce response. Pure.

use std::borrow::Cow;

use thiserror::Error;

use crate::api::error::ErrorCode;

/// One record that is at fault: an entry of `record_errors` (Produce response v8+).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordFault {
    /// Index of the record in the batch.
    pub batch_index: i32,
    /// What is wrong with it.
    pub message: String,
}

/// A refused batch. Nothing of it was kept.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct BatchError {
    /// Kafka's code: CORRUPT_MESSAGE (the client may send the bytes again), MESSAGE_TOO_LARGE (clients split the batch),
    /// INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE or INVALID_RECORD (final).
    pub code: ErrorCode,
    /// The response's `error_message`.
    pub message: Cow<'static, str>,
    /// Single records at fault, in order; empty if the batch as a whole is. At most [`RECORD_FAULTS_MAX`].
    pub records: Vec<RecordFault>,
}

/// Faults named in one answer; the records after that stay unnamed, so that a hostile batch earns a small answer.
pub const RECORD_FAULTS_MAX: usize = 100;

impl BatchError {
    pub(super) fn whole(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), records: Vec::new() }
    }

    pub(super) fn corrupt(message: impl Into<Cow<'static, str>>) -> Self {
        Self::whole(ErrorCode::CorruptMessage, message)
    }

    pub(super) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::whole(ErrorCode::InvalidRecord, message)
    }
}
