//! The few header fields of a record batch that the remote path checks. Pure.
//!
//! ```text
//!  0 base_offset i64 · 8 batch_length i32 (of what follows byte 12) · 12 leader_epoch i32 · 16 magic i8 ·
//! 17 crc u32 · 21 attributes i16 · 23 last_offset_delta i32 · … 61
//! ```
//! Rule: R5. Every batch in a slice has the slice's leader epoch; packer and follower check it.
//! Cost: one header per batch; records are not touched.

use sakia_protocol::ids::{LeaderEpoch, Offset};

const HEADER_LENGTH: usize = 61;
const MAGIC: u8 = 2;

/// Checks that `bytes` are whole batches of one epoch whose offsets ascend inside `base..next`, from the first to the
/// last. Offsets may be missing between batches (compaction), never at the ends.
pub(crate) fn check(bytes: &[u8], base: Offset, next: Offset, epoch: LeaderEpoch) -> Result<(), &'static str> {
    let mut rest = bytes;
    let mut expected = base;
    while !rest.is_empty() {
        let batch = first(rest).ok_or("ends inside a batch")?;
        if batch.magic != MAGIC {
            return Err("has a batch of another format");
        }
        if batch.epoch != epoch.get() {
            return Err("has a batch of another leader epoch");
        }
        let first_is_base = expected != base || batch.base == base.get();
        if batch.base < expected.get() || !first_is_base {
            return Err("has a batch at another offset than its place");
        }
        let end = batch.base.checked_add(i64::from(batch.last_offset_delta)).and_then(|last| last.checked_add(1));
        let end = end.and_then(Offset::from_wire).filter(|end| end.get() > batch.base);
        expected = end.ok_or("has a batch without offsets")?;
        rest = &rest[batch.length..];
    }
    if expected == next { Ok(()) } else { Err("does not end at its last offset") }
}

struct BatchFields {
    base: i64,
    length: usize,
    epoch: i32,
    magic: u8,
    last_offset_delta: i32,
}

fn first(bytes: &[u8]) -> Option<BatchFields> {
    let header = bytes.first_chunk::<HEADER_LENGTH>()?;
    let i32_at = |at: usize| header[at..].first_chunk().map(|field| i32::from_be_bytes(*field));
    let length = usize::try_from(i32_at(8)?).ok()? + 12;
    if length < HEADER_LENGTH || length > bytes.len() {
        return None;
    }
    Some(BatchFields {
        base: i64::from_be_bytes(*header.first_chunk()?),
        length,
        epoch: i32_at(12)?,
        magic: header[16],
        last_offset_delta: i32_at(23)?,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A batch with a valid header as far as this file reads it, and `body` bytes after the header.
    pub(crate) fn batch(base: i64, records: i32, epoch: i32, body: usize) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LENGTH + body];
        let length = i32::try_from(bytes.len() - 12).unwrap();
        bytes[0..8].copy_from_slice(&base.to_be_bytes());
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[12..16].copy_from_slice(&epoch.to_be_bytes());
        bytes[16] = MAGIC;
        bytes[23..27].copy_from_slice(&(records - 1).to_be_bytes());
        for (at, byte) in bytes[HEADER_LENGTH..].iter_mut().enumerate() {
            *byte = u8::try_from((at + usize::try_from(base).unwrap()) % 251).unwrap();
        }
        bytes
    }

    fn checked(bytes: &[u8], range: std::ops::Range<i64>) -> Result<(), &'static str> {
        check(bytes, Offset::new(range.start), Offset::new(range.end), LeaderEpoch::new(4))
    }

    #[test]
    fn whole_batches_of_one_epoch_pass_and_gaps_between_them_too() {
        let bytes = [batch(10, 5, 4, 20), batch(15, 1, 4, 0), batch(20, 2, 4, 7)].concat();
        assert_eq!(checked(&bytes, 10..22), Ok(()));
    }

    #[test]
    fn a_slice_over_an_epoch_end_is_refused() {
        let bytes = [batch(10, 5, 4, 20), batch(15, 1, 5, 0)].concat();
        assert_eq!(checked(&bytes, 10..16), Err("has a batch of another leader epoch"));
    }

    #[test]
    fn offsets_must_fit_the_slice() {
        let bytes = [batch(10, 5, 4, 20), batch(15, 1, 4, 0)].concat();
        assert!(checked(&bytes, 9..16).is_err());
        assert!(checked(&bytes, 10..17).is_err());
        assert!(checked(&bytes, 10..15).is_err());
        assert!(checked(&[batch(10, 5, 4, 0), batch(14, 1, 4, 0)].concat(), 10..15).is_err());
        assert!(checked(&batch(10, 0, 4, 0), 10..10).is_err());
    }

    #[test]
    fn every_cut_inside_a_batch_is_refused() {
        let bytes = batch(10, 5, 4, 20);
        for end in 1..bytes.len() {
            assert_eq!(checked(&bytes[..end], 10..15), Err("ends inside a batch"), "{end}");
        }
    }
}
