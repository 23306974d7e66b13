//! A shard: one scheduler over one driver, on its own thread (`Threads`) or driven step by step (the simulator).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::mpsc;

use crate::driver::{Driver, Wait};
use crate::executor::Core;
use crate::moment::Moment;
use crate::task::{Class, Task, spawn};
use crate::uring::{Uring, pin_to_cpu};

/// Makes a shard's main future, on the shard. The shard ends with it.
pub type ShardMain = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// The same, made on the shard's own thread; every `ShardMain` is one.
pub type LocalMain = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>>>;

#[derive(Clone, Debug, Default)]
pub struct ShardSpec {
    /// Of the thread, too (the first 15 bytes).
    pub name: String,
    /// Bound to this processor, or left to the system.
    pub cpu: Option<usize>,
}

/// Starts shards: production's threads, or one machine of the simulator.
pub trait Spawner: Send + Sync {
    fn start(&self, spec: ShardSpec, main: ShardMain) -> io::Result<ShardHandle>;
}

/// The end of a shard that was started. Dropping it lets the shard run.
pub struct ShardHandle {
    join: Box<dyn FnOnce() + Send>,
}

impl ShardHandle {
    /// `join` returns when the shard has ended (in the simulator at once).
    pub fn new(join: impl FnOnce() + Send + 'static) -> ShardHandle {
        ShardHandle { join: Box::new(join) }
    }

    /// Blocks the calling thread, so no task of a shard calls it.
    pub fn join(self) {
        (self.join)();
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// There is more to do at once.
    Busy,
    /// Nothing to do before the moment, a completion of the driver, or a wake-up from outside (`is_ready`).
    Idle(Option<Moment>),
    /// The main future has ended.
    Ended,
}

/// One shard, driven by hand. Dropping it drops its tasks, then stops its driver.
pub struct Shard {
    core: Rc<Core>,
    main: Option<Task<()>>,
}

impl Shard {
    /// Builds the main future inside the new shard. It first runs in the first step.
    pub fn new(name: String, driver: Box<dyn Driver>, main: LocalMain) -> Shard {
        let core = Core::new(name, driver);
        let main = {
            let _entered = core.enter();
            spawn(Class::Foreground, main())
        };
        Shard { core, main: Some(main) }
    }

    /// Takes completions (`turn(Wait::No)`), due timers and wake-ups, runs tasks up to a bound. Never waits. A panic of a
    /// task comes out of it.
    pub fn step(&mut self) -> Progress {
        let _entered = self.core.enter();
        self.core.take_events(Wait::No);
        self.core.run_tasks();
        if self.has_ended() {
            Progress::Ended
        } else if self.core.is_ready() {
            Progress::Busy
        } else {
            Progress::Idle(self.core.next_timer())
        }
    }

    /// Whether a task waits for a step, woken by this shard or from outside.
    pub fn is_ready(&self) -> bool {
        self.core.is_ready()
    }

    pub fn next_timer(&self) -> Option<Moment> {
        self.core.next_timer()
    }

    pub fn name(&self) -> &str {
        &self.core.name
    }

    fn has_ended(&self) -> bool {
        self.main.as_ref().is_none_or(Task::is_finished)
    }

    /// Production: rounds until the main future ends, waiting in the driver when idle.
    fn run(&mut self) {
        let _entered = self.core.enter();
        let mut wait = Wait::No;
        while !self.has_ended() {
            self.core.take_events(wait);
            self.core.run_tasks();
            wait = if self.has_ended() { Wait::No } else { self.core.wait_allowed() };
        }
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        let entered = self.core.enter();
        drop(self.main.take());
        drop(entered);
        self.core.stop();
    }
}

/// One thread and one io_uring for each shard. A panic of a task ends the process.
pub struct Threads;

impl Spawner for Threads {
    /// Returns when the shard's thread has its ring.
    fn start(&self, spec: ShardSpec, main: ShardMain) -> io::Result<ShardHandle> {
        let (started, start) = mpsc::channel();
        let thread_name = spec.name.clone();
        let body = move || {
            let _abort = AbortOnPanic;
            let ready = spec.cpu.map_or(Ok(()), pin_to_cpu).and_then(|()| Uring::new());
            match ready {
                Ok(driver) => {
                    let told = started.send(Ok(()));
                    let mut shard = Shard::new(spec.name, Box::new(driver), main);
                    if told.is_ok() {
                        shard.run();
                    }
                }
                Err(error) => {
                    // The starter waits for this answer.
                    let _told = started.send(Err(error));
                }
            }
        };
        let thread = std::thread::Builder::new().name(thread_name).spawn(body)?;
        start.recv().map_err(|_| io::Error::other("the thread of the shard ended before it began"))??;
        Ok(ShardHandle::new(move || {
            // A panic of the thread has ended the process before.
            let _ended = thread.join();
        }))
    }
}

/// Memory lent to the kernel must not be unwound, and a shard that lies is worse than none.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
