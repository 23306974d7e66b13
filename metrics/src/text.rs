//! The scrape as text: Prometheus' format 0.0.4, or OpenMetrics 1.0 for those who ask for it.
//!
//! Pure.
//! Invariant: no byte of a label value can end the value or the line; one family stands together, after its HELP and
//! TYPE; two scrapes of the same state are equal byte for byte.

use std::fmt::{self, Write};

use crate::registry::{AnyFamily, Description, Family};
use crate::series::Histogram;

/// Which text a scraper wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `text/plain; version=0.0.4; charset=utf-8`
    Prometheus,
    /// `application/openmetrics-text; version=1.0.0; charset=utf-8`
    OpenMetrics,
}

impl Format {
    /// Chooses by the `Accept` header of a scrape.
    #[must_use]
    pub fn for_accept(accept: Option<&str>) -> Self {
        match accept {
            Some(text) if text.contains("application/openmetrics-text") => Self::OpenMetrics,
            _ => Self::Prometheus,
        }
    }

    /// The `Content-Type` of the answer.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

pub(crate) fn write_all(families: &[AnyFamily], format: Format, out: &mut String) {
    for family in families {
        match family {
            AnyFamily::Counters(counters) => {
                write_numbers(&counters.0, "counter", format, out, |counter| i128::from(counter.value()));
            }
            AnyFamily::Gauges(gauges) => {
                write_numbers(&gauges.0, "gauge", format, out, |gauge| i128::from(gauge.value()));
            }
            AnyFamily::Histograms(histograms) => write_histograms(&histograms.0, format, out),
        }
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
}

/// A string takes everything that is written to it.
fn done(written: fmt::Result) {
    written.expect("writing to a string does not fail");
}

fn write_head(description: &Description, kind: &str, format: Format, out: &mut String) {
    let name = match format {
        Format::Prometheus => description.name,
        // OpenMetrics names the family of a counter without the suffix of its samples.
        Format::OpenMetrics if kind == "counter" => description.name.strip_suffix("_total").unwrap_or(description.name),
        Format::OpenMetrics => description.name,
    };
    done(write!(out, "# HELP {name} "));
    for c in description.help.chars() {
        match c {
            '"' if format == Format::Prometheus => out.push('"'),
            c => push_escaped(out, c),
        }
    }
    done(write!(out, "\n# TYPE {name} {kind}\n"));
}

fn write_numbers<S: Clone>(
    family: &Family<S>,
    kind: &str,
    format: Format,
    out: &mut String,
    value: impl Fn(&S) -> i128,
) {
    let description = &family.description;
    write_head(description, kind, format, out);
    family.for_each(|values, series| {
        out.push_str(description.name);
        write_labels(description, values, None, out);
        out.push(' ');
        done(description.unit.write(out, value(series)));
        out.push('\n');
    });
}

fn write_histograms(family: &Family<Histogram>, format: Format, out: &mut String) {
    let description = &family.description;
    write_head(description, "histogram", format, out);
    let mut bounds: Vec<String> = family.bounds.iter().map(|&bound| bound_text(description, bound)).collect();
    bounds.push("+Inf".to_owned());
    family.for_each(|values, histogram| {
        let snapshot = histogram.snapshot();
        for (bound, below) in bounds.iter().zip(&snapshot.cumulative) {
            done(write!(out, "{}_bucket", description.name));
            write_labels(description, values, Some(bound), out);
            done(writeln!(out, " {below}"));
        }
        done(write!(out, "{}_sum", description.name));
        write_labels(description, values, None, out);
        out.push(' ');
        done(description.unit.write(out, i128::from(snapshot.sum)));
        done(write!(out, "\n{}_count", description.name));
        write_labels(description, values, None, out);
        let count = snapshot.cumulative.last().copied().unwrap_or(0);
        done(writeln!(out, " {count}"));
    });
}

/// OpenMetrics wants bounds written as floats; the same text in both formats keeps one series one series.
fn bound_text(description: &Description, bound: u64) -> String {
    let mut text = String::new();
    done(description.unit.write(&mut text, i128::from(bound)));
    if !text.contains('.') {
        text.push_str(".0");
    }
    text
}

fn write_labels(description: &Description, values: &[Box<str>], bound: Option<&str>, out: &mut String) {
    let labels = description.labels.iter().copied().zip(values.iter().map(AsRef::as_ref));
    let mut separator = '{';
    for (label, value) in labels.chain(bound.map(|bound| ("le", bound))) {
        out.push(separator);
        separator = ',';
        out.push_str(label);
        out.push_str("=\"");
        value.chars().for_each(|c| push_escaped(out, c));
        out.push('"');
    }
    if separator == ',' {
        out.push('}');
    }
}

fn push_escaped(out: &mut String, c: char) {
    match c {
        '\\' => out.push_str("\\\\"),
        '"' => out.push_str("\\\""),
        '\n' => out.push_str("\\n"),
        c => out.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::series::Unit;

    const BYTES: Description =
        Description::new("bytes_total", "Bytes with \"quotes\",\na \\ and more.").labels(&["id"]);

    #[test]
    fn hostile_values_stay_inside_their_quotes() {
        let registry = Registry::new();
        let family = registry.counters(BYTES);
        for id in ["a\"b", "a\\b", "a\nevil_metric 1", "x} 1", "emoji-\u{1f600}", "type=foo,name=bar:1"] {
            family.with(&[id]).increment();
        }
        let mut out = String::new();
        registry.render(&mut out);
        let expected = concat!(
            "# HELP bytes_total Bytes with \"quotes\",\\na \\\\ and more.\n",
            "# TYPE bytes_total counter\n",
            "bytes_total{id=\"a\\nevil_metric 1\"} 1\n",
            "bytes_total{id=\"a\\\"b\"} 1\n",
            "bytes_total{id=\"a\\\\b\"} 1\n",
            "bytes_total{id=\"emoji-\u{1f600}\"} 1\n",
            "bytes_total{id=\"type=foo,name=bar:1\"} 1\n",
            "bytes_total{id=\"x} 1\"} 1\n",
        );
        assert_eq!(out, expected);
    }

    #[test]
    fn openmetrics_names_families_without_suffix_and_ends_with_eof() {
        let registry = Registry::new();
        registry.counters(Description::new("puts_total", "PUTs.")).with(&[]).add(3);
        let mut out = String::new();
        registry.render_as(Format::for_accept(Some("application/openmetrics-text; version=1.0.0")), &mut out);
        assert_eq!(out, "# HELP puts PUTs.\n# TYPE puts counter\nputs_total 3\n# EOF\n");
    }

    #[test]
    fn histograms_are_cumulative_and_a_scrape_resets_nothing() {
        let registry = Registry::new();
        let description = Description::new("wait_seconds", "Wait.").labels(&["api"]).unit(Unit::Millionth);
        let histogram = registry.histograms(description, &[500, 2_000_000]).with(&["Fetch"]);
        for micros in [400, 600, 3_000_000] {
            histogram.record(micros);
        }
        let (mut first, mut second) = (String::new(), String::new());
        registry.render(&mut first);
        registry.render(&mut second);
        let expected = concat!(
            "# HELP wait_seconds Wait.\n# TYPE wait_seconds histogram\n",
            "wait_seconds_bucket{api=\"Fetch\",le=\"0.0005\"} 1\n",
            "wait_seconds_bucket{api=\"Fetch\",le=\"2.0\"} 2\n",
            "wait_seconds_bucket{api=\"Fetch\",le=\"+Inf\"} 3\n",
            "wait_seconds_sum{api=\"Fetch\"} 3.001\n",
            "wait_seconds_count{api=\"Fetch\"} 3\n",
        );
        assert_eq!(first, expected);
        assert_eq!(second, expected);
    }

    #[test]
    fn gauges_show_negative_values_and_leave_when_removed() {
        let registry = Registry::new();
        let family = registry.gauges(Description::new("lag", "Lag.").labels(&["partition"]));
        family.with(&["0"]).add(-2);
        family.with(&["1"]).set(5);
        family.remove(&["1"]);
        let mut out = String::new();
        registry.render(&mut out);
        assert_eq!(out, "# HELP lag Lag.\n# TYPE lag gauge\nlag{partition=\"0\"} -2\n");
    }
}
