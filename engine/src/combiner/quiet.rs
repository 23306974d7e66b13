//! Lines about a bucket that does not work: one in ten seconds of each matter, with the number of those that were kept back.
//! Pure.
//!
//! Thousands of ranges, objects and partitions meet the same trouble at once.

use std::cell::Cell;
use std::time::Duration;

/// Between two lines of one matter.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// What a line is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Matter {
    /// Ranges came back without an object.
    Returned,
    /// An object could not be put.
    Put,
    /// An object could not be read.
    Get,
}

/// When each matter was told last, and how much was not told since.
#[derive(Default, Debug)]
pub(super) struct Quiet([Cell<(Option<Duration>, u64)>; 3]);

impl Quiet {
    /// `amount` more happened. Gives all that happened since the last line, if it is time for one.
    pub(super) fn more(&self, matter: Matter, amount: usize, now: Duration) -> Option<u64> {
        let cell = match matter {
            Matter::Returned => &self.0[0],
            Matter::Put => &self.0[1],
            Matter::Get => &self.0[2],
        };
        let (told_at, untold) = cell.get();
        let untold = untold.saturating_add(u64::try_from(amount).unwrap_or(u64::MAX));
        if told_at.is_some_and(|at| now < at + LINE_EVERY) {
            cell.set((told_at, untold));
            return None;
        }
        cell.set((Some(now), 0));
        Some(untold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_becomes_a_few_lines_and_nothing_is_left_out_of_the_sum() {
        let quiet = Quiet::default();
        let told: Vec<u64> =
            (0..30).filter_map(|second| quiet.more(Matter::Returned, 2, Duration::from_secs(second))).collect();
        assert_eq!(told, [2, 20, 20]);
        assert_eq!(quiet.more(Matter::Get, 1, Duration::from_secs(29)), Some(1), "another matter");
    }
}
