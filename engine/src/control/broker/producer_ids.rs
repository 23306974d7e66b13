//! Fresh producer ids, out of blocks that the controller gives to this broker registration.
//!
//! Invariant: an id is given once: a block belongs to one process, and is forgotten with it.

use std::ops::Range;
use std::rc::Rc;

use sakia_io::{Receiver, Reply, TrySendError};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::messages::allocate_producer_ids::AllocateProducerIdsRequest;
use tracing::debug;

use super::Broker;
use crate::control::limits::PRODUCER_ID_MAX;

/// Who wants a producer id.
pub(super) type Question = Reply<Result<i64, ErrorCode>>;

impl Broker {
    pub(super) fn ask_producer_id(&self, reply: Question) {
        if let Err(TrySendError::Full(reply) | TrySendError::Closed(reply)) = self.producer_ids.try_send(reply) {
            let _ = reply.send(Err(ErrorCode::CoordinatorLoadInProgress));
        }
    }

    /// Answers questions in order. When no block can be had, everybody who waits is sent away, so that nobody waits for
    /// the attempts of all before him.
    pub(super) async fn give_producer_ids(self: Rc<Self>, mut questions: Receiver<Question>) {
        let mut block: Range<i64> = 0..0;
        while let Some(reply) = questions.recv().await {
            if block.is_empty() {
                match self.next_block().await {
                    Some(next) => block = next,
                    None => {
                        let refuse = |reply: Question| reply.send(Err(ErrorCode::CoordinatorLoadInProgress));
                        let _ = refuse(reply);
                        while let Some(waiting) = questions.try_recv() {
                            let _ = refuse(waiting);
                        }
                        continue;
                    }
                }
            }
            let id = block.next().expect("a block is taken only when it has ids");
            // An id that nobody takes any more is lost; there are 2^63 of them.
            let _ = reply.send(Ok(id));
        }
    }

    async fn next_block(&self) -> Option<Range<i64>> {
        let broker_epoch = self.registration.get()?.get();
        let request = AllocateProducerIdsRequest { broker_id: self.settings.node_id.get(), broker_epoch };
        match self.internal.call(&request, 0, PRODUCER_ID_MAX).await {
            Ok(answer) if answer.error_code == ErrorCode::None.code() => {
                let end = answer.producer_id_start.checked_add(i64::from(answer.producer_id_len));
                end.map(|end| answer.producer_id_start..end).filter(|block| block.start >= 0 && !block.is_empty())
            }
            Ok(answer) => {
                debug!(code = answer.error_code, "no block of producer ids");
                None
            }
            Err(error) => {
                debug!(%error, "no block of producer ids");
                None
            }
        }
    }
}
