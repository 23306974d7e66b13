//! The end of a log in memory: batches are copied once into a chunk and stay there while disk, combiner, followers and
//! consumers read them.
//!
//! Path: from `append` to `writer` (block ranges), `lend` (leases) and `reader` (tail reads).
//! ```text
//! segment bytes   ... 8192        12288        16384
//! chunk           |c c c|own own own|own ...    |
//!                  carried: the last partial block, copied from the chunk before, so that the block can be written again
//! ```
//! A chunk starts at a block of the segment. When a batch does not fit, a fresh chunk starts at the last partial block.
//! An idle log holds no chunk, only that block's bytes.
//!
//! Invariant (R5): bytes below a chunk's filled mark never change; a chunk that is let go or cut off stays whole for those
//! who hold leases of it. Invariant: chunks follow one another without a gap, each begins at a batch.
//! Cost: one copy per batch, up to a block more per fresh chunk.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use sakia_io::{Arena, ArenaFull, BLOCK, BlockLease, ChunkWriter, Moment};
use sakia_protocol::ids::Offset;

use crate::log::limits::{TAIL_CHUNK_BYTES_MAX, TAIL_CHUNK_BYTES_MIN, TAIL_CHUNKS_KEPT, TAIL_CHUNKS_UNWRITTEN_MAX};
use crate::log::segment::Position;

/// A chunk that lasted less makes the next one larger.
const FILLED_FAST: Duration = Duration::from_millis(250);
/// A chunk that lasted longer makes the next one smaller.
const FILLED_SLOWLY: Duration = Duration::from_secs(2);

/// Why there is no room for a batch now.
#[derive(Debug, thiserror::Error)]
pub enum TailFull {
    /// The shard's memory budget is used up.
    #[error(transparent)]
    Memory(#[from] ArenaFull),
    /// Too much waits for the disk.
    #[error("{0} tail chunks wait to be written")]
    Unwritten(usize),
}

/// The end of the log: where the next batch goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct End {
    /// Base offset of the active segment.
    pub(super) segment: Offset,
    /// Position in it.
    pub(super) position: Position,
    /// Offset of the next batch.
    pub(super) offset: Offset,
}

struct TailChunk {
    segment: Offset,
    /// Of the chunk's first byte in the segment; a multiple of the block.
    position: Position,
    /// Where the chunk's own batches begin.
    carried: usize,
    /// Offset of its first own batch.
    first: Offset,
    /// Offset behind its last batch.
    next: Offset,
    /// Bytes from the start that are on disk.
    stored: usize,
    begun: Moment,
    writer: ChunkWriter,
}

/// One write: a range of blocks that covers everything unwritten of one chunk.
pub(super) struct Round {
    pub(super) segment: Offset,
    /// Position of the blocks in the file.
    pub(super) position: u64,
    /// Where the log ends in the segment once they are written.
    pub(super) end: Position,
    /// The log is stored up to here once they are written.
    pub(super) next: Offset,
    first: Offset,
    filled: usize,
}

/// Bytes of one chunk in the segment.
pub(super) struct Held {
    pub(super) segment: Offset,
    /// Position in the segment of the first byte.
    pub(super) position: Position,
    pub(super) bytes: Bytes,
}

pub(super) struct Tail {
    chunks: VecDeque<TailChunk>,
    /// The last partial block while there is no chunk.
    partial: Vec<u8>,
    chunk_len: usize,
}

impl Tail {
    /// A tail without a chunk; `partial` is what the last block of the active segment holds.
    pub(super) fn new(partial: Vec<u8>) -> Self {
        assert!(partial.len() < BLOCK, "a full block is not carried");
        Self { chunks: VecDeque::new(), partial, chunk_len: TAIL_CHUNK_BYTES_MIN }
    }

    /// Makes sure that `len` bytes fit behind `end`.
    pub(super) fn make_room(&mut self, arena: &Arena, end: End, len: usize, now: Moment) -> Result<(), TailFull> {
        if self.last_of(end.segment).is_some_and(|chunk| chunk.writer.remaining() >= len) {
            return Ok(());
        }
        let unwritten = self.chunks.iter().filter(|chunk| chunk.stored < chunk.writer.filled()).count();
        if unwritten >= TAIL_CHUNKS_UNWRITTEN_MAX {
            return Err(TailFull::Unwritten(unwritten));
        }
        let carried = self.carried(end);
        let needed = (carried.len() + len).next_multiple_of(BLOCK);
        let wished = self.chunks.back().map_or(self.chunk_len, |last| next_chunk_len(self.chunk_len, now - last.begun));
        // With little memory left a chunk for just this batch is better than a refusal.
        let mut writer = arena.chunk(wished.max(needed)).or_else(|_| arena.chunk(needed))?;
        writer.append(&carried).expect("a chunk holds at least a block");
        self.chunk_len = wished;
        self.partial = Vec::new();
        self.chunks.push_back(TailChunk {
            segment: end.segment,
            position: end.position.block(),
            carried: carried.len(),
            first: end.offset,
            next: end.offset,
            stored: carried.len(),
            begun: now,
            writer,
        });
        Ok(())
    }

    /// Copies a batch, given in two parts, behind the end; `make_room` came first.
    pub(super) fn append(&mut self, head: &[u8], body: &[u8], end: End, next: Offset) {
        let chunk = self.chunks.back_mut().expect("room was made");
        assert_eq!(chunk.segment, end.segment, "the last chunk belongs to the active segment");
        assert_eq!(
            chunk.position.advance(chunk.writer.filled()),
            end.position,
            "batches follow one another without a gap"
        );
        assert!(chunk.next <= end.offset && end.offset < next, "offsets rise");
        chunk.writer.append_parts(&[head, body]).expect("room was made");
        chunk.next = next;
    }

    /// The next write, oldest bytes first; `None` if everything is on disk.
    pub(super) fn next_round(&self) -> Option<(Round, BlockLease)> {
        let chunk = self.chunks.iter().find(|chunk| chunk.stored < chunk.writer.filled())?;
        let filled = chunk.writer.filled();
        let start = chunk.stored / BLOCK * BLOCK;
        let round = Round {
            segment: chunk.segment,
            position: chunk.position.advance(start).in_file(),
            end: chunk.position.advance(filled),
            next: chunk.next,
            first: chunk.first,
            filled,
        };
        Some((round, chunk.writer.blocks(start..filled)))
    }

    /// The round's blocks are on disk.
    pub(super) fn complete(&mut self, round: &Round) {
        let chunk = self.chunks.iter_mut().find(|chunk| chunk.first == round.first && chunk.segment == round.segment);
        let chunk = chunk.expect("a chunk that is being written is not let go");
        assert!(chunk.stored < round.filled && round.filled <= chunk.writer.filled(), "a write moves forward");
        chunk.stored = round.filled;
        while self.chunks.len() > 1 + TAIL_CHUNKS_KEPT {
            let front = self.chunks.front().expect("more than one");
            if front.stored < front.writer.filled() {
                break;
            }
            self.chunks.pop_front();
        }
    }

    /// The first offset that is in memory.
    pub(super) fn first(&self) -> Option<Offset> {
        self.chunks.front().map(|chunk| chunk.first)
    }

    /// All batches of the chunk that holds `offset` or, where that lies in a compaction gap, what follows.
    pub(super) fn held(&self, offset: Offset) -> Option<Held> {
        self.first().filter(|first| *first <= offset)?;
        let chunk = self.chunks.iter().find(|chunk| offset < chunk.next)?;
        Some(Held {
            segment: chunk.segment,
            position: chunk.position.advance(chunk.carried),
            bytes: chunk.writer.lease(chunk.carried..chunk.writer.filled()),
        })
    }

    /// Lets go of all chunks, keeps the last partial block. Everything is on disk.
    pub(super) fn let_go(&mut self, end: End) {
        if self.chunks.is_empty() {
            return;
        }
        assert!(self.next_round().is_none(), "unwritten bytes are not let go");
        let partial = self.carried(end).to_vec();
        *self = Self::new(partial);
    }

    /// Cuts everything off (truncation): what follows continues in a fresh chunk, leases keep the old ones.
    pub(super) fn cut(&mut self, partial: Vec<u8>) {
        *self = Self::new(partial);
    }

    fn last_of(&self, segment: Offset) -> Option<&TailChunk> {
        self.chunks.back().filter(|chunk| chunk.segment == segment)
    }

    /// The bytes of the last block before `end`.
    fn carried(&self, end: End) -> Bytes {
        let len = end.position.in_block();
        match self.last_of(end.segment) {
            Some(chunk) => {
                let filled = chunk.writer.filled();
                chunk.writer.lease(filled - len..filled)
            }
            // The block that was kept belongs to the segment before.
            None if len == 0 => Bytes::new(),
            None => {
                assert_eq!(self.partial.len(), len, "the partial block reaches to the end of the log");
                Bytes::copy_from_slice(&self.partial)
            }
        }
    }
}

/// Larger for a log that fills its chunks fast, smaller for a slow one.
fn next_chunk_len(last: usize, lasted: Duration) -> usize {
    if lasted < FILLED_FAST {
        (last * 2).min(TAIL_CHUNK_BYTES_MAX)
    } else if lasted > FILLED_SLOWLY {
        (last / 2).max(TAIL_CHUNK_BYTES_MIN)
    } else {
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_the_rate_between_their_bounds() {
        let fast = |last| next_chunk_len(last, Duration::from_millis(10));
        let slow = |last| next_chunk_len(last, Duration::from_secs(3));
        assert_eq!(fast(TAIL_CHUNK_BYTES_MIN), 2 * TAIL_CHUNK_BYTES_MIN);
        assert_eq!(fast(TAIL_CHUNK_BYTES_MAX), TAIL_CHUNK_BYTES_MAX);
        assert_eq!(slow(TAIL_CHUNK_BYTES_MIN), TAIL_CHUNK_BYTES_MIN);
        assert_eq!(slow(TAIL_CHUNK_BYTES_MAX), TAIL_CHUNK_BYTES_MAX / 2);
        assert_eq!(next_chunk_len(TAIL_CHUNK_BYTES_MAX, Duration::from_secs(1)), TAIL_CHUNK_BYTES_MAX);
    }
}
