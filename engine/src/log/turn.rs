//! Waiting inside one shard: a bell that wakes whoever waits, and a turn that one task holds at a time.
//!
//! Both are for the tasks of one log. Neither is `Send`. A dropped wait leaves nothing behind but a waker, which the next
//! ring takes away; equal wakers are kept once, so dropped waits do not pile up.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
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

/// Held by one task at a time, across its waits, in the order of asking: a busy writer never keeps the others away.
#[derive(Default)]
pub(super) struct Turn {
    taken: Cell<bool>,
    /// Numbers of those who wait, oldest first; bounded by the tasks of the log.
    queue: RefCell<VecDeque<u64>>,
    next_number: Cell<u64>,
    freed: Bell,
}

/// Ends the turn when dropped.
pub(super) struct Taken<'a>(&'a Turn);

/// A place in the queue; given up when dropped.
struct Waiting<'a> {
    turn: &'a Turn,
    number: u64,
}

impl Turn {
    /// Waits until nobody else has the turn and nobody has asked before.
    pub(super) async fn take(&self) -> Taken<'_> {
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        self.queue.borrow_mut().push_back(number);
        let waiting = Waiting { turn: self, number };
        loop {
            let seen = self.freed.rings();
            let is_first = self.queue.borrow().front() == Some(&number);
            if is_first && !self.taken.replace(true) {
                drop(waiting);
                return Taken(self);
            }
            self.freed.after(seen).await;
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.turn.queue.borrow_mut().retain(|number| *number != self.number);
        // The next in the queue may be first now.
        self.turn.freed.ring();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        assert!(self.0.taken.replace(false), "a turn ends once");
        self.0.freed.ring();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    fn is_ready(future: std::pin::Pin<&mut impl Future>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn turns_come_in_the_order_of_asking_and_a_dropped_wait_gives_its_place_up() {
        let turn = Turn::default();
        let mut first = Box::pin(turn.take());
        let Poll::Ready(taken) = first.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("it is free")
        };
        let mut second = Box::pin(turn.take());
        let mut third = pin!(turn.take());
        assert!(!is_ready(second.as_mut()) && !is_ready(third.as_mut()));
        drop(taken);
        let mut late = pin!(turn.take());
        assert!(!is_ready(late.as_mut()), "who comes late does not overtake");
        assert!(!is_ready(third.as_mut()));
        drop(second);
        assert!(is_ready(third.as_mut()));
    }
}
