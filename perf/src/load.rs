//! A load on one side: made, waited for on both brokers, measured from before to after.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::counts;
use crate::end_to_end::{self, Pace};
use crate::failure::Failure;
use crate::producer_perf;
use crate::results::{Quantiles, Sample};
use crate::side::Side;
use crate::usage::{Meter, Usage};
use crate::wire::{Client, Leader};

const RECORD_BYTES: u32 = 2_000;
const PACED_BYTES: u32 = 1_600;
/// Of our own client's connections; the JVM's are new in every load.
const PACED_WARM_UP: u32 = 20;

/// What is done to a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Load {
    /// kafka-producer-perf-test at full speed.
    Produce {
        /// `1` or `all`.
        acks: &'static str,
        batch: Batch,
    },
    /// Records sent alone, from producer to consumer.
    EndToEnd { acks: i16 },
}

/// The producer's `batch.size`. With five requests in flight it bounds what one partition takes per round trip: 80 KiB
/// or 1.25 MiB. That matters where an answer waits for the bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Batch {
    /// Kafka's default, 16 KiB.
    Default,
    /// 256 KiB.
    Large,
}

impl Batch {
    fn bytes(self) -> u32 {
        match self {
            Self::Default => 16 << 10,
            Self::Large => 256 << 10,
        }
    }
}

/// The loads of KIP-1176's test with acks=1, and the same with acks=all.
pub(crate) const LOADS: [Load; 5] = [
    Load::Produce { acks: "1", batch: Batch::Default },
    Load::Produce { acks: "all", batch: Batch::Default },
    Load::Produce { acks: "all", batch: Batch::Large },
    Load::EndToEnd { acks: 1 },
    Load::EndToEnd { acks: -1 },
];

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount {
    /// Of `Load::Produce`.
    pub(crate) records: u32,
    /// Of `Load::EndToEnd`.
    pub(crate) paced_records: u32,
    /// From one of these to the next.
    pub(crate) paced_every: Duration,
}

impl Load {
    /// In results and names of topics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Produce { acks: "1", .. } => "produce-acks-1",
            Self::Produce { batch: Batch::Default, .. } => "produce-acks-all",
            Self::Produce { batch: Batch::Large, .. } => "produce-acks-all-256k",
            Self::EndToEnd { acks: 1 } => "end-to-end-acks-1",
            Self::EndToEnd { .. } => "end-to-end-acks-all",
        }
    }

    /// Over its table.
    pub(crate) fn title(self, amount: Amount) -> String {
        let (records, paced_records) = (amount.records, amount.paced_records);
        match self {
            Self::Produce { .. } => {
                format!("{}: {records} records of {RECORD_BYTES} B, linger 20 ms, 1 partition, 2 replicas", self.name())
            }
            Self::EndToEnd { .. } => format!(
                "{}: {paced_records} records of {PACED_BYTES} B, one every {} ms, 1 partition, 2 replicas, consumer at the leader",
                self.name(),
                amount.paced_every.as_millis()
            ),
        }
    }
}

/// Where a load goes.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) side: Side,
    /// 0 is the warm-up.
    pub(crate) round: u32,
    /// Of the producer's tool.
    pub(crate) libs: &'a Path,
}

/// Makes the load on a topic of its own.
pub(crate) fn measure(target: Target<'_>, load: Load, amount: Amount, meter: Meter) -> Result<Sample, Failure> {
    let Target { cluster, side, round, .. } = target;
    let topic = format!("{}-{}-{round}", load.name(), side.name());
    let mut client = cluster.client()?;
    client.create_topic(&topic, side.topic_configs())?;
    let leader = client.leader_of(&topic)?;
    let mut at_leader = Client::connect(leader.address)?;
    at_leader.wait_for_high_watermark(&topic, 0)?;
    let (usage_before, counts_before) = (cluster.usage(meter)?, counts::read(cluster.pages())?);
    let made = match load {
        Load::Produce { acks, batch } => produce(target, &topic, amount, acks, batch)?,
        Load::EndToEnd { acks } => end_to_end(leader, &topic, amount, acks)?,
    };
    let ended = Instant::now();
    at_leader.wait_for_high_watermark(&topic, i64::from(made.all_records))?;
    let catch_up = ended.elapsed();
    let usage = cluster.usage(meter)?;
    let counts = counts::difference(&counts_before, &counts::read(cluster.pages())?);
    let since = |(name, used): (String, Usage)| {
        let before = usage_before.get(&name).copied().unwrap_or_default();
        (name, used.since(before))
    };
    Ok(Sample {
        side,
        round,
        records: made.all_records,
        record_bytes: made.record_bytes,
        acknowledged: made.acknowledged,
        consumed: made.consumed,
        records_per_second: made.records_per_second,
        catch_up,
        leader: leader.node,
        usage: usage.into_iter().map(since).collect(),
        counts,
    })
}

/// What a load gave.
struct Made {
    all_records: u32,
    record_bytes: u32,
    acknowledged: Quantiles,
    consumed: Option<Quantiles>,
    records_per_second: Option<f64>,
}

fn produce(target: Target<'_>, topic: &str, amount: Amount, acks: &'static str, batch: Batch) -> Result<Made, Failure> {
    let report = producer_perf::run(producer_perf::Load {
        libs: target.libs,
        bootstrap: target.cluster.bootstrap(),
        topic,
        records: amount.records,
        record_bytes: RECORD_BYTES,
        acks,
        batch_bytes: batch.bytes(),
    })?;
    Ok(Made {
        all_records: amount.records,
        record_bytes: RECORD_BYTES,
        acknowledged: Quantiles { p50_ms: report.p50_ms, p99_ms: report.p99_ms, max_ms: report.max_ms },
        consumed: None,
        records_per_second: Some(report.records_per_second),
    })
}

fn end_to_end(leader: Leader, topic: &str, amount: Amount, acks: i16) -> Result<Made, Failure> {
    let count = |number: u32| usize::try_from(number).expect("u32 fits usize");
    let pace = Pace {
        warm_up: count(PACED_WARM_UP),
        records: count(amount.paced_records),
        record_bytes: count(PACED_BYTES),
        every: amount.paced_every,
        acks,
    };
    let latencies = end_to_end::run(leader, topic, pace)?;
    Ok(Made {
        all_records: PACED_WARM_UP + amount.paced_records,
        record_bytes: PACED_BYTES,
        acknowledged: Quantiles::of(&latencies.acknowledged),
        consumed: Some(Quantiles::of(&latencies.consumed)),
        records_per_second: None,
    })
}
