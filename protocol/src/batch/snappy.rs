//! Snappy as Kafka's clients write it: blocks in the framing of Java's xerial library, or one raw block.
//!
//! ```text
//!  0  magic       8 bytes  82 "SNAPPY" 00
//!  8  version     i32      1
//! 12  compatible  i32      1
//! 16  blocks: length i32, then one raw snappy block of that many bytes
//! ```
//! Big-endian. A body that does not start with the magic is one raw block. Pure.

use std::io;

use super::compression::DecompressError;

const MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
const HEADER_LEN: usize = 16;
/// Bytes that go into one block when we write, as in the Java library.
const BLOCK_LEN: usize = 32 << 10;

/// The blocks of one stream, in order.
pub(super) struct SnappyBlocks<'a> {
    rest: Rest<'a>,
}

enum Rest<'a> {
    Framed(&'a [u8]),
    Raw(&'a [u8]),
    Damaged(&'static str),
}

impl<'a> SnappyBlocks<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        let rest = match input.strip_prefix(&MAGIC) {
            None => Rest::Raw(input),
            Some(_) if input.len() < HEADER_LEN => Rest::Damaged("cut in its header"),
            Some(_) => Rest::Framed(&input[HEADER_LEN..]),
        };
        Self { rest }
    }

    /// Puts the next block's output into `output` (grown as needed) and returns its length, 0 at the end.
    /// The length a block claims is checked against `len_max` before memory is taken.
    pub(super) fn next_block(&mut self, output: &mut Vec<u8>, len_max: usize) -> Result<usize, DecompressError> {
        loop {
            let Some(block) = self.take()? else { return Ok(0) };
            let len = snap::raw::decompress_len(block).map_err(|error| damaged(&error.to_string()))?;
            if len > len_max {
                return Err(DecompressError::TooLarge { output_len_max: len_max });
            }
            output.resize(len.max(output.len()), 0);
            let len = snap::raw::Decoder::new()
                .decompress(block, &mut output[..len])
                .map_err(|error| damaged(&error.to_string()))?;
            // An empty block is not the end of the stream.
            if len > 0 {
                return Ok(len);
            }
        }
    }

    fn take(&mut self) -> Result<Option<&'a [u8]>, DecompressError> {
        match self.rest {
            Rest::Damaged(reason) => Err(damaged(reason)),
            Rest::Raw([]) | Rest::Framed([]) => Ok(None),
            Rest::Raw(block) => {
                self.rest = Rest::Raw(&[]);
                Ok(Some(block))
            }
            Rest::Framed(bytes) => {
                let (len, after) = bytes.split_first_chunk().ok_or_else(|| damaged("cut in a block length"))?;
                let len = usize::try_from(i32::from_be_bytes(*len)).map_err(|_| damaged("negative block length"))?;
                let (block, after) = after.split_at_checked(len).ok_or_else(|| damaged("cut in a block"))?;
                self.rest = Rest::Framed(after);
                Ok(Some(block))
            }
        }
    }
}

fn damaged(reason: &str) -> DecompressError {
    DecompressError::Damaged { codec: "snappy", reason: reason.to_owned() }
}

pub(super) fn compress(input: &[u8]) -> io::Result<Vec<u8>> {
    let mut output = Vec::with_capacity(HEADER_LEN + input.len() / 2);
    output.extend_from_slice(&MAGIC);
    output.extend_from_slice(&1i32.to_be_bytes());
    output.extend_from_slice(&1i32.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in input.chunks(BLOCK_LEN) {
        let packed = encoder.compress_vec(block).map_err(io::Error::other)?;
        let len = i32::try_from(packed.len()).expect("32 KiB of input stay far below 2 GiB");
        output.extend_from_slice(&len.to_be_bytes());
        output.extend_from_slice(&packed);
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::super::compression::{Compression, DecompressError, decompress};
    use super::*;

    #[test]
    fn raw_blocks_are_read_too() {
        let input = b"raw snappy, as librdkafka may write it, it it it it".repeat(30);
        let packed = snap::raw::Encoder::new().compress_vec(&input).unwrap();
        assert_eq!(decompress(Compression::Snappy, &packed, 1 << 20).unwrap(), input);
    }

    #[test]
    fn four_claimed_gigabytes_are_refused_before_memory_is_taken() {
        // The raw form opens with the claimed length: 2^32-1 as a varint.
        let raw = [0xff, 0xff, 0xff, 0xff, 0x0f, 0x00, 0x41];
        let mut output = Vec::new();
        let result = SnappyBlocks::new(&raw).next_block(&mut output, 1 << 20);
        assert!(matches!(result, Err(DecompressError::TooLarge { .. })));
        assert_eq!(output.capacity(), 0);

        let mut framed = compress(&[]).unwrap();
        framed.extend_from_slice(&7i32.to_be_bytes());
        framed.extend_from_slice(&raw);
        assert!(matches!(decompress(Compression::Snappy, &framed, 1 << 20), Err(DecompressError::TooLarge { .. })));
    }

    #[test]
    fn hostile_block_lengths_are_damage() {
        for len in [-1, i32::MIN, 1, i32::MAX] {
            let mut framed = compress(&[]).unwrap();
            framed.extend_from_slice(&len.to_be_bytes());
            assert!(matches!(decompress(Compression::Snappy, &framed, 1 << 20), Err(DecompressError::Damaged { .. })));
        }
    }
}
