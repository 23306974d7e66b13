//! Claims over the text of our sources: words that are named in one place only, `unsafe`, headers, left-overs, names.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::steps::root;

/// Folders with sources.
const FOLDERS: &[&str] = &["protocol", "metrics", "remote", "engine", "tools", "benches", "perf"];

/// A piece of code that may stand only below some paths.
struct Word {
    text: &'static str,
    allowed: &'static [&'static str],
}

const WORDS: &[Word] = &[
    Word { text: "io_uring::", allowed: &["engine/io/"] },
    Word { text: "openraft::", allowed: &["engine/controller/"] },
    Word { text: "openraft_rt::", allowed: &["engine/controller/"] },
    Word {
        text: "tokio::sync",
        allowed: &["engine/controller/", "remote/src/store/", "remote/tests/", "tools/bucket/"],
    },
    Word { text: "tokio::", allowed: &["engine/controller/", "remote/src/store/", "remote/tests/", "tools/bucket/"] },
    Word { text: "tokio::runtime", allowed: &["remote/src/store/", "remote/tests/", "tools/bucket/"] },
    Word { text: "tokio::spawn", allowed: &["remote/src/store/", "remote/tests/", "tools/bucket/"] },
    Word { text: "kafka_protocol::", allowed: &["protocol/oracle/"] },
    Word { text: "unsafe {", allowed: UNSAFE },
    Word { text: "unsafe impl", allowed: UNSAFE },
    Word { text: "unsafe fn", allowed: UNSAFE },
    Word { text: "todo!(", allowed: &[] },
    Word { text: "unimplemented!(", allowed: &[] },
    Word { text: "dbg!(", allowed: &[] },
];

const UNSAFE: &[&str] = &["engine/io/src/memory", "engine/io/src/uring/", "protocol/oracle/tests/hostile.rs"];

/// Names that admit everything.
const VAGUE: &[&str] = &["util", "utils", "common", "helper", "misc", "types", "base"];

pub(crate) fn broken() -> Vec<String> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        if let Err(error) = collect(&root().join(folder), &mut files) {
            return vec![format!("{folder}: {error}")];
        }
    }
    files.sort_unstable();
    let mut broken = Vec::new();
    for file in files {
        let path = file.strip_prefix(root()).expect("collected below the root").display().to_string();
        match fs::read_to_string(&file) {
            Ok(text) => broken.extend(broken_in(&path, &text)),
            Err(error) => broken.push(format!("{path}: {error}")),
        }
    }
    broken
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn broken_in(path: &str, text: &str) -> Vec<String> {
    let mut broken = Vec::new();
    // The table above names what it looks for.
    if path.ends_with("tidy/sources.rs") {
        return broken;
    }
    // Tests below a file of code belong to its header.
    if !path.ends_with("/tests.rs") && !text.starts_with("//!") {
        broken.push(format!("{path}: does not open with what it is (`//!`)"));
    }
    for part in path.split('/') {
        if VAGUE.contains(&part.trim_end_matches(".rs")) {
            broken.push(format!("{path}: `{part}` admits everything; name the subject"));
        }
    }
    for (number, line) in text.lines().enumerate() {
        let code = code_of(line);
        for word in WORDS.iter().filter(|word| code.contains(word.text)) {
            if !word.allowed.iter().any(|allowed| path.starts_with(allowed)) {
                broken.push(format!("{path}:{}: `{}` does not belong here", number + 1, word.text.trim()));
            }
        }
    }
    broken
}

/// The line without its comment.
fn code_of(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_code_and_not_in_comments() {
        let text = "//! What.\nuse openraft::Raft; // fine\n// openraft::Raft\n";
        assert_eq!(broken_in("engine/src/a.rs", text), ["engine/src/a.rs:2: `openraft::` does not belong here"]);
        assert!(broken_in("engine/controller/src/a.rs", text).is_empty());
    }

    #[test]
    fn a_missing_header_and_a_vague_name_are_found() {
        assert_eq!(broken_in("engine/src/util/a.rs", "fn a() {}\n").len(), 2);
        assert!(broken_in("engine/src/a/tests.rs", "fn a() {}\n").is_empty());
    }

    #[test]
    fn unsafe_has_its_places() {
        let text = "//! What.\nlet x = unsafe { y };\n";
        assert_eq!(broken_in("engine/src/a.rs", text).len(), 1);
        assert!(broken_in("engine/io/src/memory.rs", text).is_empty());
    }
}
