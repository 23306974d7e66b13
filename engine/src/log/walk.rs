//! Steps over whole batches by their headers alone: no checksum, no sum.
//!
//! Pure. For bytes of this log, or bytes whose checksums were verified before. `sakia_protocol::batch::headers` gives the combined
//! sum as well, at a few hundred nanoseconds a batch.

use sakia_protocol::batch::{BatchHeader, HEADER_LEN};

/// The batches at the start of some bytes.
pub(super) struct Walk<'a> {
    bytes: &'a [u8],
    position: usize,
}

/// One of them.
pub(super) struct Step<'a> {
    pub(super) header: BatchHeader,
    /// Where it begins in the bytes.
    pub(super) position: usize,
    pub(super) head: &'a [u8; HEADER_LEN],
    pub(super) body: &'a [u8],
}

/// Walks until the bytes end or no whole batch follows.
pub(super) fn walk(bytes: &[u8]) -> Walk<'_> {
    Walk { bytes, position: 0 }
}

impl Walk<'_> {
    /// Bytes of whole batches so far.
    pub(super) fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Step<'a>;

    fn next(&mut self) -> Option<Step<'a>> {
        let rest = &self.bytes[self.position..];
        let header = BatchHeader::parse(rest).ok()?;
        let (head, body) = rest.get(..header.len)?.split_first_chunk()?;
        let position = self.position;
        self.position += header.len;
        Some(Step { header, position, head, body })
    }
}
