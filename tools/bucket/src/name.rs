//! Object keys as paths. Pure.
//!
//! Every part of a key between slashes becomes a folder, the last one a file whose name begins with `=`. Bytes other
//! than letters, digits, `-` and `_` are written as `%` and two hexadecimal digits, an empty part as `%`. So no key
//! leaves the bucket's folder, and an object `a` may stand beside objects `a/…`.
//! Invariant: different keys have different paths, and a path is read back to its key.

use std::path::PathBuf;

/// Longest encoded part; file systems stop at 255.
const PART_LENGTH_MAX: usize = 240;
const FILE_MARK: char = '=';

/// Path below the bucket's folder; `None` if a part is too long.
pub(crate) fn path_of(key: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    let mut parts = key.split('/').map(encode).peekable();
    while let Some(part) = parts.next() {
        if part.len() > PART_LENGTH_MAX {
            return None;
        }
        path.push(if parts.peek().is_some() { part } else { format!("{FILE_MARK}{part}") });
    }
    Some(path)
}

/// What a file or folder name means as a part of a key; `None` if it is not ours.
pub(crate) fn part_of(name: &str) -> Option<Part> {
    let (kind, encoded): (fn(String) -> Part, _) = match name.strip_prefix(FILE_MARK) {
        Some(rest) => (Part::Object, rest),
        None => (Part::Folder, name),
    };
    decode(encoded).map(kind)
}

/// One part of a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// More parts follow.
    Folder(String),
    /// The last part.
    Object(String),
}

fn encode(part: &str) -> String {
    if part.is_empty() {
        return "%".to_owned();
    }
    let mut out = String::with_capacity(part.len());
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02x}"));
        }
    }
    out
}

fn decode(encoded: &str) -> Option<String> {
    if encoded == "%" {
        return Some(String::new());
    }
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16)).and_then(|d| u8::try_from(d).ok());
        bytes.push(digit()? * 16 + digit()?);
    }
    let part = String::from_utf8(bytes).ok()?;
    // Anything spelled otherwise was not written by us.
    (encode(&part) == encoded).then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_leaves_the_folder() {
        for key in ["../x", "/etc/passwd", "a/../../b", ".", "a/./b", "a//b", "\0", "ü/ß"] {
            let path = path_of(key).expect("short");
            assert!(path.is_relative(), "{key}");
            let normal = |c: std::path::Component| matches!(c, std::path::Component::Normal(_));
            assert!(path.components().all(normal), "{key}: {}", path.display());
        }
    }

    #[test]
    fn paths_are_read_back_to_their_keys() {
        for key in ["a", "a/b", "a/b/00000000000000000001", "a//b/", "=x/=y", "%25", "ü/.."] {
            let path = path_of(key).expect("short");
            let mut parts = Vec::new();
            for component in path.components() {
                match part_of(component.as_os_str().to_str().expect("ascii")).expect("ours") {
                    Part::Folder(part) | Part::Object(part) => parts.push(part),
                }
            }
            assert_eq!(parts.join("/"), key);
        }
    }

    #[test]
    fn an_object_may_have_the_name_of_a_folder() {
        assert_ne!(path_of("a").expect("short"), path_of("a/b").expect("short").parent().expect("a folder"));
        assert_eq!(path_of(&"x".repeat(300)), None);
    }
}
