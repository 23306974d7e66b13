//! One value, once: the reply to a message. It needs no room in any mailbox, so replies cannot block requests.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The side that gives the value.
#[must_use = "a dropped reply answers nothing"]
pub struct Reply<T>(Arc<Mutex<State<T>>>);
/// The side that waits: the value, or `None` when the other side is gone without one.
#[must_use = "an answer does nothing unless awaited"]
pub struct Answer<T>(Arc<Mutex<State<T>>>);

struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
    reply_gone: bool,
    answer_gone: bool,
}

pub fn oneshot<T: Send>() -> (Reply<T>, Answer<T>) {
    let state = State { value: None, waker: None, reply_gone: false, answer_gone: false };
    let state = Arc::new(Mutex::new(state));
    (Reply(Arc::clone(&state)), Answer(state))
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer")
    }
}

fn locked<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    // No code of a caller runs under this lock.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Send> Reply<T> {
    /// Gives the value back when nobody waits for it any more.
    pub fn send(self, value: T) -> Result<(), T> {
        let mut state = locked(&self.0);
        if state.answer_gone {
            return Err(value);
        }
        state.value = Some(value);
        // The drop of `self` wakes.
        Ok(())
    }

    pub fn is_abandoned(&self) -> bool {
        locked(&self.0).answer_gone
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        let waker = {
            let mut state = locked(&self.0);
            state.reply_gone = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T: Send> Future for Answer<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = locked(&self.0);
        if state.reply_gone {
            return Poll::Ready(state.value.take());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        let value = {
            let mut state = locked(&self.0);
            state.answer_gone = true;
            state.waker = None;
            state.value.take()
        };
        drop(value);
    }
}
