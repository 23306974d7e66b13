//! One step timed alone: the stopwatch of all benches.
//!
//! Each bench is a plain program (`cargo bench -p sakia-benches --bench NAME`), one line per step. The smallest time is
//! what the step costs; the median beside it says how disturbed the machine was. Compare within one run only.

use std::time::{Duration, Instant};

/// Samples of one step.
const SAMPLES: usize = 41;
/// A sample repeats the step until it takes about this long.
const SAMPLE: Duration = Duration::from_millis(2);

/// Nanoseconds of one step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Timed {
    /// Of the fastest sample.
    pub least: f64,
    /// Of the sample in the middle.
    pub median: f64,
}

/// What a step works on, for a second figure beside its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Per {
    /// Only the time is shown.
    Step,
    /// So many bytes: GiB/s is shown as well.
    Bytes(usize),
    /// So many things: ns of each is shown as well.
    Things(usize),
}

/// Times a step and prints its line.
pub fn time(name: &str, per: Per, mut step: impl FnMut()) -> Timed {
    let mut repeats: u32 = 1;
    let whole = |step: &mut dyn FnMut(), repeats: u32| {
        let begin = Instant::now();
        (0..repeats).for_each(|_| step());
        begin.elapsed()
    };
    while whole(&mut step, repeats) < SAMPLE && repeats < 1 << 30 {
        repeats *= 2;
    }
    let samples = (0..SAMPLES).map(|_| whole(&mut step, repeats).as_secs_f64() * 1e9 / f64::from(repeats));
    let timed = of(samples.collect());
    print(name, per, timed);
    timed
}

/// Figures of samples in ns per step. Panics without a sample.
#[must_use]
pub fn of(mut samples: Vec<f64>) -> Timed {
    samples.sort_unstable_by(f64::total_cmp);
    Timed { least: samples[0], median: samples[samples.len() / 2] }
}

/// Prints the line of a step that was timed elsewhere.
pub fn print(name: &str, per: Per, timed: Timed) {
    let second = match per {
        Per::Step => String::new(),
        Per::Bytes(bytes) => format!("{:>9.2} GiB/s", as_f64(bytes) / timed.least * 1e9 / f64::from(1 << 30)),
        Per::Things(things) => format!("{:>9.1} ns each", timed.least / as_f64(things)),
    };
    println!("{name:<52} {:>12.1} ns   median {:>12.1} ns {second}", timed.least, timed.median);
}

fn as_f64(number: usize) -> f64 {
    f64::from(u32::try_from(number).expect("benches work on less than 4 GiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_and_middle_are_taken() {
        assert_eq!(of(vec![3.0, 1.0, 2.0]), Timed { least: 1.0, median: 2.0 });
        let timed = time("a step", Per::Bytes(10), std::thread::yield_now);
        assert!(timed.least > 0.0 && timed.least <= timed.median);
    }
}
