//! Requests of clients that the controller decides: sent on as they came, answered as it answers.

use std::rc::Rc;

use bytes::Bytes;
use sakia_io::{Class, Reply, now, spawn};
use tracing::debug;

use super::{Broker, Place};
use crate::control::limits::{FORWARD_MAX, FORWARDS_MAX};
use crate::rpc::RpcError;

impl Broker {
    /// Sends a request on; the reply is the frame of the answer, or `None` if there will be none.
    pub(super) fn forward(self: &Rc<Self>, frame: Bytes, reply: Reply<Option<Bytes>>) {
        let Some(place) = Place::take(&self.forwards, FORWARDS_MAX) else {
            // The connection that waits for it is closed, and its client tries again.
            let _ = reply.send(None);
            return;
        };
        let broker = self.clone();
        spawn(Class::Foreground, async move {
            let answer = broker.forwarded(&frame).await;
            let _ = reply.send(answer);
            drop(place);
        })
        .detach();
    }

    /// Only what was not sent is sent again.
    async fn forwarded(&self, frame: &Bytes) -> Option<Bytes> {
        let deadline = now() + FORWARD_MAX;
        loop {
            let left = deadline.as_duration().saturating_sub(now().as_duration());
            match self.admin.forward(frame.clone(), left).await {
                Ok(answer) => return Some(answer),
                Err(RpcError::Unreachable { .. }) if now() < deadline => {}
                Err(error) => {
                    debug!(%error, "a request was forwarded without an answer");
                    return None;
                }
            }
        }
    }
}
