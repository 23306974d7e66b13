//! ISR changes on their way to the controller, and the controller's word on its way back to the partition.
//!
//! Path: a leader's `propose` → everything proposed in one turn together → the control shard → AlterPartition → the code of
//! each → `proposal_answered`. What was accepted shows as a metadata event, and only that ends it (R11).
//!
//! Bound: as many proposals as partitions led here, a few each (`PENDING_ISR_MAX`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use sakia_io::{Class, oneshot, spawn};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::PartitionKey;

use super::{Partition, Shard};
use crate::messages::{ControlMessage, IsrProposal};
use crate::replication;
use crate::wake::Wake;

/// Proposals of the present turn.
#[derive(Default)]
pub struct Proposals {
    waiting: RefCell<Vec<(Rc<Partition>, replication::IsrProposal)>>,
    wake: Wake,
}

impl Proposals {
    pub(super) fn add(&self, partition: Rc<Partition>, proposal: replication::IsrProposal) {
        self.waiting.borrow_mut().push((partition, proposal));
        self.wake.wake();
    }
}

/// What is known of a proposal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It was taken: the metadata will show it.
    Taken,
    /// It was refused and will never be applied.
    Refused(ErrorCode),
    /// Nobody knows: it may have been applied, or still be. It is sent again.
    Unknown,
}

/// Reads the controller's code. Pure.
fn verdict(code: Option<ErrorCode>) -> Verdict {
    match code {
        Some(ErrorCode::None) => Verdict::Taken,
        Some(
            code @ (ErrorCode::FencedLeaderEpoch
            | ErrorCode::InvalidUpdateVersion
            | ErrorCode::InvalidRequest
            | ErrorCode::IneligibleReplica
            | ErrorCode::StaleBrokerEpoch
            | ErrorCode::UnknownTopicId
            | ErrorCode::UnknownTopicOrPartition
            // The control shard has no registration: nothing was sent.
            | ErrorCode::BrokerIdNotRegistered),
        ) => Verdict::Refused(code),
        _ => Verdict::Unknown,
    }
}

impl Shard {
    /// Sends what partitions propose, for ever.
    pub(super) async fn propose(self: Rc<Self>) {
        loop {
            self.proposals.wake.wait().await;
            let proposed = self.proposals.waiting.take();
            if !proposed.is_empty() {
                spawn(Class::Foreground, self.clone().ask_controller(proposed)).detach();
            }
        }
    }

    async fn ask_controller(self: Rc<Self>, proposed: Vec<(Rc<Partition>, replication::IsrProposal)>) {
        let proposals = proposed.iter().map(|(partition, proposal)| IsrProposal {
            key: partition.key(),
            leader_epoch: proposal.leader_epoch,
            partition_epoch: proposal.partition_epoch,
            isr: proposal.isr.clone(),
        });
        let (reply, answer) = oneshot();
        let message = ControlMessage::AlterPartition { proposals: proposals.collect(), reply };
        let codes: BTreeMap<PartitionKey, ErrorCode> = match self.addresses.control.send(message).await {
            Ok(()) => answer.await.unwrap_or_default().into_iter().collect(),
            Err(_) => BTreeMap::new(),
        };
        for (partition, proposal) in proposed {
            let verdict = verdict(codes.get(&partition.key()).copied());
            partition.proposal_answered(&self, &proposal, verdict);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_never_be_applied_counts_as_refused() {
        assert_eq!(verdict(Some(ErrorCode::None)), Verdict::Taken);
        for code in [ErrorCode::InvalidUpdateVersion, ErrorCode::IneligibleReplica, ErrorCode::FencedLeaderEpoch] {
            assert_eq!(verdict(Some(code)), Verdict::Refused(code));
        }
        for code in [
            None,
            Some(ErrorCode::NetworkException),
            Some(ErrorCode::RequestTimedOut),
            Some(ErrorCode::NotController),
            Some(ErrorCode::UnknownServerError),
        ] {
            assert_eq!(verdict(code), Verdict::Unknown, "{code:?}");
        }
    }
}
