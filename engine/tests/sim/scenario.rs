//! What happens in a seed: a cluster of some shape, topics, load, and a few faults, all drawn from it.
//!
//! Which faults may meet is chosen so that everything acknowledged must survive: processes may be killed at any time, all
//! at once too; a machine loses its power once in a run at most, while all replicas are in sync, and then every topic needs two
//! of them for acks=all (DESIGN 13.1).

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use sakia_io::Moment;
use sakia_io::sim::{Crash, Failing, Machine, Random};
use sakia_remote::store::simulated::Reach;
use tracing::info;

use crate::checks;
use crate::churn;
use crate::cluster::{Cluster, FOLDER, Shape, object_key};
use crate::commits;
use crate::consumer::{Consumer, Source};
use crate::history::{History, Place, Promise};
use crate::kafka::Kafka;
use crate::producer::{self, Writing};
use crate::witness::Witness;

/// How long load and faults last.
const LENGTH: Duration = Duration::from_secs(8);
const PATIENCE: Duration = Duration::from_secs(60);

/// A topic of a run.
#[derive(Clone, Debug)]
pub struct Topic {
    pub name: String,
    pub partitions: i32,
    pub replicas: i16,
    pub configs: Vec<(&'static str, String)>,
}

/// Something that goes wrong.
#[derive(Clone, Debug)]
pub enum Fault {
    Kill(usize),
    /// Only if every replica is in sync then; else it is killed.
    LosePower(usize),
    StopCleanly(usize),
    KillEverything,
    KillController,
    ControllerLosesPower,
    Cut(Side, Side),
    CutOneWay(Side, Side),
    Delay(Side, Side, Range<Duration>),
    BucketDown,
    BucketDownFor(usize),
    /// So many objects of the broker's running stream, from the next on, cannot be found.
    HideNext(usize, u64),
    LosePutReplies(u32),
    Conflicts(u32),
    SlowDowns(u32),
    ShortGets(u32),
    SlowBucket(Duration),
    SlowDisk(usize, Duration),
    /// The broker's next write of a log, or its next sync, fails.
    FailWrite(usize),
    FailSync(usize),
    ClockJump(Side, i64),
    ClockDrift(Side, i64),
}

/// A machine of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Broker(usize),
    Controller,
    Clients,
}

/// A step of the timeline.
#[derive(Clone, Debug)]
pub enum Step {
    Happens(Fault),
    Ends(Fault),
    /// One broker that does not run is started; the others wait for the end of what stopped them.
    Starts(usize),
}

/// A run.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub shape: Shape,
    pub topics: Vec<Topic>,
    /// A topic is deleted and created again all the time; whether through the bucket.
    pub churn: Option<bool>,
    /// A group commits offsets all the time.
    pub commits: bool,
    pub steps: Vec<(Duration, Step)>,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn draw(random: &mut Random) -> Self {
        let brokers = if random.chance(1, 4) { 3 } else { 2 };
        let mut shape =
            Shape { brokers, shards: if random.chance(1, 3) { 2 } else { 1 }, settings: draw_settings(random) };
        let mut topics: Vec<Topic> =
            (0..random.within(1..4)).map(|number| draw_topic(number, brokers, random)).collect();
        let mut steps = Vec::new();
        let mut has_lost_power = false;
        for _ in 0..random.within(3..7) {
            let at = random.duration(&(Duration::from_millis(300)..LENGTH));
            let fault = draw_fault(brokers, &mut has_lost_power, random);
            let lasts = random.duration(&(Duration::from_millis(100)..Duration::from_millis(3500)));
            steps.push((at, Step::Happens(fault.clone())));
            steps.push((at + lasts, Step::Ends(fault)));
        }
        steps.sort_by_key(|(at, _)| *at);
        if has_lost_power {
            topics.iter_mut().for_each(Topic::require_two);
            // The topic of committed offsets as well.
            shape.settings.push(("min.insync.replicas", "2".to_owned()));
        }
        let churn = random.chance(1, 3).then(|| random.chance(1, 2));
        let commits = random.chance(1, 3);
        Self { shape, topics, churn, commits, steps }
    }
}

impl Topic {
    /// With one in-sync replica enough, as in Kafka, whoever is fenced last is the only one that may lead. If that one had
    /// lost its power, and the others died before anybody noticed, what they hold is not asked for.
    fn require_two(&mut self) {
        self.configs.retain(|(name, _)| *name != "min.insync.replicas");
        self.configs.push(("min.insync.replicas", "2".to_owned()));
    }
}

fn draw_settings(random: &mut Random) -> Vec<(&'static str, String)> {
    let mut settings = Vec::new();
    if random.chance(1, 3) {
        settings.push(("remote.wal.retention.ms", "2000".to_owned()));
    }
    if random.chance(1, 4) {
        settings.push(("remote.wal.log.manager.combiner.task.interval.ms", "2".to_owned()));
    }
    if random.chance(1, 4) {
        settings.push(("remote.wal.log.manager.combiner.thread.pool.size", "1".to_owned()));
    }
    if random.chance(1, 6) {
        settings.push(("remote.wal.log.manager.combiner.task.upload.bytes", "4096".to_owned()));
    }
    settings
}

fn draw_topic(number: u64, brokers: usize, random: &mut Random) -> Topic {
    let mut configs = vec![("remote.wal.storage.enable", (!random.chance(1, 3)).to_string())];
    let replicas = if brokers == 3 && random.chance(1, 2) { 3 } else { 2 };
    if random.chance(1, 2) {
        configs.push(("min.insync.replicas", "2".to_owned()));
    }
    if random.chance(1, 2) {
        configs.push(("segment.bytes", random.pick(&["20000", "65536", "300000"]).to_string()));
    }
    if random.chance(1, 4) {
        configs.push(("flush.messages", "20".to_owned()));
    }
    let partitions = i32::try_from(random.within(1..4)).expect("a few");
    Topic { name: format!("topic-{number}"), partitions, replicas, configs }
}

fn draw_fault(brokers: usize, has_lost_power: &mut bool, random: &mut Random) -> Fault {
    let broker = random.index(brokers);
    let side = |random: &mut Random| match random.index(brokers + 2) {
        0 => Side::Controller,
        1 => Side::Clients,
        number => Side::Broker(number - 2),
    };
    let ms = |random: &mut Random, range: Range<u64>| Duration::from_millis(random.within(range));
    match random.index(26) {
        0..=4 => Fault::Kill(broker),
        5 | 6 if !*has_lost_power => {
            *has_lost_power = true;
            Fault::LosePower(broker)
        }
        5..=7 => Fault::StopCleanly(broker),
        8 => Fault::KillEverything,
        9 => Fault::KillController,
        10 => Fault::ControllerLosesPower,
        11 => Fault::Cut(Side::Broker(broker), side(random)),
        12 => Fault::CutOneWay(Side::Broker(broker), side(random)),
        13 => Fault::CutOneWay(side(random), Side::Broker(broker)),
        14 => {
            let slow = ms(random, 5..300);
            Fault::Delay(Side::Broker(broker), side(random), slow / 2..slow)
        }
        15 => Fault::BucketDown,
        16 => Fault::BucketDownFor(broker),
        17 => Fault::HideNext(broker, random.within(1..6)),
        18 => match random.index(2) {
            0 => Fault::LosePutReplies(u32::try_from(random.within(1..4)).expect("a few")),
            _ => Fault::Conflicts(u32::try_from(random.within(1..4)).expect("a few")),
        },
        19 => Fault::SlowDowns(u32::try_from(random.within(100..900)).expect("below 1000")),
        20 => Fault::ShortGets(u32::try_from(random.within(100..900)).expect("below 1000")),
        21 => Fault::SlowBucket(ms(random, 20..800)),
        22 => Fault::SlowDisk(broker, ms(random, 2..200)),
        23 => Fault::FailWrite(broker),
        24 => Fault::FailSync(broker),
        _ => match random.index(2) {
            0 => {
                let by = i64::try_from(random.within(0..600_000)).expect("ten minutes");
                Fault::ClockJump(side(random), by - 300_000)
            }
            _ => Fault::ClockDrift(side(random), i64::try_from(random.within(0..200_000)).expect("small") - 100_000),
        },
    }
}

/// Runs the scenario of a seed to its end and checks everything. Gives the trace's hash.
pub fn run(seed: u64) -> u64 {
    run_with(seed, &Scenario::draw(&mut Random::seeded(seed).fork()), Run::begin_load)
}

/// Runs any scenario under a seed.
pub fn run_with(seed: u64, scenario: &Scenario, begin_load: impl FnOnce(&mut Run)) -> u64 {
    let cluster = Cluster::started(seed, &scenario.shape);
    let mut run = Run { cluster, history: History::new(), consumers: Vec::new(), places: Vec::new() };
    info!(?scenario, "seed {seed}");
    run.create_topics(&scenario.topics);
    run.call_witness(&scenario.topics);
    begin_load(&mut run);
    if let Some(wal) = scenario.churn {
        run.begin_churn(wal);
    }
    if scenario.commits {
        run.begin_commits();
    }
    let began = run.cluster.world.now();
    for (at, step) in &scenario.steps {
        run.wait_until(began + *at);
        info!(?step, "at {:?}", run.cluster.world.now().as_duration());
        match step {
            Step::Happens(fault) => run.begin(fault),
            Step::Ends(fault) => run.end(fault),
            Step::Starts(number) => run.cluster.start_if_down(*number),
        }
    }
    run.wait_until(began + LENGTH);
    info!("healing at {:?}", run.cluster.world.now().as_duration());
    checks::finish(&mut run.cluster, &run.history, &run.consumers);
    run.cluster.world.trace_hash()
}

/// A run as it stands.
pub struct Run {
    pub cluster: Cluster,
    pub history: Rc<History>,
    pub consumers: Vec<Rc<Consumer>>,
    pub places: Vec<Place>,
}

impl Run {
    fn create_topics(&mut self, topics: &[Topic]) {
        let hosts = self.cluster.hosts();
        let wanted = topics.to_vec();
        let created = self.cluster.world.block_on(&self.cluster.outside, PATIENCE, async move {
            let kafka = Kafka::new("admin", &hosts);
            for topic in &wanted {
                let configs: Vec<(&str, &str)> =
                    topic.configs.iter().map(|(name, value)| (*name, value.as_str())).collect();
                kafka.create_topic(&topic.name, topic.partitions, topic.replicas, &configs).await;
            }
        });
        created.expect("topics are created");
        for topic in topics {
            self.places.extend((0..topic.partitions).map(|partition| (topic.name.clone(), partition)));
        }
    }

    /// Disks are looked at when something is acknowledged with acks=all.
    fn call_witness(&self, topics: &[Topic]) {
        let required = topics.iter().map(|topic| {
            let configs = topic.configs.iter();
            let set = configs.rev().find(|(name, _)| *name == "min.insync.replicas").map(|(_, value)| value.parse());
            let wanted: usize = set.map_or(1, |value| value.expect("a number"));
            (topic.name.clone(), wanted.min(usize::try_from(topic.replicas).expect("a few")))
        });
        let machines = self.cluster.brokers.iter().map(|node| node.machine.clone()).collect();
        self.history.witness.replace(Some(Witness::new(machines, required.collect())));
    }

    fn begin_load(&mut self) {
        let mut random = self.cluster.world.random();
        let hosts = self.cluster.hosts();
        let places = self.places.clone();
        for (number, place) in places.iter().enumerate() {
            let promise = if random.chance(1, 4) { Promise::Leader } else { Promise::All };
            let writer = format!("w{number}");
            let writing = Writing {
                in_flight: random.index(3) + 1,
                pause: Duration::from_millis(1)..Duration::from_millis(random.within(5..80)),
                value_bytes: 10..*random.pick(&[100, 300, 3000]),
                ..Writing::steady(place, &writer, promise)
            };
            let kafka = Kafka::new(&writer, &hosts);
            let running = producer::run(kafka, self.history.clone(), writing, random.fork());
            self.cluster.spawn_awaited(&self.history, running);
            if random.chance(1, 6) {
                let kafka = Kafka::new("unacknowledged", &hosts);
                let writer = format!("u{number}");
                let running = producer::run_unacknowledged(kafka, self.history.clone(), place.clone(), writer);
                self.cluster.spawn_awaited(&self.history, running);
            }
            let other = if random.chance(1, 2) { Source::Follower } else { Source::Zone("az2".to_owned()) };
            for source in [Source::Leader, other] {
                let consumer = Consumer::new(Kafka::new("reader", &hosts), self.history.clone(), place, source);
                self.cluster.world.spawn_client(&self.cluster.outside, consumer.clone().run());
                self.consumers.push(consumer);
            }
        }
    }

    fn begin_churn(&self, wal: bool) {
        let kafka = Kafka::new("churn", &self.cluster.hosts());
        let random = self.cluster.world.random().fork();
        let running = churn::run(kafka, self.history.clone(), "comes-and-goes".to_owned(), wal, random);
        self.cluster.spawn_awaited(&self.history, running);
    }

    fn begin_commits(&self) {
        let kafka = Kafka::new("commits", &self.cluster.hosts());
        let random = self.cluster.world.random().fork();
        let running =
            commits::run(kafka, self.history.clone(), "committing".to_owned(), self.places[0].clone(), random);
        self.cluster.spawn_awaited(&self.history, running);
    }

    fn wait_until(&self, moment: Moment) {
        let now = self.cluster.world.now();
        if moment > now {
            self.cluster.world.run_for(moment - now);
        }
    }

    fn machine(&self, side: Side) -> Machine {
        match side {
            Side::Broker(number) => self.cluster.brokers[number].machine.clone(),
            Side::Controller => self.cluster.controller.machine.clone(),
            Side::Clients => self.cluster.outside.clone(),
        }
    }

    fn begin(&mut self, fault: &Fault) {
        let cluster = &mut self.cluster;
        match fault {
            Fault::Kill(number) => cluster.crash_broker(*number, Crash::Kill),
            Fault::LosePower(number) => {
                let all_in_sync = checks::all_in_sync(cluster, &self.places);
                let crash = if all_in_sync { Crash::PowerLoss } else { Crash::Kill };
                // What its disk has lost the others hold: what an answer under way tells of cannot be counted any more.
                self.history.witness.take();
                cluster.crash_broker(*number, crash);
            }
            Fault::StopCleanly(number) => cluster.stop_broker(*number),
            Fault::KillEverything => {
                cluster.crash_controller(Crash::Kill);
                for number in 0..cluster.brokers.len() {
                    cluster.crash_broker(number, Crash::Kill);
                }
            }
            Fault::KillController => cluster.crash_controller(Crash::Kill),
            Fault::ControllerLosesPower => cluster.crash_controller(Crash::PowerLoss),
            Fault::Cut(one, other) if one != other => {
                self.cluster.world.network().cut(&self.machine(*one), &self.machine(*other));
            }
            Fault::CutOneWay(from, to) if from != to => {
                self.cluster.world.network().cut_one_way(&self.machine(*from), &self.machine(*to));
            }
            Fault::Delay(one, other, latency) if one != other => {
                self.cluster.world.network().delay(&self.machine(*one), &self.machine(*other), latency.clone());
            }
            Fault::Cut(..) | Fault::CutOneWay(..) | Fault::Delay(..) => {}
            Fault::BucketDown => cluster.bucket.change_faults(|faults| faults.reach = Reach::Down),
            Fault::BucketDownFor(number) => {
                let name = cluster.brokers[*number].machine.name();
                cluster.bucket.change_faults(|faults| {
                    faults.cut_clients.insert(name);
                });
            }
            Fault::HideNext(number, count) => self.hide_next(*number, *count),
            Fault::LosePutReplies(count) => cluster.bucket.change_faults(|f| f.next_lost_put_replies = *count),
            Fault::Conflicts(count) => cluster.bucket.change_faults(|f| f.next_conflicts = *count),
            Fault::SlowDowns(share) => cluster.bucket.change_faults(|f| f.slow_downs_per_mille = *share),
            Fault::ShortGets(share) => cluster.bucket.change_faults(|f| f.short_gets_per_mille = *share),
            Fault::SlowBucket(by) => cluster.bucket.change_faults(|f| f.slow = *by),
            Fault::SlowDisk(number, by) => cluster.brokers[*number].machine.disk().slow(*by),
            Fault::FailWrite(number) => {
                cluster.brokers[*number].machine.disk().fail_writes(Failing::next().on(".log"));
            }
            Fault::FailSync(number) => {
                // The disk gives up what it held.
                self.history.witness.take();
                cluster.brokers[*number].machine.disk().fail_syncs(Failing::next().on(FOLDER));
            }
            Fault::ClockJump(side, by) => self.machine(*side).clock().jump_ms(*by),
            Fault::ClockDrift(side, rate) => self.machine(*side).clock().drift(*rate),
        }
    }

    fn end(&mut self, fault: &Fault) {
        let cluster = &mut self.cluster;
        match fault {
            Fault::Kill(_)
            | Fault::LosePower(_)
            | Fault::StopCleanly(_)
            | Fault::KillEverything
            | Fault::KillController
            | Fault::ControllerLosesPower => cluster.start_missing(),
            Fault::Cut(one, other) | Fault::CutOneWay(one, other) => {
                self.cluster.world.network().heal(&self.machine(*one), &self.machine(*other));
            }
            Fault::Delay(one, other, _) => {
                let usual = Duration::from_micros(100)..Duration::from_micros(500);
                self.cluster.world.network().delay(&self.machine(*one), &self.machine(*other), usual);
            }
            Fault::BucketDown => cluster.bucket.change_faults(|faults| faults.reach = Reach::Up),
            Fault::BucketDownFor(_) => cluster.bucket.change_faults(|faults| faults.cut_clients.clear()),
            Fault::HideNext(..) => cluster.bucket.change_faults(|faults| faults.hidden.clear()),
            Fault::SlowDowns(_) => cluster.bucket.change_faults(|faults| faults.slow_downs_per_mille = 0),
            Fault::ShortGets(_) => cluster.bucket.change_faults(|faults| faults.short_gets_per_mille = 0),
            Fault::SlowBucket(_) => cluster.bucket.change_faults(|faults| faults.slow = Duration::ZERO),
            Fault::SlowDisk(number, _) => cluster.brokers[*number].machine.disk().slow(Duration::ZERO),
            Fault::FailWrite(number) | Fault::FailSync(number) => {
                cluster.brokers[*number].machine.disk().heal();
                cluster.start_missing();
            }
            Fault::ClockDrift(side, _) => self.machine(*side).clock().drift(0),
            Fault::LosePutReplies(_) | Fault::Conflicts(_) | Fault::ClockJump(..) => {}
        }
    }

    /// The names that the broker's next objects will have.
    fn hide_next(&self, number: usize, count: u64) {
        let Some((stream, sequence)) = self.cluster.last_object(number) else { return };
        self.cluster.bucket.change_faults(|faults| {
            let next = (sequence + 1)..=(sequence + count);
            faults.hidden.extend(next.map(|next| object_key(&stream, next)));
        });
    }
}
