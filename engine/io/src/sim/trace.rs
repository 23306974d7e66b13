//! A hash over a run: every completed operation and its virtual time. Same seed, same program: same hash.
//!
//! Pure. Not cryptographic; each word is mixed in by multiplication and rotation.

use crate::moment::Moment;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Trace {
    hash: u64,
    operations: u64,
}

impl Trace {
    pub(crate) fn new() -> Trace {
        Trace { hash: 0x243f_6a88_85a3_08d3, operations: 0 }
    }

    pub(crate) fn operation(&mut self, at: Moment, shard: usize, kind: &'static str, result: u64) {
        self.operations += 1;
        self.mix(at.as_nanos());
        self.mix(u64::try_from(shard).expect("usize fits 64 bits"));
        self.mix(u64::from_le_bytes(std::array::from_fn(|index| kind.as_bytes().get(index).copied().unwrap_or(0))));
        self.mix(result);
    }

    pub(crate) fn hash(self) -> u64 {
        self.hash
    }

    pub(crate) fn operations(self) -> u64 {
        self.operations
    }

    fn mix(&mut self, word: u64) {
        let mixed = (self.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.hash = (mixed ^ (mixed >> 32)).rotate_left(17);
    }
}
