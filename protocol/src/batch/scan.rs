//! Whole batches in bytes that were stored or replicated: header sane, CRC right, offsets ascending.
//!
//! Path: a follower runs it over what a leader or a bucket gave it; recovery runs it over the end of a segment, where
//! it says where the good bytes end and why. [`headers`] is the same step without the CRC pass, for bytes whose check
//! lies behind them. Pure.
//!
//! Cost: one CRC pass, no allocation. The sum over all batches comes with it, by combining.

use thiserror::Error;

use super::crc;
use super::header::{BatchHeader, CRC_START, HEADER_LEN, HeaderError, LENGTH_END, at};
use crate::ids::Offset;

/// One verified batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredBatch<'a> {
    /// Its header.
    pub header: BatchHeader,
    /// Where it starts in the scanned bytes.
    pub position: usize,
    /// The whole batch.
    pub bytes: &'a [u8],
}

/// Why a scan ended. Ordered by what the caller does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ScanEnd {
    /// Nothing follows the last batch.
    #[error("end of bytes")]
    Complete,
    /// The next batch is here in part: read on, or cut it off if there is no more.
    #[error("next batch has {have} bytes of {need}")]
    Torn {
        /// Bytes that are here.
        have: usize,
        /// Bytes that are needed, as far as they are known: at least a length field.
        need: usize,
    },
    /// Zeros where a batch would be: space that was never written.
    #[error("zeros where a batch would be")]
    Zeros,
    /// No batch header.
    #[error("no batch: {0}")]
    Header(HeaderError),
    /// The CRC does not match the bytes.
    #[error("batch at offset {base} states crc {stated:08x}, its bytes have {computed:08x}")]
    Crc {
        /// Its base offset.
        base: Offset,
        /// CRC in the header.
        stated: u32,
        /// CRC of the bytes.
        computed: u32,
    },
    /// The batch starts before the end of the one before it.
    #[error("batch at offset {base} follows one that ends at {expected}")]
    Offsets {
        /// Its base offset.
        base: Offset,
        /// Smallest offset it may have.
        expected: Offset,
    },
}

/// Iterator over the verified batches at the start of some bytes; stops at the first that is not whole and right.
#[derive(Debug, Clone)]
pub struct Scan<'a> {
    bytes: &'a [u8],
    position: usize,
    next_offset: Option<Offset>,
    sum: u32,
    crc_pass: CrcPass,
    end: Option<ScanEnd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CrcPass {
    Verified,
    Behind,
}

/// Scans stored bytes, verifying each batch.
#[must_use]
pub fn scan(bytes: &[u8]) -> Scan<'_> {
    Scan { bytes, position: 0, next_offset: None, sum: 0, crc_pass: CrcPass::Verified, end: None }
}

/// Steps over stored bytes by their headers alone: for bytes that were verified before they came here.
#[must_use]
pub fn headers(bytes: &[u8]) -> Scan<'_> {
    Scan { crc_pass: CrcPass::Behind, ..scan(bytes) }
}

/// Whole verified batches and nothing else, as replicas send them.
///
/// # Errors
/// The iterator's last item is an error if anything but whole, right batches is in `bytes`.
pub fn check_replicated(bytes: &[u8]) -> Replicated<'_> {
    Replicated { scan: scan(bytes), reported: None }
}

impl<'a> Scan<'a> {
    /// Bytes of whole batches so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Offset after the last batch so far; `None` before the first.
    #[must_use]
    pub fn next_offset(&self) -> Option<Offset> {
        self.next_offset
    }

    /// CRC-32C over `bytes[..position]`, from the batches' own sums: no second pass.
    #[must_use]
    pub fn crc32c(&self) -> u32 {
        self.sum
    }

    /// Why it ended; `None` while it has not.
    #[must_use]
    pub fn end(&self) -> Option<ScanEnd> {
        self.end
    }

    /// Runs to the end and says why it is one.
    pub fn finish(&mut self) -> ScanEnd {
        while self.next().is_some() {}
        self.end.expect("the iterator sets the end before it returns None")
    }

    fn step(&mut self) -> Result<StoredBatch<'a>, ScanEnd> {
        let rest = &self.bytes[self.position..];
        if rest.is_empty() {
            return Err(ScanEnd::Complete);
        }
        let header = whole_header(rest)?;
        let bytes = rest.get(..header.len).ok_or(ScanEnd::Torn { have: rest.len(), need: header.len })?;
        if let Some(expected) = self.next_offset
            && header.base_offset < expected
        {
            return Err(ScanEnd::Offsets { base: header.base_offset, expected });
        }
        if self.crc_pass == CrcPass::Verified {
            let computed = crc::crc32c(&bytes[CRC_START..]);
            if computed != header.crc {
                return Err(ScanEnd::Crc { base: header.base_offset, stated: header.crc, computed });
            }
        }
        let position = self.position;
        self.position += header.len;
        self.next_offset = Some(header.next_offset());
        self.sum = extend_crc(self.sum, &bytes[..CRC_START], header.crc, header.len);
        Ok(StoredBatch { header, position, bytes })
    }
}

impl<'a> Iterator for Scan<'a> {
    type Item = StoredBatch<'a>;

    fn next(&mut self) -> Option<StoredBatch<'a>> {
        if self.end.is_some() {
            return None;
        }
        match self.step() {
            Ok(batch) => Some(batch),
            Err(end) => {
                self.end = Some(end);
                None
            }
        }
    }
}

/// The header, or why there is none: a header that is cut is told from one that is wrong.
fn whole_header(rest: &[u8]) -> Result<BatchHeader, ScanEnd> {
    if rest.len() < HEADER_LEN {
        let torn = ScanEnd::Torn { have: rest.len(), need: HEADER_LEN };
        return Err(if rest.iter().all(|&byte| byte == 0) { ScanEnd::Zeros } else { torn });
    }
    // A batch of ours never has length 0, so these bytes alone tell unwritten space from a damaged header.
    if rest[..HEADER_LEN].iter().all(|&byte| byte == 0) {
        return Err(ScanEnd::Zeros);
    }
    BatchHeader::parse(rest).map_err(ScanEnd::Header)
}

/// The iterator of [`check_replicated`].
#[derive(Debug, Clone)]
pub struct Replicated<'a> {
    scan: Scan<'a>,
    reported: Option<ScanEnd>,
}

impl Replicated<'_> {
    /// CRC-32C over the batches seen so far, from their own sums.
    #[must_use]
    pub fn crc32c(&self) -> u32 {
        self.scan.crc32c()
    }

    /// Offset after the last batch so far.
    #[must_use]
    pub fn next_offset(&self) -> Option<Offset> {
        self.scan.next_offset()
    }
}

impl<'a> Iterator for Replicated<'a> {
    type Item = Result<StoredBatch<'a>, ScanEnd>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(batch) = self.scan.next() {
            return Some(Ok(batch));
        }
        match (self.scan.end(), self.reported) {
            (Some(ScanEnd::Complete) | None, _) | (_, Some(_)) => None,
            (Some(end), None) => {
                self.reported = Some(end);
                Some(Err(end))
            }
        }
    }
}

/// The sum of `A ‖ batch`, from the sum of A, the batch's bytes in front of its CRC's range, and its own checked CRC.
#[must_use]
pub fn extend_crc(crc_a: u32, before_crc_range: &[u8], batch_crc: u32, batch_len: usize) -> u32 {
    assert_eq!(before_crc_range.len(), CRC_START, "the bytes in front of the CRC's range are 21");
    assert!(batch_len >= HEADER_LEN, "a batch has a header");
    crc::combine(crc::append(crc_a, before_crc_range), batch_crc, batch_len - CRC_START)
}

/// CRC-32C over whole stored batches whose own sums were checked before: headers are read, bodies are not.
///
/// # Errors
/// The first place where `bytes` is not a whole batch.
pub fn slice_crc(bytes: &[u8]) -> Result<u32, ScanEnd> {
    let mut walk = headers(bytes);
    match walk.finish() {
        ScanEnd::Complete => Ok(walk.crc32c()),
        end => Err(end),
    }
}

/// Length of the batch at the start of `bytes` as its length field says, whatever follows; `None` below 12 bytes or
/// for a length that is none.
#[must_use]
pub fn stated_len(bytes: &[u8]) -> Option<usize> {
    let field: &[u8; 4] = bytes.get(at::LENGTH..)?.first_chunk()?;
    let len = usize::try_from(i32::from_be_bytes(*field)).ok()? + LENGTH_END;
    (len >= HEADER_LEN).then_some(len)
}
