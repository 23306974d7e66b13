//! CRC-32C of concatenations, from the sums of their parts.
//!
//! Path: from a checked batch to the sum of the slice it travels in. Pure.
//!
//! A CRC is the remainder of the bytes, read as one long polynomial, so the sum of `A ‖ B` is the sum of A multiplied
//! by x^(8·len B), plus the sum of B. The multiplication costs a few hundred nanoseconds whatever the length; the same
//! step in the `crc32c` crate squares 32×32 matrices and costs more than a second pass over most batches. The tests
//! compare both.

/// The Castagnoli polynomial, lowest power in the highest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// The polynomial "1" in the same order of bits.
const ONE: u32 = 1 << 31;
/// `POWERS[n]` is x^(2^n): each is the square of the one before.
const POWERS: [u32; 64] = powers();

/// CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC-32C of `A ‖ bytes`, where `crc` is the sum of A.
#[must_use]
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// CRC-32C of `A ‖ B` from the sums of both and the length of B in bytes.
#[must_use]
pub fn combine(crc_a: u32, crc_b: u32, len_b: usize) -> u32 {
    shift(crc_a, len_b) ^ crc_b
}

/// The sum multiplied by x^(8·len): what it contributes once `len` more bytes follow.
#[must_use]
pub(super) fn shift(crc: u32, len: usize) -> u32 {
    let mut factor = ONE;
    let mut rest = len;
    // 8·len = len · 2^3, hence the powers start at the fourth.
    let mut power = 3;
    while rest != 0 {
        if rest & 1 == 1 {
            factor = multiply(POWERS[power], factor);
        }
        rest >>= 1;
        power += 1;
        if power == POWERS.len() {
            power = 0;
        }
    }
    multiply(factor, crc)
}

const fn multiply(a: u32, b: u32) -> u32 {
    let mut product = 0;
    let mut shifted = b;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        // All ones when this power of a is present, so that the loop has no branch to mispredict.
        let present = 0u32.wrapping_sub((a >> bit) & 1);
        product ^= shifted & present;
        let carry = 0u32.wrapping_sub(shifted & 1);
        shifted = (shifted >> 1) ^ (POLYNOMIAL & carry);
    }
    product
}

const fn powers() -> [u32; 64] {
    let mut table = [0; 64];
    let mut value = 1 << 30;
    let mut index = 0;
    while index < table.len() {
        table[index] = value;
        value = multiply(value, value);
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sum_of_the_standard_check_string() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn combining_equals_the_crate_and_one_pass_for_many_lengths() {
        let bytes: Vec<u8> = (0..70_000u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
        for cut in [0, 1, 2, 7, 20, 61, 255, 4096, 65_535, 70_000] {
            let (a, b) = bytes.split_at(cut);
            let whole = crc32c(&bytes);
            assert_eq!(combine(crc32c(a), crc32c(b), b.len()), whole, "cut at {cut}");
            assert_eq!(crc32c::crc32c_combine(crc32c(a), crc32c(b), b.len()), whole, "cut at {cut}");
            assert_eq!(append(crc32c(a), b), whole);
        }
    }
}
