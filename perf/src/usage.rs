//! What a process has used, from /proc: processor seconds of all its threads, memory held.

use std::fs;
use std::process::Command;

use crate::failure::Failure;

/// Processor seconds and memory of one process up to now.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Usage {
    /// In user space.
    pub(crate) user_seconds: f64,
    /// In the kernel on its behalf.
    pub(crate) system_seconds: f64,
    /// Resident memory.
    pub(crate) resident_mib: f64,
}

impl Usage {
    pub(crate) fn cpu_seconds(self) -> f64 {
        self.user_seconds + self.system_seconds
    }

    /// What was used since `earlier`; memory is that of now.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            user_seconds: self.user_seconds - earlier.user_seconds,
            system_seconds: self.system_seconds - earlier.system_seconds,
            resident_mib: self.resident_mib,
        }
    }
}

/// Reads the usage of processes; knows how long a tick of the clock in /proc is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    ticks_per_second: f64,
    page_mib: f64,
}

impl Meter {
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self { ticks_per_second: configured("CLK_TCK")?, page_mib: configured("PAGESIZE")? / f64::from(1 << 20) })
    }

    /// Usage of the process `pid`.
    pub(crate) fn read(self, pid: u32) -> Result<Usage, Failure> {
        let path = format!("/proc/{pid}/stat");
        let text = fs::read_to_string(&path).map_err(|error| Failure::of(&path, error))?;
        self.parse(&text).ok_or_else(|| Failure::new(format!("{path} reads {text}")))
    }

    /// Fields after the name, which may hold anything: utime is the 12th, stime the 13th, rss (pages) the 22nd.
    fn parse(self, stat: &str) -> Option<Usage> {
        let (_, rest) = stat.rsplit_once(')')?;
        let field = |number: usize| rest.split_ascii_whitespace().nth(number)?.parse::<f64>().ok();
        Some(Usage {
            user_seconds: field(11)? / self.ticks_per_second,
            system_seconds: field(12)? / self.ticks_per_second,
            resident_mib: field(21)? * self.page_mib,
        })
    }
}

fn configured(name: &str) -> Result<f64, Failure> {
    let output = Command::new("getconf").arg(name).output().map_err(|error| Failure::of("getconf", error))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    text.parse().map_err(|error| Failure::of(format!("getconf {name} printed {text}"), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let meter = Meter { ticks_per_second: 100.0, page_mib: 4096.0 / 1_048_576.0 };
        let stat =
            "77 (a) b (c)) S 1 77 77 0 -1 4194560 1 2 3 4 150 50 7 8 20 0 9 0 12345 999424 256 18446744073709551615";
        let usage = meter.parse(stat).unwrap();
        assert_eq!(usage, Usage { user_seconds: 1.5, system_seconds: 0.5, resident_mib: 1.0 });
        assert!(meter.parse("77 (a) S 1").is_none());
    }

    #[test]
    fn our_own_work_is_seen() {
        let meter = Meter::new().unwrap();
        let before = meter.read(std::process::id()).unwrap();
        let mut sum = 0u64;
        while meter.read(std::process::id()).unwrap().since(before).cpu_seconds() < 0.05 {
            sum = (0..100_000u64).fold(sum, |sum, n| std::hint::black_box(sum ^ n));
        }
        assert!(meter.read(std::process::id()).unwrap().resident_mib > 0.0);
    }
}
