//! What a leader does: appends, lends, answers its followers, minds its ISR.
//!
//! Path: `produce` → `lend_ready` → (combiner) → `published`/`returned`; `replica_fetch` → `high_watermark`.

use std::rc::Rc;

use sakia_io::planted::{Planted, is_planted};
use sakia_io::{Answer, wall_clock_ms};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::batch::CheckedBatch;
use sakia_protocol::ids::{BrokerId, Offset};
use sakia_remote::pack::{BrokerSet, ReadyRange};
use tracing::debug;

use super::{Partition, Role, clock, not_led_here};
use crate::limits::LEND_BYTES_MAX;
use crate::log::producers::ProducerError;
use crate::log::{AppendError, AppendedAs, LogError};
use crate::messages::{Acks, PartitionRead, Produced, PublishedSlice, Refusal, ReplicaReader, ReturnedRange};
use crate::replication::fetch_plan::{Situation, Wants, check_fetch, plan};
use crate::replication::upload::GaveUp;
use crate::replication::wal_index::HeldLog;
use crate::replication::{
    AcksAll, BytesReason, FetchRefusal, FetchVerdict, HandedBy, IndexedSlice, IsrProposal, LeaderLog, LeaderState,
    Plan, ReplicaFetch, ReplyBudget, SessionStamp,
};
use crate::shard::Shard;
use crate::shard::proposals::Verdict;
use crate::waiters::{Reached, Until};

/// A batch that was appended and may still have to wait for its rule.
pub(in crate::shard) struct Appending {
    produced: Produced,
    end: Offset,
    acks: Acks,
    answer: Option<Answer<Reached>>,
}

/// What a leader found for one row of a follower's fetch, before record bytes are read.
pub(in crate::shard) enum ReplicaRow {
    /// An answer without data.
    Refused(FetchRefusal),
    /// A code.
    Error(ErrorCode),
    /// What to send.
    Planned(Plan),
}

impl Partition {
    /// Appends a batch and says what to wait for.
    pub(in crate::shard) fn produce(
        &self,
        shard: &Rc<Shard>,
        batch: &CheckedBatch,
        acks: Acks,
    ) -> Result<Appending, Refusal> {
        let epoch = match &*self.role.borrow() {
            // Who leads next is not known yet; the producer asks.
            Role::Leader(_) if shard.handing_over.get() > 0 => return Err(Refusal::code(not_led_here())),
            Role::Leader(leader) if acks == Acks::All && !leader.has_enough_replicas() => {
                return Err(Refusal::code(ErrorCode::NotEnoughReplicas));
            }
            Role::Leader(leader) => leader.leader_epoch(),
            Role::Idle | Role::Follower(_) => {
                return Err(Refusal { leader: shard.leader_of(&self.key), ..Refusal::code(not_led_here()) });
            }
        };
        let appended = self.log.append_as_leader(batch, epoch, wall_clock_ms()).map_err(refusal)?;
        self.counters.bytes_in.add(u64::try_from(batch.len()).unwrap_or(u64::MAX));
        self.mark_ready(shard);
        let until = match acks {
            _ if appended.kind == AppendedAs::Duplicate && is_planted(Planted::DuplicateAnsweredEarly) => None,
            Acks::None => None,
            Acks::Leader => Some(Until::Stored),
            Acks::All => Some(Until::HighWatermark),
        };
        Ok(Appending {
            produced: Produced {
                base: appended.base,
                log_append_time_ms: appended.log_append_time_ms,
                log_start: self.log.start(),
            },
            end: appended.next,
            acks,
            answer: until.and_then(|until| self.wait(until, appended.next)),
        })
    }

    /// Waits for a batch's rule.
    pub(in crate::shard) async fn settle(&self, appending: Appending) -> Result<Produced, Refusal> {
        if let Some(answer) = appending.answer
            && answer.await != Some(Reached::End)
        {
            return Err(Refusal::code(not_led_here()));
        }
        if appending.acks == Acks::All
            && let Role::Leader(leader) = &*self.role.borrow()
            && leader.acks_all(appending.end) == AcksAll::TooFew
        {
            return Err(Refusal::code(ErrorCode::NotEnoughReplicasAfterAppend));
        }
        Ok(appending.produced)
    }

    /// Something was appended: it is lent when the shard's turn ends, together with what else comes in it.
    fn mark_ready(&self, shard: &Shard) {
        if self.upload.borrow().is_some() && !self.is_dirty.replace(true) {
            shard.lending.mark(self.key);
        }
    }

    /// Lends everything appended and not lent yet to the combiner.
    pub(in crate::shard) fn lend_ready(&self, shard: &Shard) {
        self.is_dirty.set(false);
        let Role::Leader(leader) = &*self.role.borrow() else { return };
        let mut upload = self.upload.borrow_mut();
        let Some(upload) = upload.as_mut() else { return };
        let followers: BrokerSet = leader.followers().iter().map(|follower| follower.broker).collect();
        while let Some(lent) = self.log.lend(upload.lent(), LEND_BYTES_MAX) {
            upload.lend(lent.next, clock());
            shard.outbox.lend(ReadyRange {
                key: self.key,
                leader_epoch: lent.leader_epoch,
                generation: leader.generation(),
                base: lent.base,
                next: lent.next,
                max_timestamp_ms: lent.max_timestamp_ms,
                crc32c: lent.crc32c,
                log_start: self.log.start(),
                bytes: lent.bytes,
                followers: followers.clone(),
                shard: shard.id.index(),
                offered_at: clock(),
            });
        }
        if upload.lent() < self.log.appended() {
            // It is no longer in memory: a hole in the object history, which followers get as bytes (R12).
            upload.skip_to(self.log.appended());
        }
    }

    /// A slice stands in the bucket: followers may take it.
    pub(in crate::shard) fn published(&self, shard: &Rc<Shard>, slice: &PublishedSlice) {
        let indexed = IndexedSlice {
            object: slice.object,
            slice: slice.slice,
            start: slice.start,
            end: slice.end,
            base: slice.base,
            next: slice.next,
            leader_epoch: slice.leader_epoch,
        };
        self.index_slice(shard, slice.generation, indexed);
        if slice.generation == self.generation.get() {
            if let Some(upload) = self.upload.borrow_mut().as_mut() {
                upload.published(slice.base, slice.next);
            }
            self.waiters.borrow_mut().replicas_changed();
        }
    }

    /// R8: the index holds a slice only if this log holds the whole range at that one epoch.
    pub(super) fn index_slice(&self, shard: &Shard, generation: u64, slice: IndexedSlice) {
        self.log.with_epochs(|epochs| {
            let held = HeldLog { local_start: self.log.start(), appended: self.log.appended(), epochs };
            shard.index.borrow_mut().insert(self.key, generation, slice, held, clock());
        });
    }

    /// A range came back without an object: followers get bytes (R12).
    pub(in crate::shard) fn returned(&self, range: &ReturnedRange) {
        if range.generation != self.generation.get() {
            return;
        }
        if let Some(upload) = self.upload.borrow_mut().as_mut() {
            upload.returned(range.base, range.next);
        }
        self.waiters.borrow_mut().replicas_changed();
    }

    /// Whether followers of this leader get bytes at present.
    pub(super) fn replicas_take_bytes(&self) -> bool {
        match &*self.role.borrow() {
            Role::Leader(leader) if leader.followers().is_empty() => false,
            Role::Leader(_) => self.upload.borrow().as_ref().is_none_or(|upload| upload.is_proving()),
            Role::Idle | Role::Follower(_) => false,
        }
    }

    /// Takes a follower's state and decides what it gets.
    pub(in crate::shard) fn replica_fetch(
        self: &Rc<Self>,
        shard: &Rc<Shard>,
        read: &PartitionRead,
        replica: &ReplicaReader,
        budget: &mut ReplyBudget,
    ) -> ReplicaRow {
        let Some(end) = Offset::from_wire(read.offset) else { return ReplicaRow::Error(ErrorCode::OffsetOutOfRange) };
        let fetch = ReplicaFetch {
            broker: replica.broker,
            broker_epoch: replica.broker_epoch,
            stamp: stamp(replica),
            leader_epoch: read.current_leader_epoch,
            end,
            last_epoch: read.last_fetched_epoch,
            log_start: read.log_start,
            wants: if replica.wants_references { Wants::References } else { Wants::Bytes },
            bytes_until: read.bytes_until,
        };
        let mut role = self.role.borrow_mut();
        let Role::Leader(leader) = &mut *role else { return ReplicaRow::Error(not_led_here()) };
        let checked = self.log.with_epochs(|epochs| {
            let log = LeaderLog { start: self.log.start(), appended: self.log.appended(), epochs };
            check_fetch(fetch, leader, log)
        });
        let checked = match checked {
            Ok(checked) => checked,
            Err(refusal) => return ReplicaRow::Refused(refusal),
        };
        let moved = match leader.on_follower_fetch(&checked, clock()) {
            FetchVerdict::Taken { high_watermark } => high_watermark,
            FetchVerdict::Stale => None,
            FetchVerdict::NotAReplica => return ReplicaRow::Error(ErrorCode::UnknownTopicOrPartition),
        };
        self.committed(shard, moved);
        if let Some(proposal) = leader.isr_expand(clock()) {
            shard.counters.isr_changes.with(&["expand"]).increment();
            shard.proposals.add(self.clone(), proposal);
        }
        let upload = self.upload.borrow();
        let index = shard.index.borrow();
        let situation = Situation {
            key: self.key,
            leader,
            upload: upload.as_ref(),
            index: &index,
            bytes_max: u64::try_from(read.bytes_max).unwrap_or(u64::MAX),
            fallback_after: shard.settings.wal.fallback_after,
            now: clock(),
        };
        let plan = plan(&checked, situation, budget);
        let trusted = fetch.wants == Wants::References && upload.as_ref().is_some_and(|upload| !upload.is_proving());
        let settled = matches!(plan, Plan::Empty { .. }) && trusted && end >= leader.stored();
        if settled || matches!(plan, Plan::References(_)) {
            self.references_go_to(shard, replica.broker);
        }
        ReplicaRow::Planned(plan)
    }

    /// The row is about to be answered: what it gives and tells is remembered.
    pub(in crate::shard) fn replica_answered(&self, replica: &ReplicaReader, given: Option<(Offset, HandedBy)>) {
        if let Role::Leader(leader) = &mut *self.role.borrow_mut() {
            leader.on_answered(replica.broker, stamp(replica), given, clock());
        }
    }

    /// Whether a follower lacks news of the high watermark.
    pub(in crate::shard) fn has_news_for(&self, replica: &ReplicaReader) -> bool {
        match &*self.role.borrow() {
            Role::Leader(leader) => leader
                .progress(replica.broker)
                .is_some_and(|progress| progress.wants_high_watermark(leader.high_watermark())),
            Role::Idle | Role::Follower(_) => false,
        }
    }

    /// A replica is sent record bytes. Where references are the rule that is counted, once until they are given again.
    pub(in crate::shard) fn bytes_go_to(&self, shard: &Shard, broker: BrokerId, why: BytesReason) {
        if self.upload.borrow().is_none() {
            return;
        }
        let mut brokers = self.takes_bytes.borrow_mut();
        let first = brokers.is_empty();
        if brokers.insert(broker) {
            let why = fallback_label(why);
            debug!(topic = %self.topic, partition = %self.key.partition, follower = %broker, why, "record bytes begin");
            shard.counters.fallbacks.with(&[why]).increment();
            if first {
                shard.counters.fallback_partitions.add(1);
            }
        }
    }

    /// A replica is given references, or lacks nothing.
    fn references_go_to(&self, shard: &Shard, broker: BrokerId) {
        let mut brokers = self.takes_bytes.borrow_mut();
        if brokers.remove(&broker) {
            debug!(topic = %self.topic, partition = %self.key.partition, follower = %broker, "record bytes end");
            if brokers.is_empty() {
                shard.counters.fallback_partitions.add(-1);
            }
        }
    }

    /// The leadership ends, and with it what its followers get.
    pub(super) fn forget_bytes(&self, shard: &Shard) {
        if !self.takes_bytes.take().is_empty() {
            shard.counters.fallback_partitions.add(-1);
        }
    }

    /// Looks at the clock: members that fell behind leave, joiners come, uploads that take too long are given up.
    pub(in crate::shard) fn upkeep(self: &Rc<Self>, shard: &Rc<Shard>) {
        self.append_stalled(shard);
        let mut role = self.role.borrow_mut();
        let Role::Leader(leader) = &mut *role else { return };
        let now = clock();
        let moved = leader.on_time(now);
        if let Some(proposal) = leader.isr_shrink(now) {
            shard.counters.isr_changes.with(&["shrink"]).increment();
            shard.proposals.add(self.clone(), proposal);
        } else if let Some(proposal) = leader.isr_confirm(now).or_else(|| self.isr_retry(leader)) {
            shard.proposals.add(self.clone(), proposal);
        }
        drop(role);
        self.committed(shard, moved);
        let gave_up =
            self.upload.borrow_mut().as_mut().map_or(GaveUp::No, |u| u.give_up_if_due(self.log.appended(), now));
        if gave_up == GaveUp::Yes {
            self.waiters.borrow_mut().replicas_changed();
        }
    }

    /// A proposal whose answer was lost, once more.
    fn isr_retry(&self, leader: &mut LeaderState) -> Option<IsrProposal> {
        self.isr_answer_lost.take().then(|| leader.isr_retry()).flatten()
    }

    /// The controller's word on a proposal. What it took ends with its event; what it refused ends here (R11).
    pub(in crate::shard) fn proposal_answered(&self, shard: &Rc<Shard>, proposal: &IsrProposal, verdict: Verdict) {
        let mut role = self.role.borrow_mut();
        let Role::Leader(leader) = &mut *role else { return };
        if leader.leader_epoch() != proposal.leader_epoch {
            return;
        }
        let moved = match verdict {
            Verdict::Taken => None,
            Verdict::Refused(code) => {
                debug!(topic = %self.topic, partition = %self.key.partition, code = code.name(), "an ISR was refused");
                leader.on_refused(proposal, clock())
            }
            Verdict::Unknown => {
                self.isr_answer_lost.set(true);
                None
            }
        };
        drop(role);
        self.committed(shard, moved);
    }

    /// Brokers that follow this leader.
    #[must_use]
    pub fn followers(&self) -> Vec<BrokerId> {
        match &*self.role.borrow() {
            Role::Leader(leader) => leader.followers().iter().map(|follower| follower.broker).collect(),
            Role::Idle | Role::Follower(_) => Vec::new(),
        }
    }
}

fn stamp(replica: &ReplicaReader) -> SessionStamp {
    SessionStamp { session: replica.session, epoch: replica.session_epoch }
}

fn fallback_label(why: BytesReason) -> &'static str {
    match why {
        BytesReason::NoReferences => "no_references",
        BytesReason::BytesUntil => "asked",
        BytesReason::Behind => "behind",
        BytesReason::UploadLate => "upload_late",
        BytesReason::NoProgress => "no_progress",
    }
}

fn refusal(error: AppendError) -> Refusal {
    let code = match &error {
        // The producer tries again; by then the disk or the memory budget has caught up. Every client knows this code as
        // one to try again, with nothing appended; librdkafka gives up on THROTTLING_QUOTA_EXCEEDED.
        AppendError::Busy(_) => ErrorCode::NotEnoughReplicas,
        AppendError::Producer(ProducerError::Fenced { .. }) => ErrorCode::InvalidProducerEpoch,
        AppendError::Producer(ProducerError::OutOfOrder { .. }) => ErrorCode::OutOfOrderSequenceNumber,
        AppendError::Producer(ProducerError::InsideTransaction { .. }) => ErrorCode::InvalidTxnState,
        AppendError::TooLarge { .. } => ErrorCode::RecordListTooLarge,
        AppendError::Log(LogError::Closed) => not_led_here(),
        AppendError::Log(_) => ErrorCode::KafkaStorageError,
    };
    Refusal::with_message(code, error.to_string())
}
