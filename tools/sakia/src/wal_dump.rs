//! `sakia wal dump`: what stands in front of a combined object: who wrote it, and its slices.

use std::path::Path;

use clap::Subcommand;
use sakia_remote::ObjectStore as _;
use sakia_remote::key::ObjectKey;
use sakia_remote::object::{HeadView, ObjectError, SliceHeader, read_head};
use serde_json::{Value, json};

use crate::Shown;
use crate::failure::Failure;
use crate::output::{print, row, table};
use crate::store;

/// Read first of an object in a bucket; most heads are shorter.
const FIRST_READ_BYTES: usize = 4096;

/// Verbs of `sakia wal`.
#[derive(Subcommand)]
pub(crate) enum WalCommand {
    /// Shows the head of a combined object
    Dump {
        /// A file, or with --storage-url the name of an object
        object: String,
        /// The bucket, as in remote.wal.storage.url; keys from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
        #[arg(long, value_name = "URL")]
        storage_url: Option<String>,
        #[command(flatten)]
        shown: Shown,
    },
}

pub(crate) fn run(command: &WalCommand) -> Result<(), Failure> {
    let WalCommand::Dump { object, storage_url, shown } = command;
    let bytes = match storage_url {
        Some(url) => fetch(object, url)?,
        None => std::fs::read(Path::new(object)).map_err(|error| {
            Failure::failed(format!("cannot read {object} (is it in a bucket? --storage-url): {error}"))
        })?,
    };
    let head = read_head(&bytes).map_err(|error| Failure::failed(format!("{object}: {error}")))?;
    print(shown.form(), &value_of(&head), || text_of(&head))
}

/// Reads from byte 0 until the head is whole.
fn fetch(key: &str, url: &str) -> Result<Vec<u8>, Failure> {
    let opened = store::open(url, 1)?;
    let key = ObjectKey::new(key);
    let name = key.to_string();
    let answer = store::on_a_shard(move || async move {
        let mut wanted = FIRST_READ_BYTES;
        loop {
            let end = u64::try_from(wanted).expect("usize fits u64");
            let bytes = match opened.store.get(&key, 0..end).await {
                Ok(bytes) => bytes,
                // A small object ends before the first read does.
                Err(sakia_remote::store::StoreError::OutOfRange { length: Some(length), .. }) => {
                    opened.store.get(&key, 0..length).await?
                }
                Err(error) => return Err(error),
            };
            match read_head(&bytes) {
                Err(ObjectError::Short { got, needed }) if needed > got && needed != wanted => wanted = needed,
                _ => return Ok(bytes.to_vec()),
            }
        }
    })?;
    answer.map_err(|error| Failure::failed(format!("{name}: {error}")))
}

fn value_of(head: &HeadView<'_>) -> Value {
    let prelude = head.prelude();
    json!({
        "object_id": head.object_id().to_string(),
        "broker": head.stream().broker.get(),
        "broker_epoch": head.stream().broker_epoch.get(),
        "sequence": head.sequence(),
        "created_at_ms": head.created_at_ms(),
        "metadata_index": head.metadata_index().get(),
        "object_length": prelude.object_length,
        "manifest_length": prelude.manifest_length,
        "slices": head.slices().map(|slice| slice_value(&slice)).collect::<Vec<_>>(),
    })
}

fn slice_value(slice: &SliceHeader) -> Value {
    json!({
        "topic_id": slice.key.topic_id.to_string(),
        "partition": slice.key.partition.get(),
        "leader_epoch": slice.leader_epoch.get(),
        "base_offset": slice.base.get(),
        "next_offset": slice.next.get(),
        "start": slice.start,
        "end": slice.end,
        "crc32c": format!("{:08x}", slice.crc32c),
        "max_timestamp_ms": slice.max_timestamp_ms,
        "log_start": slice.log_start.get(),
    })
}

fn text_of(head: &HeadView<'_>) -> String {
    let stream = head.stream();
    let mut rows = vec![row([&"topic id", &"partition", &"epoch", &"offsets", &"bytes", &"crc32c", &"max timestamp"])];
    rows.extend(head.slices().map(|slice| {
        let offsets = format!("{}..{}", slice.base, slice.next);
        let bytes = format!("{}..{}", slice.start, slice.end);
        let crc = format!("{:08x}", slice.crc32c);
        let key = slice.key;
        row([&key.topic_id, &key.partition, &slice.leader_epoch, &offsets, &bytes, &crc, &slice.max_timestamp_ms])
    }));
    format!(
        "object {} of broker {}, broker epoch {}, id {}, {} bytes, {} slices\n{}",
        head.sequence(),
        stream.broker,
        stream.broker_epoch,
        head.object_id(),
        head.prelude().object_length,
        head.slice_count(),
        table(&rows)
    )
}
