//! What `sakia dev` tells the person: what runs where, how fast the bucket is, lines to paste. Pure.

use std::fmt::Write as _;
use std::time::Duration;

use super::layout::{Layout, Member, PORT_BASE};
use super::round_trip::{OBJECT_BYTES, RoundTrip};

/// The whole text; its last line is `ready`.
pub(super) fn text(layout: &Layout, pids: &[(Member, u32)], round_trip: RoundTrip) -> String {
    let mut out = String::new();
    let (put, get) = (millis(round_trip.put), millis(round_trip.get));
    let _ = writeln!(out, "I/O       io_uring with direct I/O, one shard per broker, threads not pinned");
    let _ = writeln!(out, "bucket    PUT {put} ms + GET {get} ms for {} KB, as measured now", OBJECT_BYTES / 1000);
    let _ = writeln!(out, "data      {}  (logs in {})", layout.data.display(), layout.logs().display());
    for (member, pid) in pids {
        let zone = member.zone().unwrap_or_else(|| "–".to_owned());
        let page = match layout.http_port(*member) {
            Some(port) => format!("http://127.0.0.1:{port}/"),
            None => format!("http://127.0.0.1:{}/_ledger", layout.port(*member)),
        };
        let port = layout.port(*member);
        let _ = writeln!(out, "{:<13} {zone:<4} port {port:<6} pid {pid:<8} kill -9 {pid:<8} {page}", member.name());
    }
    let (first, second) = (layout.address(Member::Broker(1)), layout.address(Member::Broker(2)));
    let restart = restart_line(layout, 1);
    let _ = write!(
        out,
        "
to paste into another terminal:
  echo 'hello from Sakia' | kcat -b {first},{second} -P -t hello
  kcat -b {first},{second} -C -t hello -o beginning -e
  kcat -b {second} -C -t hello -o beginning -e -X client.rack=az2      # read in zone az2
  kafka-console-producer.sh --bootstrap-server {first} --topic hello
  kafka-console-consumer.sh --bootstrap-server {first} --topic hello --from-beginning
  {restart}      # after broker 1 was killed

Ctrl-C stops everything and keeps the data
ready
"
    );
    out
}

/// The command that starts a killed process again.
pub(super) fn restart_line(layout: &Layout, node: u16) -> String {
    let base = if layout.port_base == PORT_BASE { String::new() } else { format!(" --port-base {}", layout.port_base) };
    format!("cargo run --release -- dev --restart {node} --data {}{base}", layout.data.display())
}

fn millis(duration: Duration) -> String {
    let tenths = (duration.as_micros() + 50) / 100;
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_to_paste_is_there() {
        let layout = Layout { data: "/d".into(), port_base: PORT_BASE, partitions: 3 };
        let round_trip = RoundTrip { put: Duration::from_micros(5_449), get: Duration::from_micros(4_050) };
        let text = text(&layout, &[(Member::Bucket, 7), (Member::Broker(1), 8)], round_trip);
        for part in ["PUT 5.4 ms + GET 4.1 ms for 400 KB", "kill -9 8", "9000/_ledger", "127.0.0.1:9644/", "kcat -b"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        assert!(text.ends_with("\nready\n"));
    }
}
