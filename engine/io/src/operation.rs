//! An operation as a future: begun when it is made, cancelled when it is dropped before its completion.
//!
//! Invariant: what an operation opened is closed when nobody takes the outcome.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::driver::{Op, OpId, Outcome};
use crate::executor::{Core, current};

pub(crate) enum OpState {
    Waiting(Option<Waker>),
    Done(Outcome),
    /// The future is gone; the slot lives until the completion.
    Abandoned,
}

pub(crate) struct Operation {
    core: Rc<Core>,
    id: Option<OpId>,
}

/// Begins an operation of the current shard.
pub(crate) fn begin(op: Op) -> Operation {
    let core = current();
    let id = core.operations.borrow_mut().insert(OpState::Waiting(None));
    core.driver(|driver| driver.push(id, op));
    Operation { core, id: Some(id) }
}

impl Future for Operation {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let id = self.id.expect("an operation is not polled after its outcome");
        let outcome = {
            let mut operations = self.core.operations.borrow_mut();
            match operations.get_mut(id).expect("the slot lives until the future has taken the outcome") {
                OpState::Waiting(waker) => {
                    match waker {
                        Some(known) => known.clone_from(cx.waker()),
                        None => *waker = Some(cx.waker().clone()),
                    }
                    return Poll::Pending;
                }
                OpState::Done(_) => operations.remove(id),
                OpState::Abandoned => unreachable!("only the drop of this future abandons its operation"),
            }
        };
        self.id = None;
        match outcome {
            Some(OpState::Done(outcome)) => Poll::Ready(outcome),
            _ => unreachable!("the slot was seen done"),
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let done = {
            let mut operations = self.core.operations.borrow_mut();
            match operations.get_mut(id) {
                Some(state @ OpState::Waiting(_)) => {
                    let waiting = std::mem::replace(state, OpState::Abandoned);
                    drop(operations);
                    drop(waiting);
                    self.core.cancel(id);
                    None
                }
                Some(_) => operations.remove(id),
                // The shard has ended.
                None => None,
            }
        };
        if let Some(OpState::Done(outcome)) = done {
            self.core.dispose(outcome);
        }
    }
}
