//! ISR changes on their way to the controller: one AlterPartition at a time, with everything that was proposed meanwhile.
//!
//! Invariant: of one partition only the newest proposal waits; the controller checks epochs, so an old one does no harm.
//! The outcome reaches the shards as a metadata event; the codes here only say whether to propose again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use sakia_io::Reply;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{BrokerEpoch, BrokerId, PartitionIndex, PartitionKey};
use sakia_protocol::messages::alter_partition::{
    AlterPartitionRequest, AlterPartitionResponse, BrokerState, PartitionData, TopicData,
};
use tracing::{debug, warn};

use super::Broker;
use crate::control::limits::{ALTER_PARTITION_MAX, PROPOSALS_PER_REQUEST_MAX, PROPOSALS_WAITING_MAX};
use crate::messages::IsrProposal;
use crate::wake::Wake;

type Answer = Reply<Vec<(PartitionKey, ErrorCode)>>;

/// What waits for the next request.
#[derive(Default)]
pub(super) struct Proposals {
    waiting: RefCell<Waiting>,
    wake: Wake,
}

#[derive(Default)]
struct Waiting {
    proposals: BTreeMap<PartitionKey, IsrProposal>,
    /// Messages and the partitions that each named.
    replies: Vec<(Vec<PartitionKey>, Answer)>,
}

impl Proposals {
    /// Takes proposals; at the bound they are refused and their leaders propose again later.
    pub(super) fn add(&self, proposals: Vec<IsrProposal>, reply: Answer) {
        let keys: Vec<PartitionKey> = proposals.iter().map(|proposal| proposal.key).collect();
        let mut waiting = self.waiting.borrow_mut();
        if waiting.replies.len() >= PROPOSALS_WAITING_MAX {
            drop(waiting);
            let _ = reply.send(all(&keys, ErrorCode::RequestTimedOut));
            return;
        }
        waiting.proposals.extend(proposals.into_iter().map(|proposal| (proposal.key, proposal)));
        waiting.replies.push((keys, reply));
        self.wake.wake();
    }

    /// What goes with the next request, and who waits for its outcome.
    fn take(&self) -> Waiting {
        let mut waiting = self.waiting.borrow_mut();
        let mut taken = std::mem::take(&mut *waiting);
        if taken.proposals.len() > PROPOSALS_PER_REQUEST_MAX {
            let first_left = *taken.proposals.keys().nth(PROPOSALS_PER_REQUEST_MAX).expect("there are more");
            waiting.proposals = taken.proposals.split_off(&first_left);
            let (waits, done) =
                taken.replies.into_iter().partition(|(keys, _)| keys.iter().any(|key| *key >= first_left));
            (waiting.replies, taken.replies) = (waits, done);
            self.wake.wake();
        }
        taken
    }
}

impl Broker {
    /// Sends what was proposed, for ever.
    pub(super) async fn send_proposals(self: Rc<Self>) {
        loop {
            self.proposals.wake.wait().await;
            let taken = self.proposals.take();
            if taken.proposals.is_empty() {
                continue;
            }
            let codes = self.alter_partitions(taken.proposals).await;
            for (keys, reply) in taken.replies {
                // A key that went with an earlier part of a split message has no code here: it was sent.
                let code_of = |key: &PartitionKey| codes.get(key).copied().unwrap_or(ErrorCode::None);
                // Shards do not wait for the codes.
                let _ = reply.send(keys.iter().map(|key| (*key, code_of(key))).collect());
            }
        }
    }

    async fn alter_partitions(
        &self,
        proposals: BTreeMap<PartitionKey, IsrProposal>,
    ) -> BTreeMap<PartitionKey, ErrorCode> {
        let everywhere = |code| proposals.keys().map(|key| (*key, code)).collect();
        let Some(epoch) = self.registration.get() else { return everywhere(ErrorCode::BrokerIdNotRegistered) };
        let request = request(self.settings.node_id, epoch, proposals.values());
        match self.internal.call(&request, 3, ALTER_PARTITION_MAX).await {
            Ok(answer) => {
                let code = ErrorCode::from_wire(answer.error_code);
                if code == ErrorCode::None {
                    let codes: BTreeMap<_, _> = proposals.keys().map(|key| (*key, code_in(&answer, key))).collect();
                    for (key, code) in codes.iter().filter(|(_, code)| !code.is_none()) {
                        debug!(partition = %key, code = code.name(), "proposed in-sync replicas were refused");
                    }
                    return codes;
                }
                debug!(code = code.name(), "AlterPartition was refused");
                everywhere(code)
            }
            Err(error) => {
                warn!(%error, partitions = proposals.len(), "AlterPartition was not answered");
                everywhere(ErrorCode::NetworkException)
            }
        }
    }
}

fn all(keys: &[PartitionKey], code: ErrorCode) -> Vec<(PartitionKey, ErrorCode)> {
    keys.iter().map(|key| (*key, code)).collect()
}

/// Proposals in order of key as a request of version 3.
fn request<'a>(
    broker: BrokerId,
    epoch: BrokerEpoch,
    proposals: impl Iterator<Item = &'a IsrProposal>,
) -> AlterPartitionRequest {
    let mut topics: Vec<TopicData> = Vec::new();
    for proposal in proposals {
        let topic_id = proposal.key.topic_id;
        if topics.last().is_none_or(|topic| topic.topic_id != topic_id) {
            topics.push(TopicData { topic_id, partitions: Vec::new() });
        }
        let member = |(broker, epoch): &(BrokerId, BrokerEpoch)| BrokerState {
            broker_id: broker.get(),
            broker_epoch: epoch.get(),
        };
        topics.last_mut().expect("pushed above").partitions.push(PartitionData {
            partition_index: proposal.key.partition.get(),
            leader_epoch: proposal.leader_epoch.get(),
            new_isr: Vec::new(),
            new_isr_with_epochs: proposal.isr.iter().map(member).collect(),
            leader_recovery_state: 0,
            partition_epoch: proposal.partition_epoch.get(),
        });
    }
    AlterPartitionRequest { broker_id: broker.get(), broker_epoch: epoch.get(), topics }
}

fn code_in(answer: &AlterPartitionResponse, key: &PartitionKey) -> ErrorCode {
    let topics = answer.topics.iter().filter(|topic| topic.topic_id == key.topic_id);
    let mut rows = topics.flat_map(|topic| &topic.partitions);
    let row = rows.find(|row| PartitionIndex::from_wire(row.partition_index) == Some(key.partition));
    row.map_or(ErrorCode::UnknownServerError, |row| ErrorCode::from_wire(row.error_code))
}

#[cfg(test)]
mod tests {
    use sakia_io::oneshot;
    use sakia_protocol::ids::{LeaderEpoch, PartitionEpoch, Uuid};

    use super::*;

    fn proposal(topic: u8, partition: i32, partition_epoch: i32) -> IsrProposal {
        IsrProposal {
            key: PartitionKey { topic_id: Uuid::from_bytes([topic; 16]), partition: PartitionIndex::new(partition) },
            leader_epoch: LeaderEpoch::new(4),
            partition_epoch: PartitionEpoch::new(partition_epoch),
            isr: vec![(BrokerId::new(1), BrokerEpoch::new(9))],
        }
    }

    #[test]
    fn a_newer_proposal_of_a_partition_replaces_the_one_that_waits() {
        let proposals = Proposals::default();
        for epoch in [6, 7] {
            proposals.add(vec![proposal(1, 0, epoch), proposal(2, 3, epoch)], oneshot().0);
        }
        let taken = proposals.take();
        assert_eq!(taken.replies.len(), 2);
        let request = request(BrokerId::new(1), BrokerEpoch::new(9), taken.proposals.values());
        assert_eq!(request.topics.len(), 2);
        for topic in &request.topics {
            assert_eq!(topic.partitions.len(), 1);
            assert_eq!(topic.partitions[0].partition_epoch, 7);
        }
    }

    #[test]
    fn what_does_not_fit_a_request_goes_with_the_next() {
        let proposals = Proposals::default();
        let count = i32::try_from(PROPOSALS_PER_REQUEST_MAX).unwrap() + 5;
        proposals.add((0..count).map(|partition| proposal(1, partition, 1)).collect(), oneshot().0);
        let first = proposals.take();
        assert_eq!((first.proposals.len(), first.replies.len()), (PROPOSALS_PER_REQUEST_MAX, 0));
        let second = proposals.take();
        assert_eq!((second.proposals.len(), second.replies.len()), (5, 1));
    }
}
