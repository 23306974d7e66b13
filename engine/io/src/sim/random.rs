//! The simulator's only source of chance: SplitMix64 seeds xoshiro256++.
//!
//! Pure. The same seed gives the same numbers on every machine and in every build, so a failing run replays from
//! its seed alone. `fork` gives an independent stream: what one part draws does not shift what another part draws.
//! Source: Blackman and Vigna, "Scrambled linear pseudorandom number generators" (public domain algorithms).

use std::ops::Range;
use std::time::Duration;

/// A seeded generator. `Clone` repeats the stream, `fork` starts another one.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    pub fn seeded(seed: u64) -> Random {
        let mut splitting = seed;
        let state = std::array::from_fn(|_| split_mix(&mut splitting));
        Random { state }
    }

    /// An independent generator whose seed is the next number of this one.
    pub fn fork(&mut self) -> Random {
        Random::seeded(self.next_u64())
    }

    pub fn next_u64(&mut self) -> u64 {
        let state = &mut self.state;
        let drawn = state[0].wrapping_add(state[3]).rotate_left(23).wrapping_add(state[0]);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        drawn
    }

    /// A number below `bound` (multiply-shift; its bias is below 2^-32 for every bound in use).
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing is below zero");
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("the upper half of a 128-bit product fits 64 bits")
    }

    /// An index of a list of `len` entries.
    pub fn index(&mut self, len: usize) -> usize {
        let len = u64::try_from(len).expect("usize fits 64 bits");
        usize::try_from(self.below(len)).expect("below a usize")
    }

    /// A number in `range`; its start if the range is empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() { range.start } else { range.start + self.below(range.end - range.start) }
    }

    /// A duration in `range`, in whole nanoseconds; its start if the range is empty.
    pub fn duration(&mut self, range: &Range<Duration>) -> Duration {
        let nanos =
            |duration: Duration| u64::try_from(duration.as_nanos()).expect("simulated spans are below 584 years");
        Duration::from_nanos(self.within(nanos(range.start)..nanos(range.end)))
    }

    /// True `of` times in `among` draws, on average.
    pub fn chance(&mut self, of: u64, among: u64) -> bool {
        self.below(among) < of
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.index(list.len())]
    }

    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for end in (2..=list.len()).rev() {
            list.swap(end - 1, self.index(end));
        }
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_numbers_and_other_seed_other_numbers() {
        let mut one = Random::seeded(7);
        let mut same = Random::seeded(7);
        let mut other = Random::seeded(8);
        let drawn: Vec<u64> = (0..100).map(|_| one.next_u64()).collect();
        assert_eq!(drawn, (0..100).map(|_| same.next_u64()).collect::<Vec<_>>());
        assert_ne!(drawn, (0..100).map(|_| other.next_u64()).collect::<Vec<_>>());
    }

    #[test]
    fn a_drawn_number_stays_in_its_range_and_reaches_both_ends() {
        let mut random = Random::seeded(1);
        let drawn: Vec<u64> = (0..1000).map(|_| random.within(3..7)).collect();
        assert!(drawn.iter().all(|number| (3..7).contains(number)));
        assert!((3..7).all(|wanted| drawn.contains(&wanted)));
        assert_eq!(random.within(5..5), 5);
    }

    #[test]
    fn a_fork_does_not_follow_its_parent() {
        let mut parent = Random::seeded(1);
        let mut fork = parent.fork();
        assert_ne!(parent.next_u64(), fork.next_u64());
    }
}
