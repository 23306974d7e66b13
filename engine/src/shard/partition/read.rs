//! What consumers and curious clients get: records below the high watermark, offsets, ends of epochs.

use std::rc::Rc;

use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{BrokerId, LeaderEpoch, Offset};

use super::{Partition, Role, not_led_here};
use crate::log::{AtLeastOne, LogError, TimestampQuery};
use crate::messages::{LogAnswer, PartitionRead, Question, ReadResult, Reader, Refusal, Waiting};
use crate::replication::read_replica::{FollowerRead, follower_read, preferred_replica};
use crate::shard::Shard;

/// Kafka's special timestamps.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;

impl Partition {
    /// A consumer's read of one partition.
    pub(in crate::shard) async fn consumer_read(
        &self,
        shard: &Rc<Shard>,
        read: &PartitionRead,
        rack: Option<&str>,
        bytes_max: usize,
        at_least_one: AtLeastOne,
    ) -> ReadResult {
        if let Err(code) = self.check_epoch(read.current_leader_epoch) {
            return self.redirect(shard, read.row, code);
        }
        let Some(asked) = Offset::from_wire(read.offset) else {
            return ReadResult::error(read.row, ErrorCode::OffsetOutOfRange);
        };
        if let Some(preferred) = self.preferred(shard, rack, asked) {
            return ReadResult { preferred_replica: Some(preferred), ..self.empty_row(read.row) };
        }
        match self.serves(asked) {
            Ok(()) => {}
            Err(code) => return self.redirect(shard, read.row, code),
        }
        let below = self.served_below();
        if asked >= below {
            return self.empty_row(read.row);
        }
        if bytes_max == 0 && at_least_one == AtLeastOne::No {
            return ReadResult { is_withheld: true, ..self.empty_row(read.row) };
        }
        match self.log.read(asked, below, bytes_max, at_least_one).await {
            Ok(found) => ReadResult { is_withheld: found.is_empty(), records: found.bytes, ..self.empty_row(read.row) },
            Err(error) => {
                let code = read_error(&error);
                ReadResult::error(read.row, code)
            }
        }
    }

    /// A row without records: the ends as they are.
    pub(in crate::shard) fn empty_row(&self, row: usize) -> ReadResult {
        ReadResult {
            high_watermark: Some(self.high_watermark.get()),
            log_start: Some(self.log.start()),
            ..ReadResult::error(row, ErrorCode::None)
        }
    }

    fn redirect(&self, shard: &Shard, row: usize, code: ErrorCode) -> ReadResult {
        ReadResult { leader: shard.leader_of(&self.key), ..ReadResult::error(row, code) }
    }

    /// Whether an offset is served here, by whichever role.
    fn serves(&self, asked: Offset) -> Result<(), ErrorCode> {
        match &*self.role.borrow() {
            Role::Leader(_) if asked < self.log.start() || asked > self.log.stored() => {
                Err(ErrorCode::OffsetOutOfRange)
            }
            Role::Leader(_) => Ok(()),
            Role::Follower(_) => match follower_read(asked, self.log.start(), self.served_below()) {
                FollowerRead::Serve => Ok(()),
                FollowerRead::NotAvailable => Err(ErrorCode::OffsetNotAvailable),
                FollowerRead::OutOfRange => Err(ErrorCode::OffsetOutOfRange),
            },
            Role::Idle => Err(not_led_here()),
        }
    }

    /// Consumers read below this.
    fn served_below(&self) -> Offset {
        match &*self.role.borrow() {
            Role::Follower(follower) => follower.served_below().unwrap_or(self.log.start()),
            Role::Idle | Role::Leader(_) => self.high_watermark.get(),
        }
    }

    /// The leader epoch that a client believes in, against the one here.
    fn check_epoch(&self, believed: Option<LeaderEpoch>) -> Result<(), ErrorCode> {
        let current = match &*self.role.borrow() {
            Role::Leader(leader) => leader.leader_epoch(),
            Role::Follower(follower) => follower.leader_epoch(),
            Role::Idle => return Err(not_led_here()),
        };
        match believed {
            Some(believed) if believed < current => Err(ErrorCode::FencedLeaderEpoch),
            Some(believed) if believed > current => Err(ErrorCode::UnknownLeaderEpoch),
            _ => Ok(()),
        }
    }

    /// The replica in the consumer's zone (KIP-392), if this is the leader and there is one.
    fn preferred(&self, shard: &Shard, rack: Option<&str>, asked: Offset) -> Option<BrokerId> {
        let rack = rack.filter(|_| shard.settings.replica.rack_aware)?;
        let Role::Leader(leader) = &*self.role.borrow() else { return None };
        shard.with_image(|image| {
            let rack_of = |broker: BrokerId| image.brokers.get(&broker)?.rack.as_deref();
            preferred_replica(leader, rack, shard.settings.rack.as_deref(), asked, rack_of)
        })
    }

    /// Registers a reader that will wait.
    pub(in crate::shard) fn add_waiter(&self, waiter: Waiting, reader: &Reader) {
        let mut waiters = self.waiters.borrow_mut();
        match reader {
            Reader::Replica(_) => waiters.add_replica(waiter),
            Reader::Consumer { .. } => waiters.add_reader(waiter),
        }
    }

    /// Answers a question about the log. Leaders only, as in Kafka.
    pub(in crate::shard) async fn answer(&self, believed: Option<LeaderEpoch>, question: Question) -> LogAnswer {
        if !self.is_leader() {
            return LogAnswer::Refused(Refusal::code(not_led_here()));
        }
        if let Err(code) = self.check_epoch(believed) {
            return LogAnswer::Refused(Refusal::code(code));
        }
        match question {
            Question::EndOfEpoch { epoch } => LogAnswer::Epoch(self.log.end_of_epoch(epoch)),
            Question::End => self.at(None, Some(self.log.stored())),
            Question::OffsetFor { timestamp: LATEST } => self.latest(),
            Question::OffsetFor { timestamp: EARLIEST | EARLIEST_LOCAL } => self.at(None, Some(self.log.start())),
            Question::OffsetFor { timestamp: LATEST_TIERED } => self.at(None, None),
            Question::OffsetFor { timestamp: MAX_TIMESTAMP } => self.search(TimestampQuery::Max).await,
            Question::OffsetFor { timestamp } => self.search(TimestampQuery::At(timestamp)).await,
        }
    }

    /// The high watermark, once it has passed the start of this leadership: before that it may seem to go back.
    fn latest(&self) -> LogAnswer {
        let Role::Leader(leader) = &*self.role.borrow() else {
            return LogAnswer::Refused(Refusal::code(not_led_here()));
        };
        if leader.high_watermark() < leader.epoch_start() {
            return LogAnswer::Refused(Refusal::code(ErrorCode::OffsetNotAvailable));
        }
        let epoch = Some(leader.leader_epoch());
        LogAnswer::Offset { timestamp: None, offset: Some(leader.high_watermark()), epoch }
    }

    async fn search(&self, query: TimestampQuery) -> LogAnswer {
        match self.log.offset_for_timestamp(query, self.high_watermark.get()).await {
            Ok(Some((timestamp, offset))) => self.at(Some(timestamp), Some(offset)),
            Ok(None) => LogAnswer::Offset { timestamp: None, offset: None, epoch: None },
            Err(error) => LogAnswer::Refused(Refusal::with_message(read_error(&error), error.to_string())),
        }
    }

    fn at(&self, timestamp: Option<i64>, offset: Option<Offset>) -> LogAnswer {
        let epoch = offset.and_then(|offset| self.log.epoch_at(offset));
        LogAnswer::Offset { timestamp, offset, epoch }
    }
}

/// What a failed read means to a client.
pub(in crate::shard) fn read_error(error: &LogError) -> ErrorCode {
    match error {
        LogError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        LogError::Closed => ErrorCode::NotLeaderOrFollower,
        _ => ErrorCode::KafkaStorageError,
    }
}
