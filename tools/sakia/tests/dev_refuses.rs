//! `sakia dev` refuses what cannot work with one clear line and exit code 2, and touches nothing.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Output};

/// Highest port of a cluster above its base; ports of the system's own choice lie above the last base.
const LAST_PORT: u16 = 844;
const BASES: std::ops::Range<u16> = 26_000..31_000;

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

fn dev(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sakia")).arg("dev").args(words).output().expect("it runs")
}

fn refused(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "one line: {said}");
    said
}

#[test]
fn a_taken_port_is_named_with_who_needs_it() {
    // The highest port of a cluster: everything below it is free or the line names another one.
    let (base, other) = BASES
        .filter(|base| base % 100 == 0)
        .find_map(|base| Some((base, TcpListener::bind((Ipv4Addr::LOCALHOST, base + LAST_PORT)).ok()?)))
        .expect("a free port");
    let folder = folder("dev-port");
    let said = refused(&dev(&["--data", folder.to_str().expect("text"), "--port-base", &base.to_string()]));
    assert!(said.contains(&(base + LAST_PORT).to_string()) && said.contains("controller 3"), "{said}");
    drop(other);
    assert!(!folder.join("broker-1").exists(), "nothing was begun");
}

#[test]
fn a_folder_has_one_owner() {
    let folder = folder("dev-lock");
    let lock = File::create(folder.join("dev.lock")).expect("created");
    lock.lock().expect("locked");
    let said = refused(&dev(&["--data", folder.to_str().expect("text")]));
    assert!(said.contains("another `sakia dev`"), "{said}");
}

#[test]
fn a_restart_needs_a_first_start_and_a_node_that_exists() {
    let folder = folder("dev-restart");
    let folder = folder.to_str().expect("text");
    assert!(refused(&dev(&["--data", folder, "--restart", "1"])).contains("without --restart"));
    assert!(refused(&dev(&["--data", folder, "--restart", "7"])).contains("nodes 1, 2"));
}
