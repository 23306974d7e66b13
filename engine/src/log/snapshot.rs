//! The file of the producer state, `<offset, 20 digits>.snapshot`: what was known when the log ended at that offset.
//!
//! Pure. Kafka's version 1, so that Kafka's tools and KIP-405's remote storage read it:
//! ```text
//!  0  version          i16 = 1
//!  2  crc              u32   CRC-32C over 6..end
//!  6  entries          i32
//!     per entry, 46 bytes:
//!     producer_id i64 | epoch i16 | last_sequence i32 | last_offset i64 | offset_delta i32 | timestamp i64
//!     coordinator_epoch i32 | open_transaction i64 (-1: none)
//! ```
//! All big-endian. Only the last batch of a producer is in it; the four before it come back from the headers of the log.

use sakia_protocol::ids::{Offset, OffsetDelta, ProducerEpoch, ProducerId};
use smallvec::SmallVec;

use crate::log::limits::PRODUCER_IDS_MAX;
use crate::log::producers::{Producer, Producers, WrittenBatch};

const VERSION: i16 = 1;
const HEAD_BYTES: usize = 10;
const CRC_START: usize = 6;
const ENTRY_BYTES: usize = 46;

/// A snapshot that is not believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SnapshotDamage {
    /// Too short, or not as long as its count of entries says.
    #[error("{0} bytes are no whole snapshot")]
    Length(usize),
    /// Written by something newer.
    #[error("version {0} is not 1")]
    Version(i16),
    /// Bytes were changed.
    #[error("the checksum does not fit")]
    Checksum,
    /// A negative number where none may be.
    #[error("entry {0} holds an impossible number")]
    Entry(usize),
}

/// The snapshot's bytes.
#[must_use]
pub fn encode(producers: &Producers) -> Vec<u8> {
    let mut bytes = vec![0; HEAD_BYTES];
    for (id, producer) in producers.iter() {
        let last = producer.window.last();
        let delta = last.map_or(0, |batch| i32::try_from(batch.offset_delta.get()).expect("the delta of one batch"));
        bytes.extend_from_slice(&id.get().to_be_bytes());
        bytes.extend_from_slice(&producer.epoch.get().to_be_bytes());
        bytes.extend_from_slice(&last.map_or(-1, |batch| batch.last_sequence).to_be_bytes());
        bytes.extend_from_slice(&Offset::to_wire(last.map(|batch| batch.last_offset)).to_be_bytes());
        bytes.extend_from_slice(&delta.to_be_bytes());
        bytes.extend_from_slice(&producer.last_timestamp_ms.to_be_bytes());
        bytes.extend_from_slice(&producer.coordinator_epoch.to_be_bytes());
        bytes.extend_from_slice(&Offset::to_wire(producer.open_transaction).to_be_bytes());
    }
    let count = i32::try_from(producers.len()).expect("bounded by PRODUCER_IDS_MAX");
    bytes[6..10].copy_from_slice(&count.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[CRC_START..]);
    bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
    bytes[2..6].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// Reads a snapshot back.
///
/// # Errors
/// What is wrong with it; the caller then takes an older one and replays more of the log.
pub fn decode(bytes: &[u8]) -> Result<Producers, SnapshotDamage> {
    let Some((head, entries)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return Err(SnapshotDamage::Length(bytes.len()));
    };
    let &[v0, v1, c0, c1, c2, c3, n0, n1, n2, n3] = head;
    let version = i16::from_be_bytes([v0, v1]);
    if version != VERSION {
        return Err(SnapshotDamage::Version(version));
    }
    if crc32c::crc32c(&bytes[CRC_START..]) != u32::from_be_bytes([c0, c1, c2, c3]) {
        return Err(SnapshotDamage::Checksum);
    }
    let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
    let count = usize::try_from(i32::from_be_bytes([n0, n1, n2, n3])).unwrap_or(usize::MAX);
    if !rest.is_empty() || entries.len() != count || count > PRODUCER_IDS_MAX {
        return Err(SnapshotDamage::Length(bytes.len()));
    }
    let mut producers = Producers::default();
    for (at, entry) in entries.iter().enumerate() {
        let (id, producer) = decode_entry(entry).ok_or(SnapshotDamage::Entry(at))?;
        producers.restore(id, producer);
    }
    Ok(producers)
}

fn decode_entry(entry: &[u8; ENTRY_BYTES]) -> Option<(ProducerId, Producer)> {
    let id = ProducerId::from_wire(i64::from_be_bytes(field(entry, 0)))?;
    let epoch = ProducerEpoch::from_wire(i16::from_be_bytes(field(entry, 8)))?;
    let last_sequence = i32::from_be_bytes(field(entry, 10));
    let last_offset = Offset::from_wire(i64::from_be_bytes(field(entry, 14)));
    let offset_delta = OffsetDelta::from_wire(i64::from(i32::from_be_bytes(field(entry, 22))))?;
    let timestamp_ms = i64::from_be_bytes(field(entry, 26));
    let mut window = SmallVec::new();
    if let (Some(last_offset), true) = (last_offset, last_sequence >= 0) {
        last_offset.since(Offset::new(offset_delta.get()))?;
        window.push(WrittenBatch { last_sequence, last_offset, offset_delta, timestamp_ms });
    }
    let coordinator_epoch = i32::from_be_bytes(field(entry, 34));
    let open_transaction = Offset::from_wire(i64::from_be_bytes(field(entry, 38)));
    Some((id, Producer { epoch, window, last_timestamp_ms: timestamp_ms, coordinator_epoch, open_transaction }))
}

fn field<const N: usize>(entry: &[u8; ENTRY_BYTES], at: usize) -> [u8; N] {
    *entry[at..].first_chunk().expect("fields lie inside an entry")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn producers() -> Producers {
        let mut producers = Producers::default();
        for id in [0, 4000] {
            let written = WrittenBatch {
                last_sequence: 9,
                last_offset: Offset::new(109),
                offset_delta: OffsetDelta::new(9),
                timestamp_ms: 1_700_000_000_000,
            };
            let producer = Producer {
                epoch: ProducerEpoch::new(2),
                window: SmallVec::from_iter([written]),
                last_timestamp_ms: 1_700_000_000_000,
                coordinator_epoch: -1,
                open_transaction: (id > 0).then_some(Offset::new(100)),
            };
            producers.restore(ProducerId::new(id), producer);
        }
        producers
    }

    #[test]
    fn a_snapshot_reads_back_as_it_was() {
        assert_eq!(decode(&encode(&producers())), Ok(producers()));
        assert_eq!(decode(&encode(&Producers::default())), Ok(Producers::default()));
        assert_eq!(encode(&producers()).len(), HEAD_BYTES + 2 * ENTRY_BYTES);
    }

    #[test]
    fn the_bytes_are_kafkas_version_1() {
        let golden = include_bytes!("../../testdata/log/two-producers.snapshot");
        assert_eq!(encode(&producers()), golden);
    }

    #[test]
    fn every_changed_bit_and_every_cut_is_recognised() {
        let bytes = encode(&producers());
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "cut at {len}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&damaged).is_err(), "bit {bit}");
        }
    }
}
