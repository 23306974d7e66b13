//! Walks the batch headers of a slice. Pure.
//!
//! Rule: R5. Every batch in a slice has the slice's leader epoch; packer and follower check it.
//! Cost: one header per batch; records are not touched and no checksum is computed: the slice has its own.

use sakia_protocol::batch::BatchHeader;
use sakia_protocol::ids::{LeaderEpoch, Offset};

/// Checks that `bytes` are whole batches of one epoch whose offsets ascend inside `base..next`, from the first to the
/// last. Offsets may be missing between batches (compaction), never at the ends.
pub(crate) fn check(bytes: &[u8], base: Offset, next: Offset, epoch: LeaderEpoch) -> Result<(), &'static str> {
    let mut rest = bytes;
    let mut expected = base;
    while !rest.is_empty() {
        let batch = BatchHeader::parse(rest).map_err(|_| "has no batch where one must be")?;
        if batch.leader_epoch != Some(epoch) {
            return Err("has a batch of another leader epoch");
        }
        let is_first = rest.len() == bytes.len();
        if batch.base_offset < expected || (is_first && batch.base_offset != base) {
            return Err("has a batch at another offset than its place");
        }
        expected = batch.next_offset();
        rest = rest.get(batch.len..).ok_or("ends inside a batch")?;
    }
    if expected == next { Ok(()) } else { Err("does not end at its last offset") }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use sakia_protocol::batch::HEADER_LEN;

    /// A batch with a valid header but no valid CRC, and `body` bytes after the header.
    pub(crate) fn batch(base: i64, records: i32, epoch: i32, body: usize) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN + body];
        let length = i32::try_from(bytes.len() - 12).unwrap();
        bytes[0..8].copy_from_slice(&base.to_be_bytes());
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[12..16].copy_from_slice(&epoch.to_be_bytes());
        bytes[16] = 2;
        bytes[23..27].copy_from_slice(&(records - 1).to_be_bytes());
        for (at, byte) in bytes[HEADER_LEN..].iter_mut().enumerate() {
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
        assert!(checked(&[], 10..11).is_err());
    }

    #[test]
    fn every_cut_inside_a_batch_is_refused() {
        let bytes = batch(10, 5, 4, 20);
        for end in 1..bytes.len() {
            assert!(checked(&bytes[..end], 10..15).is_err(), "{end}");
        }
    }
}
