//! One LZ4 frame, exactly as Kafka's own reader accepts it.
//!
//! ```text
//! 0  magic    u32 = 0x184d2204
//! 4  FLG      u8   bits 7-6 version 1, 5 independent blocks, 4 block checksums, 3 content size, 2 content checksum,
//!                  1 reserved, 0 dictionary id
//! 5  BD       u8   bits 6-4 largest block: 4 64 KiB, 5 256 KiB, 6 1 MiB, 7 4 MiB
//! 6  content size u64 if set · header checksum u8 · blocks: length u32 (bit 31 stored as is), bytes, checksum u32 if
//!    set · end mark u32 = 0 · content checksum u32 if set
//! ```
//! Little-endian. Linked blocks and dictionaries are refused, because Java consumers cannot read them.
//!
//! The frame is walked block by block before it is decompressed: the library's reader takes the end of its input for
//! the end of the frame, so a cut frame would pass unnoticed. Bytes after the frame are ignored, as Kafka does. Pure.

use std::io::{self, Read, Write};

use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

const MAGIC: u32 = 0x184d_2204;
const VERSION_BITS: u8 = 0b1100_0000;
const VERSION_1: u8 = 0b0100_0000;
const INDEPENDENT: u8 = 1 << 5;
const BLOCK_CHECKSUMS: u8 = 1 << 4;
const CONTENT_SIZE: u8 = 1 << 3;
const CONTENT_CHECKSUM: u8 = 1 << 2;
const RESERVED_OR_DICTIONARY: u8 = 0b11;
const STORED_AS_IS: u32 = 1 << 31;

/// Reader of one frame.
pub(super) struct Lz4Frame<'a> {
    reader: FrameDecoder<&'a [u8]>,
    ended: bool,
}

impl<'a> Lz4Frame<'a> {
    pub(super) fn new(input: &'a [u8]) -> io::Result<Self> {
        let len = frame_len(input).map_err(|reason| io::Error::new(io::ErrorKind::InvalidData, reason))?;
        Ok(Self { reader: FrameDecoder::new(&input[..len]), ended: false })
    }

    pub(super) fn read(&mut self, output: &mut [u8]) -> io::Result<usize> {
        if self.ended {
            return Ok(0);
        }
        let len = self.reader.read(output)?;
        // Asked again after its end, the library's reader would look for a second frame.
        self.ended = len == 0;
        Ok(len)
    }
}

/// Bytes of the frame at the start of `input`.
fn frame_len(input: &[u8]) -> Result<usize, &'static str> {
    let (magic, rest) = split(input)?;
    if u32::from_le_bytes(magic) != MAGIC {
        return Err("no frame magic");
    }
    let ([flags, block_descriptor], mut rest) = split(rest)?;
    if flags & VERSION_BITS != VERSION_1 || flags & RESERVED_OR_DICTIONARY != 0 {
        return Err("unknown version or a dictionary");
    }
    if flags & INDEPENDENT == 0 {
        return Err("linked blocks");
    }
    let block_len_max: usize = match block_descriptor {
        0x40 => 64 << 10,
        0x50 => 256 << 10,
        0x60 => 1 << 20,
        0x70 => 4 << 20,
        _ => return Err("unknown block size"),
    };
    if flags & CONTENT_SIZE != 0 {
        rest = skip(rest, 8)?;
    }
    rest = skip(rest, 1)?;
    let block_checksum_len = if flags & BLOCK_CHECKSUMS == 0 { 0 } else { 4 };
    loop {
        let (field, after) = split(rest)?;
        let field = u32::from_le_bytes(field);
        if field == 0 {
            rest = after;
            break;
        }
        let len = usize::try_from(field & !STORED_AS_IS).map_err(|_| "block too large")?;
        if len > block_len_max {
            return Err("block too large");
        }
        rest = skip(after, len + block_checksum_len)?;
    }
    if flags & CONTENT_CHECKSUM != 0 {
        rest = skip(rest, 4)?;
    }
    Ok(input.len() - rest.len())
}

fn split<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8]), &'static str> {
    bytes.split_first_chunk().map(|(head, rest)| (*head, rest)).ok_or("frame is cut")
}

fn skip(bytes: &[u8], len: usize) -> Result<&[u8], &'static str> {
    bytes.get(len..).ok_or("frame is cut")
}

pub(super) fn compress(input: &[u8]) -> io::Result<Vec<u8>> {
    let frame = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(frame, Vec::new());
    encoder.write_all(input)?;
    encoder.finish().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::super::compression::{Compression, DecompressError, decompress};
    use super::*;

    fn frame(info: FrameInfo, input: &[u8]) -> Vec<u8> {
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(input).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn every_block_size_and_checksum_is_read() {
        let input = b"lz4 blocks of a client, ".repeat(60_000);
        for size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max1MB, BlockSize::Max4MB] {
            let info = FrameInfo::new()
                .block_mode(BlockMode::Independent)
                .block_size(size)
                .block_checksums(true)
                .content_checksum(true)
                .content_size(Some(u64::try_from(input.len()).unwrap()));
            let packed = frame(info, &input);
            assert_eq!(decompress(Compression::Lz4, &packed, input.len()).unwrap(), input);
        }
    }

    #[test]
    fn linked_blocks_are_refused_as_kafka_does() {
        let packed = frame(FrameInfo::new().block_mode(BlockMode::Linked), b"linked");
        let result = decompress(Compression::Lz4, &packed, 1 << 20);
        assert!(matches!(result, Err(DecompressError::Damaged { .. })), "{result:?}");
    }

    #[test]
    fn bytes_after_the_frame_are_ignored_even_if_they_are_a_frame() {
        let mut packed = compress(b"first").unwrap();
        packed.extend_from_slice(&frame(FrameInfo::new().block_size(BlockSize::Max4MB), b"second"));
        assert_eq!(decompress(Compression::Lz4, &packed, 1 << 20).unwrap(), b"first");
    }

    #[test]
    fn a_frame_without_its_end_mark_is_refused() {
        let packed = compress(b"whole").unwrap();
        assert!(decompress(Compression::Lz4, &packed[..packed.len() - 4], 1 << 20).is_err());
    }
}
