//! Load by kafka-producer-perf-test of Apache Kafka 4.3.1, unchanged, the same for every side.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::failure::Failure;
use crate::process::output_of;

const ENDS_WITHIN: Duration = Duration::from_secs(180);

/// Properties of the producer in KIP-1176's test; `acks` and `batch.size` stand beside them.
const PROPERTIES: [&str; 4] = ["linger.ms=20", "retries=2", "delivery.timeout.ms=300000", "request.timeout.ms=30000"];

/// One call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load<'a> {
    pub(crate) libs: &'a Path,
    pub(crate) bootstrap: SocketAddr,
    pub(crate) topic: &'a str,
    pub(crate) records: u32,
    pub(crate) record_bytes: u32,
    /// `1` or `all`.
    pub(crate) acks: &'static str,
    /// `batch.size`.
    pub(crate) batch_bytes: u32,
}

/// What the tool reports. Latencies run from send to acknowledgement and include the wait in the producer's queue.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Report {
    pub(crate) records_per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

/// Runs the tool to its end.
pub(crate) fn run(load: Load<'_>) -> Result<Report, Failure> {
    let mut words: Vec<String> = ["java", "-Xmx512m", "-cp"].map(str::to_owned).into_iter().collect();
    words.push(format!("{}/*", load.libs.display()));
    words.push("org.apache.kafka.tools.ProducerPerformance".to_owned());
    words.extend(["--topic", load.topic, "--throughput", "-1", "--num-records"].map(str::to_owned));
    words.extend([load.records.to_string(), "--record-size".to_owned(), load.record_bytes.to_string()]);
    words.extend(["--bootstrap-server".to_owned(), load.bootstrap.to_string(), "--command-property".to_owned()]);
    words.extend([format!("acks={}", load.acks), format!("batch.size={}", load.batch_bytes)]);
    words.extend(PROPERTIES.map(str::to_owned));
    let text = output_of(&words, ENDS_WITHIN)?;
    parse(&text, load.records).ok_or_else(|| Failure::new(format!("kafka-producer-perf-test printed: {text}")))
}

/// `N records sent, R records/sec (…), … ms avg latency, M ms max latency, A ms 50th, B ms 95th, C ms 99th, …`
fn parse(text: &str, records: u32) -> Option<Report> {
    let last = text.lines().rev().find(|line| line.contains("ms 99th"))?;
    let sent: u32 = last.split(' ').next()?.parse().ok()?;
    let before = |what: &str| {
        let (head, _) = last.split_once(what)?;
        head.trim_end().rsplit(' ').next()?.parse::<f64>().ok()
    };
    let report = Report {
        records_per_second: before("records/sec")?,
        p50_ms: before("ms 50th")?,
        p99_ms: before("ms 99th")?,
        max_ms: before("ms max latency")?,
    };
    (sent == records).then_some(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_read() {
        let text = "24001 records sent, 4800.2 records/sec (9.15 MB/sec), 12.0 ms avg latency, 300.0 ms max latency.\n\
                    100000 records sent, 51229.508197 records/sec (97.71 MB/sec), 212.35 ms avg latency, 421.00 ms max \
                    latency, 220 ms 50th, 380 ms 95th, 410 ms 99th, 419 ms 99.9th.\n";
        let report = parse(text, 100_000).unwrap();
        let expected = Report { records_per_second: 51_229.508_197, p50_ms: 220.0, p99_ms: 410.0, max_ms: 421.0 };
        assert_eq!(report, expected);
        assert_eq!(parse(text, 100_001), None);
        assert_eq!(parse("", 1), None);
    }
}
