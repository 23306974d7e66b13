//! One process of the cluster as a child: started, watched, stopped.
//!
//! Its standard input is a pipe that we hold: closing it asks for a clean stop, and the system closes it when we die in
//! whatever way. It has a process group of its own, so that Ctrl-C reaches us alone and the order of stopping is ours.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use super::DevArguments;
use super::layout::{ACCESS_KEY, Layout, Member, SECRET_KEY};
use crate::failure::Failure;
use crate::properties;

/// Bytes of a log's end that are shown when its process did not start.
const TAIL_BYTES: u64 = 2000;

pub(super) struct Process {
    pub(super) member: Member,
    child: Child,
    /// How it ended, once it did.
    ended: Option<ExitStatus>,
}

impl Process {
    pub(super) fn start(member: Member, layout: &Layout, arguments: &DevArguments) -> Result<Self, Failure> {
        let name = member.name();
        let failed = |error: std::io::Error| Failure::failed(format!("cannot start {name}: {error}"));
        let log = OpenOptions::new().create(true).append(true).open(layout.log_file(member)).map_err(failed)?;
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        match member {
            Member::Bucket => {
                command.arg("bucket").arg("--data").arg(layout.folder(member));
                command.args(["--port", &layout.port(member).to_string()]);
                command.args(["--put-latency", &arguments.put_latency.to_string()]);
                command.args(["--get-latency", &arguments.get_latency.to_string()]);
            }
            _ => {
                command.arg("server").arg("--config").arg(layout.properties_file(member));
            }
        }
        command.args(["--input", "watched"]);
        // The files say it all; a variable meant for another broker must not change them.
        for (variable, _) in std::env::vars_os() {
            let text = variable.to_string_lossy();
            if (text.starts_with("KAFKA_") || text.starts_with("SAKIA_")) && properties::is_setting(&text) {
                command.env_remove(&variable);
            }
        }
        command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
        command.env_remove("AWS_SESSION_TOKEN");
        command.stdin(Stdio::piped()).stdout(log.try_clone().map_err(failed)?).stderr(log).process_group(0);
        let child = command.spawn().map_err(failed)?;
        Ok(Self { member, child, ended: None })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, the first time that it is seen to have ended.
    pub(super) fn newly_ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_some() {
            return None;
        }
        self.ended = self.child.try_wait().unwrap_or(None);
        self.ended
    }

    pub(super) fn has_ended(&mut self) -> bool {
        let _ = self.newly_ended();
        self.ended.is_some()
    }

    /// Asks for a clean stop. Returns at once.
    pub(super) fn ask_to_stop(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Ends it as `kill -9` does and waits for that.
    pub(super) fn kill(&mut self) {
        if !self.has_ended() {
            // Errors mean that it has just ended by itself.
            let _ = self.child.kill();
            self.ended = self.child.wait().ok();
        }
    }
}

/// `was killed by signal 9`, `ended with exit code 2`.
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, Some(code)) => format!("ended with exit code {code}"),
        (None, None) => "ended".to_owned(),
    }
}

/// The last lines of a log.
pub(super) fn tail(log: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(log)?;
        let start = file.metadata()?.len().saturating_sub(TAIL_BYTES);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read()
        .unwrap_or_default()
        .lines()
        .rev()
        .take(5)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .collect::<Vec<_>>()
        .join("\n")
}
