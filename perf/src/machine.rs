//! Where and of what a run was made: commit, machine, time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// Folder of this crate's sources: the results lie below it.
pub(crate) fn crate_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Root of the repository.
pub(crate) fn repository() -> PathBuf {
    crate_folder().parent().map(Path::to_path_buf).expect("the crate lies in the repository")
}

/// Where builds lie, and jars.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from)
}

/// `{cores, processor, memory_gib, kernel}`.
pub(crate) fn describe() -> Value {
    let cores = std::thread::available_parallelism().map(usize::from).unwrap_or(0);
    let memory_kib: f64 =
        line_of("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0.0);
    json!({
        "cores": cores,
        "processor": line_of("/proc/cpuinfo", "model name").unwrap_or_default(),
        "memory_gib": (memory_kib / f64::from(1 << 20)).round(),
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
    })
}

/// Load of the last minute: what else ran here.
pub(crate) fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

/// The commit, with `+` behind it if files differ from it.
pub(crate) fn commit() -> String {
    let commit = printed("git", &["rev-parse", "--short=12", "HEAD"]);
    let changed = printed("git", &["status", "--porcelain", "--untracked-files=no"]);
    if changed.is_empty() { commit } else { format!("{commit}+") }
}

/// Date and time in UTC, as `2026-01-31T12-00-00`: fit for a file's name.
pub(crate) fn stamp() -> String {
    printed("date", &["-u", "+%Y-%m-%dT%H-%M-%S"])
}

/// The first digits of a file's checksum: which binary was measured, whatever is checked out by now.
pub(crate) fn sha256(file: &Path) -> String {
    let printed = printed("sha256sum", &[&file.display().to_string()]);
    printed.get(..16).unwrap_or_default().to_owned()
}

fn printed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(crate_folder()).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

fn line_of(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
