//! Helper threads for calls that block, shared by all shards of the process.
//!
//! Path: a driver gives a call with its operation's id; a thread runs it, puts the result into the driver's inbox and raises
//! its event.
//! Invariant: threads start when they are needed, up to `limits::BLOCKING_THREADS`, and stay.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::driver::{FsAnswer, OpId};
use crate::limits::BLOCKING_THREADS;

/// What a call gives back. Descriptors are owned, so that one nobody takes is closed.
pub(super) enum Helped {
    Done(io::Result<()>),
    Opened(io::Result<OpenedFile>),
    Names(io::Result<FsAnswer>),
    Locked(io::Result<OwnedFd>),
    Resolved(io::Result<Vec<SocketAddr>>),
}

pub(super) struct OpenedFile {
    pub(super) fd: OwnedFd,
    pub(super) stable_writes: bool,
}

pub(super) struct Finished {
    pub(super) id: OpId,
    pub(super) result: Helped,
    wanted: Wanted,
}

/// Whether the end of the shard waits for a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// It changes the file system: it has ended before the shard has.
    ToTheEnd,
    /// It is a user's; it may last for ever.
    WhileTheShardLives,
}

/// Where results for one driver arrive.
pub(super) struct Inbox {
    finished: Mutex<Vec<Finished>>,
    event: Arc<OwnedFd>,
    /// Calls given and not yet taken back.
    in_flight: AtomicUsize,
    /// Of these, the ones `Wanted::ToTheEnd`.
    wanted_in_flight: AtomicUsize,
}

struct Call {
    id: OpId,
    wanted: Wanted,
    inbox: Arc<Inbox>,
    run: Box<dyn FnOnce() -> Helped + Send>,
}

struct Helpers {
    calls: Mutex<Calls>,
    more: Condvar,
}

struct Calls {
    queue: VecDeque<Call>,
    threads: usize,
    idle: usize,
}

static HELPERS: Helpers =
    Helpers { calls: Mutex::new(Calls { queue: VecDeque::new(), threads: 0, idle: 0 }), more: Condvar::new() };

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No call runs under a lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    pub(super) fn new(event: Arc<OwnedFd>) -> Arc<Inbox> {
        Arc::new(Inbox {
            finished: Mutex::new(Vec::new()),
            event,
            in_flight: AtomicUsize::new(0),
            wanted_in_flight: AtomicUsize::new(0),
        })
    }

    pub(super) fn take(&self) -> Vec<Finished> {
        if self.in_flight.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let finished = std::mem::take(&mut *locked(&self.finished));
        self.in_flight.fetch_sub(finished.len(), Ordering::AcqRel);
        let wanted = finished.iter().filter(|finished| finished.wanted == Wanted::ToTheEnd).count();
        self.wanted_in_flight.fetch_sub(wanted, Ordering::AcqRel);
        finished
    }

    pub(super) fn wanted_in_flight(&self) -> usize {
        self.wanted_in_flight.load(Ordering::Acquire)
    }

    fn put(&self, finished: Finished) {
        locked(&self.finished).push(finished);
        raise(&self.event);
    }
}

/// Wakes the driver that reads this event.
pub(super) fn raise(event: &Arc<OwnedFd>) {
    super::ring::with_file(std::os::fd::AsFd::as_fd(&**event), |mut file: &File| {
        file.write_all(&1_u64.to_ne_bytes()).expect("an event takes 2^64 - 2 raises without being read");
    });
}

/// Queues a call. When no thread can be started and there is none, it runs at once on the calling one.
pub(super) fn give(inbox: &Arc<Inbox>, id: OpId, wanted: Wanted, run: impl FnOnce() -> Helped + Send + 'static) {
    inbox.in_flight.fetch_add(1, Ordering::AcqRel);
    if wanted == Wanted::ToTheEnd {
        inbox.wanted_in_flight.fetch_add(1, Ordering::AcqRel);
    }
    let call = Call { id, wanted, inbox: Arc::clone(inbox), run: Box::new(run) };
    let mut calls = locked(&HELPERS.calls);
    if calls.idle <= calls.queue.len() && calls.threads < BLOCKING_THREADS {
        let name = format!("blocking-{}", calls.threads);
        match std::thread::Builder::new().name(name).spawn(work) {
            Ok(_) => calls.threads += 1,
            Err(error) => tracing::warn!(%error, threads = calls.threads, "no further helper thread can be started"),
        }
    }
    if calls.threads == 0 {
        drop(calls);
        return call.run();
    }
    calls.queue.push_back(call);
    drop(calls);
    HELPERS.more.notify_one();
}

impl Call {
    fn run(self) {
        // `blocking` catches the panics of its calls, and ours have none; should one come, its operation has no outcome of the
        // right kind, so it ends the process like a panic of a task.
        let result = catch_unwind(AssertUnwindSafe(self.run)).unwrap_or_else(|_| std::process::abort());
        self.inbox.put(Finished { id: self.id, result, wanted: self.wanted });
    }
}

fn work() {
    loop {
        next_call().run();
    }
}

fn next_call() -> Call {
    let mut calls = locked(&HELPERS.calls);
    loop {
        if let Some(call) = calls.queue.pop_front() {
            return call;
        }
        calls.idle += 1;
        calls = HELPERS.more.wait(calls).unwrap_or_else(PoisonError::into_inner);
        calls.idle -= 1;
    }
}

/// Asks the system for the addresses of a name.
pub(super) fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}
