//! What a shard does to its process, and a process to its shards: a panic, and no file descriptor left. Each case runs in a
//! process of its own, this test binary again.
#![expect(clippy::unwrap_used, reason = "a test fails where something is not as it must be")]

use std::fs::File;
use std::future::Future;
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::pin::Pin;
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::Duration;

use sakia_io::{Arena, Class, Listener, OpenOptions, ShardSpec, Spawner, Threads, mailbox, preflight, spawn, timeout};

const CASE: &str = "SAKIA_PROCESS_CASE";

/// Runs one test of this binary as a case, after a shell command.
fn run_case(before: &str, test: &str) -> Output {
    let binary = std::env::current_exe().unwrap();
    let script = format!("{before}; exec \"$0\" --exact {test} --nocapture");
    Command::new("sh").arg("-c").arg(script).arg(binary).env(CASE, test).output().unwrap()
}

fn assert_passed(output: &Output) {
    let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(output.status.success() && ran, "{output:?}");
}

fn is_case(test: &str) -> bool {
    std::env::var(CASE).is_ok_and(|case| case == test)
}

fn start<F: Future<Output = ()> + 'static>(main: impl FnOnce() -> F + Send + 'static) -> sakia_io::ShardHandle {
    let main = move || -> Pin<Box<dyn Future<Output = ()>>> { Box::pin(main()) };
    Threads.start(ShardSpec { name: "case".into(), cpu: Some(0) }, Box::new(main)).unwrap()
}

#[test]
fn a_panic_of_a_task_ends_the_process() {
    if is_case("a_panic_of_a_task_ends_the_process") {
        start(|| async {
            spawn(Class::Background, async { panic!("on purpose") }).detach();
            std::future::pending::<()>().await;
        })
        .join();
        return;
    }
    let output = run_case("ulimit -c 0", "a_panic_of_a_task_ends_the_process");
    assert_eq!(output.status.signal(), Some(6), "aborted: {output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("on purpose"));
}

#[test]
fn accepting_goes_on_when_descriptors_are_free_again() {
    if is_case("accepting_goes_on_when_descriptors_are_free_again") {
        return accept_without_descriptors();
    }
    let output = run_case("ulimit -n 128", "accepting_goes_on_when_descriptors_are_free_again");
    assert_passed(&output);
}

fn accept_without_descriptors() {
    let (bound, port) = mpsc::channel();
    let (starved, waited) = mpsc::channel();
    let (go, mut told) = mailbox(1);
    let shard = start(move || async move {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        bound.send(listener.local_addr().port()).unwrap();
        told.recv().await.unwrap();
        let accepted = timeout(Duration::from_millis(5), listener.accept()).await;
        assert!(accepted.is_err(), "there is a connection, and no descriptor for it");
        starved.send(()).unwrap();
        let _stream = listener.accept().await.unwrap();
    });
    let port = port.recv().unwrap();
    // One descriptor is kept for the client, all others are used up.
    let spare = File::open("/dev/null").unwrap();
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    assert!(files.len() < 128);
    drop(spare);
    let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    go.try_send(()).unwrap();
    waited.recv().unwrap();
    drop(files);
    shard.join();
    drop(client);
}

#[test]
fn a_write_cut_short_goes_on_to_its_error() {
    if is_case("a_write_cut_short_goes_on_to_its_error") {
        let path = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cut-short");
        let removed = path.clone();
        start(move || async move {
            let options = OpenOptions { create: true, direct: true, write: true };
            let file = sakia_io::File::open(&path, options).await.unwrap();
            let mut writer = Arena::new(1 << 20).chunk(1 << 18).unwrap();
            writer.append(&[7; 1 << 18]).unwrap();
            let error = file.write_range(writer.blocks(0..1 << 18), 0).await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge);
            let size = file.size().await.unwrap();
            assert!(size > 0 && size < 1 << 18, "{size} bytes fit");
            file.write_range(writer.blocks(0..8192), 0).await.unwrap();
        })
        .join();
        std::fs::remove_file(removed).unwrap();
        return;
    }
    // Files end at 64 or 128 KiB, by the unit of the shell.
    let output = run_case("trap '' XFSZ; ulimit -f 128", "a_write_cut_short_goes_on_to_its_error");
    assert_passed(&output);
}

#[test]
fn too_few_files_are_refused_with_the_remedy() {
    if is_case("too_few_files_are_refused_with_the_remedy") {
        let error = preflight(&[]).unwrap_err().to_string();
        assert!(error.contains("only 128 files") && error.contains("ulimit -n"), "{error}");
        return;
    }
    let output = run_case("ulimit -n 128", "too_few_files_are_refused_with_the_remedy");
    assert_passed(&output);
}

#[test]
fn a_usable_folder_passes() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("preflight").join("data");
    if is_case("a_usable_folder_passes") {
        preflight(&[folder]).unwrap();
        return;
    }
    let output = run_case("ulimit -n 8192", "a_usable_folder_passes");
    assert_passed(&output);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "the probe is removed");
}
