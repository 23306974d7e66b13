//! openraft's runtime over our executor: its tasks, timers, clock and chance are those of the shard it runs on.
//!
//! Queues, one-shots and locks are tokio's, which need no tokio runtime; `watch` is our own. All of it stays on one shard (openraft's `single-threaded`), so
//! nothing here is sent between threads, and a simulated controller replays from a seed.

use std::fmt;
use std::future::Future;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use openraft::async_runtime as rt;
use sakia_io::{Class, Moment, Task};
use tokio::sync::{mpsc, oneshot};

use crate::watch;

/// The runtime parameter of the raft types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShardRuntime;

/// A point of the shard's monotonic clock, moved far from zero so that openraft may look back from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShardInstant(Duration);

const CLOCK_START: Duration = Duration::from_secs(1 << 32);

impl ShardInstant {
    fn moment(self) -> Moment {
        Moment::from_duration(self.0.saturating_sub(CLOCK_START))
    }
}

impl rt::Instant for ShardInstant {
    fn now() -> Self {
        Self(CLOCK_START + sakia_io::now().as_duration())
    }
}

impl Add<Duration> for ShardInstant {
    type Output = Self;
    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later))
    }
}

impl AddAssign<Duration> for ShardInstant {
    fn add_assign(&mut self, later: Duration) {
        *self = *self + later;
    }
}

impl Sub<Duration> for ShardInstant {
    type Output = Self;
    fn sub(self, earlier: Duration) -> Self {
        Self(self.0.saturating_sub(earlier))
    }
}

impl SubAssign<Duration> for ShardInstant {
    fn sub_assign(&mut self, earlier: Duration) {
        *self = *self - earlier;
    }
}

impl Sub for ShardInstant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// A task that goes on when its handle is dropped, as openraft expects.
pub struct Joined<T>(Option<Task<T>>);

/// Never happens: a panic of a task ends the process.
#[derive(Debug)]
pub struct NeverJoined;

impl fmt::Display for NeverJoined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("task did not end")
    }
}

impl<T> Future for Joined<T> {
    type Output = Result<T, NeverJoined>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let task = self.0.as_mut().expect("taken by drop only");
        Pin::new(task).poll(cx).map(Ok)
    }
}

impl<T> Drop for Joined<T> {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.detach();
        }
    }
}

/// A future with a deadline; the future wins when both are ready.
pub struct Deadline<F> {
    future: Pin<Box<F>>,
    sleep: Pin<Box<sakia_io::Sleep>>,
}

impl<F: Future> Future for Deadline<F> {
    type Output = Result<F::Output, sakia_io::Elapsed>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(value) = self.future.as_mut().poll(cx) {
            return Poll::Ready(Ok(value));
        }
        self.sleep.as_mut().poll(cx).map(|()| Err(sakia_io::Elapsed))
    }
}

/// The shard's random numbers.
#[derive(Clone, Copy, Debug)]
pub struct ShardRandom;

impl rand::TryRng for ShardRandom {
    type Error = std::convert::Infallible;
    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok(u32::from_le_bytes(sakia_io::random_bytes()))
    }
    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(sakia_io::random_u64())
    }
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        sakia_io::fill_random(bytes);
        Ok(())
    }
}

impl rt::AsyncRuntime for ShardRuntime {
    type JoinError = NeverJoined;
    type JoinHandle<T: 'static> = Joined<T>;
    type Sleep = sakia_io::Sleep;
    type Instant = ShardInstant;
    type TimeoutError = sakia_io::Elapsed;
    type Timeout<R, T: Future<Output = R>> = Deadline<T>;
    type ThreadLocalRng = ShardRandom;

    fn spawn<T>(future: T) -> Joined<T::Output>
    where
        T: Future + 'static,
        T::Output: 'static,
    {
        Joined(Some(sakia_io::spawn(Class::Foreground, future)))
    }

    fn sleep(duration: Duration) -> sakia_io::Sleep {
        sakia_io::sleep(duration)
    }

    fn sleep_until(deadline: ShardInstant) -> sakia_io::Sleep {
        sakia_io::sleep_until(deadline.moment())
    }

    fn timeout<R, F: Future<Output = R>>(duration: Duration, future: F) -> Deadline<F> {
        Deadline { future: Box::pin(future), sleep: Box::pin(sakia_io::sleep(duration)) }
    }

    fn timeout_at<R, F: Future<Output = R>>(deadline: ShardInstant, future: F) -> Deadline<F> {
        Deadline { future: Box::pin(future), sleep: Box::pin(sakia_io::sleep_until(deadline.moment())) }
    }

    fn is_panic(_: &NeverJoined) -> bool {
        false
    }

    fn thread_rng() -> ShardRandom {
        ShardRandom
    }

    type Mpsc = Mailboxes;
    type Watch = Watches;
    type Oneshot = Oneshots;
    type Mutex<T: 'static> = ShardMutex<T>;

    fn new(_threads: usize) -> Self {
        Self
    }

    fn block_on<F, T>(&mut self, _future: F) -> T
    where
        F: Future<Output = T>,
    {
        unreachable!("a shard never blocks; openraft calls this in its own tests only")
    }
}

/// Bounded queues.
pub struct Mailboxes;

/// Sending half.
pub struct MailboxSender<T>(mpsc::Sender<T>);

/// Receiving half.
pub struct MailboxReceiver<T>(mpsc::Receiver<T>);

/// Sending half that does not keep the queue open.
pub struct WeakMailboxSender<T>(mpsc::WeakSender<T>);

impl<T> Clone for MailboxSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Clone for WeakMailboxSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl rt::Mpsc for Mailboxes {
    type Sender<T> = MailboxSender<T>;
    type Receiver<T> = MailboxReceiver<T>;
    type WeakSender<T> = WeakMailboxSender<T>;

    fn channel<T>(buffer: usize) -> (MailboxSender<T>, MailboxReceiver<T>) {
        let (sender, receiver) = mpsc::channel(buffer);
        (MailboxSender(sender), MailboxReceiver(receiver))
    }
}

impl<T> rt::MpscSender<Mailboxes, T> for MailboxSender<T> {
    async fn send(&self, message: T) -> Result<(), rt::SendError<T>> {
        self.0.send(message).await.map_err(|error| rt::SendError(error.0))
    }
    fn downgrade(&self) -> WeakMailboxSender<T> {
        WeakMailboxSender(self.0.downgrade())
    }
}

impl<T> rt::MpscReceiver<T> for MailboxReceiver<T> {
    async fn recv(&mut self) -> Option<T> {
        self.0.recv().await
    }
    fn try_recv(&mut self) -> Result<T, rt::TryRecvError> {
        self.0.try_recv().map_err(|error| match error {
            mpsc::error::TryRecvError::Empty => rt::TryRecvError::Empty,
            mpsc::error::TryRecvError::Disconnected => rt::TryRecvError::Disconnected,
        })
    }
}

impl<T> rt::MpscWeakSender<Mailboxes, T> for WeakMailboxSender<T> {
    fn upgrade(&self) -> Option<MailboxSender<T>> {
        self.0.upgrade().map(MailboxSender)
    }
}

/// Values with a last state.
pub struct Watches;

/// Writing half.
pub struct WatchSender<T>(watch::Sender<T>);

/// Reading half.
pub struct WatchReceiver<T>(watch::Receiver<T>);

impl<T> Clone for WatchSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Clone for WatchReceiver<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl rt::Watch for Watches {
    type Sender<T> = WatchSender<T>;
    type Receiver<T> = WatchReceiver<T>;
    type Ref<'a, T: 'a> = std::cell::Ref<'a, T>;

    fn channel<T>(init: T) -> (WatchSender<T>, WatchReceiver<T>) {
        let sender = watch::Sender::new(init);
        let receiver = sender.subscribe();
        (WatchSender(sender), WatchReceiver(receiver))
    }
}

impl<T> rt::WatchSender<Watches, T> for WatchSender<T> {
    fn send(&self, value: T) -> Result<(), rt::watch::SendError<T>> {
        self.0.send(value).map_err(rt::watch::SendError)
    }
    fn send_if_modified<F: FnOnce(&mut T) -> bool>(&self, modify: F) -> bool {
        self.0.send_if_modified(modify)
    }
    fn borrow_watched(&self) -> std::cell::Ref<'_, T> {
        self.0.borrow()
    }
    fn subscribe(&self) -> WatchReceiver<T> {
        WatchReceiver(self.0.subscribe())
    }
}

impl<T> rt::WatchReceiver<Watches, T> for WatchReceiver<T> {
    async fn changed(&mut self) -> Result<(), rt::RecvError> {
        self.0.changed().await.map_err(|_| rt::RecvError(()))
    }
    fn borrow_watched(&self) -> std::cell::Ref<'_, T> {
        self.0.borrow()
    }
    fn borrow_and_update(&mut self) -> std::cell::Ref<'_, T> {
        self.0.borrow_and_update()
    }
}

/// Channels for one value.
pub struct Oneshots;

/// Sending half.
pub struct OneshotSender<T>(oneshot::Sender<T>);

impl rt::Oneshot for Oneshots {
    type Sender<T> = OneshotSender<T>;
    type Receiver<T> = oneshot::Receiver<T>;
    type ReceiverError = oneshot::error::RecvError;

    fn channel<T>() -> (OneshotSender<T>, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (OneshotSender(sender), receiver)
    }
}

impl<T> rt::OneshotSender<T> for OneshotSender<T> {
    fn send(self, value: T) -> Result<(), T> {
        self.0.send(value)
    }
}

/// A lock held across waits.
pub struct ShardMutex<T>(tokio::sync::Mutex<T>);

impl<T: 'static> rt::Mutex<T> for ShardMutex<T> {
    type Guard<'a> = tokio::sync::MutexGuard<'a, T>;

    fn new(value: T) -> Self {
        Self(tokio::sync::Mutex::new(value))
    }
    async fn lock(&self) -> tokio::sync::MutexGuard<'_, T> {
        self.0.lock().await
    }
}
