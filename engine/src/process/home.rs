//! The data folder of a broker process: what it said at the start, what it is to say, and the mark of a clean stop.
//!
//! Path: taken before any thread starts → its checkpoint files are replaced every so often → the mark is left at the very
//! end.
//!
//! Invariant: until every log was opened, the files go on saying what they said of the others; and the mark is left only
//! if what it claims holds for every log: closed by this process, or closed before and not touched since.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sakia_io::{Receiver, Reply, Signal, oneshot, random_bytes, sleep, timeout};
use sakia_protocol::ids::{BrokerEpoch, Offset, PartitionIndex, Uuid};
use tracing::{error, warn};

use crate::control::broker;
use crate::limits::CHECKPOINTS_ASKED;
use crate::log::checkpoint::{FolderIdentity, OffsetCheckpoint};
use crate::log::folder::{self, Checkpoints, DataFolder};
use crate::log::{Opening, is_want};
use crate::messages::{Addresses, ShardCheckpoint, ShardMessage};
use crate::settings::Settings;
use crate::shard::FolderState;

use super::take_folder;

/// Pause when the system has no file or no memory left for the checkpoints.
const WANT_PAUSE: Duration = Duration::from_secs(1);

/// The data folder, taken.
pub(super) struct Home {
    folder: DataFolder,
    /// What owner shards need to know of it.
    pub(super) state: FolderState,
    /// `directory.id`.
    pub(super) directory: Uuid,
    /// `cluster.id`; `None` for a new folder.
    pub(super) cluster_id: Option<String>,
}

impl Home {
    /// Takes the folder of a process.
    pub(super) async fn open(settings: &Settings) -> Result<Self, String> {
        let path = settings.folder.display();
        let unreadable = |why: io::Error| format!("cannot read the data folder {path}: {why}");
        let folder = take_folder(&settings.folder).await?;
        let state = folder_state(&folder).await.map_err(unreadable)?;
        let (directory, cluster_id) = match FolderIdentity::read(&settings.folder).await.map_err(unreadable)? {
            Some(identity) if identity.node == settings.node_id => (identity.directory, Some(identity.cluster)),
            Some(identity) => {
                return Err(format!(
                    "{path} is the data folder of node {}, not of {}",
                    identity.node, settings.node_id
                ));
            }
            None => (Uuid::from_bytes(random_bytes()), None),
        };
        Ok(Self { folder, state, directory, cluster_id })
    }

    /// The broker epoch that stopped cleanly last (R3).
    pub(super) fn previous_epoch(&self) -> Option<BrokerEpoch> {
        self.folder.clean_stop().and_then(|mark| mark.broker_epoch)
    }

    /// Everything that makes the next start quick and the stop a clean one, the mark last. `None`: some shard did not say
    /// what it holds, so nothing is claimed.
    pub(super) async fn leave(&self, state: Option<ShardCheckpoint>, epoch: Option<BrokerEpoch>) -> io::Result<()> {
        let Some(state) = state else { return Ok(()) };
        self.write(&state).await?;
        if state.is_complete {
            self.folder.forget_failed().await?;
        } else if self.folder.clean_stop().is_none() {
            if !self.state.partitions.is_empty() {
                warn!("logs of an earlier run were not opened in this one; the next start recovers");
            }
            return Ok(());
        }
        // A process that was never registered changed nothing: the epoch that stopped cleanly before it still did.
        broker::leave_clean_stop(self.folder.path(), epoch.or(self.previous_epoch())).await
    }

    async fn write(&self, state: &ShardCheckpoint) -> io::Result<()> {
        self.folder.write_checkpoints(&checkpoints(state, &self.state)).await
    }

    /// Saves checkpoints every so often, and whenever a shard asks (a log was truncated: its recovery point must not stand
    /// above what is written there next). Ends when a shard does not answer any more.
    pub(super) async fn save_for_ever(
        self: Rc<Self>,
        interval: Duration,
        addresses: Addresses,
        failure: Signal,
        mut asked: Receiver<Reply<()>>,
    ) {
        let mut replies = Vec::new();
        loop {
            let more = asked.recv_many(&mut replies, CHECKPOINTS_ASKED);
            let _ = timeout(interval, more).await;
            let Some(state) = gather(&addresses).await else { return };
            if let Err(why) = self.write(&state).await {
                if is_want(&why) {
                    // The files that stand are still true of the logs: whoever cut one waits.
                    warn!("checkpoints cannot be written for now, trying again: {why}");
                    sleep(WANT_PAUSE).await;
                    continue;
                }
                // A log that was cut below its recovery point must not grow again while the file says otherwise.
                error!("the log folder failed: checkpoints could not be written: {why}");
                self.state.has_failed.store(true, Ordering::Relaxed);
                failure.raise();
                return;
            }
            for reply in replies.drain(..) {
                // Whoever asked may have lost its role meanwhile.
                let _ = reply.send(());
            }
        }
    }
}

async fn gather(addresses: &Addresses) -> Option<ShardCheckpoint> {
    let mut whole = ShardCheckpoint { rows: Vec::new(), is_complete: true };
    for shard in addresses.shards.iter() {
        let (reply, answer) = oneshot();
        shard.send(ShardMessage::Checkpoint { reply }).await.ok()?;
        join(&mut whole, answer.await?);
    }
    Some(whole)
}

/// What two shards hold together.
pub(super) fn join(whole: &mut ShardCheckpoint, more: ShardCheckpoint) {
    whole.rows.extend(more.rows);
    whole.is_complete &= more.is_complete;
}

/// The three files: what shards say, and of logs that are not opened yet what was said at the start. Pure.
fn checkpoints(state: &ShardCheckpoint, start: &FolderState) -> Checkpoints {
    let mut files = Checkpoints::default();
    if !state.is_complete {
        for (folder, (opening, high_watermark)) in start.partitions.iter() {
            let Opening { recovery_point, log_start, .. } = *opening;
            let key = (folder.topic.clone(), folder.partition);
            set(&mut files.recovery_points, &key, recovery_point);
            set(&mut files.log_starts, &key, log_start);
            set(&mut files.high_watermarks, &key, *high_watermark);
        }
    }
    for row in &state.rows {
        let key = (row.topic.clone(), row.partition);
        set(&mut files.recovery_points, &key, Some(row.recovery_point));
        set(&mut files.log_starts, &key, Some(row.log_start));
        set(&mut files.high_watermarks, &key, Some(row.high_watermark));
    }
    files
}

fn set(file: &mut OffsetCheckpoint, key: &(String, PartitionIndex), offset: Option<Offset>) {
    if let Some(offset) = offset {
        file.offsets.insert(key.clone(), offset);
    }
}

async fn folder_state(folder: &DataFolder) -> io::Result<FolderState> {
    let mut partitions = BTreeMap::new();
    for partition in folder::partitions(folder.path()).await? {
        let key = (partition.topic.clone(), partition.partition);
        let high_watermark = folder.high_watermarks().offsets.get(&key).copied();
        let opening = folder.opening(&partition);
        partitions.insert(partition, (opening, high_watermark));
    }
    let strays = folder::strays(folder.path()).await?.into();
    Ok(FolderState {
        path: folder.path().to_owned(),
        partitions: Arc::new(partitions),
        strays,
        has_failed: Arc::new(AtomicBool::new(false)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::folder::PartitionFolder;
    use crate::messages::CheckpointRow;

    fn state(is_complete: bool) -> ShardCheckpoint {
        let row = CheckpointRow {
            topic: "opened".to_owned(),
            partition: PartitionIndex::new(0),
            recovery_point: Offset::new(70),
            log_start: Offset::new(10),
            high_watermark: Offset::new(80),
        };
        ShardCheckpoint { rows: vec![row], is_complete }
    }

    fn start() -> FolderState {
        let opening =
            Opening { recovery_point: Some(Offset::new(5)), log_start: Some(Offset::new(2)), ..Opening::default() };
        let folder = |topic: &str| PartitionFolder { topic: topic.to_owned(), partition: PartitionIndex::new(0) };
        let partitions = [("opened", Some(Offset::new(6))), ("waiting", Some(Offset::new(7)))];
        let partitions = partitions.map(|(topic, mark)| (folder(topic), (opening, mark)));
        FolderState { partitions: Arc::new(partitions.into()), ..FolderState::default() }
    }

    #[test]
    fn what_was_known_of_a_log_that_is_not_opened_yet_stays_in_the_files() {
        let offset = |file: &OffsetCheckpoint, topic: &str| {
            file.offsets.get(&(topic.to_owned(), PartitionIndex::new(0))).map(|offset| offset.get())
        };
        let early = checkpoints(&state(false), &start());
        assert_eq!(offset(&early.recovery_points, "waiting"), Some(5));
        assert_eq!(offset(&early.log_starts, "waiting"), Some(2));
        assert_eq!(offset(&early.high_watermarks, "waiting"), Some(7));
        assert_eq!(offset(&early.recovery_points, "opened"), Some(70));
        let complete = checkpoints(&state(true), &start());
        assert_eq!(offset(&complete.recovery_points, "waiting"), None, "it has no log any more");
        assert_eq!(offset(&complete.high_watermarks, "opened"), Some(80));
    }
}
