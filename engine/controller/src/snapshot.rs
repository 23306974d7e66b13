//! Snapshots of the image on disk: written whole, the last two kept.
//!
//! ```text
//! snapshot-<index, 20 digits>
//! magic "SKSN" · format version u16 = 1 · meta length u32 · meta (CBOR: log id, membership) · image · crc32c u32
//! ```
//! A file is written beside, synced, renamed and its folder synced, so a file with this name is whole; a bad checksum is
//! damage, and the one before it is taken if the log still reaches back to it.

use std::io;
use std::path::{Path, PathBuf};

use sakia_io::fs;

use crate::image::Image;
use crate::limits::SNAPSHOTS_KEPT;
use crate::raft_types::LogId;
use crate::wire::{Cursor, Wire, WireError, malformed};

const MAGIC: [u8; 4] = *b"SKSN";
const FORMAT: u16 = 1;
const PREFIX: &str = "snapshot-";

/// Up to where a snapshot reaches, and who voted then.
pub(crate) type Meta = openraft::type_config::alias::SnapshotMetaOf<crate::raft_types::Quorum>;

/// The bytes of a snapshot file.
pub(crate) fn encode(meta: &Meta, image: &Image) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    FORMAT.put(&mut out);
    let mut meta_bytes = Vec::new();
    ciborium::into_writer(meta, &mut meta_bytes).expect("snapshot meta is serializable and memory takes it");
    u32::try_from(meta_bytes.len()).expect("a membership is small").put(&mut out);
    out.extend_from_slice(&meta_bytes);
    out.extend_from_slice(&image.encode());
    let crc = crc32c::crc32c(&out);
    crc.put(&mut out);
    out
}

/// Reads the bytes of `encode`.
pub(crate) fn decode(bytes: &[u8]) -> Result<(Meta, Image), WireError> {
    let (head, crc) = bytes.split_last_chunk::<4>().ok_or(malformed("snapshot"))?;
    let (found, expected) = (crc32c::crc32c(head), u32::from_be_bytes(*crc));
    if found != expected {
        return Err(WireError::Checksum { what: "snapshot", found, expected });
    }
    let mut input = Cursor::new(head);
    if input.bytes(4, "snapshot magic")? != MAGIC || u16::take(&mut input)? != FORMAT {
        return Err(malformed("snapshot format"));
    }
    let len = input.count()?;
    let meta = ciborium::from_reader(input.bytes(len, "snapshot meta")?).map_err(|_| malformed("snapshot meta"))?;
    Ok((meta, Image::decode(input.remaining())?))
}

/// Names of the snapshots in a folder, oldest first.
async fn names(folder: &Path) -> io::Result<Vec<String>> {
    let listed = fs::list_dir(folder).await?;
    let is_ours = |name: &String| name.strip_prefix(PREFIX).is_some_and(|index| index.parse::<u64>().is_ok());
    Ok(listed.into_iter().map(|entry| entry.name).filter(is_ours).collect())
}

/// Writes a snapshot that reaches up to `last`, then removes all but the newest.
pub(crate) async fn save(folder: &Path, last: Option<LogId>, bytes: Vec<u8>) -> io::Result<()> {
    let index = last.map_or(0, |id| id.index);
    fs::replace_file(&folder.join(format!("{PREFIX}{index:020}")), bytes).await?;
    let names = names(folder).await?;
    let surplus = names.len().saturating_sub(SNAPSHOTS_KEPT);
    for name in names.iter().take(surplus) {
        fs::remove_file(&folder.join(name)).await?;
    }
    Ok(())
}

/// A snapshot as read from disk.
pub(crate) struct Loaded {
    pub(crate) meta: Meta,
    pub(crate) image: Image,
    pub(crate) bytes: Vec<u8>,
}

/// The newest snapshot that can be read. One that cannot is reported and passed over.
pub(crate) async fn load(folder: &Path) -> io::Result<Option<Loaded>> {
    for name in names(folder).await?.into_iter().rev() {
        let path: PathBuf = folder.join(name);
        let bytes = fs::read_file(&path).await?;
        match decode(&bytes) {
            Ok((meta, image)) => return Ok(Some(Loaded { meta, image, bytes })),
            Err(error) => {
                tracing::error!(%error, path = %path.display(), "snapshot is not readable, taking the one before")
            }
        }
    }
    Ok(None)
}
