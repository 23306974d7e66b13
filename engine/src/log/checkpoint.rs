//! The small state files of a data folder and of a partition's folder, in Kafka's text formats.
//!
//! `encode` and `decode` of each are pure; `read` and `write` act. Every file is replaced whole: written beside, synced,
//! renamed, folder synced. A file that cannot be read as what it should be is reported by name and taken as missing; its
//! contents come back from the log, so a start never fails for it.
//! ```text
//! recovery-point-offset-checkpoint        offsets below are synced
//! replication-offset-checkpoint           high watermarks
//! log-start-offset-checkpoint             log starts
//!     0                       version
//!     1                       entries
//!     orders 3 4500           topic, partition, offset
//! meta.properties             version, node.id, cluster.id, directory.id
//! metadata-seen               version, the cluster's incarnation, how much of its metadata was seen, whether some was lost since
//! .kafka_cleanshutdown        {"version":0,"brokerEpoch":42}: the folder was stopped cleanly by that broker epoch
//! <partition>/partition.metadata          version: 0 / topic_id: AAECAwQFBgcICQoLDA0ODw
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use sakia_io::fs;
use sakia_protocol::ids::{BrokerEpoch, BrokerId, MetadataIndex, Offset, PartitionIndex, TopicId, Uuid};

/// Offsets below which everything is on stable storage.
pub const RECOVERY_POINT_FILE: &str = "recovery-point-offset-checkpoint";
/// High watermarks.
pub const HIGH_WATERMARK_FILE: &str = "replication-offset-checkpoint";
/// Log starts.
pub const LOG_START_FILE: &str = "log-start-offset-checkpoint";
/// Identity of the data folder.
pub const META_FILE: &str = "meta.properties";
/// Mark of a failed disk: what was written behind the recovery points may not be on it (R6).
pub const FAILED_FILE: &str = "sakia-failed";
/// How much of the cluster's metadata the folder knows of.
pub const METADATA_SEEN_FILE: &str = "metadata-seen";
/// Mark of a clean stop.
pub const CLEAN_STOP_FILE: &str = ".kafka_cleanshutdown";
/// Identity of the topic, in the partition's folder.
pub const PARTITION_FILE: &str = "partition.metadata";

/// A state file that is not what it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line} is not what the file should hold")]
pub struct Damage {
    /// Counted from 1.
    pub line: usize,
}

/// One offset per partition: the three `…-offset-checkpoint` files.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct OffsetCheckpoint {
    /// By topic name and partition.
    pub offsets: BTreeMap<(String, PartitionIndex), Offset>,
}

impl OffsetCheckpoint {
    /// The text of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut text = format!("0\n{}\n", self.offsets.len());
        for ((topic, partition), offset) in &self.offsets {
            text.push_str(&format!("{topic} {partition} {offset}\n"));
        }
        text.into_bytes()
    }

    /// Reads the text of the file.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let text = std::str::from_utf8(bytes).map_err(|_| Damage { line: 1 })?;
        let mut lines = text.lines();
        if lines.next() != Some("0") {
            return Err(Damage { line: 1 });
        }
        let count: usize = lines.next().and_then(|line| line.parse().ok()).ok_or(Damage { line: 2 })?;
        let mut offsets = BTreeMap::new();
        for (at, line) in lines.enumerate() {
            let damage = Damage { line: at + 3 };
            let (key, offset) = parse_offset_line(line).ok_or(damage)?;
            if offsets.insert(key, offset).is_some() {
                return Err(damage);
            }
        }
        // A text cut inside its last number would otherwise pass as a smaller number.
        if offsets.len() != count || !text.ends_with('\n') {
            return Err(Damage { line: offsets.len() + 3 });
        }
        Ok(Self { offsets })
    }

    /// The file's contents; empty, with a warning naming the file, if it is damaged, and without if it is missing.
    ///
    /// # Errors
    /// The disk failed.
    pub async fn read(path: &Path) -> io::Result<Self> {
        Ok(read_or_warn(path, Self::decode).await?.unwrap_or_default())
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// The disk failed; the old file may still stand.
    pub async fn write(&self, path: &Path) -> io::Result<()> {
        fs::replace_file(path, self.encode()).await
    }
}

fn parse_offset_line(line: &str) -> Option<((String, PartitionIndex), Offset)> {
    let (rest, offset) = line.rsplit_once(' ')?;
    let (topic, partition) = rest.split_once(' ')?;
    let partition = PartitionIndex::from_wire(partition.parse().ok()?)?;
    Some(((topic.to_owned(), partition), Offset::from_wire(offset.parse().ok()?)?))
}

/// Identity of a data folder: `meta.properties`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FolderIdentity {
    /// Whose folder it is.
    pub node: BrokerId,
    /// Which cluster's; the text of an id that the controller chose.
    pub cluster: String,
    /// The folder's own id.
    pub directory: Uuid,
}

impl FolderIdentity {
    /// The text of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let Self { node, cluster, directory } = self;
        format!("version=1\nnode.id={node}\ncluster.id={cluster}\ndirectory.id={directory}\n").into_bytes()
    }

    /// Reads the text of the file; unknown keys and comments are passed over.
    ///
    /// # Errors
    /// A key is missing or not what it should be: its number in the order of `encode`.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let text = std::str::from_utf8(bytes).map_err(|_| Damage { line: 1 })?;
        let value = |key: &str| {
            text.lines()
                .filter_map(|line| line.trim().split_once('='))
                .find(|(k, _)| k.trim() == key)
                .map(|(_, v)| v.trim())
        };
        value("version").filter(|version| *version == "1").ok_or(Damage { line: 1 })?;
        let node =
            value("node.id").and_then(|id| id.parse().ok()).and_then(BrokerId::from_wire).ok_or(Damage { line: 2 })?;
        let cluster = value("cluster.id").filter(|id| !id.is_empty()).ok_or(Damage { line: 3 })?.to_owned();
        let directory = value("directory.id").and_then(Uuid::parse).ok_or(Damage { line: 4 })?;
        Ok(Self { node, cluster, directory })
    }

    /// The folder's identity; `None` if it has none. A damaged one is `None` with a warning.
    ///
    /// # Errors
    /// The disk failed.
    pub async fn read(folder: &Path) -> io::Result<Option<Self>> {
        read_or_warn(&folder.join(META_FILE), Self::decode).await
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// The disk failed.
    pub async fn write(&self, folder: &Path) -> io::Result<()> {
        fs::replace_file(&folder.join(META_FILE), self.encode()).await
    }
}

/// How much of the cluster's metadata this folder knows of: every topic whose partition has a folder here was created at or
/// below `index`. An image that knows less says nothing about topics that it does not hold (R22).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetadataSeen {
    /// Which life of the controller's log.
    pub incarnation: Uuid,
    /// How much of it.
    pub index: MetadataIndex,
    /// Whether a controller was met that knew less: it was restored from an old copy, and topics that it does not know may be
    /// alive. Stays until a person removes the file.
    pub is_lost: bool,
}

impl MetadataSeen {
    /// The text of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let Self { incarnation, index, is_lost } = self;
        format!("version=1\nincarnation={incarnation}\nindex={index}\nlost={is_lost}\n").into_bytes()
    }

    /// Reads the text of the file.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let text = std::str::from_utf8(bytes).map_err(|_| Damage { line: 1 })?;
        let mut lines = text.split('\n');
        let mut next = |line: usize, key: &str| {
            let value = lines.next().and_then(|text| text.strip_prefix(key)?.strip_prefix('='));
            value.ok_or(Damage { line })
        };
        let version = next(1, "version")?;
        let incarnation = Uuid::parse(next(2, "incarnation")?).ok_or(Damage { line: 2 })?;
        let index = next(3, "index")?.parse().ok().and_then(MetadataIndex::from_wire).ok_or(Damage { line: 3 })?;
        let is_lost = next(4, "lost")?.parse().map_err(|_| Damage { line: 4 })?;
        // A number cut short would pass as a smaller one.
        let whole = version == "1" && text.ends_with('\n');
        whole.then_some(Self { incarnation, index, is_lost }).ok_or(Damage { line: 1 })
    }

    /// What the file says; `None` if there is none. A damaged one is `None` with a warning.
    ///
    /// # Errors
    /// The disk failed.
    pub async fn read(folder: &Path) -> io::Result<Option<Self>> {
        read_or_warn(&folder.join(METADATA_SEEN_FILE), Self::decode).await
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// The disk failed.
    pub async fn write(&self, folder: &Path) -> io::Result<()> {
        fs::replace_file(&folder.join(METADATA_SEEN_FILE), self.encode()).await
    }
}

/// The mark of a clean stop: every log of the folder was synced and its state files written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CleanStop {
    /// The broker epoch that stopped (R3); `None` if it never registered.
    pub broker_epoch: Option<BrokerEpoch>,
}

impl CleanStop {
    /// The text of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        format!("{{\"version\":0,\"brokerEpoch\":{}}}", BrokerEpoch::to_wire(self.broker_epoch)).into_bytes()
    }

    /// Reads the text of the file.
    ///
    /// # Errors
    /// It is not such a text; the stop is then not believed to have been clean.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let text: String = std::str::from_utf8(bytes).map_err(|_| Damage { line: 1 })?.split_whitespace().collect();
        let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or(Damage { line: 1 })?;
        let value = |key: &str| {
            inner
                .split(',')
                .filter_map(|pair| pair.split_once(':'))
                .find(|(k, _)| k.trim_matches('"') == key)
                .map(|(_, v)| v)
        };
        value("version").filter(|version| *version == "0").ok_or(Damage { line: 1 })?;
        let epoch: i64 = value("brokerEpoch").and_then(|epoch| epoch.parse().ok()).ok_or(Damage { line: 1 })?;
        Ok(Self { broker_epoch: BrokerEpoch::from_wire(epoch) })
    }

    /// Takes the mark away and says what it was. Called at start before anything is written, so that a crash from here on
    /// is seen as one. `None`: the folder was not stopped cleanly.
    ///
    /// # Errors
    /// The disk failed.
    pub async fn take(folder: &Path) -> io::Result<Option<Self>> {
        let path = folder.join(CLEAN_STOP_FILE);
        let mark = read_or_warn(&path, Self::decode).await?;
        if fs::exists(&path).await? {
            fs::remove_file(&path).await?;
            fs::sync_dir(folder).await?;
        }
        Ok(mark)
    }

    /// Leaves the mark. Called last, when every log of the folder is closed.
    ///
    /// # Errors
    /// The disk failed.
    pub async fn leave(&self, folder: &Path) -> io::Result<()> {
        fs::replace_file(&folder.join(CLEAN_STOP_FILE), self.encode()).await
    }
}

/// The text of `partition.metadata`.
#[must_use]
pub fn encode_topic_id(topic: TopicId) -> Vec<u8> {
    format!("version: 0\ntopic_id: {topic}").into_bytes()
}

/// Reads `partition.metadata`.
///
/// # Errors
/// It is not such a text.
pub fn decode_topic_id(bytes: &[u8]) -> Result<TopicId, Damage> {
    let text = std::str::from_utf8(bytes).map_err(|_| Damage { line: 1 })?;
    let mut lines = text.lines();
    lines.next().filter(|line| *line == "version: 0").ok_or(Damage { line: 1 })?;
    lines.next().and_then(|line| line.strip_prefix("topic_id: ")).and_then(Uuid::parse).ok_or(Damage { line: 2 })
}

/// The decoded file; `None` if it is missing or, with a warning naming it, damaged.
pub(super) async fn read_or_warn<T, E: std::fmt::Display>(
    path: &Path,
    decode: impl FnOnce(&[u8]) -> Result<T, E>,
) -> io::Result<Option<T>> {
    let bytes = match fs::read_file(path).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match decode(&bytes) {
        Ok(value) => Ok(Some(value)),
        Err(damage) => {
            tracing::warn!(file = %path.display(), %damage, "a state file is damaged and is rebuilt");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets() -> OffsetCheckpoint {
        let entries = [("orders", 0, 4500), ("orders", 11, 0), ("__consumer_offsets", 7, 9)];
        let offsets = entries
            .into_iter()
            .map(|(topic, partition, at)| ((topic.to_owned(), PartitionIndex::new(partition)), Offset::new(at)))
            .collect();
        OffsetCheckpoint { offsets }
    }

    #[test]
    fn offset_checkpoints_are_kafkas_text_and_read_back() {
        let text = offsets().encode();
        assert_eq!(text, b"0\n3\n__consumer_offsets 7 9\norders 0 4500\norders 11 0\n");
        assert_eq!(OffsetCheckpoint::decode(&text), Ok(offsets()));
    }

    #[test]
    fn an_offset_checkpoint_cut_anywhere_is_recognised() {
        let text = offsets().encode();
        for len in 0..text.len() {
            assert!(OffsetCheckpoint::decode(&text[..len]).is_err(), "cut at {len}");
        }
        for damaged in
            [&b"\xffgarbage"[..], b"0\n1\norders 0\n", b"0\n1\norders x 3\n", b"0\n1\norders 0 -3\n", b"1\n0\n"]
        {
            assert!(OffsetCheckpoint::decode(damaged).is_err());
        }
    }

    #[test]
    fn the_identity_of_a_folder_reads_back_also_from_kafkas_own_file() {
        let identity = FolderIdentity {
            node: BrokerId::new(1),
            cluster: "5L6g3nShT-eMCtK--X86sw".to_owned(),
            directory: Uuid::from_bytes([7; 16]),
        };
        assert_eq!(FolderIdentity::decode(&identity.encode()), Ok(identity.clone()));
        let kafka = format!(
            "#\n#Tue Dec 01 00:00:00 UTC 2026\ncluster.id=5L6g3nShT-eMCtK--X86sw\nversion=1\ndirectory.id={}\nnode.id=1\n",
            identity.directory
        );
        assert_eq!(FolderIdentity::decode(kafka.as_bytes()), Ok(identity.clone()));
        let text = identity.encode();
        for len in 0..text.len() - 1 {
            assert!(FolderIdentity::decode(&text[..len]).is_err(), "cut at {len}");
        }
    }

    #[test]
    fn the_clean_stop_names_the_broker_epoch_and_a_damaged_one_is_no_clean_stop() {
        let mark = CleanStop { broker_epoch: Some(BrokerEpoch::new(42)) };
        assert_eq!(mark.encode(), br#"{"version":0,"brokerEpoch":42}"#);
        assert_eq!(CleanStop::decode(&mark.encode()), Ok(mark));
        assert_eq!(
            CleanStop::decode(b"{\"version\" : 0, \"brokerEpoch\" : -1}\n"),
            Ok(CleanStop { broker_epoch: None })
        );
        for len in 0..mark.encode().len() {
            assert!(CleanStop::decode(&mark.encode()[..len]).is_err());
        }
    }

    #[test]
    fn what_was_seen_of_the_metadata_reads_back_and_is_never_read_as_less() {
        for is_lost in [false, true] {
            let incarnation = Uuid::from_bytes([7; 16]);
            let seen = MetadataSeen { incarnation, index: MetadataIndex::new(4711), is_lost };
            let text = seen.encode();
            assert_eq!(MetadataSeen::decode(&text), Ok(seen));
            for len in 0..text.len() {
                assert!(MetadataSeen::decode(&text[..len]).is_err(), "cut at {len}");
            }
        }
    }

    #[test]
    fn the_topic_id_of_a_partition_reads_back() {
        let id = Uuid::from_bytes([9; 16]);
        assert_eq!(decode_topic_id(&encode_topic_id(id)), Ok(id));
        for len in 0..encode_topic_id(id).len() {
            assert!(decode_topic_id(&encode_topic_id(id)[..len]).is_err());
        }
    }
}
