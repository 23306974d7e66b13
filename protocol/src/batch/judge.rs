//! Which records of a well-formed batch a topic takes.
//!
//! Path: the last check before a batch may be appended; drives the walk. Pure.
//!
//! A record that breaks the format refuses the batch at once. A record that only breaks a rule of the topic is noted
//! and the walk goes on, so that the answer can name all of them; the batch is refused at the end.

use super::check::{CheckLimits, NullKeys};
use super::error::{BatchError, RECORD_FAULTS_MAX, RecordFault};
use super::header::{BatchHeader, TimestampType};
use super::walk::{Damage, LargestTimestamp, RecordShape, Source, record};
use crate::api::error::ErrorCode;

/// A rule of the topic that one record breaks.
enum Fault {
    NullKey,
    LogAppendTime,
    Overflow,
    Timestamp(i64),
}

/// Walks all records, and returns the largest of their timestamps.
pub(super) fn judge_records<S: Source>(
    mut source: S,
    header: &BatchHeader,
    limits: &CheckLimits,
) -> Result<LargestTimestamp, BatchError> {
    let mut largest = LargestTimestamp::NONE;
    let mut noted = Noted::default();
    for index in 0..header.record_count {
        let shape = record(&mut source).map_err(|damage| refuse(damage, index))?;
        if i64::from(shape.offset_delta) != i64::from(index) {
            let message = format!("offset delta is {}, must be {index}", shape.offset_delta);
            return Err(at_record(index, &message));
        }
        match judge(&shape, header, limits) {
            Ok(timestamp_ms) => largest.meet(timestamp_ms, index),
            Err(fault) => noted.add(index, &fault),
        }
    }
    source.finish().map_err(|damage| refuse(damage, header.record_count))?;
    if noted.count == 0 { Ok(largest) } else { Err(noted.into_error()) }
}

/// The record's timestamp, if the topic takes it. The key is looked at first, as in Kafka.
fn judge(shape: &RecordShape, header: &BatchHeader, limits: &CheckLimits) -> Result<i64, Fault> {
    if !shape.has_key && limits.null_keys == NullKeys::Refused {
        return Err(Fault::NullKey);
    }
    if header.attributes.timestamp_type() == TimestampType::LogAppendTime {
        return Err(Fault::LogAppendTime);
    }
    let timestamp_ms = header.base_timestamp_ms.checked_add(shape.timestamp_delta).ok_or(Fault::Overflow)?;
    if limits.timestamps.allows(timestamp_ms) { Ok(timestamp_ms) } else { Err(Fault::Timestamp(timestamp_ms)) }
}

#[derive(Default)]
struct Noted {
    count: u32,
    wrong_time: bool,
    records: Vec<RecordFault>,
}

impl Noted {
    fn add(&mut self, index: u32, fault: &Fault) {
        self.count += 1;
        if !matches!(fault, Fault::NullKey) {
            self.wrong_time = true;
        }
        if self.records.len() < RECORD_FAULTS_MAX {
            self.records.push(record_fault(index, fault.message()));
        }
    }

    fn into_error(self) -> BatchError {
        // One wrong time decides the code of the whole answer, as in Kafka.
        let (code, message) = if self.wrong_time {
            let message = "one or more records have been rejected due to invalid timestamp".into();
            (ErrorCode::InvalidTimestamp, message)
        } else {
            let message = format!("{} records have been rejected, see record errors", self.count).into();
            (ErrorCode::InvalidRecord, message)
        };
        BatchError { code, message, records: self.records }
    }
}

impl Fault {
    fn message(&self) -> String {
        match self {
            Self::NullKey => "compacted topic cannot accept message without key".to_owned(),
            Self::LogAppendTime => "producer should not set timestamp type to LogAppendTime".to_owned(),
            Self::Overflow => "timestamp is beyond 64 bits".to_owned(),
            Self::Timestamp(ms) => format!("timestamp {ms} is out of the topic's range"),
        }
    }
}

/// The refusal of a batch whose record `index` breaks the format.
pub(super) fn refuse(damage: Damage, index: u32) -> BatchError {
    match damage {
        Damage::TooLarge(error) => BatchError::whole(ErrorCode::MessageTooLarge, error.to_string()),
        Damage::Stream(error) => BatchError::invalid(error.to_string()),
        Damage::EndOfBatch => BatchError::invalid(format!("batch ends before the end of record {index}")),
        Damage::BytesLeft => BatchError::invalid("bytes are left after the last record"),
        Damage::Record(reason) => at_record(index, reason),
    }
}

fn at_record(index: u32, reason: &str) -> BatchError {
    let mut error = BatchError::invalid(format!("record {index}: {reason}"));
    error.records.push(record_fault(index, reason.to_owned()));
    error
}

fn record_fault(index: u32, message: String) -> RecordFault {
    RecordFault { batch_index: i32::try_from(index).expect("a record count is an i32"), message }
}
