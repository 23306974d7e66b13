//! A latched wake-up between two tasks of one shard.
//!
//! Invariant: a `wake` before or during `wait` is never lost; several wakes before one wait count once.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// The latch. One task waits.
#[derive(Default)]
pub struct Wake {
    raised: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl Wake {
    /// Lets the waiting task go on.
    pub fn wake(&self) {
        self.raised.set(true);
        if let Some(waker) = self.waiting.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Waits for the next wake.
    pub async fn wait(&self) {
        poll_fn(|cx| {
            if self.raised.replace(false) {
                return Poll::Ready(());
            }
            *self.waiting.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
