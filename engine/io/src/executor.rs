//! The one scheduler: tasks, timers and operations of one shard, over any `Driver`.
//!
//! Path: `shard` drives it in rounds: completions, due timers, then tasks up to a bound. A task reaches it through the
//! thread-local current shard, which is set only during a round, so that several shards can take turns in one thread.
//!
//! Invariant: a shard waits only after it has said that it sleeps and then found its remote queue empty; who puts a task
//! there looks at that mark afterwards. So no wake-up is lost.
//! Invariant: futures are dropped on the shard's own thread only.
//! Invariant: no borrow of a field is held while a task, a waker or a destructor of a future runs.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use async_task::Runnable;

use crate::driver::{Completion, Driver, FsAnswer, Op, OpId, Outcome, RemoteWake, Wait};
use crate::limits::{FOREGROUND_PER_BACKGROUND, READ_ARENA_BYTES, RUN_CLOCK_EVERY, RUN_TASKS_MAX, RUN_TIME_MAX};
use crate::memory::Arena;
use crate::moment::Moment;
use crate::operation::OpState;
use crate::slots::Slots;
use crate::task::Class;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
}

static NEXT_CORE: AtomicU64 = AtomicU64::new(1);

/// The state of one shard.
pub(crate) struct Core {
    id: u64,
    pub(crate) name: String,
    remote: Arc<Remote>,
    driver: RefCell<Box<dyn Driver>>,
    pub(crate) operations: RefCell<Slots<OpState>>,
    ready: RefCell<Ready>,
    timers: RefCell<BTreeMap<(Moment, u64), Waker>>,
    next_timer: Cell<u64>,
    /// Numbers whose last handle is gone, until the end of the round.
    closing: RefCell<Vec<u64>>,
    /// Shards to wake at the end of the round.
    wakes: RefCell<Vec<Arc<Remote>>>,
    /// A waker of every task whose future lives, so that the end of the shard can drop them all.
    tasks: RefCell<BTreeMap<u64, Waker>>,
    next_task: Cell<u64>,
    completions: Cell<Vec<Completion>>,
    pub(crate) read_arena: Arena,
}

/// The part of a shard that other threads touch.
pub(crate) struct Remote {
    queue: Mutex<VecDeque<(Class, Runnable)>>,
    /// Set after a push to `queue`, cleared before it is emptied.
    filled: AtomicBool,
    sleeping: AtomicBool,
    wake: Arc<dyn RemoteWake>,
}

#[derive(Default)]
struct Ready {
    foreground: VecDeque<Runnable>,
    background: VecDeque<Runnable>,
    /// Foreground tasks since the last background task.
    streak: usize,
}

impl Ready {
    fn push(&mut self, class: Class, runnable: Runnable) {
        match class {
            Class::Foreground => self.foreground.push_back(runnable),
            Class::Background => self.background.push_back(runnable),
        }
    }

    fn pop(&mut self) -> Option<Runnable> {
        if self.streak < FOREGROUND_PER_BACKGROUND
            && let Some(runnable) = self.foreground.pop_front()
        {
            self.streak += 1;
            return Some(runnable);
        }
        self.streak = 0;
        self.background.pop_front().or_else(|| self.foreground.pop_front())
    }

    fn is_empty(&self) -> bool {
        self.foreground.is_empty() && self.background.is_empty()
    }
}

impl Remote {
    fn locked(&self) -> MutexGuard<'_, VecDeque<(Class, Runnable)>> {
        // No code that can panic runs under this lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a task ready, from whatever thread.
    pub(crate) fn schedule(self: &Arc<Self>, class: Class, runnable: Runnable) {
        // A thread that is just ending has no current shard any more.
        let current = CURRENT.try_with(|current| current.borrow().clone()).ok().flatten();
        match current {
            Some(core) if Arc::ptr_eq(&core.remote, self) => core.ready.borrow_mut().push(class, runnable),
            other => {
                self.locked().push_back((class, runnable));
                self.filled.store(true, Ordering::SeqCst);
                if self.sleeping.swap(false, Ordering::SeqCst) {
                    match other {
                        Some(core) => core.wakes.borrow_mut().push(Arc::clone(self)),
                        None => self.wake.wake(),
                    }
                }
            }
        }
    }

    fn is_filled(&self) -> bool {
        self.filled.load(Ordering::SeqCst)
    }
}

/// The shard whose round this thread is in.
pub(crate) fn current() -> Rc<Core> {
    try_current().expect("this call is made by a task of a shard")
}

pub(crate) fn try_current() -> Option<Rc<Core>> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// Makes a shard the current one until it is dropped.
pub(crate) struct Entered {
    before: Option<Rc<Core>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let before = self.before.take();
        // Dropped outside of the borrow: it may be the last owner.
        let _left = CURRENT.try_with(|current| current.replace(before));
    }
}

impl Core {
    pub(crate) fn new(name: String, driver: Box<dyn Driver>) -> Rc<Core> {
        let remote = Remote {
            queue: Mutex::new(VecDeque::new()),
            filled: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            wake: driver.remote_wake(),
        };
        Rc::new(Core {
            id: NEXT_CORE.fetch_add(1, Ordering::Relaxed),
            name,
            remote: Arc::new(remote),
            driver: RefCell::new(driver),
            operations: RefCell::new(Slots::new()),
            ready: RefCell::new(Ready::default()),
            timers: RefCell::new(BTreeMap::new()),
            next_timer: Cell::new(0),
            closing: RefCell::new(Vec::new()),
            wakes: RefCell::new(Vec::new()),
            tasks: RefCell::new(BTreeMap::new()),
            next_task: Cell::new(0),
            completions: Cell::new(Vec::new()),
            read_arena: Arena::new(READ_ARENA_BYTES),
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn remote(&self) -> &Arc<Remote> {
        &self.remote
    }

    pub(crate) fn enter(self: &Rc<Self>) -> Entered {
        Entered { before: CURRENT.with(|current| current.replace(Some(Rc::clone(self)))) }
    }

    pub(crate) fn driver<R>(&self, call: impl FnOnce(&mut dyn Driver) -> R) -> R {
        call(&mut **self.driver.borrow_mut())
    }

    pub(crate) fn now(&self) -> Moment {
        self.driver.borrow().now()
    }

    // ---- one round ----

    /// Takes completions and due timers; waits for them when `wait` allows.
    pub(crate) fn take_events(&self, wait: Wait) {
        let mut completions = self.completions.take();
        self.flush();
        self.driver.borrow_mut().turn(wait, &mut completions);
        self.remote.sleeping.store(false, Ordering::SeqCst);
        for completion in completions.drain(..) {
            self.complete(completion);
        }
        self.completions.set(completions);
        self.fire_timers();
    }

    /// Runs ready tasks until there is none, or up to the bound of a round.
    pub(crate) fn run_tasks(&self) {
        self.take_remote();
        let begun = self.now();
        for count in 1..=RUN_TASKS_MAX {
            let Some(runnable) = self.next_ready() else { break };
            runnable.run();
            if count % RUN_CLOCK_EVERY == 0 && self.now() - begun >= RUN_TIME_MAX {
                break;
            }
        }
        self.flush();
    }

    /// How long the next `take_events` may wait; says that this shard sleeps when it is more than not at all.
    pub(crate) fn wait_allowed(&self) -> Wait {
        if self.is_ready() {
            return Wait::No;
        }
        self.remote.sleeping.store(true, Ordering::SeqCst);
        if self.remote.is_filled() {
            self.remote.sleeping.store(false, Ordering::SeqCst);
            return Wait::No;
        }
        self.next_timer().map_or(Wait::Forever, Wait::Until)
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.borrow().is_empty() || self.remote.is_filled()
    }

    fn next_ready(&self) -> Option<Runnable> {
        let local = self.ready.borrow_mut().pop();
        if local.is_some() || !self.remote.is_filled() {
            return local;
        }
        self.take_remote();
        self.ready.borrow_mut().pop()
    }

    fn take_remote(&self) {
        if self.remote.filled.swap(false, Ordering::SeqCst) {
            let woken = std::mem::take(&mut *self.remote.locked());
            let mut ready = self.ready.borrow_mut();
            for (class, runnable) in woken {
                ready.push(class, runnable);
            }
        }
    }

    /// Hands handles to close and shards to wake to the driver.
    pub(crate) fn flush(&self) {
        loop {
            let closing = self.closing.take();
            if closing.is_empty() {
                break;
            }
            for number in closing {
                self.push_unattended(Op::Close { number });
            }
        }
        for other in self.wakes.take() {
            self.driver.borrow_mut().wake_shard(&other.wake);
        }
    }

    // ---- operations ----

    /// Begins an operation whose outcome nobody waits for.
    pub(crate) fn push_unattended(&self, op: Op) {
        let id = self.operations.borrow_mut().insert(OpState::Abandoned);
        self.driver.borrow_mut().push(id, op);
    }

    fn complete(&self, completion: Completion) {
        let Completion { id, outcome } = completion;
        let waker = {
            let mut operations = self.operations.borrow_mut();
            let state = operations.get_mut(id).expect("a completion comes once, for an operation in flight");
            match std::mem::replace(state, OpState::Abandoned) {
                OpState::Waiting(waker) => {
                    *state = OpState::Done(outcome);
                    waker
                }
                OpState::Done(_) => unreachable!("a completion comes once"),
                OpState::Abandoned => {
                    operations.remove(id);
                    drop(operations);
                    self.dispose(outcome);
                    None
                }
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Gives up an outcome that nobody takes: what it opened is closed.
    pub(crate) fn dispose(&self, outcome: Outcome) {
        match outcome {
            Outcome::Opened(Ok(number)) | Outcome::Fs(Ok(FsAnswer::Locked(number))) => self.close_later(number),
            Outcome::Accepted(Ok((number, _))) | Outcome::Connected(Ok((number, _))) => self.close_later(number),
            _ => {}
        }
    }

    pub(crate) fn close_later(&self, number: u64) {
        self.closing.borrow_mut().push(number);
    }

    pub(crate) fn cancel(&self, id: OpId) {
        self.driver.borrow_mut().cancel(id);
    }

    // ---- timers ----

    pub(crate) fn next_timer(&self) -> Option<Moment> {
        self.timers.borrow().first_key_value().map(|((moment, _), _)| *moment)
    }

    /// The number that, with its deadline, names a timer of this shard.
    pub(crate) fn add_timer(&self, deadline: Moment, waker: Waker) -> u64 {
        let number = self.next_timer.get();
        self.next_timer.set(number + 1);
        self.timers.borrow_mut().insert((deadline, number), waker);
        number
    }

    pub(crate) fn renew_timer(&self, deadline: Moment, number: u64, waker: &Waker) {
        if let Some(known) = self.timers.borrow_mut().get_mut(&(deadline, number)) {
            known.clone_from(waker);
        }
    }

    pub(crate) fn remove_timer(&self, deadline: Moment, number: u64) {
        let removed = self.timers.borrow_mut().remove(&(deadline, number));
        drop(removed);
    }

    fn fire_timers(&self) {
        if self.timers.borrow().is_empty() {
            return;
        }
        let now = self.now();
        loop {
            let waker = {
                let mut timers = self.timers.borrow_mut();
                match timers.first_entry() {
                    Some(first) if first.key().0 <= now => first.remove(),
                    _ => return,
                }
            };
            waker.wake();
        }
    }

    // ---- the lives of tasks ----

    pub(crate) fn next_task(&self) -> u64 {
        let number = self.next_task.get();
        self.next_task.set(number + 1);
        number
    }

    pub(crate) fn enter_task(&self, number: u64, waker: Waker) {
        self.tasks.borrow_mut().insert(number, waker);
    }

    pub(crate) fn leave_task(&self, number: u64) {
        let waker = self.tasks.borrow_mut().remove(&number);
        drop(waker);
    }

    /// Drops every task, then waits until the driver has given all memory back.
    pub(crate) fn stop(self: &Rc<Self>) {
        let _entered = self.enter();
        while !self.tasks.borrow().is_empty() {
            let wakers: Vec<Waker> = self.tasks.borrow().values().cloned().collect();
            wakers.into_iter().for_each(Waker::wake);
            self.take_remote();
            let ready = self.ready.take();
            if ready.is_empty() {
                // Another thread has marked the last tasks as scheduled and is about to put them into the queue.
                std::thread::yield_now();
            }
            // Dropping a runnable drops its future.
            drop(ready);
        }
        let timers = self.timers.take();
        drop(timers);
        self.flush();
        self.driver.borrow_mut().stop();
        self.operations.replace(Slots::new());
    }
}
