//! A bounded queue between two tasks of one shard.
//!
//! Invariant: items leave in the order they came; `push` waits while the queue is full, `pop` while it is empty.
//! A dropped `push` or `pop` future leaves the queue as it was.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

struct State<T> {
    items: VecDeque<T>,
    closed: bool,
    pusher: Option<Waker>,
    popper: Option<Waker>,
}

/// The queue. One task pushes, one task pops.
pub struct Queue<T> {
    bound: usize,
    state: RefCell<State<T>>,
}

impl<T> Queue<T> {
    /// A queue that holds at most `bound` items.
    #[must_use]
    pub fn new(bound: usize) -> Self {
        assert!(bound > 0, "a queue of no items never moves");
        let state = State { items: VecDeque::new(), closed: false, pusher: None, popper: None };
        Self { bound, state: RefCell::new(state) }
    }

    /// Puts an item at the end, waiting for room. Gives it back if the queue is closed.
    ///
    /// # Errors
    /// The item, when nobody will take it.
    pub async fn push(&self, item: T) -> Result<(), T> {
        let mut item = Some(item);
        poll_fn(|cx| {
            let mut state = self.state.borrow_mut();
            if state.closed {
                return Poll::Ready(Err(item.take().expect("an item is handed back once")));
            }
            if state.items.len() >= self.bound {
                state.pusher = Some(cx.waker().clone());
                return Poll::Pending;
            }
            state.items.push_back(item.take().expect("an item is pushed once"));
            if let Some(waker) = state.popper.take() {
                waker.wake();
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Takes the first item; `None` once the queue is closed and empty.
    pub async fn pop(&self) -> Option<T> {
        poll_fn(|cx| {
            let mut state = self.state.borrow_mut();
            if let Some(item) = state.items.pop_front() {
                if let Some(waker) = state.pusher.take() {
                    waker.wake();
                }
                return Poll::Ready(Some(item));
            }
            if state.closed {
                return Poll::Ready(None);
            }
            state.popper = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// No more items come; what is queued can still be taken.
    pub fn close(&self) {
        let mut state = self.state.borrow_mut();
        state.closed = true;
        for waker in [state.pusher.take(), state.popper.take()].into_iter().flatten() {
            waker.wake();
        }
    }
}
