//! The four codecs of record batches, with a bound on what they may put out.
//!
//! Path: from a batch's bytes behind its header to the records, and back for batches we build ourselves.
//!
//! Input is hostile. What a stream says about its own size is believed only below the bound of [`output_len_max`];
//! output is produced in pieces and stops there. Memory besides the output: gzip and zstd a window (zstd's up to
//! 128 MiB of address space, of which only produced bytes are touched), lz4 two blocks of at most 4 MiB, snappy one
//! block.

use std::io::{self, Read, Write};

use thiserror::Error;

use super::lz4_frame::Lz4Frame;
use super::snappy::SnappyBlocks;

/// What the bytes of records went through.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Compression {
    /// Nothing.
    #[default]
    None,
    /// Codec 1.
    Gzip,
    /// Codec 2: blocks in the framing of Java's xerial library; raw blocks are read too.
    Snappy,
    /// Codec 3: one LZ4 frame of independent blocks.
    Lz4,
    /// Codec 4.
    Zstd,
}

impl Compression {
    /// Every codec.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// From the three bits of a batch's attributes; `None` if nobody has defined them.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.bits() == bits)
    }

    /// The three bits of a batch's attributes.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    /// Kafka's word for it in `compression.type`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "uncompressed",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// Why compressed bytes gave no output.
#[derive(Debug, Error)]
pub enum DecompressError {
    /// More than the bound came out, or the stream says that more would.
    #[error("more than {output_len_max} bytes after decompression")]
    TooLarge {
        /// The bound in bytes.
        output_len_max: usize,
    },
    /// The bytes are not what the codec writes.
    #[error("{codec} stream is damaged: {reason}")]
    Damaged {
        /// The codec.
        codec: &'static str,
        /// What its reader says.
        reason: String,
    },
}

/// Output bytes allowed for `input_len` bytes of input: 100 times the input and 1 MiB, at most `ceiling`.
///
/// Real records seldom shrink to a hundredth; a bomb shrinks to a ten-thousandth. The MiB lets small batches of equal
/// bytes through.
#[must_use]
pub fn output_len_max(input_len: usize, ceiling: usize) -> usize {
    input_len.saturating_mul(100).saturating_add(1 << 20).min(ceiling)
}

/// The whole output in memory of at most `output_len_max` bytes.
///
/// # Errors
/// See [`DecompressError`].
pub fn decompress(codec: Compression, input: &[u8], output_len_max: usize) -> Result<Vec<u8>, DecompressError> {
    let mut stream = Decompressor::new(codec, input, output_len_max)?;
    let mut output = Vec::with_capacity(input.len().saturating_mul(4).min(output_len_max));
    loop {
        let piece = stream.fill()?;
        if piece.is_empty() {
            return Ok(output);
        }
        output.extend_from_slice(piece);
        let used = piece.len();
        stream.consume(used);
    }
}

/// Compresses `input` at the codec's default level.
#[must_use]
pub fn compress(codec: Compression, input: &[u8]) -> Vec<u8> {
    write_compressed(codec, input).expect("writing to memory does not fail")
}

fn write_compressed(codec: Compression, input: &[u8]) -> io::Result<Vec<u8>> {
    match codec {
        Compression::None => Ok(input.to_vec()),
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(input)?;
            encoder.finish()
        }
        Compression::Snappy => super::snappy::compress(input),
        Compression::Lz4 => super::lz4_frame::compress(input),
        Compression::Zstd => zstd::stream::encode_all(input, zstd::DEFAULT_COMPRESSION_LEVEL),
    }
}

/// Output of one compressed stream, piece by piece, up to a bound.
pub(super) struct Decompressor<'a> {
    codec: Compression,
    stream: Stream<'a>,
    /// A piece that was produced and not yet consumed: `piece[used..filled]`.
    piece: Vec<u8>,
    used: usize,
    filled: usize,
    produced: usize,
    output_len_max: usize,
}

/// Bytes produced at once.
const PIECE_LEN: usize = 16 << 10;

enum Stream<'a> {
    Plain(&'a [u8]),
    Gzip(Box<flate2::bufread::MultiGzDecoder<&'a [u8]>>),
    Snappy(SnappyBlocks<'a>),
    Lz4(Box<Lz4Frame<'a>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, &'a [u8]>>),
}

impl<'a> Decompressor<'a> {
    pub(super) fn new(codec: Compression, input: &'a [u8], output_len_max: usize) -> Result<Self, DecompressError> {
        let damaged = |error: io::Error| DecompressError::Damaged { codec: codec.name(), reason: error.to_string() };
        let stream = match codec {
            Compression::None => Stream::Plain(input),
            Compression::Gzip => Stream::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(input))),
            Compression::Snappy => Stream::Snappy(SnappyBlocks::new(input)),
            Compression::Lz4 => Stream::Lz4(Box::new(Lz4Frame::new(input).map_err(damaged)?)),
            Compression::Zstd => {
                Stream::Zstd(Box::new(zstd::stream::read::Decoder::with_buffer(input).map_err(damaged)?))
            }
        };
        Ok(Self { codec, stream, piece: Vec::new(), used: 0, filled: 0, produced: 0, output_len_max })
    }

    /// The next piece of output; empty at the end of the stream.
    pub(super) fn fill(&mut self) -> Result<&[u8], DecompressError> {
        if self.used == self.filled {
            self.used = 0;
            self.filled = self.produce()?;
            self.produced = self.produced.saturating_add(self.filled);
            if self.produced > self.output_len_max {
                return Err(DecompressError::TooLarge { output_len_max: self.output_len_max });
            }
        }
        Ok(&self.piece[self.used..self.filled])
    }

    pub(super) fn consume(&mut self, len: usize) {
        self.used += len;
        assert!(self.used <= self.filled, "no more can be consumed than was produced");
    }

    fn produce(&mut self) -> Result<usize, DecompressError> {
        if let Stream::Snappy(blocks) = &mut self.stream {
            let room = self.output_len_max - self.produced;
            return blocks.next_block(&mut self.piece, room).map_err(|error| match error {
                DecompressError::TooLarge { .. } => DecompressError::TooLarge { output_len_max: self.output_len_max },
                damaged => damaged,
            });
        }
        self.piece.resize(PIECE_LEN, 0);
        let result = match &mut self.stream {
            Stream::Plain(rest) => rest.read(&mut self.piece),
            Stream::Gzip(reader) => reader.read(&mut self.piece),
            Stream::Lz4(reader) => reader.read(&mut self.piece),
            Stream::Zstd(reader) => reader.read(&mut self.piece),
            Stream::Snappy(_) => unreachable!("returned above"),
        };
        result.map_err(|error| DecompressError::Damaged { codec: self.codec.name(), reason: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> Vec<u8> {
        (0..20_000u32).flat_map(|n| format!("record {} of many; ", n % 700).into_bytes()).collect()
    }

    #[test]
    fn every_codec_gives_back_what_went_in() {
        for codec in Compression::ALL {
            for input in [Vec::new(), b"a".to_vec(), text()] {
                let packed = compress(codec, &input);
                assert_eq!(decompress(codec, &packed, input.len()).expect("own output"), input, "{codec:?}");
                if codec != Compression::None && input.len() > 1000 {
                    assert!(packed.len() < input.len() / 2, "{codec:?}");
                }
            }
        }
    }

    #[test]
    fn a_bomb_stops_at_the_bound() {
        let zeros = vec![0; 64 << 20];
        for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
            let bomb = compress(codec, &zeros);
            let bound = 1 << 20;
            match decompress(codec, &bomb, bound) {
                Err(DecompressError::TooLarge { output_len_max }) => assert_eq!(output_len_max, bound),
                other => panic!("{codec:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn every_cut_of_a_stream_is_refused() {
        let input = text();
        let short = &input[..3000];
        for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
            let packed = compress(codec, short);
            // Nothing at all is an empty stream to some codecs, and so is snappy's header without blocks, for its
            // framing has no end mark: the record walk judges those.
            let first = if codec == Compression::Snappy { 17 } else { 1 };
            for len in first..packed.len() {
                let cut = decompress(codec, &packed[..len], 1 << 20);
                assert!(cut.is_err(), "{codec:?} cut to {len} of {}", packed.len());
            }
        }
    }

    #[test]
    fn damaged_streams_never_panic_and_stay_below_the_bound() {
        let input = text();
        for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
            let packed = compress(codec, &input[..2000]);
            for position in 0..packed.len() {
                for flip in [0x01, 0x80, 0xff] {
                    let mut damaged = packed.clone();
                    damaged[position] ^= flip;
                    if let Ok(output) = decompress(codec, &damaged, 100_000) {
                        assert!(output.len() <= 100_000);
                    }
                }
            }
        }
    }

    #[test]
    fn the_bound_grows_with_the_input_up_to_the_ceiling() {
        assert_eq!(output_len_max(10, 64 << 20), 1000 + (1 << 20));
        assert_eq!(output_len_max(10 << 20, 64 << 20), 64 << 20);
        assert_eq!(output_len_max(usize::MAX, usize::MAX), usize::MAX);
    }
}
