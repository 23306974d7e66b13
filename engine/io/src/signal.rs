//! A latched "look again": raised by anybody, taken by one waiter.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Clones are the same signal.
#[derive(Clone, Default, Debug)]
pub struct Signal(Arc<Mutex<State>>);

#[derive(Default, Debug)]
struct State {
    raised: bool,
    waiting: Vec<Waker>,
}

impl Signal {
    pub fn new() -> Signal {
        Signal::default()
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        // No code of a caller runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn raise(&self) {
        let waiting = {
            let mut state = self.locked();
            state.raised = true;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Returns when it was raised since the last wait ended, and lowers it. Of several waiters one gets it.
    pub async fn wait(&self) {
        poll_fn(|cx| {
            let mut state = self.locked();
            if state.raised {
                state.raised = false;
                return Poll::Ready(());
            }
            if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                state.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    pub fn is_raised(&self) -> bool {
        self.locked().raised
    }
}
