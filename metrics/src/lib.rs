//! What the broker counts, and how it is shown to Prometheus.
//!
//! A [`Registry`] holds families; a family (name, help, kind, label names) holds series, one per combination of label
//! values. A series is reached through a handle ([`Counter`], [`Gauge`], [`Histogram`]) that is kept by whoever counts.
//! Reading order: `label.rs`, `series.rs`, `registry.rs`, `text.rs`.
//!
//! Invariant: recording takes no lock and never fails; a scrape reads and changes nothing.
//! Invariant: a family has at most its bound of series plus one; what comes beyond it is counted in the series whose
//! label values are all [`OTHER`], so that sums over a family stay exact.
//! Cost: recording is one atomic addition (a histogram: three). Only finding a handle takes the family's lock.

mod label;
mod registry;
mod series;
mod text;

pub use label::{LABEL_BYTES_MAX, NONE, OTHER, label_value};
pub use registry::{Counters, Description, Gauges, Histograms, Registry, SERIES_MAX};
pub use series::{Counter, Gauge, Histogram, LATENCY_MICROS, Unit};
pub use text::Format;
