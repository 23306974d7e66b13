//! `baseline`: the loads of KIP-1176's test and their acks=all twins, on every side in turns.
//!
//! All clusters are up for the whole run and rest while another one is measured. A B C A B C: what else the machine
//! does meets every side. A first, shorter round warms up (class loading, JIT, connections) and is not kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::cluster::{self, Cluster};
use crate::failure::Failure;
use crate::load::{Amount, LOADS, Load, Target, measure};
use crate::machine;
use crate::results::{self, Sample};
use crate::side::Side;
use crate::table;
use crate::usage::Meter;

/// Paced records of the round that is not kept, behind those that the load itself does not count.
const WARM_UP_PACED: u32 = 10;

/// Arguments of `baseline`.
#[derive(Args)]
pub(crate) struct BaselineArguments {
    /// Rounds that count
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// One round of a third of the records: below 3 minutes
    #[arg(long)]
    quick: bool,
    /// Records of 2000 bytes per load
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1000..=10_000_000))]
    records: u32,
    /// Records of 1600 bytes sent alone, per end-to-end load
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    paced_records: u32,
    /// Milliseconds from one of these to the next
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    paced_every: u64,
    /// Who takes part
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Side::ALL)]
    sides: Vec<Side>,
    /// The binary under test [default: target/release/sakia]
    #[arg(long, value_name = "FILE")]
    sakia: Option<PathBuf>,
    /// Jars of Apache Kafka, fetched by Maven if missing [default: target/kafka-libs]
    #[arg(long, value_name = "FOLDER")]
    libs: Option<PathBuf>,
    /// Logs of all brokers, on the disk to be measured; taken away afterwards [default: below target]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// First port; 2000 above it are used
    #[arg(long, default_value_t = 28_000, value_parser = clap::value_parser!(u16).range(1024..=60_000))]
    port_base: u16,
    /// Keeps no lines in perf/results
    #[arg(long)]
    forget: bool,
}

/// Runs it all and prints the tables.
pub(crate) fn run(arguments: &BaselineArguments) -> Result<(), Failure> {
    let plan = Plan::of(arguments);
    let run = facts();
    println!("{}", Value::Object(run.clone()));
    let clusters = Clusters::start(&plan)?;
    let samples = all_rounds(&plan, &run, &clusters).map_err(|why| clusters.explain(why))?;
    for load in LOADS {
        let of_load = samples.iter().filter(|(of, _)| *of == load);
        let of_load: Vec<Sample> = of_load.map(|(_, sample)| sample.clone()).collect();
        print!("{}", table::of(&load.title(plan.amount), &of_load));
    }
    let (before, now) = (&run["load_before"], machine::load());
    println!("\nmedians over {} round(s); load of the machine was {before} before, is {now}", plan.rounds);
    Ok(())
}

fn all_rounds(plan: &Plan, run: &Map<String, Value>, clusters: &Clusters) -> Result<Vec<(Load, Sample)>, Failure> {
    let meter = Meter::new()?;
    println!("warming up");
    let mut samples = Vec::new();
    for round in 0..=plan.rounds {
        let amount = if round == 0 { plan.warm_up() } else { plan.amount };
        for load in LOADS {
            for side in &plan.sides {
                let target = Target { cluster: clusters.of(*side), side: *side, round, libs: &plan.libs };
                let sample = measure(target, load, amount, meter)
                    .map_err(|why| Failure::of(format!("round {round} {} {}", load.name(), side.name()), why))?;
                if round == 0 {
                    continue;
                }
                println!("round {round} {} {}: {}", load.name(), side.name(), brief(&sample));
                keep(plan, run, target.cluster, load, &sample)?;
                samples.push((load, sample));
            }
        }
    }
    Ok(samples)
}

/// What all lines of a run have in common.
fn facts() -> Map<String, Value> {
    let facts = [
        ("run", json!(machine::stamp())),
        ("commit", json!(machine::commit())),
        ("machine", machine::describe()),
        ("load_before", json!(machine::load())),
    ];
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

struct Plan {
    rounds: u32,
    amount: Amount,
    sides: Vec<Side>,
    sakia: PathBuf,
    libs: PathBuf,
    data: PathBuf,
    port_base: u16,
    results: Option<PathBuf>,
}

impl Plan {
    fn of(arguments: &BaselineArguments) -> Self {
        let target = machine::target();
        let or = |path: &Option<PathBuf>, name: &str| path.clone().unwrap_or_else(|| target.join(name));
        Self {
            rounds: if arguments.quick { 1 } else { arguments.rounds },
            amount: Amount {
                records: if arguments.quick { arguments.records / 3 } else { arguments.records },
                paced_records: arguments.paced_records,
                paced_every: Duration::from_millis(arguments.paced_every),
            },
            sides: arguments.sides.clone(),
            sakia: or(&arguments.sakia, "release/sakia"),
            libs: or(&arguments.libs, "kafka-libs"),
            data: or(&arguments.data, &format!("perf-{}", std::process::id())),
            port_base: arguments.port_base,
            results: (!arguments.forget).then(|| machine::crate_folder().join("results")),
        }
    }

    fn warm_up(&self) -> Amount {
        Amount { records: self.amount.records / 2, paced_records: WARM_UP_PACED, ..self.amount }
    }

    fn takes_part(&self, side: Side) -> bool {
        self.sides.contains(&side)
    }
}

/// What runs; the two sides of Sakia share one cluster.
struct Clusters {
    sakia: Option<Cluster>,
    kafka: Option<Cluster>,
    /// Held for its drop, behind the clusters.
    _data: Emptied,
}

/// A folder that is taken away when dropped, if nothing is left in it.
struct Emptied(PathBuf);

impl Drop for Emptied {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

impl Clusters {
    fn start(plan: &Plan) -> Result<Self, Failure> {
        cluster::jars(&plan.libs)?;
        fs::create_dir_all(&plan.data).map_err(|error| Failure::of(plan.data.display(), error))?;
        let data = Emptied(plan.data.clone());
        let folder = |name: &str| -> PathBuf { Path::new(&plan.data).join(name) };
        let mut sakia = None;
        if plan.takes_part(Side::Objects) || plan.takes_part(Side::Bytes) {
            println!("starting Sakia");
            sakia = Some(Cluster::sakia(&plan.sakia, &folder("sakia"), plan.port_base)?);
        }
        let mut kafka = None;
        if plan.takes_part(Side::Kafka) {
            println!("starting Apache Kafka");
            kafka = Some(Cluster::kafka(&plan.libs, &folder("kafka"), plan.port_base + 1000)?);
        }
        Ok(Self { sakia, kafka, _data: data })
    }

    /// Saves what the processes wrote and says where.
    fn explain(&self, why: Failure) -> Failure {
        let to = machine::target().join(format!("perf-failed-{}", std::process::id()));
        let mut text = format!("{why}; logs:");
        for (name, cluster) in [("sakia", &self.sakia), ("kafka", &self.kafka)] {
            let Some(cluster) = cluster else { continue };
            let folder = to.join(name);
            match cluster.save_logs(&folder) {
                Ok(()) => text += &format!(" {}", folder.display()),
                Err(error) => text += &format!(" {} ({error})", folder.display()),
            }
        }
        Failure::new(text)
    }

    fn of(&self, side: Side) -> &Cluster {
        let cluster = if side == Side::Kafka { &self.kafka } else { &self.sakia };
        cluster.as_ref().expect("a side that takes part was started")
    }
}

fn keep(plan: &Plan, run: &Map<String, Value>, cluster: &Cluster, load: Load, sample: &Sample) -> Result<(), Failure> {
    let Some(folder) = &plan.results else { return Ok(()) };
    let mut common = run.clone();
    common.insert("scenario".to_owned(), json!(load.name()));
    common.insert("load_now".to_owned(), json!(machine::load()));
    common.insert("cluster".to_owned(), cluster.remarks.clone());
    let day = run["run"].as_str().and_then(|stamp| stamp.get(..10)).unwrap_or("undated");
    results::append(&folder.join(format!("{day}-{}.jsonl", load.name())), &common, sample)
}

fn brief(sample: &Sample) -> String {
    let (leader, follower) = sample.broker_seconds();
    let acknowledged = sample.acknowledged;
    let mut text = format!("ack p50 {:.2} ms, p99 {:.2} ms", acknowledged.p50_ms, acknowledged.p99_ms);
    if let Some(consumed) = sample.consumed {
        text += &format!("; end to end p50 {:.2} ms, p99 {:.2} ms", consumed.p50_ms, consumed.p99_ms);
    }
    if let Some(rate) = sample.records_per_second {
        text += &format!("; {rate:.0} records/s");
    }
    text + &format!("; CPU {leader:.2} + {follower:.2} s")
}
