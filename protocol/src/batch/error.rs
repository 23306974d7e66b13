//! Why a client's batch is refused, in the words of the Produce response. Pure.

use std::borrow::Cow;

use thiserror::Error;

/// The Kafka error codes a batch can earn before it reaches the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchErrorCode {
    /// 2: the bytes are damaged; the client may send them again.
    CorruptMessage,
    /// 10: larger than the topic allows, before or after decompression; clients split the batch.
    MessageTooLarge,
    /// 32: a record's time is outside the topic's bounds, or the client claims the broker's kind of time.
    InvalidTimestamp,
    /// 76: a codec that this request version, or nobody, knows.
    UnsupportedCompressionType,
    /// 87: the batch contradicts itself or the topic.
    InvalidRecord,
}

impl BatchErrorCode {
    /// Kafka's number.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::CorruptMessage => 2,
            Self::MessageTooLarge => 10,
            Self::InvalidTimestamp => 32,
            Self::UnsupportedCompressionType => 76,
            Self::InvalidRecord => 87,
        }
    }
}

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
    /// Kafka's code.
    pub code: BatchErrorCode,
    /// The response's `error_message`.
    pub message: Cow<'static, str>,
    /// Single records at fault, in order; empty if the batch as a whole is. At most [`RECORD_FAULTS_MAX`].
    pub records: Vec<RecordFault>,
}

/// Faults named in one answer; the records after that stay unnamed, so that a hostile batch earns a small answer.
pub const RECORD_FAULTS_MAX: usize = 100;

impl BatchError {
    pub(super) fn whole(code: BatchErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), records: Vec::new() }
    }

    pub(super) fn corrupt(message: impl Into<Cow<'static, str>>) -> Self {
        Self::whole(BatchErrorCode::CorruptMessage, message)
    }

    pub(super) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::whole(BatchErrorCode::InvalidRecord, message)
    }
}
