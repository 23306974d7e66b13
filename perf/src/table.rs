//! The table of a run: medians over rounds, and ratios to Apache Kafka within the run. Pure.

use std::fmt::Write as _;

use crate::results::Sample;
use crate::side::Side;

/// One load, its samples of all sides and rounds, as lines of text.
pub(crate) fn of(title: &str, samples: &[Sample]) -> String {
    let paced = samples.iter().any(|sample| sample.consumed.is_some());
    let mut out = format!("\n{title}\n");
    let head = if paced {
        "                      ack p50    p99 ms   end-to-end p50    p99 ms   ratios to Kafka: ack p99, e2e p50, e2e p99"
    } else {
        "                         MiB/s   p50 ms   p99 ms   CPU s leader  follower   MiB per CPU s   ratios to Kafka: MiB/s, p99, MiB per CPU s"
    };
    let _ = writeln!(out, "{head}");
    let kafka = Row::of(samples, Side::Kafka);
    for side in Side::ALL {
        let Some(row) = Row::of(samples, side) else { continue };
        let ratios = kafka.as_ref().map_or_else(|| "–".to_owned(), |kafka| row.ratios(kafka, paced));
        let line = if paced { row.paced() } else { row.loaded() };
        let _ = writeln!(out, "{:<20} {line}   {ratios}", side.title());
    }
    out
}

/// Medians of one side.
struct Row {
    mib_per_second: f64,
    ack_p50: f64,
    ack_p99: f64,
    consumed_p50: f64,
    consumed_p99: f64,
    leader_seconds: f64,
    follower_seconds: f64,
    mib_per_cpu_second: f64,
}

impl Row {
    fn of(samples: &[Sample], side: Side) -> Option<Self> {
        let mine: Vec<&Sample> = samples.iter().filter(|sample| sample.side == side).collect();
        if mine.is_empty() {
            return None;
        }
        let middle = |figure: &dyn Fn(&Sample) -> f64| median(mine.iter().map(|sample| figure(sample)).collect());
        let rate_in_mib = |sample: &Sample| {
            sample.records_per_second.unwrap_or_default() * f64::from(sample.record_bytes) / f64::from(1 << 20)
        };
        Some(Self {
            mib_per_second: middle(&rate_in_mib),
            ack_p50: middle(&|sample| sample.acknowledged.p50_ms),
            ack_p99: middle(&|sample| sample.acknowledged.p99_ms),
            consumed_p50: middle(&|sample| sample.consumed.map_or(0.0, |consumed| consumed.p50_ms)),
            consumed_p99: middle(&|sample| sample.consumed.map_or(0.0, |consumed| consumed.p99_ms)),
            leader_seconds: middle(&|sample| sample.broker_seconds().0),
            follower_seconds: middle(&|sample| sample.broker_seconds().1),
            mib_per_cpu_second: middle(&Sample::mib_per_cpu_second),
        })
    }

    fn loaded(&self) -> String {
        format!(
            "{:>9.1} {:>8.1} {:>8.1} {:>14.2} {:>9.2} {:>15.1}",
            self.mib_per_second,
            self.ack_p50,
            self.ack_p99,
            self.leader_seconds,
            self.follower_seconds,
            self.mib_per_cpu_second
        )
    }

    fn paced(&self) -> String {
        format!("{:>8.2} {:>9.2} {:>16.2} {:>9.2}", self.ack_p50, self.ack_p99, self.consumed_p50, self.consumed_p99)
    }

    fn ratios(&self, kafka: &Self, paced: bool) -> String {
        let pairs = if paced {
            [
                (self.ack_p99, kafka.ack_p99),
                (self.consumed_p50, kafka.consumed_p50),
                (self.consumed_p99, kafka.consumed_p99),
            ]
        } else {
            [
                (self.mib_per_second, kafka.mib_per_second),
                (self.ack_p99, kafka.ack_p99),
                (self.mib_per_cpu_second, kafka.mib_per_cpu_second),
            ]
        };
        pairs.map(|(mine, theirs)| format!("{:>6.2}", mine / theirs)).join(" ")
    }
}

/// The middle value; of an even number the mean of the two in the middle. Panics without a value.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::counts::Counts;
    use crate::results::Quantiles;
    use crate::usage::Usage;

    fn sample(side: Side, round: u32, seconds: f64) -> Sample {
        let used = |user_seconds: f64| Usage { user_seconds, ..Usage::default() };
        Sample {
            side,
            round,
            records: 1 << 10,
            record_bytes: 1 << 10,
            acknowledged: Quantiles { p50_ms: 1.0, p99_ms: seconds * 10.0, max_ms: 99.0 },
            consumed: None,
            records_per_second: Some(2048.0),
            catch_up: Duration::ZERO,
            leader: 2,
            usage: BTreeMap::from([
                ("broker 1".to_owned(), used(seconds / 4.0)),
                ("broker 2".to_owned(), used(seconds * 3.0 / 4.0)),
                ("bucket".to_owned(), used(77.0)),
            ]),
            counts: Counts::new(),
        }
    }

    #[test]
    fn ratios_are_of_medians_and_only_brokers_count() {
        let samples: Vec<Sample> = [(Side::Kafka, 2.0), (Side::Bytes, 0.5)]
            .into_iter()
            .flat_map(|(side, seconds)| {
                [(1, 1.0), (2, 9.0), (3, 1.0)].map(|(round, by)| sample(side, round, seconds * by))
            })
            .collect();
        let text = of("load", &samples);
        let row = |title: &str| text.lines().find(|line| line.starts_with(title)).unwrap().to_owned();
        assert!(row("Sakia, record bytes").ends_with("  1.00   0.25   4.00"), "{text}");
        assert!(row("Apache Kafka").ends_with("  1.00   1.00   1.00"), "{text}");
        assert!(row("Apache Kafka").contains("1.50      0.50"), "{text}");
    }

    #[test]
    fn median_of_an_even_number_lies_between() {
        assert!((median(vec![4.0, 1.0, 3.0, 2.0]) - 2.5).abs() < 1e-9);
    }
}
