//! Skeleton.
use crate::driver::Driver;
use crate::moment::Moment;
use std::future::Future;
use std::io;
use std::pin::Pin;
pub type ShardMain = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;
#[derive(Clone, Debug, Default)]
pub struct ShardSpec {
    pub name: String,
    pub cpu: Option<usize>,
}
pub trait Spawner: Send + Sync {
    fn start(&self, spec: ShardSpec, main: ShardMain) -> io::Result<ShardHandle>;
}
/// The end of a shard that was started.
pub struct ShardHandle {
    join: Box<dyn FnOnce() + Send>,
}
impl ShardHandle {
    /// `join` returns when the shard has ended (the simulator's: at once).
    pub fn new(join: impl FnOnce() + Send + 'static) -> ShardHandle {
        ShardHandle { join: Box::new(join) }
    }
    pub fn join(self) {
        (self.join)();
    }
}
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// There may be more to do at once.
    Busy,
    /// Nothing to do before the moment, a completion of the driver, or a wake-up from outside (`is_ready`).
    Idle(Option<Moment>),
    /// The main future has ended.
    Ended,
}
/// One shard, driven by hand: the simulator's world keeps several in one thread. Dropping it drops its tasks.
pub struct Shard;
impl Shard {
    /// Builds the main future inside the new shard.
    pub fn new(_spec: ShardSpec, _driver: Box<dyn Driver>, _main: ShardMain) -> Shard {
        todo!()
    }
    /// Takes completions (`turn(Wait::No)`), due timers and wake-ups, runs tasks up to a bound. Never waits.
    pub fn step(&mut self) -> Progress {
        todo!()
    }
    /// Whether a task was woken, also from outside, and waits for a step.
    pub fn is_ready(&self) -> bool {
        todo!()
    }
    pub fn next_timer(&self) -> Option<Moment> {
        todo!()
    }
    pub fn name(&self) -> &str {
        todo!()
    }
}
/// One thread and one io_uring for each shard.
pub struct Threads;
impl Spawner for Threads {
    fn start(&self, _spec: ShardSpec, _main: ShardMain) -> io::Result<ShardHandle> {
        todo!()
    }
}
