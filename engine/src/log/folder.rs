//! A data folder: who owns it, which partitions it holds, how one is deleted.
//!
//! Path: at start the broker takes the folder's lock, takes the mark of a clean stop away, reads the offset checkpoints and
//! opens the logs that the listing names. Names are Kafka's: `<topic>-<partition>`, `<topic>-<partition>.<hex>-delete` for one that is
//! being deleted, `….<hex>-stray` for one that the cluster did not know (the number is the time in ms at which it was set aside).
//! Invariant: a deleted partition leaves its name before its files go, so a crash midway never leaves half a log behind.

use std::io;
use std::path::{Path, PathBuf};

use sakia_io::fs::{self, FolderLock};
use sakia_protocol::ids::{PartitionIndex, TopicId};

use crate::log::checkpoint::{
    CleanStop, FAILED_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, OffsetCheckpoint, PARTITION_FILE, RECOVERY_POINT_FILE,
    decode_topic_id, read_or_warn,
};
use crate::log::recovery::create_folder;
use crate::log::{LastRun, Opening};

/// Longest topic name that Kafka allows; a deleted one is cut to fit the file system.
const TOPIC_LEN_MAX: usize = 249;
const DELETE_ENDING: &str = "-delete";
const STRAY_ENDING: &str = "-stray";

/// A partition's folder.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PartitionFolder {
    /// Name of the topic.
    pub topic: String,
    /// Its partition.
    pub partition: PartitionIndex,
}

impl PartitionFolder {
    /// The folder's name.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}-{}", self.topic, self.partition)
    }

    /// Reads a folder's name; `None` if it is no partition's.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (topic, partition) = name.rsplit_once('-')?;
        let canonical = partition == "0" || !partition.starts_with('0');
        let digits = !partition.is_empty() && partition.bytes().all(|byte| byte.is_ascii_digit());
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let named = (1..=TOPIC_LEN_MAX).contains(&topic.len()) && topic.bytes().all(legal);
        let partition =
            partition.parse().ok().filter(|_| canonical && digits && named).and_then(PartitionIndex::from_wire)?;
        Some(Self { topic: topic.to_owned(), partition })
    }
}

/// A partition's folder that was set aside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StrayFolder {
    /// The folder's name.
    pub name: String,
    /// When it was set aside, by the wall clock.
    pub since_ms: i64,
}

impl StrayFolder {
    fn parse(name: &str) -> Option<Self> {
        let (_, since) = name.strip_suffix(STRAY_ENDING)?.rsplit_once('.')?;
        let since_ms = i64::from_str_radix(since, 16).ok()?;
        Some(Self { name: name.to_owned(), since_ms })
    }

    /// Whether it was this partition's, by name: whose topic's it was its `partition.metadata` says.
    #[must_use]
    pub fn was(&self, partition: &PartitionFolder) -> bool {
        self.name == aside(partition, self.since_ms.cast_unsigned(), STRAY_ENDING)
    }
}

/// The name of a folder that is no partition's any more.
fn aside(partition: &PartitionFolder, number: u64, ending: &str) -> String {
    let ending = format!(".{number:016x}{ending}");
    let mut name = partition.name();
    name.truncate(TOPIC_LEN_MAX - ending.len());
    name + &ending
}

/// One data folder of this process.
pub struct DataFolder {
    path: PathBuf,
    _lock: FolderLock,
    clean_stop: Option<CleanStop>,
    has_failed: bool,
    recovery_points: OffsetCheckpoint,
    log_starts: OffsetCheckpoint,
    high_watermarks: OffsetCheckpoint,
}

impl DataFolder {
    /// Takes the folder: its lock, its mark of a clean stop, its offset checkpoints. Creates it if it is not there, and finishes
    /// deletions that a crash interrupted.
    ///
    /// # Errors
    /// `WouldBlock`: another process has it. Else the disk failed.
    pub async fn open(path: &Path) -> io::Result<Self> {
        if !fs::exists(path).await? {
            create_folder(path).await?;
        }
        let lock = fs::lock(path).await?;
        // Before anything is written: a crash from here on must be seen as one.
        let clean_stop = CleanStop::take(path).await?;
        for entry in fs::list_dir(path).await? {
            if entry.is_dir && entry.name.ends_with(DELETE_ENDING) {
                fs::remove_dir_all(&path.join(&entry.name)).await?;
            }
        }
        Ok(Self {
            recovery_points: OffsetCheckpoint::read(&path.join(RECOVERY_POINT_FILE)).await?,
            log_starts: OffsetCheckpoint::read(&path.join(LOG_START_FILE)).await?,
            high_watermarks: OffsetCheckpoint::read(&path.join(HIGH_WATERMARK_FILE)).await?,
            has_failed: fs::exists(&path.join(FAILED_FILE)).await?,
            path: path.to_owned(),
            _lock: lock,
            clean_stop,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The mark that was found; `None` after a crash.
    #[must_use]
    pub fn clean_stop(&self) -> Option<CleanStop> {
        self.clean_stop
    }

    /// What is known for opening one partition's log.
    #[must_use]
    pub fn opening(&self, partition: &PartitionFolder) -> Opening {
        let key = (partition.topic.clone(), partition.partition);
        Opening {
            last_run: if self.clean_stop.is_some() { LastRun::Closed } else { LastRun::Crashed },
            recovery_point: self.recovery_points.offsets.get(&key).copied(),
            log_start: self.log_starts.offsets.get(&key).copied(),
            has_failed: self.has_failed,
        }
    }

    /// Remembers that a write or sync failed here, so that the next start writes again what the disk may have given up.
    ///
    /// # Errors
    /// The disk failed here as well.
    pub async fn leave_failed(path: &Path) -> io::Result<()> {
        let text = "A write or sync in this folder failed. The next start writes everything behind the recovery points again.\n";
        fs::replace_file(&path.join(FAILED_FILE), text.into()).await
    }

    /// Forgets that, once every log is synced and closed.
    ///
    /// # Errors
    /// The disk failed.
    pub async fn forget_failed(&self) -> io::Result<()> {
        if self.has_failed {
            fs::remove_file(&self.path.join(FAILED_FILE)).await?;
            fs::sync_dir(&self.path).await?;
        }
        Ok(())
    }

    /// High watermarks as last written; clamp each to `[start, stored]` of its log.
    #[must_use]
    pub fn high_watermarks(&self) -> &OffsetCheckpoint {
        &self.high_watermarks
    }

    /// Replaces the three offset checkpoints.
    ///
    /// # Errors
    /// The disk failed; old files may still stand.
    pub async fn write_checkpoints(&self, checkpoints: &Checkpoints) -> io::Result<()> {
        checkpoints.recovery_points.write(&self.path.join(RECOVERY_POINT_FILE)).await?;
        checkpoints.log_starts.write(&self.path.join(LOG_START_FILE)).await?;
        checkpoints.high_watermarks.write(&self.path.join(HIGH_WATERMARK_FILE)).await
    }
}

/// The partitions that have a folder, sorted by name.
///
/// # Errors
/// The disk failed.
pub async fn partitions(data_folder: &Path) -> io::Result<Vec<PartitionFolder>> {
    folders(data_folder, PartitionFolder::parse).await
}

/// The folders that were set aside.
///
/// # Errors
/// The disk failed.
pub async fn strays(data_folder: &Path) -> io::Result<Vec<StrayFolder>> {
    folders(data_folder, StrayFolder::parse).await
}

async fn folders<T>(data_folder: &Path, parse: impl Fn(&str) -> Option<T>) -> io::Result<Vec<T>> {
    let entries = fs::list_dir(data_folder).await?;
    Ok(entries.iter().filter(|entry| entry.is_dir).filter_map(|entry| parse(&entry.name)).collect())
}

/// Sets a partition's folder aside, whose log is not open: it has another name, and what is in it stays. Nothing if there is no
/// such folder.
///
/// # Errors
/// The disk failed.
pub async fn set_aside(data_folder: &Path, partition: &PartitionFolder, now_ms: i64) -> io::Result<()> {
    let to = aside(partition, now_ms.max(0).cast_unsigned(), STRAY_ENDING);
    rename(data_folder, &partition.name(), &to).await.map(drop)
}

/// Gives a folder that was set aside its partition's name again. Nothing if it is gone.
///
/// # Errors
/// The disk failed.
pub async fn take_back(data_folder: &Path, stray: &StrayFolder, partition: &PartitionFolder) -> io::Result<()> {
    rename(data_folder, &stray.name, &partition.name()).await.map(drop)
}

/// Gives a folder another name, for good. Whether it was there.
async fn rename(data_folder: &Path, from: &str, to: &str) -> io::Result<bool> {
    match fs::rename(&data_folder.join(from), &data_folder.join(to)).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        renamed => renamed?,
    }
    fs::sync_dir(data_folder).await?;
    Ok(true)
}

/// Whose log a partition's folder holds; `None` if it is not there, or does not say.
///
/// # Errors
/// The disk failed.
pub async fn topic_of(folder: &Path) -> io::Result<Option<TopicId>> {
    read_or_warn(&folder.join(PARTITION_FILE), decode_topic_id).await
}

/// What `DataFolder::write_checkpoints` writes: every partition of the folder, whichever shard owns it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Checkpoints {
    /// `Log::recovery_point`.
    pub recovery_points: OffsetCheckpoint,
    /// `Log::start`.
    pub log_starts: OffsetCheckpoint,
    /// High watermarks.
    pub high_watermarks: OffsetCheckpoint,
}

/// Deletes a partition whose log is closed or was never opened: renames its folder to a name that no partition has, then removes
/// it. `unique` tells two deletions of one name apart.
///
/// # Errors
/// The disk failed; the rest is removed at the next start.
pub async fn delete_partition(data_folder: &Path, partition: &PartitionFolder, unique: u64) -> io::Result<()> {
    let to = aside(partition, unique, DELETE_ENDING);
    if rename(data_folder, &partition.name(), &to).await? {
        fs::remove_dir_all(&data_folder.join(to)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_names_are_kafkas() {
        let folder = |topic: &str, partition| PartitionFolder {
            topic: topic.to_owned(),
            partition: PartitionIndex::new(partition),
        };
        assert_eq!(folder("a-b", 12).name(), "a-b-12");
        assert_eq!(PartitionFolder::parse("a-b-12"), Some(folder("a-b", 12)));
        assert_eq!(PartitionFolder::parse("__consumer_offsets-0"), Some(folder("__consumer_offsets", 0)));
        for name in [
            "orders",
            "orders-",
            "orders-01",
            "orders-+1",
            "-1",
            "orders.00000000000000ff-delete",
            "orders-0.00000000000000ff-stray",
            "lost+found",
            "a b-1",
        ] {
            assert_eq!(PartitionFolder::parse(name), None, "{name}");
        }
    }

    #[test]
    fn a_folder_set_aside_says_since_when_and_whose_it_was() {
        let folder = PartitionFolder { topic: "t".repeat(249), partition: PartitionIndex::new(7) };
        for partition in [folder, PartitionFolder::parse("orders-0").unwrap()] {
            let name = aside(&partition, 0x0191_2345_6789, STRAY_ENDING);
            assert!(name.len() <= 255);
            let stray = StrayFolder::parse(&name).unwrap();
            assert_eq!(stray.since_ms, 0x0191_2345_6789);
            assert!(stray.was(&partition) && !stray.was(&PartitionFolder::parse("orders-1").unwrap()));
        }
        assert_eq!(StrayFolder::parse("orders-0.00000000000000ff-delete"), None);
        assert_eq!(StrayFolder::parse("orders-stray"), None);
    }
}
