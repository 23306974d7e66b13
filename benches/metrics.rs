//! What counting costs: held series, series looked up by label, a page of metrics.

use std::hint::black_box;

use sakia_benches::{Per, time};
use sakia_metrics::{Description, LATENCY_MICROS, Registry, Unit};

fn main() {
    let registry = Registry::new();
    let by_client = registry.counters(Description::new("bench_bytes_total", "Bytes.").labels(&["client_id", "topic"]));
    let latency = registry.histograms(Description::new("bench_seconds", "Time.").unit(Unit::Millionth), LATENCY_MICROS);
    let (counter, histogram) = (by_client.with(&["client-0", "topic-0"]), latency.with(&[]));
    time("counter: add", Per::Step, || counter.add(black_box(2_000)));
    let mut micros = 1;
    time("histogram: record", Per::Step, || {
        micros = micros * 7 % 100_003;
        histogram.record(black_box(micros));
    });
    for number in 0..1_000 {
        by_client.with(&[&format!("client-{number}"), "topic-0"]).add(1);
    }
    time("counter of 1,000: look up by two labels and add", Per::Step, || {
        by_client.with(black_box(&["client-777", "topic-0"])).add(black_box(2_000));
    });
    let mut page = String::new();
    time("page of 1,001 series", Per::Things(1_001), || {
        page.clear();
        registry.render(&mut page);
        black_box(page.len());
    });
}
