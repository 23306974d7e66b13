//! Messages into a shard, and what each begins.
//!
//! Path: mailbox or connection → `take` → partitions. `take` never waits: what needs waiting becomes a task, after
//! everything that must happen in the order of the messages has happened.

use std::rc::Rc;

use sakia_io::{Class, now, spawn, timeout};
use sakia_protocol::api::error::ErrorCode;

use super::Shard;
use super::partition::{Appending, ReplicaRow};
use super::start::Ending;
use crate::log::AtLeastOne;
use crate::messages::{
    Acks, FetchOrder, LastRead, LogAnswer, ProduceOrder, ProduceResult, ReadResult, Reader, Refusal, ReplicaReader,
    ShardMessage, SliceReference,
};
use crate::replication::{FetchRefusal, HandedBy, Plan, ReplyBudget};
use crate::shard::partition::Partition;
use sakia_protocol::ids::Offset;

/// A batch that was appended, or why it was not.
type Begun = Result<(Rc<Partition>, Appending), Refusal>;

impl Shard {
    /// Takes one message; says so if it ends the shard.
    pub(super) fn take(self: &Rc<Self>, message: ShardMessage) -> Option<Ending> {
        match message {
            ShardMessage::Produce(order) => self.produce(order),
            ShardMessage::Fetch(order) => self.fetch(order),
            ShardMessage::Ask { key, current_leader_epoch, question, reply } => {
                let partition = self.partition(&key);
                spawn(Class::Foreground, async move {
                    let answer = match partition {
                        Some(partition) => partition.answer(current_leader_epoch, question).await,
                        None => LogAnswer::Refused(Refusal::code(ErrorCode::NotLeaderOrFollower)),
                    };
                    let _ = reply.send(answer);
                })
                .detach();
            }
            ShardMessage::Image { index, image } => self.replace_image(index, &image),
            ShardMessage::Delta { index, events } => self.apply_events(index, &events),
            ShardMessage::Published(slices) => {
                for slice in slices {
                    if let Some(partition) = self.partition(&slice.key) {
                        partition.published(self, &slice);
                    }
                }
            }
            ShardMessage::Announce(objects) => self.announce(objects),
            ShardMessage::WriteAnnouncements { key, objects } => self.write_announcements(key, &objects),
            ShardMessage::Returned(ranges) => {
                for range in ranges {
                    if let Some(partition) = self.partition(&range.key) {
                        partition.returned(&range);
                    }
                }
            }
            ShardMessage::Replicated(rows) => {
                for row in rows {
                    if let Some(partition) = self.partition(&row.key) {
                        partition.replicated(self, row);
                    }
                }
            }
            ShardMessage::Fetcher { leader, message } => self.fetchers.tell(self, leader, message),
            ShardMessage::Group { key, request, reply } => self.coordination.take(self, key, request, reply),
            ShardMessage::Release { key, reply } => self.release(key, reply),
            ShardMessage::HandOver { reply } => self.hand_over(reply),
            ShardMessage::Resume => self.resume(),
            ShardMessage::Checkpoint { reply } => {
                let _ = reply.send(self.checkpoint_state());
            }
            ShardMessage::Stop { reply } => return Some(Ending::Clean(reply)),
            ShardMessage::Halt => return Some(Ending::AtOnce),
        }
        None
    }

    /// Appends at once, in order; then waits for the rule in a task of its own.
    fn produce(self: &Rc<Self>, order: ProduceOrder) {
        let mut pending: Vec<(usize, Begun)> = Vec::new();
        for batch in order.batches {
            let begun = match self.partition(&batch.key) {
                Some(partition) => partition.produce(self, &batch.batch, order.acks).map(|a| (partition, a)),
                None => {
                    Err(Refusal { leader: self.leader_of(&batch.key), ..Refusal::code(ErrorCode::NotLeaderOrFollower) })
                }
            };
            pending.push((batch.row, begun));
        }
        let (acks, limit, reply) = (order.acks, order.timeout, order.reply);
        spawn(Class::Foreground, async move {
            let deadline = now() + limit;
            let mut results = Vec::with_capacity(pending.len());
            for (row, begun) in pending {
                let outcome = match begun {
                    Err(refusal) => Err(refusal),
                    Ok((partition, appending)) if acks == Acks::All => {
                        let left = deadline.as_duration().saturating_sub(now().as_duration());
                        match timeout(left, partition.settle(appending)).await {
                            Ok(outcome) => outcome,
                            Err(_) => Err(Refusal::code(ErrorCode::RequestTimedOut)),
                        }
                    }
                    Ok((partition, appending)) => partition.settle(appending).await,
                };
                results.push(ProduceResult { row, outcome });
            }
            let _ = reply.send(results);
        })
        .detach();
    }

    fn fetch(self: &Rc<Self>, order: FetchOrder) {
        let shard = self.clone();
        spawn(Class::Foreground, async move {
            let FetchOrder { reads, bytes_max, first, reader, last, waiter, reply } = order;
            if let Some(waiter) = waiter {
                for read in &reads {
                    if let Some(partition) = shard.partition(&read.key) {
                        partition.add_waiter(waiter.clone(), &reader);
                    }
                }
            }
            let results = match reader {
                Reader::Consumer { rack } => shard.consumer_fetch(&reads, bytes_max, first, rack.as_deref()).await,
                Reader::Replica(replica) => shard.replica_fetch(&reads, bytes_max, &replica, last).await,
            };
            let _ = reply.send(results);
        })
        .detach();
    }

    async fn consumer_fetch(
        self: &Rc<Self>,
        reads: &[crate::messages::PartitionRead],
        bytes_max: usize,
        mut first: AtLeastOne,
        rack: Option<&str>,
    ) -> Vec<ReadResult> {
        let mut left = bytes_max;
        let mut results = Vec::with_capacity(reads.len());
        for read in reads {
            let Some(partition) = self.partition(&read.key) else {
                results.push(self.not_here(read));
                continue;
            };
            let limit = read.bytes_max.min(left);
            let result = partition.consumer_read(self, read, rack, limit, first).await;
            let len: usize = result.records.iter().map(bytes::Bytes::len).sum();
            if len > 0 {
                first = AtLeastOne::No;
            }
            left = left.saturating_sub(len);
            partition.counters().bytes_out.add(u64::try_from(len).unwrap_or(u64::MAX));
            results.push(result);
        }
        results
    }

    fn not_here(&self, read: &crate::messages::PartitionRead) -> ReadResult {
        ReadResult { leader: self.leader_of(&read.key), ..ReadResult::error(read.row, ErrorCode::NotLeaderOrFollower) }
    }

    /// A follower's fetch: first every row's state is taken and planned, then record bytes are read.
    async fn replica_fetch(
        self: &Rc<Self>,
        reads: &[crate::messages::PartitionRead],
        bytes_max: usize,
        replica: &ReplicaReader,
        last: LastRead,
    ) -> Vec<ReadResult> {
        let mut budget = ReplyBudget::new(u64::try_from(bytes_max).unwrap_or(u64::MAX));
        let mut results = Vec::with_capacity(reads.len());
        let mut given = Vec::new();
        for read in reads {
            let Some(partition) = self.partition(&read.key) else {
                results.push(self.not_here(read));
                continue;
            };
            let row = partition.replica_fetch(self, read, replica, &mut budget);
            let (result, handed) = self.replica_row(&partition, read, replica, row, &mut budget).await;
            let has_news = partition.has_news_for(replica);
            results.push(ReadResult { has_news, ..result });
            given.push((partition, handed));
        }
        let any = results.iter().any(|row| row.error != ErrorCode::None || row.has_data());
        if any || last == LastRead::Yes {
            for (partition, handed) in given {
                partition.replica_answered(replica, handed);
            }
        }
        results
    }

    async fn replica_row(
        &self,
        partition: &Partition,
        read: &crate::messages::PartitionRead,
        replica: &ReplicaReader,
        row: ReplicaRow,
        budget: &mut ReplyBudget,
    ) -> (ReadResult, Option<(Offset, HandedBy)>) {
        let plan = match row {
            ReplicaRow::Error(code) => {
                return (ReadResult { leader: self.leader_of(&read.key), ..ReadResult::error(read.row, code) }, None);
            }
            ReplicaRow::Refused(refusal) => return (self.refused(partition, read, refusal), None),
            ReplicaRow::Planned(plan) => plan,
        };
        let empty = partition.empty_row(read.row);
        match plan {
            Plan::Empty { until } => (ReadResult { again_at: until, ..empty }, None),
            Plan::References(slices) => {
                self.counters.references_out.add(u64::try_from(slices.len()).unwrap_or(u64::MAX));
                let next = slices.last().map(|slice| (slice.next, HandedBy::Reference));
                let references = slices.iter().map(|s| SliceReference { object: s.object, end: s.end }).collect();
                (ReadResult { references, ..empty }, next)
            }
            Plan::Bytes { from, below, why } => {
                let left = usize::try_from(budget.bytes_left()).unwrap_or(usize::MAX);
                let share = self.settings.replica.partition_bytes;
                let first = if budget.is_empty() { AtLeastOne::Yes } else { AtLeastOne::No };
                match partition.log().read(from, below, read.bytes_max.min(left).min(share), first).await {
                    Ok(found) => {
                        let len: usize = found.bytes.iter().map(bytes::Bytes::len).sum();
                        let len = u64::try_from(len).unwrap_or(u64::MAX);
                        budget.take_bytes(len);
                        if len > 0 {
                            partition.counters().replication_bytes_out.add(len);
                            partition.bytes_go_to(self, replica.broker, why);
                        }
                        let next = (len > 0).then_some((found.next, HandedBy::Bytes));
                        (ReadResult { records: found.bytes, ..empty }, next)
                    }
                    Err(error) => (ReadResult::error(read.row, super::partition::read_error(&error)), None),
                }
            }
        }
    }

    fn refused(
        &self,
        partition: &Partition,
        read: &crate::messages::PartitionRead,
        refusal: FetchRefusal,
    ) -> ReadResult {
        let code = match refusal {
            FetchRefusal::UnknownLeaderEpoch => ErrorCode::UnknownLeaderEpoch,
            FetchRefusal::FencedLeaderEpoch => ErrorCode::FencedLeaderEpoch,
            FetchRefusal::OutOfRange => ErrorCode::OffsetOutOfRange,
            FetchRefusal::Diverging(parting) => {
                let diverging = Some((parting.epoch, parting.end));
                return ReadResult { diverging, ..partition.empty_row(read.row) };
            }
        };
        ReadResult { leader: self.leader_of(&read.key), ..ReadResult::error(read.row, code) }
    }
}
