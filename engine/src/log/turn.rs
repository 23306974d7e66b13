//! Waiting inside one shard: a bell that wakes whoever waits, and a turn that one task holds at a time.
//!
//! Both are for the tasks of one log. Neither is `Send`. A dropped wait leaves nothing behind but a waker, which the next
//! ring takes away; equal wakers are kept once, so dropped waits do not pile up.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Rings; tasks wait for the next ring after one they have seen.
#[derive(Default)]
pub(super) struct Bell {
    rings: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
}

impl Bell {
    /// How often it rang. Read before the condition is looked at, so that no ring in between is missed.
    pub(super) fn rings(&self) -> u64 {
        self.rings.get()
    }

    /// Wakes all who wait.
    pub(super) fn ring(&self) {
        self.rings.set(self.rings.get() + 1);
        for waker in self.waiting.take() {
            waker.wake();
        }
    }

    /// Ends when it has rung since `seen`.
    pub(super) async fn after(&self, seen: u64) {
        poll_fn(|context| {
            if self.rings.get() != seen {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

/// Held by one task at a time, across its waits.
#[derive(Default)]
pub(super) struct Turn {
    taken: Cell<bool>,
    freed: Bell,
}

/// Ends the turn when dropped.
pub(super) struct Taken<'a>(&'a Turn);

impl Turn {
    /// Waits until nobody else has the turn.
    pub(super) async fn take(&self) -> Taken<'_> {
        loop {
            let seen = self.freed.rings();
            if !self.taken.replace(true) {
                return Taken(self);
            }
            self.freed.after(seen).await;
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        assert!(self.0.taken.replace(false), "a turn ends once");
        self.0.freed.ring();
    }
}
