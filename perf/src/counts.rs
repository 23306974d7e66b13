//! What Sakia's brokers counted meanwhile, from their `/metrics`: sums over brokers and labels, as differences.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::failure::Failure;

const PATIENCE: Duration = Duration::from_secs(5);

/// Name in results, name on the page. A topic's counts come from its leader, so adding brokers counts nothing twice.
const COUNTED: [(&str, &str); 11] = [
    ("replication_bytes", "kafka_server_brokertopicmetrics_replicationbytesout_total"),
    ("replication_control_bytes", "sakia_replication_control_bytes_out_total"),
    ("references", "sakia_references_out_total"),
    ("fallbacks", "sakia_wal_fallbacks_total"),
    ("objects", "sakia_wal_objects_total"),
    ("object_bytes", "sakia_wal_object_bytes_total"),
    ("object_gets", "sakia_wal_object_gets_total"),
    ("put_seconds", "kafka_server_remote_wal_put_seconds_sum"),
    ("puts_timed", "kafka_server_remote_wal_put_seconds_count"),
    ("get_seconds", "kafka_server_remote_wal_get_seconds_sum"),
    ("gets_timed", "kafka_server_remote_wal_get_seconds_count"),
];

/// Sums by name in results.
pub(crate) type Counts = BTreeMap<&'static str, f64>;

/// Reads the pages of all brokers; no pages give no counts.
pub(crate) fn read(pages: &[(String, SocketAddr)]) -> Result<Counts, Failure> {
    let mut counts = Counts::new();
    for (name, address) in pages {
        let page = page(*address).map_err(|error| Failure::of(format!("/metrics of {name}"), error))?;
        for (short, value) in parse(&page) {
            *counts.entry(short).or_default() += value;
        }
    }
    Ok(counts)
}

/// `after - before`, by name.
pub(crate) fn difference(before: &Counts, after: &Counts) -> Counts {
    after.iter().map(|(name, value)| (*name, value - before.get(name).unwrap_or(&0.0))).collect()
}

fn page(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Lines as `name{labels} value`; others are passed over.
fn parse(page: &str) -> Vec<(&'static str, f64)> {
    let row = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        let name = name.split('{').next()?;
        let (short, _) = COUNTED.iter().find(|(_, long)| *long == name)?;
        Some((*short, value.parse().ok()?))
    };
    page.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_matter_and_differences_are_taken() {
        let page = "# HELP x y\nsakia_references_out_total 7\nsakia_wal_fallbacks_total{reason=\"a b\"} 2\nother 9\n";
        assert_eq!(parse(page), [("references", 7.0), ("fallbacks", 2.0)]);
        let (before, after) = (Counts::from([("puts", 2.0)]), Counts::from([("puts", 5.0), ("gets", 1.0)]));
        assert_eq!(difference(&before, &after), Counts::from([("puts", 3.0), ("gets", 1.0)]));
    }
}
