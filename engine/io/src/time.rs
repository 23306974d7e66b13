//! Time and chance of the current shard, from its driver.

use std::future::Future;
use std::pin::Pin;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::executor::{current, try_current};
use crate::moment::Moment;

/// Monotonic time.
pub fn now() -> Moment {
    current().now()
}

/// Milliseconds since 1970; may jump.
pub fn wall_clock_ms() -> i64 {
    current().driver(|driver| driver.wall_clock_ms())
}

pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// As many random bytes as are asked for.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    fill_random(&mut bytes);
    bytes
}

pub fn fill_random(bytes: &mut [u8]) {
    current().driver(|driver| driver.fill_random(bytes));
}

/// Whether the caller is a task of a shard, so that the other calls of this crate may be made.
pub fn in_shard() -> bool {
    try_current().is_some()
}

/// Name of the shard whose task calls, for log lines; `None` outside of a shard.
pub fn shard_name() -> Option<String> {
    try_current().map(|core| core.name.clone())
}

/// A wait for a moment. It is `Send`, but belongs to the shard that first polled it.
#[must_use = "a sleep does nothing unless awaited"]
pub struct Sleep {
    deadline: Moment,
    timer: Option<Timer>,
}

struct Timer {
    core: u64,
    number: u64,
}

pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(now() + duration)
}

pub fn sleep_until(deadline: Moment) -> Sleep {
    Sleep { deadline, timer: None }
}

impl Sleep {
    pub fn deadline(&self) -> Moment {
        self.deadline
    }

    fn remove(&mut self) {
        if let Some(timer) = self.timer.take()
            && let Some(core) = try_current()
            && core.id() == timer.core
        {
            core.remove_timer(self.deadline, timer.number);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let core = current();
        if core.now() >= self.deadline {
            self.remove();
            return Poll::Ready(());
        }
        match &self.timer {
            Some(timer) => {
                assert_eq!(timer.core, core.id(), "a sleep stays on the shard that polled it first");
                core.renew_timer(self.deadline, timer.number, cx.waker());
            }
            None => {
                let number = core.add_timer(self.deadline, cx.waker().clone());
                self.timer = Some(Timer { core: core.id(), number });
            }
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.remove();
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the time was up")]
pub struct Elapsed;

/// Drops `future` (cancels its operation in flight) when it has not finished in time. A future that is ready wins.
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    let mut sleep = pin!(sleep(duration));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        sleep.as_mut().poll(cx).map(|()| Err(Elapsed))
    })
    .await
}
