//! Random numbers from a seed (SplitMix64). Pure.

/// A stream of random numbers; the same seed gives the same stream.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number in `0..end`.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("usize fits 64 bits");
        usize::try_from(self.bits() % end).expect("smaller than a usize")
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One random byte.
    pub fn byte(&mut self) -> u8 {
        self.bits().to_be_bytes()[0]
    }

    /// One of `list`.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}
