//! Steps: run something, time it, count what passed and failed, and say it all in one last line.
//!
//! A step is a command (passed or failed), a run of `cargo test` (its own counts), or a list of broken claims.
//! A failing step does not keep the next from running: one run shows everything that is wrong.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("xtask lies two folders below the root").to_owned()
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Whether this run is CI's: nothing may be skipped.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

/// A command in the root of the repository.
pub(crate) struct Step(Command);

impl Step {
    pub(crate) fn new(program: impl AsRef<std::ffi::OsStr>) -> Self {
        let mut command = Command::new(program);
        command.current_dir(root()).stdin(Stdio::null());
        Self(command)
    }

    pub(crate) fn argument(mut self, word: impl AsRef<std::ffi::OsStr>) -> Self {
        self.0.arg(word);
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: impl ToString) -> Self {
        self.0.env(name, value.to_string());
        self
    }

    /// Whether it runs and ends well, silently.
    pub(crate) fn works(mut self) -> bool {
        self.0.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// Its output, or why there is none.
    pub(crate) fn output(mut self) -> Result<String, String> {
        let output = self.0.stderr(Stdio::inherit()).output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(output.status.to_string());
        }
        String::from_utf8(output.stdout).map_err(|error| error.to_string())
    }
}

/// The cargo that runs this task.
pub(crate) fn cargo(words: &[&str]) -> Step {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    words.iter().fold(Step::new(program), Step::argument)
}

/// What was run so far.
pub(crate) struct Steps {
    passed: usize,
    failed: usize,
    skipped: usize,
    lines: Vec<String>,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self { passed: 0, failed: 0, skipped: 0, lines: Vec::new() }
    }

    /// A command that passes or fails.
    pub(crate) fn run(&mut self, name: &str, mut step: Step) {
        let started = begin(name);
        let passed = step.0.status().is_ok_and(|status| status.success());
        self.count(name, started, usize::from(passed), usize::from(!passed));
    }

    /// A run of `cargo test`, shown as it comes; its tests are counted. A run that fails without a failed test (it does
    /// not compile) counts as one.
    pub(crate) fn tests(&mut self, name: &str, mut step: Step) {
        let started = begin(name);
        let (mut passed, mut failed) = (0, 0);
        let ended_well = match step.0.stdout(Stdio::piped()).spawn() {
            Ok(mut child) => {
                let out = child.stdout.take().expect("it is piped");
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    let (more_passed, more_failed) = counts(&line);
                    passed += more_passed;
                    failed += more_failed;
                    // Names of tests that passed say nothing new.
                    if !line.ends_with(" ... ok") && !line.is_empty() {
                        println!("{line}");
                    }
                }
                child.wait().is_ok_and(|status| status.success())
            }
            Err(error) => {
                eprintln!("{error}");
                false
            }
        };
        if !ended_well && failed == 0 {
            failed = 1;
        }
        self.count(name, started, passed, failed);
    }

    /// A check that gives the claims that do not hold, one line each.
    pub(crate) fn claims(&mut self, name: &str, check: impl FnOnce() -> Vec<String>) {
        let started = begin(name);
        let broken = check();
        broken.iter().for_each(|line| eprintln!("{line}"));
        self.count(name, started, usize::from(broken.is_empty()), broken.len());
    }

    /// A command whose output becomes a file.
    pub(crate) fn write(&mut self, name: &str, step: Step, file: &Path) {
        let started = begin(name);
        let written = step.output().and_then(|text| fs::write(file, text).map_err(|error| error.to_string()));
        if let Err(why) = &written {
            eprintln!("{}: {why}", file.display());
        }
        self.count(name, started, usize::from(written.is_ok()), usize::from(written.is_err()));
    }

    /// Something that cannot be run on this machine. In CI that is a failure.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        if is_ci() {
            eprintln!("{name}: {why}; CI must have it");
            self.failed += 1;
            self.lines.push(format!("{name:<24} missing"));
        } else {
            println!("skipped {name}: {why}");
            self.skipped += 1;
            self.lines.push(format!("{name:<24} skipped: {why}"));
        }
    }

    fn count(&mut self, name: &str, started: Instant, passed: usize, failed: usize) {
        let seconds = started.elapsed().as_secs_f64();
        self.passed += passed;
        self.failed += failed;
        let line = format!("{name:<24} {seconds:>7.1} s  {passed} passed, {failed} failed");
        println!("{line}");
        self.lines.push(line);
    }

    pub(crate) fn finish(self) -> ExitCode {
        println!("\n{}", self.lines.join("\n"));
        let skipped = if self.skipped == 0 { String::new() } else { format!(", {} skipped", self.skipped) };
        println!("{} passed, {} failed{skipped}", self.passed, self.failed);
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn begin(name: &str) -> Instant {
    println!("== {name}");
    Instant::now()
}

/// Passed and failed of a line `test result: ok. 3 passed; 0 failed; …`.
fn counts(line: &str) -> (usize, usize) {
    let Some(rest) = line.strip_prefix("test result: ") else { return (0, 0) };
    let number = |word: &str| {
        let before = rest.split(word).next().unwrap_or_default();
        before.split_whitespace().last().and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    (number(" passed"), number(" failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_cargo_test_are_read() {
        assert_eq!(counts("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured"), (12, 0));
        assert_eq!(counts("test result: FAILED. 1 passed; 2 failed; 0 ignored"), (1, 2));
        assert_eq!(counts("running 3 tests"), (0, 0));
    }
}
