//! The way between shards and threads: a bounded queue with many senders and one receiver.
//!
//! Invariant: at most `bound` values wait. At the bound `try_send` refuses and `send` waits, first come, first served among
//! the waiting.
//! Invariant: the receiver is woken only when it waits, so a burst costs one wake-up.
//! Cost: one lock per call, two when it waits; no allocation once the queue has grown.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

pub struct Sender<T>(Arc<Shared<T>>);
pub struct Receiver<T>(Arc<Shared<T>>);

#[derive(PartialEq, Eq, thiserror::Error)]
pub enum TrySendError<T> {
    #[error("the mailbox is full")]
    Full(T),
    #[error("the receiver of the mailbox is gone")]
    Closed(T),
}

#[derive(PartialEq, Eq, thiserror::Error)]
#[error("the receiver of the mailbox is gone")]
pub struct Closed<T>(pub T);

// Messages need not be printable.
impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "Full(..)",
            TrySendError::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> fmt::Debug for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closed(..)")
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}

struct Shared<T> {
    bound: usize,
    state: Mutex<State<T>>,
}

struct State<T> {
    values: VecDeque<T>,
    receiver: Option<Waker>,
    /// Senders that wait for room, by ticket.
    waiting: VecDeque<(u64, Waker)>,
    next_ticket: u64,
    senders: usize,
    receiver_gone: bool,
}

/// Panics when `bound` is zero.
pub fn mailbox<T: Send>(bound: usize) -> (Sender<T>, Receiver<T>) {
    assert!(bound > 0, "a mailbox without room delivers nothing");
    let state = State {
        values: VecDeque::new(),
        receiver: None,
        waiting: VecDeque::new(),
        next_ticket: 0,
        senders: 1,
        receiver_gone: false,
    };
    let shared = Arc::new(Shared { bound, state: Mutex::new(state) });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Shared<T> {
    fn locked(&self) -> MutexGuard<'_, State<T>> {
        // No code of a caller runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the sender that waits longest if there is room for it.
    fn wake_sender(&self) {
        let woken = {
            let mut state = self.locked();
            if state.values.len() < self.bound { state.waiting.pop_front() } else { None }
        };
        if let Some((_, waker)) = woken {
            waker.wake();
        }
    }

    fn put(&self, mut state: MutexGuard<'_, State<T>>, value: T) {
        state.values.push_back(value);
        assert!(state.values.len() <= self.bound, "a mailbox keeps its bound");
        let receiver = state.receiver.take();
        drop(state);
        if let Some(receiver) = receiver {
            receiver.wake();
        }
    }
}

impl<T: Send> Sender<T> {
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let state = self.0.locked();
        if state.receiver_gone {
            return Err(TrySendError::Closed(value));
        }
        if state.values.len() >= self.0.bound {
            return Err(TrySendError::Full(value));
        }
        self.0.put(state, value);
        Ok(())
    }

    /// Waits for room. When dropped before its end, the value was not sent.
    pub async fn send(&self, value: T) -> Result<(), Closed<T>> {
        let mut sending = Sending { shared: &self.0, value: Some(value), ticket: None };
        poll_fn(|cx| sending.poll(cx)).await
    }

    /// Values that wait.
    pub fn len(&self) -> usize {
        self.0.locked().values.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.locked().senders += 1;
        Sender(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let receiver = {
            let mut state = self.0.locked();
            state.senders -= 1;
            if state.senders == 0 { state.receiver.take() } else { None }
        };
        if let Some(receiver) = receiver {
            receiver.wake();
        }
    }
}

/// One `send` under way.
struct Sending<'a, T> {
    shared: &'a Shared<T>,
    value: Option<T>,
    ticket: Option<u64>,
}

impl<T> Sending<'_, T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Closed<T>>> {
        let mut state = self.shared.locked();
        if state.receiver_gone {
            self.ticket = None;
            return Poll::Ready(Err(Closed(self.value.take().expect("a send is not polled after its end"))));
        }
        // Woken: the ticket was taken off the list, so it is this one's turn. New: nobody waits before it.
        let at = self.ticket.and_then(|ticket| state.waiting.iter().position(|(other, _)| *other == ticket));
        let is_turn = if self.ticket.is_some() { at.is_none() } else { state.waiting.is_empty() };
        if is_turn && state.values.len() < self.shared.bound {
            self.ticket = None;
            let value = self.value.take().expect("a send is not polled after its end");
            self.shared.put(state, value);
            // More room may have come than this one was woken for.
            self.shared.wake_sender();
            return Poll::Ready(Ok(()));
        }
        match (at, self.ticket) {
            (Some(at), _) => state.waiting[at].1.clone_from(cx.waker()),
            (None, Some(ticket)) => state.waiting.push_front((ticket, cx.waker().clone())),
            (None, None) => {
                let ticket = state.next_ticket;
                state.next_ticket += 1;
                state.waiting.push_back((ticket, cx.waker().clone()));
                self.ticket = Some(ticket);
            }
        }
        Poll::Pending
    }
}

impl<T> Drop for Sending<'_, T> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        self.shared.locked().waiting.retain(|(other, _)| *other != ticket);
        // It may have been woken for room that it leaves to the next.
        self.shared.wake_sender();
    }
}

impl<T: Send> Receiver<T> {
    /// `None`: empty, and all senders are gone. When dropped before its end, no value is lost.
    pub async fn recv(&mut self) -> Option<T> {
        let value = poll_fn(|cx| self.poll_with(cx, |values| values.pop_front())).await;
        self.0.wake_sender();
        value
    }

    /// Appends at least one and at most `max` values; 0: empty, and all senders are gone.
    pub async fn recv_many(&mut self, into: &mut Vec<T>, max: usize) -> usize {
        assert!(max > 0, "0 received values mean the end");
        let taken = poll_fn(|cx| {
            self.poll_with(cx, |values| {
                let count = values.len().min(max);
                into.extend(values.drain(..count));
                (count > 0).then_some(count)
            })
        })
        .await;
        // Each sender that was woken wakes the next one as long as there is room.
        self.0.wake_sender();
        taken.unwrap_or(0)
    }

    pub fn try_recv(&mut self) -> Option<T> {
        let value = self.0.locked().values.pop_front();
        if value.is_some() {
            self.0.wake_sender();
        }
        value
    }

    pub fn len(&self) -> usize {
        self.0.locked().values.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn poll_with<R>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut VecDeque<T>) -> Option<R>,
    ) -> Poll<Option<R>> {
        let mut state = self.0.locked();
        if let Some(taken) = take(&mut state.values) {
            return Poll::Ready(Some(taken));
        }
        if state.senders == 0 {
            return Poll::Ready(None);
        }
        state.receiver = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let (values, waiting) = {
            let mut state = self.0.locked();
            state.receiver_gone = true;
            state.receiver = None;
            (std::mem::take(&mut state.values), std::mem::take(&mut state.waiting))
        };
        // Outside of the lock: a value may own the other end of something that wakes.
        drop(values);
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }
}
