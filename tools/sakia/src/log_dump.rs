//! `sakia log dump`: the batches of a segment file, each checked.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use sakia_protocol::batch::{ScanEnd, StoredBatch, scan};
use sakia_protocol::ids::LeaderEpoch;
use serde_json::{Value, json};

use crate::Shown;
use crate::failure::Failure;
use crate::output::{print, row, table};

/// Verbs of `sakia log`.
#[derive(Subcommand)]
pub(crate) enum LogCommand {
    /// Lists the batches of a segment file
    Dump {
        /// The file, as 00000000000000000000.log
        file: PathBuf,
        #[command(flatten)]
        shown: Shown,
    },
}

pub(crate) fn run(command: &LogCommand) -> Result<(), Failure> {
    let LogCommand::Dump { file, shown } = command;
    let bytes = read(file)?;
    let mut walk = scan(&bytes);
    let batches: Vec<StoredBatch<'_>> = walk.by_ref().collect();
    let (good, end) = (walk.position(), walk.finish());
    let value = json!({
        "file": file.display().to_string(),
        "file_bytes": bytes.len(),
        "batch_bytes": good,
        "next_offset": walk.next_offset().map(|offset| offset.get()),
        "end": end.to_string(),
        "batches": batches.iter().map(value_of).collect::<Vec<_>>(),
    });
    print(shown.form(), &value, || text_of(&batches, good, &end))?;
    match end {
        // Zeros follow the last batch of a segment that is being written.
        ScanEnd::Complete | ScanEnd::Zeros => Ok(()),
        _ => Err(Failure::failed(format!("{}: after {good} bytes: {end}", file.display()))),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|error| Failure::failed(format!("cannot read {}: {error}", file.display())))
}

fn value_of(batch: &StoredBatch<'_>) -> Value {
    let header = &batch.header;
    let attributes = header.attributes;
    json!({
        "position": batch.position,
        "base_offset": header.base_offset.get(),
        "last_offset": header.last_offset().get(),
        "records": header.record_count,
        "bytes": header.len,
        "leader_epoch": header.leader_epoch.map(LeaderEpoch::get),
        "codec": codec(batch),
        "timestamp_type": format!("{:?}", attributes.timestamp_type()),
        "base_timestamp_ms": header.base_timestamp_ms,
        "max_timestamp_ms": header.max_timestamp_ms,
        "producer_id": header.producer.map(|producer| producer.id.get()),
        "producer_epoch": header.producer.map(|producer| producer.epoch.get()),
        "base_sequence": header.producer.and_then(|producer| producer.base_sequence),
        "transactional": attributes.is_transactional(),
        "control": attributes.is_control(),
        "crc32c": format!("{:08x}", header.crc),
    })
}

fn codec(batch: &StoredBatch<'_>) -> String {
    format!("{:?}", batch.header.compression()).to_lowercase()
}

fn text_of(batches: &[StoredBatch<'_>], good: usize, end: &ScanEnd) -> String {
    let mut rows = vec![row([
        &"position",
        &"offsets",
        &"records",
        &"bytes",
        &"epoch",
        &"codec",
        &"producer",
        &"sequence",
        &"max timestamp",
    ])];
    rows.extend(batches.iter().map(|batch| {
        let header = &batch.header;
        let offsets = format!("{}..{}", header.base_offset, header.next_offset());
        let epoch = header.leader_epoch.map_or_else(|| "–".to_owned(), |epoch| epoch.to_string());
        let producer = header.producer.map_or_else(|| "–".to_owned(), |p| format!("{}/{}", p.id, p.epoch));
        let sequence = header.producer.and_then(|p| p.base_sequence).map_or_else(|| "–".to_owned(), |s| s.to_string());
        row([
            &batch.position,
            &offsets,
            &header.record_count,
            &header.len,
            &epoch,
            &codec(batch),
            &producer,
            &sequence,
            &header.max_timestamp_ms,
        ])
    }));
    format!("{}{} batches, {good} bytes, then {end}\n", table(&rows), batches.len())
}
