//! Sakia: one `sakia dev`, which starts bucket, controller and brokers; who is who is read from what it prints.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::json;

use super::{Cluster, Folder, READY_WITHIN, loopback};
use crate::failure::Failure;
use crate::machine;
use crate::process::{EndBy, Process};

/// Starts it afresh in `folder`, waits until it says `ready`.
pub(super) fn start(binary: &Path, folder: &Path, port_base: u16) -> Result<Cluster, Failure> {
    if !binary.exists() {
        let path = binary.display();
        return Err(Failure::new(format!("{path} is missing; build it first: cargo build --release --package sakia")));
    }
    fs::create_dir_all(folder).map_err(|error| Failure::of(folder.display(), error))?;
    let guard = Folder(folder.to_owned());
    let words = [
        binary.display().to_string(),
        "dev".to_owned(),
        "--fresh".to_owned(),
        "--data".to_owned(),
        folder.join("data").display().to_string(),
        "--port-base".to_owned(),
        port_base.to_string(),
    ];
    let mut process = Process::start("sakia dev", &words, &folder.join("dev.log"), EndBy::Asking)?;
    let text =
        process.wait_for(READY_WITHIN, |text| text.lines().any(|line| line == "ready").then(|| text.to_owned()))?;
    let pids = pids_in(&text);
    if pids.len() < 4 {
        return Err(Failure::new(format!("sakia dev named {} processes:\n{text}", pids.len())));
    }
    let brokers = [loopback(port_base + 92), loopback(port_base + 192)];
    let bucket_line = text.lines().find(|line| line.starts_with("bucket    PUT")).unwrap_or_default();
    let pages =
        vec![("broker 1".to_owned(), loopback(port_base + 644)), ("broker 2".to_owned(), loopback(port_base + 744))];
    let remarks = json!({
        "bucket": bucket_line.trim_start_matches("bucket").trim(),
        "binary_sha256": machine::sha256(binary),
    });
    let mut cluster = Cluster {
        processes: vec![process],
        folder: guard,
        logs: &[".", "data/logs"],
        pids,
        bootstrap: brokers[0],
        pages,
        remarks,
    };
    cluster.wait_until_ready(&brokers)?;
    Ok(cluster)
}

/// Lines as `broker 1  az1  port 9092  pid 77 …`: the name is what stands before the zone.
fn pids_in(text: &str) -> BTreeMap<String, u32> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let zone = words.iter().position(|word| *word == "port")?.checked_sub(1)?;
        let pid = words.iter().position(|word| *word == "pid")? + 1;
        Some((words.get(..zone)?.join(" "), words.get(pid)?.parse().ok()?))
    };
    text.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_from_the_greeting() {
        let text = "data      /d\n\
                    bucket        –    port 9000   pid 7        kill -9 7        http://127.0.0.1:9000/_ledger\n\
                    broker 1      az1  port 9092   pid 8        kill -9 8        http://127.0.0.1:9644/\n";
        let expected = [("bucket".to_owned(), 7), ("broker 1".to_owned(), 8)];
        assert_eq!(pids_in(text), BTreeMap::from(expected));
    }
}
