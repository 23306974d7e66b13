//! Figures of one load on one side, and the line that keeps them.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::counts::Counts;
use crate::failure::Failure;
use crate::side::Side;
use crate::usage::Usage;

/// Milliseconds at which half, and 99 of 100, of the requests were answered, and the slowest.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Quantiles {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

impl Quantiles {
    /// By nearest rank. Panics without a value.
    pub(crate) fn of(latencies: &[Duration]) -> Self {
        assert!(!latencies.is_empty(), "quantiles need a value");
        let mut sorted = latencies.to_vec();
        sorted.sort_unstable();
        let at = |per_cent: usize| {
            let rank = (sorted.len() * per_cent).div_ceil(100).max(1);
            sorted[rank - 1].as_secs_f64() * 1000.0
        };
        Self { p50_ms: at(50), p99_ms: at(99), max_ms: at(100) }
    }

    fn to_json(self) -> Value {
        json!({ "p50": round(self.p50_ms), "p99": round(self.p99_ms), "max": round(self.max_ms) })
    }
}

/// One load on one side in one round.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) side: Side,
    pub(crate) round: u32,
    pub(crate) records: u32,
    pub(crate) record_bytes: u32,
    /// Send to acknowledgement.
    pub(crate) acknowledged: Quantiles,
    /// Send to arrival at the consumer, where one was there.
    pub(crate) consumed: Option<Quantiles>,
    /// As the producer's tool reports it; not of a paced load.
    pub(crate) records_per_second: Option<f64>,
    /// From the producer's end until every record was on both brokers.
    pub(crate) catch_up: Duration,
    /// Node that led.
    pub(crate) leader: i32,
    /// Used by each member from before the load until every record was on both brokers.
    pub(crate) usage: BTreeMap<String, Usage>,
    /// Counted by the brokers meanwhile.
    pub(crate) counts: Counts,
}

impl Sample {
    /// Record bytes produced, in MiB.
    pub(crate) fn mib(&self) -> f64 {
        f64::from(self.records) * f64::from(self.record_bytes) / f64::from(1 << 20)
    }

    /// Processor seconds of the leading broker, and of the other.
    pub(crate) fn broker_seconds(&self) -> (f64, f64) {
        let leader = format!("broker {}", self.leader);
        let seconds = |leads: bool| {
            let chosen =
                self.usage.iter().filter(|(name, _)| name.starts_with("broker ") && (**name == leader) == leads);
            chosen.map(|(_, usage)| usage.cpu_seconds()).sum()
        };
        (seconds(true), seconds(false))
    }

    /// MiB produced per processor second of both brokers.
    pub(crate) fn mib_per_cpu_second(&self) -> f64 {
        let (leader, follower) = self.broker_seconds();
        self.mib() / (leader + follower)
    }

    fn to_json(&self) -> Map<String, Value> {
        let usage = |usage: &Usage| {
            json!({
                "user_seconds": round(usage.user_seconds),
                "system_seconds": round(usage.system_seconds),
                "resident_mib": round(usage.resident_mib),
            })
        };
        let members: BTreeMap<&String, Value> = self.usage.iter().map(|(name, used)| (name, usage(used))).collect();
        let mut line = Map::new();
        let mut put = |name: &str, value: Value| line.insert(name.to_owned(), value);
        put("side", json!(self.side.name()));
        put("round", json!(self.round));
        put("records", json!(self.records));
        put("record_bytes", json!(self.record_bytes));
        put("acknowledged_ms", self.acknowledged.to_json());
        put("end_to_end_ms", self.consumed.map_or(Value::Null, Quantiles::to_json));
        put("records_per_second", self.records_per_second.map_or(Value::Null, |rate| json!(round(rate))));
        put("mib_per_broker_cpu_second", json!(round(self.mib_per_cpu_second())));
        put("catch_up_ms", json!(round(self.catch_up.as_secs_f64() * 1000.0)));
        put("leader", json!(self.leader));
        put("members", json!(members));
        put("counts", json!(self.counts));
        line
    }
}

/// Appends one line: what the run has in common, then the sample.
pub(crate) fn append(path: &Path, run: &Map<String, Value>, sample: &Sample) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::of(path.display(), error);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut line = run.clone();
    line.append(&mut sample.to_json());
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
    writeln!(file, "{}", Value::Object(line)).map_err(failed)
}

/// To three digits behind the point: more would be noise.
fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_by_nearest_rank() {
        let latencies: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(Quantiles::of(&latencies), Quantiles { p50_ms: 100.0, p99_ms: 198.0, max_ms: 200.0 });
        let one = Quantiles::of(&latencies[..1]);
        assert_eq!((one.p50_ms, one.p99_ms), (200.0, 200.0));
    }
}
