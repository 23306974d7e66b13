//! The status page as one self-contained HTML text. Pure.
//!
//! Invariant: nothing on it is loaded from elsewhere, and no name of a topic or zone can end a tag: all are escaped.

use std::fmt::Write as _;

use sakia_controller::image::Standing;
use sakia_protocol::ids::BrokerId;

use super::page::{ObjectPath, PartitionRow, StatusPage};
use crate::settings::Role;

/// Families that the page repeats from `/metrics`, each by its start: a name, or all names that go on from it.
const COUNTERS: &[&str] = &[
    "kafka_server_brokertopicmetrics_",
    "kafka_server_remote_wal_put_requests_total",
    "kafka_server_remote_wal_fetch_bytes_total",
    "kafka_server_replicamanager_",
    "kafka_server_socketservermetrics_connectioncount",
    "sakia_",
];

/// Lines of counters. At the bound `/metrics` has the rest.
const COUNTER_LINES_MAX: usize = 300;

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#222}\
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}\
th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid #ddd}th{color:#666;font-weight:500}\
.bad{color:#b00020;font-weight:600}.number{text-align:right;font-variant-numeric:tabular-nums}code{font-size:.9em}";

/// The page, with the key counters out of a scrape in Prometheus' text format.
pub(super) fn render(page: &StatusPage, metrics: &str) -> String {
    let mut out = String::with_capacity(16 << 10);
    let role = match page.process.role {
        Role::Broker => "broker",
        Role::Controller => "controller",
    };
    let title = format!("Sakia {role} {}", page.process.id);
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>"
    );
    facts(&mut out, page, metrics);
    brokers(&mut out, page);
    partitions(&mut out, page);
    counters(&mut out, metrics);
    out.push_str("<p><a href=\"/metrics\">/metrics</a></p></body></html>\n");
    out
}

fn facts(out: &mut String, page: &StatusPage, metrics: &str) {
    let zone = page.process.rack.as_deref().unwrap_or("none");
    let _ = write!(out, "<p>Zone <b>{}</b>", escape(zone));
    if !page.cluster_id.is_empty() {
        let _ = write!(out, " · cluster <code>{}</code>", escape(&page.cluster_id));
    }
    if let Some(index) = page.metadata_index {
        let _ = write!(out, " · metadata up to index {index}");
    }
    if page.process.role == Role::Broker {
        let _ = write!(out, " · {}", object_path(page, metrics));
    }
    out.push_str("</p>");
}

fn object_path(page: &StatusPage, metrics: &str) -> String {
    if page.process.object_path == ObjectPath::Off {
        return "object path off: followers get record bytes".to_owned();
    }
    match value(metrics, "sakia_wal_fallback_partitions") {
        Some("0") | None => "object path on: followers read the bucket".to_owned(),
        Some(number) => format!("<span class=\"bad\">object path: {number} partitions get record bytes</span>"),
    }
}

fn value<'a>(metrics: &'a str, name: &str) -> Option<&'a str> {
    metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

fn brokers(out: &mut String, page: &StatusPage) {
    if page.brokers.is_empty() {
        return;
    }
    out.push_str("<h2>Brokers</h2><table><tr><th>id<th>address<th>zone<th>standing</tr>");
    for broker in &page.brokers {
        let (class, standing) = match broker.standing {
            Standing::Active => ("", "active"),
            Standing::Fenced => (" class=\"bad\"", "fenced"),
            Standing::ShuttingDown => ("", "shutting down"),
        };
        let rack = broker.rack.as_deref().unwrap_or("–");
        let (address, rack) = (escape(&broker.address), escape(rack));
        let _ = write!(out, "<tr><td>{}<td>{address}<td>{rack}<td{class}>{standing}</tr>", broker.id);
    }
    out.push_str("</table>");
}

fn partitions(out: &mut String, page: &StatusPage) {
    if page.partitions.is_empty() {
        return;
    }
    let under = page.partitions.iter().filter(|row| row.is_under_replicated()).count();
    let led = page.partitions.iter().filter(|row| row.leader == Some(page.process.id)).count();
    let _ = write!(out, "<h2>Partitions</h2><p>{led} led here, {under} without all their replicas in sync</p>");
    out.push_str("<table><tr><th>topic<th>partition<th>leader<th>epoch<th>replicas<th>in sync</tr>");
    for row in &page.partitions {
        partition(out, row);
    }
    out.push_str("</table>");
    if page.partitions_left_out > 0 {
        let _ = write!(out, "<p>and {} more</p>", page.partitions_left_out);
    }
}

fn partition(out: &mut String, row: &PartitionRow) {
    let leader = row.leader.map_or_else(|| "<span class=\"bad\">none</span>".to_owned(), |id| id.to_string());
    let class = if row.is_under_replicated() { " class=\"bad\"" } else { "" };
    let _ = write!(
        out,
        "<tr><td>{}<td>{}<td>{leader}<td>{}<td>{}<td{class}>{}</tr>",
        escape(&row.topic),
        row.partition,
        row.leader_epoch,
        ids(&row.replicas),
        ids(&row.isr)
    );
}

fn ids(brokers: &[BrokerId]) -> String {
    brokers.iter().map(BrokerId::to_string).collect::<Vec<_>>().join(", ")
}

fn counters(out: &mut String, metrics: &str) {
    let wanted = |line: &&str| {
        COUNTERS.iter().any(|start| line.starts_with(start))
            && !line.split(['{', ' ']).next().unwrap_or("").ends_with("_bucket")
    };
    out.push_str("<h2>Counters</h2><table>");
    for line in metrics.lines().filter(wanted).take(COUNTER_LINES_MAX) {
        if let Some((name, value)) = line.rsplit_once(' ') {
            let _ = write!(out, "<tr><td><code>{}</code><td class=\"number\">{}</tr>", escape(name), escape(value));
        }
    }
    out.push_str("</table>");
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use sakia_protocol::ids::LeaderEpoch;

    use super::super::page::{BrokerRow, Process};
    use super::*;

    fn page() -> StatusPage {
        let id = BrokerId::new(1);
        StatusPage {
            process: Process { id, role: Role::Broker, rack: Some("az1".to_owned()), object_path: ObjectPath::On },
            cluster_id: "abc".to_owned(),
            metadata_index: Some(7),
            brokers: vec![BrokerRow {
                id,
                address: "127.0.0.1:9092".to_owned(),
                rack: Some("<az1>".to_owned()),
                standing: Standing::Fenced,
            }],
            partitions: vec![PartitionRow {
                topic: "t".to_owned(),
                partition: 3,
                leader: None,
                leader_epoch: LeaderEpoch::new(4),
                replicas: vec![id, BrokerId::new(2)],
                isr: vec![id],
            }],
            partitions_left_out: 5,
        }
    }

    #[test]
    fn what_needs_a_person_is_marked() {
        let text = render(&page(), "sakia_wal_fallback_partitions 2\n");
        for part in ["fenced", "<span class=\"bad\">none</span>", "1 without all", "2 partitions get", "and 5 more"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn names_are_escaped() {
        let text = render(&page(), "sakia_x{topic=\"<b>\"} 1\n");
        assert!(text.contains("&lt;az1&gt;") && text.contains("&lt;b&gt;"));
        assert!(!text.contains("<az1>") && !text.contains("<b>}"));
    }

    #[test]
    fn buckets_of_histograms_stay_on_the_metrics_page() {
        let text = render(&page(), "sakia_wait_bucket{le=\"1\"} 3\nsakia_wait_count 3\nprocess_other 1\n");
        assert!(text.contains("sakia_wait_count") && !text.contains("sakia_wait_bucket"));
        assert!(!text.contains("process_other"));
    }
}
