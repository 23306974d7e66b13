//! Tasks of a shard.
//!
//! Cost of `spawn`: one allocation and one entry in the shard's list of tasks.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::executor::{Core, current};

/// What runs first when both are ready. Background tasks keep a share (`limits::FOREGROUND_PER_BACKGROUND`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// On the path of a request.
    Foreground,
    /// Everything that may wait a little: cleaning, uploads of old objects, snapshots.
    Background,
}

/// A task of the current shard: a future of its output, cancelled when dropped. When a task panics, the process ends (a
/// simulated run fails instead). Polling a task that was cancelled by the end of its shard panics; its waiter has ended too.
#[must_use = "a dropped task is cancelled; detach it to let it run"]
pub struct Task<T>(async_task::Task<T>);

impl<T> Task<T> {
    /// Lets it run without its output.
    pub fn detach(self) {
        self.0.detach();
    }

    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Returns when the future is dropped; its output if it had finished before.
    pub async fn cancel(self) -> Option<T> {
        self.0.cancel().await
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// Says to the shard that a future is gone.
struct Registration {
    core: Rc<Core>,
    number: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.core.leave_task(self.number);
    }
}

/// Starts a task on the current shard; it runs for the first time after the caller waits.
pub fn spawn<F>(class: Class, future: F) -> Task<F::Output>
where
    F: Future + 'static,
{
    let core = current();
    let registration = Registration { number: core.next_task(), core: Rc::clone(&core) };
    let number = registration.number;
    let registered = async move {
        let _registration = registration;
        future.await
    };
    let remote = Arc::clone(core.remote());
    let (runnable, task) = async_task::spawn_local(registered, move |runnable| remote.schedule(class, runnable));
    core.enter_task(number, runnable.waker());
    runnable.schedule();
    Task(task)
}

/// Lets the other ready tasks of the shard run first.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
