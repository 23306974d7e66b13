//! One simulated file: its blocks as the running system sees them, and what each held before it was last made durable.
//!
//! Pure. A file is a pile of layers. The newest image is `blocks`; layer `k` keeps, for each block changed since
//! layer `k` began, what the block held when the layer began. Starting a sync opens a new layer on top; its success
//! forgets the layers below. So after a power loss a block may hold any image since its last successful sync:
//! ```text
//! durable image ── layer 0 ──> image at sync start ── layer 1 ──> newest image (what reads see)
//! ```
//! A failed sync leaves its layer *forsaken*, as Linux does: the page counts as clean, a later sync reports success
//! and the bytes may still be lost (R6). Invariant: what a successful sync covered is never lost.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;

use crate::memory::BLOCK;
use crate::sim::random::Random;

/// What a disk writes at once or not at all.
const SECTOR: usize = 512;
const BLOCK_BYTES: u64 = 4096;

pub(crate) type Block = Box<[u8; BLOCK]>;

/// Names a sync under way: the number of the layer it will make durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SyncMark(u64);

#[derive(Debug, Default)]
struct Layer {
    number: u64,
    before: BTreeMap<u64, Option<Block>>,
    len_before: u64,
    forsaken: bool,
}

#[derive(Debug)]
pub(crate) struct FileImage {
    blocks: BTreeMap<u64, Block>,
    len: u64,
    /// Oldest first, never empty; the last takes new changes.
    layers: Vec<Layer>,
    /// Blocks of the write that came last, if no sync covered it: these may be torn inside.
    last_write: Range<u64>,
}

impl FileImage {
    pub(crate) fn new() -> FileImage {
        FileImage { blocks: BTreeMap::new(), len: 0, layers: vec![Layer::default()], last_write: 0..0 }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `into` from `position`; returns how many bytes lie below the end of the file.
    pub(crate) fn read(&self, position: u64, into: &mut [u8]) -> usize {
        let len = below(self.len.saturating_sub(position), into.len());
        let mut done = 0;
        while done < len {
            let (index, start) = locate(position, done);
            let piece = (BLOCK - start).min(len - done);
            let target = &mut into[done..done + piece];
            match self.blocks.get(&index) {
                Some(block) => target.copy_from_slice(&block[start..start + piece]),
                None => target.fill(0),
            }
            done += piece;
        }
        len
    }

    pub(crate) fn write(&mut self, position: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let (index, start) = locate(position, done);
            let piece = (BLOCK - start).min(bytes.len() - done);
            self.block_for_change(index)[start..start + piece].copy_from_slice(&bytes[done..done + piece]);
            done += piece;
        }
        let end = position + wide(bytes.len());
        self.len = self.len.max(end);
        self.last_write = position / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
    }

    /// Cuts the file, or lengthens it with zeros.
    pub(crate) fn set_len(&mut self, len: u64) {
        if len < self.len {
            let first_gone = len.div_ceil(BLOCK_BYTES);
            let gone: Vec<u64> = self.blocks.range(first_gone..).map(|(index, _)| *index).collect();
            for index in gone {
                let before = self.blocks.remove(&index);
                self.top().before.entry(index).or_insert(before);
            }
            let kept = below(len % BLOCK_BYTES, BLOCK);
            if kept > 0 && self.blocks.contains_key(&(len / BLOCK_BYTES)) {
                self.block_for_change(len / BLOCK_BYTES)[kept..].fill(0);
            }
        }
        self.len = len;
    }

    pub(crate) fn begin_sync(&mut self) -> SyncMark {
        let number = self.top().number;
        self.layers.push(Layer { number: number + 1, len_before: self.len, ..Layer::default() });
        SyncMark(number)
    }

    /// Success: everything written before the sync began is durable, except what an earlier failed sync gave up.
    pub(crate) fn end_sync(&mut self, mark: SyncMark) {
        let (covered, newer): (Vec<Layer>, Vec<Layer>) =
            std::mem::take(&mut self.layers).into_iter().partition(|layer| layer.number <= mark.0);
        let rewritten: BTreeSet<u64> =
            covered.iter().filter(|layer| !layer.forsaken).flat_map(|layer| layer.before.keys().copied()).collect();
        for mut layer in covered.into_iter().filter(|layer| layer.forsaken) {
            layer.before.retain(|index, _| !rewritten.contains(index));
            layer.len_before = layer.len_before.max(newer.first().map_or(0, |layer| layer.len_before));
            if !layer.before.is_empty() {
                self.layers.push(layer);
            }
        }
        self.layers.extend(newer);
        assert!(!self.layers.is_empty(), "the layer that takes new changes is above every sync");
    }

    /// Failure: what the sync covered stays readable, but no later sync covers it unless it is written again.
    pub(crate) fn fail_sync(&mut self, mark: SyncMark) {
        for layer in self.layers.iter_mut().filter(|layer| layer.number <= mark.0) {
            layer.forsaken = true;
        }
    }

    /// Each unsynced block holds one of the images since its last sync; the blocks of the last write may be torn.
    pub(crate) fn lose_power(&mut self, random: &mut Random) {
        let changed: BTreeSet<u64> = self.layers.iter().flat_map(|layer| layer.before.keys().copied()).collect();
        for index in changed {
            self.lose_block(index, random);
        }
        let lens: Vec<u64> = self.layers.iter().map(|layer| layer.len_before).chain([self.len]).collect();
        self.len = *random.pick(&lens);
        let len = self.len;
        self.layers = vec![Layer { len_before: len, ..Layer::default() }];
        self.blocks.retain(|index, _| *index < len.div_ceil(BLOCK_BYTES));
        self.last_write = 0..0;
    }

    fn lose_block(&mut self, index: u64, random: &mut Random) {
        let newest = self.blocks.remove(&index);
        let torn = newest.is_some() && self.last_write.contains(&index) && random.chance(1, 2);
        let mut images: Vec<Option<Block>> = Vec::new();
        let older = self.layers.iter_mut().filter_map(|layer| layer.before.remove(&index));
        for image in older.chain([newest]) {
            // A block that was cut off is not freed before the cut itself is durable: it never turns into zeros.
            if image.is_some() || images.iter().all(Option::is_none) {
                images.push(image);
            }
        }
        let kept = if torn {
            let newest = images.pop().flatten();
            let older = images.swap_remove(random.index(images.len()));
            Some(tear(older, newest, random))
        } else {
            images.swap_remove(random.index(images.len()))
        };
        if let Some(block) = kept {
            self.blocks.insert(index, block);
        }
    }

    fn block_for_change(&mut self, index: u64) -> &mut Block {
        let top = self.layers.last_mut().expect("never empty");
        top.before.entry(index).or_insert_with(|| self.blocks.get(&index).cloned());
        self.blocks.entry(index).or_insert_with(zeros)
    }

    fn top(&mut self) -> &mut Layer {
        self.layers.last_mut().expect("never empty")
    }
}

/// Some sectors of the newer image over the older one.
fn tear(older: Option<Block>, newer: Option<Block>, random: &mut Random) -> Block {
    let mut block = older.unwrap_or_else(zeros);
    let newer = newer.unwrap_or_else(zeros);
    for (into, from) in block.chunks_mut(SECTOR).zip(newer.chunks(SECTOR)) {
        if random.chance(1, 2) {
            into.copy_from_slice(from);
        }
    }
    block
}

/// The parts of a write of `len` bytes at `position` that were there when the process died: nothing, all, a prefix,
/// or any subset of its blocks. Ranges are relative to the write's first byte.
pub(crate) fn parts_of_a_torn_write(position: u64, len: usize, random: &mut Random) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = 0;
    while start < len {
        let (_, inside) = locate(position, start);
        let end = (start + BLOCK - inside).min(len);
        parts.push(start..end);
        start = end;
    }
    match random.below(4) {
        0 => {}
        1 => parts.truncate(random.index(parts.len() + 1)),
        2 => parts.retain(|_| random.chance(1, 2)),
        _ => parts.clear(),
    }
    parts
}

fn zeros() -> Block {
    Box::new([0; BLOCK])
}

/// The block of the byte `done` after `position`, and where in the block it lies.
fn locate(position: u64, done: usize) -> (u64, usize) {
    let at = position + wide(done);
    (at / BLOCK_BYTES, below(at % BLOCK_BYTES, BLOCK))
}

fn below(value: u64, bound: usize) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX).min(bound)
}

pub(crate) fn wide(len: usize) -> u64 {
    u64::try_from(len).expect("usize fits 64 bits")
}

/// What an operating system's error number says.
pub(crate) fn os_error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(image: &FileImage) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(image.len()).unwrap()];
        assert_eq!(image.read(0, &mut bytes), bytes.len());
        bytes
    }

    fn sync(image: &mut FileImage) {
        let mark = image.begin_sync();
        image.end_sync(mark);
    }

    #[test]
    fn a_file_reads_like_one_vector_of_bytes_whatever_was_written_cut_and_synced() {
        for seed in 0..50 {
            let mut random = Random::seeded(seed);
            let mut image = FileImage::new();
            let mut model: Vec<u8> = Vec::new();
            for _ in 0..100 {
                match random.below(4) {
                    0 => {
                        let len = random.index(20_000);
                        model.resize(len, 0);
                        image.set_len(wide(len));
                    }
                    1 => sync(&mut image),
                    _ => {
                        let (position, len) = (random.index(20_000), random.index(9000) + 1);
                        let mut bytes = vec![0; len];
                        random.fill(&mut bytes);
                        model.resize(model.len().max(position + len), 0);
                        model[position..position + len].copy_from_slice(&bytes);
                        image.write(wide(position), &bytes);
                    }
                }
                assert!(contents(&image) == model, "seed {seed}");
            }
        }
    }

    #[test]
    fn what_a_sync_covered_survives_and_what_came_after_is_one_of_the_images_since() {
        let mut lost = 0;
        for seed in 0..200 {
            let mut random = Random::seeded(seed);
            let mut image = FileImage::new();
            image.write(0, &[1; 8192]);
            sync(&mut image);
            image.write(4096, &[2; 4096]);
            let mark = image.begin_sync();
            image.write(4096, &[3; 4096]);
            if random.chance(1, 2) {
                image.end_sync(mark);
            }
            image.lose_power(&mut random);
            let bytes = contents(&image);
            assert_eq!(bytes.len(), 8192);
            assert!(bytes[..4096].iter().all(|byte| *byte == 1), "seed {seed}");
            assert!(bytes[4096..].iter().all(|byte| (1..4).contains(byte)), "seed {seed}");
            lost += u32::from(bytes[4096] != 3);
        }
        assert!((50..150).contains(&lost), "power loss both keeps and loses: {lost}");
    }

    #[test]
    fn a_sync_does_not_cover_what_was_written_after_it_began_nor_lose_what_it_covered() {
        let mut newer_lost = false;
        for seed in 0..50 {
            let mut image = FileImage::new();
            image.write(0, &[1; 4096]);
            let mark = image.begin_sync();
            image.write(0, &[2; 4096]);
            image.end_sync(mark);
            image.lose_power(&mut Random::seeded(seed));
            let bytes = contents(&image);
            assert!(bytes.len() == 4096 && bytes.iter().all(|byte| *byte > 0));
            newer_lost |= bytes.contains(&1);
        }
        assert!(newer_lost);
    }

    #[test]
    fn bytes_given_up_by_a_failed_sync_may_be_lost_although_a_later_sync_succeeds() {
        let lost_in = |rewrite: bool| {
            (0..100).any(|seed| {
                let mut image = FileImage::new();
                image.set_len(4096);
                sync(&mut image);
                image.write(0, &[1; 4096]);
                let mark = image.begin_sync();
                image.fail_sync(mark);
                if rewrite {
                    image.write(0, &[1; 4096]);
                }
                sync(&mut image);
                image.lose_power(&mut Random::seeded(seed));
                contents(&image).contains(&0)
            })
        };
        assert!(lost_in(false));
        assert!(!lost_in(true));
    }

    #[test]
    fn a_cut_that_was_not_synced_may_come_back_whole() {
        let lens: BTreeSet<u64> = (0..50)
            .map(|seed| {
                let mut image = FileImage::new();
                image.write(0, &[1; 12_288]);
                sync(&mut image);
                image.set_len(4096);
                image.lose_power(&mut Random::seeded(seed));
                assert!(contents(&image).iter().all(|byte| *byte == 1));
                image.len()
            })
            .collect();
        assert_eq!(lens, BTreeSet::from([4096, 12_288]));
    }

    #[test]
    fn a_torn_write_leaves_nothing_a_prefix_some_blocks_or_all() {
        let mut seen = BTreeSet::new();
        for seed in 0..100 {
            let parts = parts_of_a_torn_write(8192, 12_288, &mut Random::seeded(seed));
            seen.insert(parts.iter().map(|part| part.start / BLOCK).collect::<Vec<_>>());
        }
        assert!(seen.contains(&vec![]) && seen.contains(&vec![0, 1, 2]) && seen.contains(&vec![0]));
        assert!(seen.contains(&vec![1]) || seen.contains(&vec![2]) || seen.contains(&vec![0, 2]));
    }
}
