//! A world: machines and their shards in one thread, stepped by seed, in virtual time.
//!
//! One turn: shards that were started begin; what is due happens; of the shards that can run, one chosen by the seed
//! takes a step; if none can, the clock goes on to the next event. A shard that took a step is busy for a seeded while,
//! so shards interleave as threads do, and no loop without a wait can stop the clock.
//! Invariant: a shard is stepped and dropped while neither the state nor the list of shards is borrowed.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::moment::Moment;
use crate::shard::{LocalMain, Progress, Shard, ShardHandle, ShardMain, ShardSpec, Spawner};
use crate::sim::controls::{ClockControl, DiskControl, NetworkControl};
use crate::sim::driver::Simulated;
use crate::sim::network::Site;
use crate::sim::random::Random;
use crate::sim::state::{State, Times};

/// How a machine's processes end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// `kill -9` of everything on it: completed writes and names survive, writes in flight are partly there.
    Kill,
    /// Also what was not synced may be lost, block by block, and peers hear nothing.
    PowerLoss,
}

/// The condition of `run_until` did not come true.
#[derive(Clone, Debug, thiserror::Error)]
#[error("seed {seed}: the condition does not hold at {at:?} ({cause})")]
pub struct Stalled {
    pub seed: u64,
    pub at: Duration,
    /// Out of time, or nothing will ever happen again.
    pub cause: &'static str,
}

/// The simulated world of one seed. Dropped, it drops all tasks; no operation outlives it.
pub struct World {
    core: Rc<Core>,
}

/// One machine; a clone is the same machine.
#[derive(Clone)]
pub struct Machine {
    core: Rc<Core>,
    site: Site,
}

/// The result of a future that runs on a machine's own client shard.
pub struct Client<T> {
    result: Rc<RefCell<Option<T>>>,
    done: Rc<Cell<bool>>,
}

struct Core {
    seed: u64,
    state: Rc<RefCell<State>>,
    shards: RefCell<Vec<Place>>,
    /// Draws which shard runs, and what tests ask for.
    random: RefCell<Random>,
    asked: RefCell<Random>,
    starts: Arc<Mutex<Vec<Start>>>,
    local_starts: RefCell<Vec<(Site, String, LocalMain)>>,
    runnable: RefCell<Vec<usize>>,
}

struct Start {
    site: Site,
    spec: ShardSpec,
    main: ShardMain,
}

/// Where a shard is kept between its steps; empty during a step and after its end.
struct Place {
    shard: Option<Shard>,
    busy_until: Moment,
    /// What the last step said; a timer does not change between steps.
    progress: Progress,
    number: usize,
}

enum Choice {
    Step(usize),
    /// Until then, if there is anything to come.
    Wait(Option<Moment>),
}

enum Turn {
    Stepped,
    Moved,
    /// Nothing can happen before the limit; whether anything can after it.
    AtLimit {
        idle: bool,
    },
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = Random::seeded(seed);
        let state = State::new(&mut random);
        World {
            core: Rc::new(Core {
                seed,
                state: Rc::new(RefCell::new(state)),
                shards: RefCell::new(Vec::new()),
                asked: RefCell::new(random.fork()),
                random: RefCell::new(random),
                starts: Arc::new(Mutex::new(Vec::new())),
                local_starts: RefCell::new(Vec::new()),
                runnable: RefCell::new(Vec::new()),
            }),
        }
    }

    pub fn seed(&self) -> u64 {
        self.core.seed
    }

    /// For operations that begin from now on.
    pub fn set_times(&self, times: Times) {
        let mut state = self.core.state.borrow_mut();
        state.network.times = times.network.clone();
        state.times = times;
    }

    /// The machine of that name; the first call makes it, with an empty disk and the next address (10.0.0.1, ...).
    pub fn machine(&self, name: &str) -> Machine {
        let site = self.core.state.borrow_mut().machine_named(name);
        Machine { core: Rc::clone(&self.core), site }
    }

    pub fn network(&self) -> NetworkControl {
        NetworkControl { state: Rc::clone(&self.core.state) }
    }

    pub fn now(&self) -> Moment {
        self.core.state.borrow().now
    }

    /// Over all operations completed so far: same seed and program, same hash.
    pub fn trace_hash(&self) -> u64 {
        self.core.state.borrow().trace.hash()
    }

    /// How many operations have completed so far.
    pub fn operations(&self) -> u64 {
        self.core.state.borrow().trace.operations()
    }

    /// A new generator from the seed, for faults and load; drawing from it does not change what the world draws.
    pub fn random(&self) -> Random {
        self.core.asked.borrow_mut().fork()
    }

    /// Runs the future on a shard of its own on that machine.
    pub fn spawn_client<T: 'static>(&self, machine: &Machine, future: impl Future<Output = T> + 'static) -> Client<T> {
        let client = Client { result: Rc::new(RefCell::new(None)), done: Rc::new(Cell::new(false)) };
        let (result, done) = (Rc::clone(&client.result), Rc::clone(&client.done));
        let main = async move {
            let value = future.await;
            result.replace(Some(value));
            done.set(true);
        };
        let main: LocalMain = Box::new(move || Box::pin(main));
        self.core.local_starts.borrow_mut().push((machine.site, "client".to_owned(), main));
        client
    }

    /// Runs the world until the future has run on a client shard of the machine.
    pub fn block_on<T: 'static>(
        &self,
        machine: &Machine,
        limit: Duration,
        future: impl Future<Output = T> + 'static,
    ) -> Result<T, Stalled> {
        let client = self.spawn_client(machine, future);
        self.run_until(limit, |_| client.is_done())?;
        Ok(client.take().expect("a client that is done has its result"))
    }

    /// Lets this much virtual time pass.
    pub fn run_for(&self, duration: Duration) {
        let limit = self.now() + duration;
        while !matches!(self.core.turn(limit), Turn::AtLimit { .. }) {}
    }

    /// Runs until the condition holds; it is asked after every step. At most `limit` from now.
    pub fn run_until(&self, limit: Duration, condition: impl Fn(&World) -> bool) -> Result<(), Stalled> {
        let limit = self.now() + limit;
        let mut asked = false;
        loop {
            if !asked && condition(self) {
                return Ok(());
            }
            asked = match self.core.turn(limit) {
                Turn::Stepped => false,
                Turn::Moved => true,
                Turn::AtLimit { idle } => {
                    let cause = if idle { "nothing will ever happen again" } else { "out of time" };
                    return Err(Stalled { seed: self.core.seed, at: self.now().as_duration(), cause });
                }
            };
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.core.tell_seed();
        }
        self.core.end_all();
    }
}

impl Machine {
    pub fn name(&self) -> String {
        self.core.state.borrow().machines[self.site.0].name.clone()
    }

    pub fn address(&self) -> IpAddr {
        self.core.state.borrow().machines[self.site.0].address
    }

    /// Starts shards on this machine, from the test or from inside a shard. Refuses while the machine is down.
    pub fn spawner(&self) -> Arc<dyn Spawner> {
        let up = Arc::clone(&self.core.state.borrow().machines[self.site.0].up);
        Arc::new(MachineSpawner { site: self.site, up, starts: Arc::clone(&self.core.starts) })
    }

    /// Ends all its shards at once; what their destructors try to do has no effect. Then it is down until `up`.
    pub fn crash(&self, crash: Crash) {
        let never_started = self.core.take_starts_of(self.site);
        drop(never_started);
        let shards = self.core.state.borrow().live_shards(self.site);
        let abandoned = self.core.state.borrow_mut().crash(self.site, crash == Crash::PowerLoss);
        drop(abandoned);
        for number in shards {
            let shard = self.core.shards.borrow_mut().get_mut(number).and_then(|place| place.shard.take());
            drop(shard);
        }
    }

    /// The machine is there again, with its disk and nothing running: shards may be started.
    pub fn up(&self) {
        self.core.state.borrow_mut().power_on(self.site);
    }

    pub fn is_up(&self) -> bool {
        self.core.state.borrow().machines[self.site.0].up.load(Ordering::Relaxed)
    }

    /// Shards that were started and have not ended.
    pub fn running_shards(&self) -> usize {
        let starting = self.core.locked_starts().iter().filter(|start| start.site == self.site).count();
        let local = self.core.local_starts.borrow().iter().filter(|(site, ..)| *site == self.site).count();
        starting + local + self.core.state.borrow().live_shards(self.site).len()
    }

    pub fn disk(&self) -> DiskControl {
        DiskControl { state: Rc::clone(&self.core.state), site: self.site }
    }

    pub fn clock(&self) -> ClockControl {
        ClockControl { state: Rc::clone(&self.core.state), site: self.site }
    }

    pub(crate) fn site(&self) -> Site {
        self.site
    }
}

impl<T> Client<T> {
    pub fn is_done(&self) -> bool {
        self.done.get()
    }

    /// The result, once.
    pub fn take(&self) -> Option<T> {
        self.result.borrow_mut().take()
    }
}

struct MachineSpawner {
    site: Site,
    up: Arc<std::sync::atomic::AtomicBool>,
    starts: Arc<Mutex<Vec<Start>>>,
}

impl Spawner for MachineSpawner {
    /// The shard begins in the world's next turn; `join` of its handle does not wait.
    fn start(&self, spec: ShardSpec, main: ShardMain) -> io::Result<ShardHandle> {
        if !self.up.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the machine is down"));
        }
        let start = Start { site: self.site, spec, main };
        self.starts.lock().unwrap_or_else(PoisonError::into_inner).push(start);
        Ok(ShardHandle::new(|| ()))
    }
}

impl Core {
    fn turn(&self, limit: Moment) -> Turn {
        self.begin_shards();
        self.state.borrow_mut().advance();
        let next = match self.choose() {
            Choice::Step(number) => {
                self.step(number);
                return Turn::Stepped;
            }
            Choice::Wait(next) => next,
        };
        let mut state = self.state.borrow_mut();
        match next {
            Some(next) if next <= limit => {
                assert!(next > state.now, "what is due has happened");
                state.now = next;
                Turn::Moved
            }
            _ => {
                state.now = limit.max(state.now);
                Turn::AtLimit { idle: next.is_none() }
            }
        }
    }

    fn begin_shards(&self) {
        // Making a main future may start further shards.
        loop {
            let mut starts: Vec<(Site, String, LocalMain)> = std::mem::take(&mut *self.locked_starts())
                .into_iter()
                .map(|start| (start.site, start.spec.name, start.main as LocalMain))
                .collect();
            starts.append(&mut self.local_starts.borrow_mut());
            if starts.is_empty() {
                return;
            }
            for (site, name, main) in starts {
                self.begin_shard(site, name, main);
            }
        }
    }

    fn take_starts_of(&self, of: Site) -> (Vec<Start>, Vec<(Site, String, LocalMain)>) {
        let starts = self.locked_starts().extract_if(.., |start| start.site == of).collect();
        let local_starts = self.local_starts.borrow_mut().extract_if(.., |(site, ..)| *site == of).collect();
        (starts, local_starts)
    }

    fn begin_shard(&self, site: Site, name: String, main: LocalMain) {
        if !self.state.borrow().machines[site.0].up.load(Ordering::Relaxed) {
            return;
        }
        let number = self.state.borrow_mut().new_shard(site);
        let driver = Simulated::new(Rc::clone(&self.state), number);
        let shard = self.or_tell_seed(|| Shard::new(name, Box::new(driver), main));
        let place = Place { shard: Some(shard), busy_until: self.state.borrow().now, progress: Progress::Busy, number };
        let mut shards = self.shards.borrow_mut();
        assert_eq!(shards.len(), number, "state and world number shards alike");
        shards.push(place);
    }

    /// One of the shards that can run now, by the seed; or when something will happen.
    fn choose(&self) -> Choice {
        let mut runnable = self.runnable.borrow_mut();
        runnable.clear();
        let state = self.state.borrow();
        let mut next = state.next_at();
        for place in &*self.shards.borrow() {
            match place.runs_at(&state) {
                Some(at) if at <= state.now => runnable.push(place.number),
                at => next = next.into_iter().chain(at).min(),
            }
        }
        match runnable.len() {
            0 => Choice::Wait(next),
            1 => Choice::Step(runnable[0]),
            len => Choice::Step(runnable[self.random.borrow_mut().index(len)]),
        }
    }

    fn step(&self, number: usize) {
        let mut shard = self.shards.borrow_mut()[number].shard.take().expect("chosen among the shards that are there");
        let progress = self.or_tell_seed(|| shard.step());
        let alive = self.state.borrow().shards[number].alive;
        if !alive || progress == Progress::Ended {
            return drop(shard);
        }
        let cost = {
            let mut state = self.state.borrow_mut();
            let range = state.times.step.clone();
            state.now + state.random.duration(&range)
        };
        let place = &mut self.shards.borrow_mut()[number];
        place.shard = Some(shard);
        place.busy_until = cost;
        place.progress = progress;
    }

    fn end_all(&self) {
        let starts = std::mem::take(&mut *self.locked_starts());
        drop(starts);
        let local = self.local_starts.take();
        drop(local);
        let count = self.shards.borrow().len();
        for number in 0..count {
            let shard = self.shards.borrow_mut()[number].shard.take();
            drop(shard);
        }
    }

    fn or_tell_seed<R>(&self, act: impl FnOnce() -> R) -> R {
        catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
            self.tell_seed();
            resume_unwind(panic)
        })
    }

    #[expect(clippy::print_stderr, reason = "a failing run must show its seed, whatever listens to the log")]
    fn tell_seed(&self) {
        let at = self.state.try_borrow().map(|state| state.now.as_duration()).unwrap_or_default();
        eprintln!("the simulated run of seed {} failed at {at:?} of virtual time", self.seed);
    }

    fn locked_starts(&self) -> std::sync::MutexGuard<'_, Vec<Start>> {
        self.starts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// When the shard can run; `None`: only after something else happened.
    fn runs_at(&self, state: &State) -> Option<Moment> {
        let shard = self.shard.as_ref()?;
        let woken = self.progress == Progress::Busy || shard.is_ready() || state.has_completions(self.number);
        match self.progress {
            _ if woken => Some(self.busy_until.max(state.now)),
            Progress::Idle(Some(timer)) => Some(timer.max(self.busy_until).max(state.now)),
            Progress::Idle(None) | Progress::Busy | Progress::Ended => None,
        }
    }
}
