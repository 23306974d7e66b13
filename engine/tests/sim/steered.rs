//! Scenarios that are not drawn from a seed as a whole: topics, load and faults are chosen, only small things are drawn.
//!
//! For what a seed would meet too seldom: `planted` steers towards the place of a mistake, `clocks` and `damage` towards one
//! kind of fault.

use std::ops::Range;
use std::time::Duration;

use sakia_io::sleep;

use crate::cluster::Shape;
use crate::consumer::{Consumer, Source};
use crate::history::Promise;
use crate::kafka::Kafka;
use crate::producer::{self, Writing};
use crate::scenario::{self, Fault, Run, Scenario, Step, Topic};

/// What is written to each partition.
#[derive(Clone, Debug)]
pub struct Load {
    /// Writers with acks=all that begin at once.
    pub writers: usize,
    /// Writers with acks=1: they go on at a leader that cannot commit.
    pub leader_writers: usize,
    /// When one more begins, with what the cluster says then.
    pub late_writer: Option<Duration>,
    pub pause: Range<Duration>,
    pub value_bytes: Range<u64>,
    pub in_flight: usize,
}

impl Default for Load {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            writers: 1,
            leader_writers: 0,
            late_writer: None,
            pause: ms(1)..ms(10),
            value_bytes: 10..200,
            in_flight: 1,
        }
    }
}

/// A scenario and its load.
pub struct Steered {
    scenario: Scenario,
    load: Load,
}

impl Steered {
    /// Brokers that hold a topic of two partitions, each on so many replicas, all of them needed for acks=all if `required` says.
    pub fn new(brokers: usize, required: Required) -> Self {
        let min_insync = match required {
            Required::One => "1",
            Required::Two => "2",
        };
        let topic = Topic {
            name: "steered".to_owned(),
            partitions: i32::try_from(brokers).expect("a few"),
            replicas: i16::try_from(brokers).expect("a few"),
            configs: vec![("min.insync.replicas", min_insync.to_owned())],
        };
        let shape = Shape { brokers, ..Shape::default() };
        Self {
            scenario: Scenario { shape, topics: vec![topic], churn: None, commits: false, steps: Vec::new() },
            load: Load::default(),
        }
    }

    pub fn setting(mut self, name: &'static str, value: &str) -> Self {
        self.scenario.shape.settings.push((name, value.to_owned()));
        self
    }

    /// Of the topic.
    pub fn config(mut self, name: &'static str, value: &str) -> Self {
        self.scenario.topics[0].configs.push((name, value.to_owned()));
        self
    }

    pub fn load(mut self, load: Load) -> Self {
        self.load = load;
        self
    }

    /// At a time from the start of the load.
    pub fn at(mut self, ms: u64, step: Step) -> Self {
        self.scenario.steps.push((Duration::from_millis(ms), step));
        self
    }

    pub fn during(self, ms: Range<u64>, fault: &Fault) -> Self {
        self.at(ms.start, Step::Happens(fault.clone())).at(ms.end, Step::Ends(fault.clone()))
    }

    /// Runs it and checks everything. Gives the trace's hash.
    pub fn run(self, seed: u64) -> u64 {
        self.run_beside(seed, |_| {})
    }

    /// As `run`, with something else between the beginning of the load and the first step.
    pub fn run_beside(mut self, seed: u64, other: impl FnOnce(&mut Run)) -> u64 {
        self.scenario.steps.sort_by_key(|(at, _)| *at);
        scenario::run_with(seed, &self.scenario, |run| {
            begin(run, &self.load);
            other(run);
        })
    }
}

/// How many replicas acks=all needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Required {
    One,
    Two,
}

fn begin(run: &mut Run, load: &Load) {
    let mut random = run.cluster.world.random();
    let hosts = run.cluster.hosts();
    for (number, place) in run.places.clone().into_iter().enumerate() {
        let at_once = (0..load.writers).map(|_| (Promise::All, Duration::ZERO));
        let of_leader = (0..load.leader_writers).map(|_| (Promise::Leader, Duration::ZERO));
        let late = load.late_writer.map(|begins| (Promise::All, begins));
        for (writer, (promise, begins)) in at_once.chain(of_leader).chain(late).enumerate() {
            let writing = Writing {
                in_flight: load.in_flight,
                pause: load.pause.clone(),
                value_bytes: load.value_bytes.clone(),
                ..Writing::steady(&place, &format!("w{number}.{writer}"), promise)
            };
            let kafka = Kafka::new(&writing.writer, &hosts);
            let writing = producer::run(kafka, run.history.clone(), writing, random.fork());
            run.cluster.spawn_awaited(&run.history, async move {
                sleep(begins).await;
                writing.await;
            });
        }
        for source in [Source::Leader, Source::Follower] {
            let consumer = Consumer::new(Kafka::new("reader", &hosts), run.history.clone(), &place, source);
            run.cluster.world.spawn_client(&run.cluster.outside, consumer.clone().run());
            run.consumers.push(consumer);
        }
    }
}
