//! A cluster of one seed: a bucket, a controller, brokers in zones, each process on a machine of its own.
//!
//! Settings are those of `sakia dev` with shorter times, so that sessions, lags and fallbacks end within a run.
//! A killed machine keeps its boot id, as a killed process does; one that lost its power has a new one (R3).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sakia_engine::process::{BrokerStart, ControllerStart, Running, StoreFactory, start_broker, start_controller};
use sakia_engine::settings::Settings;
use sakia_io::sim::{Client, Crash, Machine, World};
use sakia_io::{ShardHandle, ShardMain, ShardSpec, Spawner, fs};
use sakia_metrics::Registry;
use sakia_remote::store::{SimulatedBucket, SimulatedStore, StatusClass, StoreCounters, Verb};
use sakia_remote::{ObjectKey, ObjectStore};

use crate::history::History;

const CONTROLLER: i32 = 9;
pub const FOLDER: &str = "/data";

/// How a process is made and what runs of it.
pub struct Node {
    pub id: i32,
    pub machine: Machine,
    settings: Arc<Settings>,
    running: Option<Running>,
    /// Of the process that runs, or ran last.
    pub registry: Registry,
    /// Of every process so far.
    stores: Vec<StoreCounters>,
    boots: u64,
    is_booted: bool,
}

/// The cluster.
pub struct Cluster {
    pub world: World,
    pub bucket: SimulatedBucket,
    pub controller: Node,
    pub brokers: Vec<Node>,
    /// Where clients run.
    pub outside: Machine,
    /// Objects that the test has damaged.
    pub damaged: BTreeSet<ObjectKey>,
}

/// The name of an object in a stream.
pub fn object_key(stream: &str, sequence: u64) -> ObjectKey {
    ObjectKey::new(&format!("{stream}/{sequence:020}"))
}

/// What differs from run to run.
#[derive(Clone, Debug)]
pub struct Shape {
    pub brokers: usize,
    pub shards: usize,
    /// Over the settings below.
    pub settings: Vec<(&'static str, String)>,
}

impl Default for Shape {
    fn default() -> Self {
        Self { brokers: 2, shards: 1, settings: Vec::new() }
    }
}

impl Cluster {
    /// The machines of a cluster; nothing runs.
    pub fn new(seed: u64, shape: &Shape) -> Self {
        crate::trace::begin();
        let world = World::new(seed);
        let bucket = SimulatedBucket::new(world.random().next_u64());
        let controller = Node::new(&world, CONTROLLER, "control", controller_settings(shape));
        let brokers = (1..=shape.brokers)
            .map(|number| {
                let id = i32::try_from(number).expect("a few brokers");
                let name = format!("az{number}");
                Node::new(&world, id, &name, broker_settings(id, &name, shape))
            })
            .collect();
        let outside = world.machine("outside");
        Self { world, bucket, controller, brokers, outside, damaged: BTreeSet::new() }
    }

    /// A cluster whose processes were all started.
    pub fn started(seed: u64, shape: &Shape) -> Self {
        let mut cluster = Self::new(seed, shape);
        cluster.start_controller();
        for number in 0..cluster.brokers.len() {
            cluster.start_broker(number);
        }
        cluster
    }

    pub fn start_controller(&mut self) {
        let node = &mut self.controller;
        node.begin(&self.world);
        let start = ControllerStart {
            settings: node.settings.clone(),
            spawner: node.spawner(),
            registry: node.registry.clone(),
        };
        node.running = Some(start_controller(start).expect("the machine is up"));
    }

    pub fn start_broker(&mut self, number: usize) {
        let node = &mut self.brokers[number];
        node.begin(&self.world);
        let store = self.bucket.client(&node.machine.name());
        node.stores.push(store.counters());
        let start = BrokerStart {
            settings: node.settings.clone(),
            spawner: node.spawner(),
            store: Some(factory(store)),
            registry: node.registry.clone(),
            prefix: "wal".to_owned(),
        };
        node.running = Some(start_broker(start).expect("the machine is up"));
    }

    /// Kills what runs on the broker's machine. Nothing if it is down.
    pub fn crash_broker(&mut self, number: usize, crash: Crash) {
        self.brokers[number].crash(crash);
    }

    pub fn crash_controller(&mut self, crash: Crash) {
        self.controller.crash(crash);
    }

    /// Asks a broker to stop and waits until it has.
    pub fn stop_broker(&mut self, number: usize) {
        let node = &mut self.brokers[number];
        let Some(running) = node.running.take() else { return };
        running.stop();
        let machine = node.machine.clone();
        let stopped = self.world.run_until(Duration::from_secs(30), |_| machine.running_shards() == 0);
        stopped.expect("a broker stops when it is asked to");
    }

    /// Whether a process was started there and not crashed or stopped.
    pub fn is_broker_up(&self, number: usize) -> bool {
        self.brokers[number].running.is_some()
    }

    pub fn is_controller_up(&self) -> bool {
        self.controller.running.is_some()
    }

    /// Starts everything that does not run, and heals everything.
    pub fn heal(&mut self) {
        self.world.network().heal_all();
        self.bucket.change_faults(|faults| *faults = sakia_remote::store::simulated::Faults::default());
        for node in self.brokers.iter().chain([&self.controller]) {
            node.machine.disk().heal();
            node.machine.clock().drift(0);
        }
        self.start_missing();
    }

    /// Starts every process that does not run.
    pub fn start_missing(&mut self) {
        if !self.is_controller_up() || self.controller.is_dead() {
            self.controller.crash(Crash::Kill);
            self.start_controller();
        }
        for number in 0..self.brokers.len() {
            self.start_if_down(number);
        }
    }

    /// Starts one broker, if it does not run.
    pub fn start_if_down(&mut self, number: usize) {
        if !self.is_broker_up(number) || self.brokers[number].is_dead() {
            self.brokers[number].crash(Crash::Kill);
            self.start_broker(number);
        }
    }

    /// What clients are told to begin with.
    pub fn hosts(&self) -> Vec<String> {
        self.brokers.iter().map(|node| node.machine.name()).collect()
    }

    /// Starts a client whose end the run waits for.
    pub fn spawn_awaited(&self, history: &Rc<History>, client: impl Future<Output = ()> + 'static) -> Client<()> {
        history.running.set(history.running.get() + 1);
        let history = history.clone();
        self.world.spawn_client(&self.outside, async move {
            client.await;
            history.running.set(history.running.get() - 1);
        })
    }

    /// The stream of objects that a broker writes, or wrote last, and the number of its last object.
    pub fn last_object(&self, number: usize) -> Option<(String, u64)> {
        let id = format!("/wal/{}/", self.brokers[number].id);
        let keys = self.bucket.keys();
        let of_broker = keys.iter().map(ObjectKey::as_str).filter(|key| key.contains(&id));
        let parts = of_broker.map(|key| {
            let (stream, sequence) = key.rsplit_once('/').expect("names of objects have slashes");
            let (_, epoch) = stream.rsplit_once('/').expect("and a broker epoch");
            let epoch: u64 = epoch.parse().expect("which is a number");
            (epoch, sequence.parse().expect("they end with a number"), stream.to_owned())
        });
        parts.max().map(|(_, sequence, stream)| (stream, sequence))
    }

    /// A counter summed over the brokers that run.
    pub fn metric(&self, name: &str, label: &str) -> u64 {
        self.brokers.iter().map(|node| node.metric(name, label)).sum()
    }

    /// What brokers counted of their requests to the bucket: those that were answered, and all.
    pub fn attempts(&self, verb: Verb) -> Attempts {
        let counts = self.brokers.iter().flat_map(|node| &node.stores).map(StoreCounters::counts);
        counts.fold(Attempts::default(), |sum, counts| Attempts {
            answered: sum.answered + counts.answered(verb),
            unanswered: sum.unanswered + counts.of(verb, StatusClass::Unanswered),
        })
    }
}

/// Requests to the bucket of one verb.
#[derive(Clone, Copy, Default, Debug)]
pub struct Attempts {
    pub answered: u64,
    pub unanswered: u64,
}

impl Node {
    fn new(world: &World, id: i32, name: &str, texts: BTreeMap<String, String>) -> Self {
        let (settings, _) = Settings::from_properties(&texts).expect("the simulator's settings are valid");
        Self {
            id,
            machine: world.machine(name),
            settings: Arc::new(settings),
            running: None,
            registry: Registry::new(),
            stores: Vec::new(),
            boots: 0,
            is_booted: false,
        }
    }

    /// Readies the machine for a process.
    fn begin(&mut self, world: &World) {
        assert!(self.running.is_none(), "one process at a time");
        if !self.machine.is_up() {
            self.machine.up();
        }
        if !self.is_booted {
            self.boot(world);
        }
        self.registry = Registry::new();
    }

    /// The kernel's name of this boot, where Linux has it.
    fn boot(&mut self, world: &World) {
        self.boots += 1;
        self.is_booted = true;
        let text = format!("{:08x}-0000-4000-8000-{:012x}\n", self.id, self.boots);
        let written = world.block_on(&self.machine, Duration::from_secs(10), async move {
            fs::create_dir_all("/proc/sys/kernel/random".as_ref()).await?;
            fs::replace_file("/proc/sys/kernel/random/boot_id".as_ref(), text.into_bytes()).await
        });
        written.expect("nothing else runs there").expect("the disk works");
    }

    fn crash(&mut self, crash: Crash) {
        if self.machine.is_up() {
            self.machine.crash(crash);
        }
        self.running = None;
        if crash == Crash::PowerLoss {
            self.is_booted = false;
        }
    }

    /// It was started and has ended by itself.
    pub fn is_dead(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.has_failed() || self.machine.running_shards() == 0)
    }

    fn spawner(&self) -> Arc<dyn Spawner> {
        Arc::new(Named { machine: self.machine.name(), inner: self.machine.spawner() })
    }

    /// The sum of a counter's series whose line contains `label`, as the metrics page shows it.
    pub fn metric(&self, name: &str, label: &str) -> u64 {
        let mut page = String::new();
        self.registry.render(&mut page);
        let series = page.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(label)
        });
        let value = |line: &str| -> Option<u64> { line.rsplit(' ').next().and_then(|value| value.parse().ok()) };
        series.map(|line| value(line).unwrap_or_else(|| panic!("no whole number: {line}"))).sum()
    }
}

/// Names shards by their machine, for the trace.
struct Named {
    machine: String,
    inner: Arc<dyn Spawner>,
}

impl Spawner for Named {
    fn start(&self, spec: ShardSpec, main: ShardMain) -> std::io::Result<ShardHandle> {
        self.inner.start(ShardSpec { name: format!("{} {}", self.machine, spec.name), ..spec }, main)
    }
}

fn factory(store: SimulatedStore) -> StoreFactory {
    Box::new(move || {
        let store: Rc<dyn ObjectStore> = Rc::new(store);
        store
    })
}

fn texts(pairs: &[(&str, &str)], shape: &Shape) -> BTreeMap<String, String> {
    let mut texts: BTreeMap<String, String> =
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    texts.extend(shape.settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    texts.insert("controller.quorum.voters".to_owned(), format!("{CONTROLLER}@control:9093"));
    texts.insert("log.dirs".to_owned(), FOLDER.to_owned());
    texts.insert("http.port".to_owned(), "0".to_owned());
    texts
}

const SHARED: &[(&str, &str)] = &[
    ("broker.session.timeout.ms", "1000"),
    ("broker.heartbeat.interval.ms", "200"),
    ("min.insync.replicas", "1"),
    ("default.replication.factor", "2"),
    ("offsets.topic.replication.factor", "2"),
    ("offsets.topic.num.partitions", "2"),
    ("remote.log.wal.storage.system.enable", "true"),
    ("remote.wal.storage.url", "s3://sakia-wal/wal"),
    ("log.remote.wal.storage.enable", "true"),
    ("remote.wal.fallback.after.ms", "400"),
    ("replica.lag.time.max.ms", "1500"),
    ("replica.fetch.wait.max.ms", "200"),
    ("replica.high.watermark.checkpoint.interval.ms", "1000"),
    ("replica.selector.class", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
    ("memory.tail.bytes", "67108864"),
];

fn broker_settings(id: i32, name: &str, shape: &Shape) -> BTreeMap<String, String> {
    let mut texts = texts(SHARED, shape);
    texts.insert("process.roles".to_owned(), "broker".to_owned());
    texts.insert("node.id".to_owned(), id.to_string());
    texts.insert("broker.rack".to_owned(), name.to_owned());
    texts.insert("listeners".to_owned(), "PLAINTEXT://:9092".to_owned());
    texts.insert("advertised.listeners".to_owned(), format!("PLAINTEXT://{name}:9092"));
    texts.insert("shards".to_owned(), shape.shards.to_string());
    texts
}

fn controller_settings(shape: &Shape) -> BTreeMap<String, String> {
    let mut texts = texts(SHARED, shape);
    texts.insert("process.roles".to_owned(), "controller".to_owned());
    texts.insert("node.id".to_owned(), CONTROLLER.to_string());
    texts.insert("listeners".to_owned(), "CONTROLLER://:9093".to_owned());
    texts
}
