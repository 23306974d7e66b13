//! A process of our own: started with its output in a file, ended by its pid.
//!
//! Always: it does not outlive us. Dropping ends it; if we are killed, the system ends it (`setpriv --pdeathsig`, where
//! that program exists).

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Bytes of its output shown when it failed.
const TAIL_BYTES: usize = 1500;

/// How a process is asked to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndBy {
    /// SIGTERM, and SIGKILL if that takes longer: it has children of its own, or data worth keeping.
    Asking,
    /// SIGKILL: nothing of it is needed again.
    Killing,
}

/// See the module.
pub(crate) struct Process {
    name: String,
    child: Child,
    output: PathBuf,
    end_by: EndBy,
}

const ASKED_TO_END_WITHIN: Duration = Duration::from_secs(15);

impl Process {
    /// Starts `words[0]` with the rest as its arguments.
    pub(crate) fn start(name: &str, words: &[String], output: &Path, end_by: EndBy) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::of(format!("cannot start {name}"), error);
        let file = File::create(output).map_err(failed)?;
        let (program, arguments) = words.split_first().expect("a command has a program");
        let mut command = bound_to_us(program, end_by);
        command.args(arguments).stdin(Stdio::null()).stdout(file.try_clone().map_err(failed)?).stderr(file);
        let child = command.spawn().map_err(failed)?;
        Ok(Self { name: name.to_owned(), child, output: output.to_owned(), end_by })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    pub(crate) fn printed(&self) -> String {
        std::fs::read(&self.output).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Waits until `seen` gives something for what it printed; fails if it ends before, or at the limit.
    pub(crate) fn wait_for<T>(&mut self, limit: Duration, seen: impl Fn(&str) -> Option<T>) -> Result<T, Failure> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(found) = seen(&self.printed()) {
                return Ok(found);
            }
            self.must_run()?;
            if Instant::now() > deadline {
                return Err(self.told("is not ready in time"));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Fails if it has ended.
    pub(crate) fn must_run(&mut self) -> Result<(), Failure> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.told(&format!("ended ({status})"))),
            Err(error) => Err(Failure::of(&self.name, error)),
        }
    }

    fn told(&self, what: &str) -> Failure {
        let printed = self.printed();
        let start = printed.len().saturating_sub(TAIL_BYTES);
        let tail = printed.get(start..).unwrap_or(&printed);
        Failure::new(format!("{} {what}; its output ends with:\n{tail}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if self.end_by == EndBy::Asking {
            let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
            let deadline = Instant::now() + ASKED_TO_END_WITHIN;
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::sleep(LOOK_EVERY);
            }
        }
        // An error means that it has just ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command whose process gets a signal when we die. `setpriv` replaces itself, so the pid stays.
fn bound_to_us(program: &str, end_by: EndBy) -> Command {
    if !Path::new("/usr/bin/setpriv").exists() {
        return Command::new(program);
    }
    let signal = match end_by {
        EndBy::Asking => "TERM",
        EndBy::Killing => "KILL",
    };
    let mut command = Command::new("/usr/bin/setpriv");
    command.args(["--pdeathsig", signal, "--", program]);
    command
}

/// Runs a program to its end and gives its standard output.
pub(crate) fn output_of(words: &[String], limit: Duration) -> Result<String, Failure> {
    let (program, arguments) = words.split_first().expect("a command has a program");
    let failed = |error: io::Error| Failure::of(program, error);
    let mut command = bound_to_us(program, EndBy::Killing);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().map_err(failed)?;
    let mut stdout = child.stdout.take().expect("it is piped");
    let reader = thread::spawn(move || io::read_to_string(&mut stdout));
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Failure::new(format!("{program} did not end within {} s", limit.as_secs())));
        }
        thread::sleep(LOOK_EVERY);
    };
    let text = reader.join().map_err(|_| Failure::new("a reader thread panicked"))?.map_err(failed)?;
    if status.success() { Ok(text) } else { Err(Failure::new(format!("{program} ended ({status}): {text}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn output_is_given_and_an_endless_program_is_ended() {
        assert_eq!(output_of(&words("echo a b"), Duration::from_secs(10)).unwrap(), "a b\n");
        assert!(output_of(&words("sleep 1000"), Duration::from_millis(100)).is_err());
        assert!(output_of(&words("false"), Duration::from_secs(10)).is_err());
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let output = std::env::temp_dir().join(format!("sakia-perf-{}", std::process::id()));
        for end_by in [EndBy::Asking, EndBy::Killing] {
            let mut process = Process::start("sleep", &words("sleep 1000"), &output, end_by).unwrap();
            process.must_run().unwrap();
            let folder = format!("/proc/{}", process.id());
            assert!(Path::new(&folder).exists());
            drop(process);
            assert!(!Path::new(&folder).exists());
        }
        std::fs::remove_file(output).unwrap();
    }
}
