//! `sakia server` refuses what cannot work with one clear line and exit code 2, before anything is started.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A folder of this test, empty.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

/// Runs a broker with these settings on top of valid ones.
fn server(name: &str, overrides: &[&str]) -> Output {
    let folder = folder(name);
    let config = folder.join("server.properties");
    let text = format!(
        "process.roles=broker\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nhttp.port=0\n\
         controller.quorum.voters=3@127.0.0.1:1\nlog.dirs={}\n",
        folder.join("data").display()
    );
    std::fs::write(&config, text).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sakia"));
    command.arg("server").arg("--config").arg(&config).env_clear().env("RUST_LOG", "off");
    for text in overrides {
        command.args(["--override", text]);
    }
    command.output().expect("it runs")
}

fn refused(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "one line: {said}");
    said
}

#[test]
fn an_unknown_setting_is_named_with_the_nearest() {
    let said = refused(&server("unknown", &["node.idd=1"]));
    assert!(said.contains("node.idd") && said.contains("`node.id`"), "{said}");
}

#[test]
fn a_setting_that_cannot_work_is_refused_with_the_reason() {
    let said = refused(&server("refused", &["zookeeper.connect=localhost:2181"]));
    assert!(said.contains("ZooKeeper"), "{said}");
}

#[test]
fn a_taken_port_is_named() {
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = other.local_addr().expect("bound").port();
    let said = refused(&server("port", &[&format!("listeners=PLAINTEXT://127.0.0.1:{port}")]));
    assert!(said.contains(&port.to_string()), "{said}");
}

#[test]
fn a_data_folder_that_cannot_be_used_is_named() {
    let said = refused(&server("data", &["log.dirs=/proc/no/such"]));
    assert!(said.contains("/proc/no/such"), "{said}");
}

#[test]
fn a_bucket_without_keys_is_refused() {
    let said = refused(&server(
        "keys",
        &["remote.log.wal.storage.system.enable=true", "remote.wal.storage.url=s3://some-bucket/prefix"],
    ));
    assert!(said.contains("AWS_ACCESS_KEY_ID"), "{said}");
}

#[test]
fn a_file_that_is_missing_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_sakia")).args(["server", "--config", "/no/such"]).output();
    assert!(refused(&output.expect("it runs")).contains("/no/such"));
}
