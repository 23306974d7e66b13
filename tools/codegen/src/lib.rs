//! Writes the message types of `sakia-protocol` from our own tables of Kafka's messages.
//!
//! Path: from `protocol/schema/*.txt` (`schema`, notation there) to `protocol/src/messages/*.rs` (`render`). The output
//! is checked in; a test holds it equal to what this crate would write, `cargo run -p sakia-codegen` rewrites it.
//!
//! Invariant: the same tables give the same bytes; nothing depends on the order of a directory or a hash map.

pub mod parse;
mod render;
pub mod schema;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use schema::Api;

/// A generated file.
#[derive(Debug)]
pub struct SourceFile {
    /// Where it belongs.
    pub path: PathBuf,
    /// What it holds.
    pub text: String,
}

/// The folder of the protocol crate.
#[must_use]
pub fn protocol_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../protocol")
}

/// Reads every table, ordered by api key.
///
/// # Errors
/// The file and line of the first mistake.
pub fn read_tables() -> Result<Vec<Api>, String> {
    let folder = protocol_folder().join("schema");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut apis = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            apis.push(parse::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?);
        }
    }
    apis.sort_by_key(|api| api.key);
    Ok(apis)
}

/// What the message files should hold.
///
/// # Errors
/// A sentence: a mistake in a table, or rustfmt cannot be run.
pub fn generate() -> Result<Vec<SourceFile>, String> {
    let apis = read_tables()?;
    let folder = protocol_folder().join("src/messages");
    let mut files = vec![SourceFile { path: folder.join("mod.rs"), text: formatted(&render::index(&apis))? }];
    for api in &apis {
        let path = folder.join(format!("{}.rs", api.module()));
        files.push(SourceFile { path, text: formatted(&render::module(api))? });
    }
    Ok(files)
}

/// Passes source text through rustfmt with the repository's settings.
fn formatted(source: &str) -> Result<String, String> {
    let run = || -> io::Result<(bool, Vec<u8>)> {
        let settings = protocol_folder().join("../rustfmt.toml");
        let mut rustfmt = Command::new("rustfmt")
            .args(["--edition", "2024", "--config-path"])
            .arg(settings)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        // rustfmt reads all of its input before it writes, so neither pipe can fill up against the other.
        rustfmt.stdin.take().expect("standard input was asked for above").write_all(source.as_bytes())?;
        let output = rustfmt.wait_with_output()?;
        Ok((output.status.success(), output.stdout))
    };
    match run() {
        Ok((true, stdout)) => String::from_utf8(stdout).map_err(|error| format!("rustfmt: {error}")),
        Ok((false, _)) => Err(format!("rustfmt refuses the generated text:\n{source}")),
        Err(error) => Err(format!("rustfmt cannot be run: {error}")),
    }
}
