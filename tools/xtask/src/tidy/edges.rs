//! Crate edges: `tools → engine → {engine/controller, remote} → {engine/io, protocol}`; everyone may use `metrics`.
//!
//! An arrow reaches all below it. `tools/sakia` may use the other tools, `protocol/oracle` the generator. Crates that
//! need cmake or a C cryptography are nowhere in the tree: a clean build needs rustup and a C compiler.

use std::collections::BTreeSet;
use std::fs;

use crate::steps::{cargo, root};

const GROUND: &[&str] = &["sakia-metrics"];
const MIDDLE: &[&str] = &["sakia-io", "sakia-protocol", "sakia-metrics"];
const BELOW_TOOLS: &[&str] =
    &["sakia-engine", "sakia-controller", "sakia-remote", "sakia-io", "sakia-protocol", "sakia-metrics"];

/// Each crate of ours with the crates of ours that it may use.
const ALLOWED: &[(&str, &[&[&str]])] = &[
    ("sakia-metrics", &[]),
    ("sakia-protocol", &[GROUND]),
    ("sakia-io", &[GROUND]),
    ("sakia-protocol-oracle", &[&["sakia-protocol", "sakia-codegen"]]),
    ("sakia-remote", &[MIDDLE]),
    ("sakia-controller", &[MIDDLE]),
    ("sakia-engine", &[MIDDLE, &["sakia-controller", "sakia-remote"]]),
    ("sakia-codegen", &[BELOW_TOOLS]),
    ("sakia-bucket", &[BELOW_TOOLS]),
    ("xtask", &[]),
    ("sakia", &[BELOW_TOOLS, &["sakia-bucket", "sakia-codegen"]]),
    ("sakia-benches", &[BELOW_TOOLS]),
    ("sakia-perf", &[BELOW_TOOLS, &["sakia-bucket"]]),
];

/// Crates that stand in for others only where they are named here.
const KEPT_IN: &[(&str, &[&str])] = &[
    ("io-uring", &["sakia-io"]),
    ("async-task", &["sakia-io"]),
    ("openraft", &["sakia-controller"]),
    ("openraft-rt", &["sakia-controller"]),
    ("openraft-macros", &["sakia-controller"]),
    ("tokio", &["sakia-remote", "sakia-bucket", "sakia-controller"]),
    ("aws-sdk-s3", &["sakia-remote"]),
    ("s3s", &["sakia-bucket"]),
    ("kafka-protocol", &["sakia-protocol-oracle"]),
];

const NEVER: &[&str] = &["cmake", "aws-lc-sys", "aws-lc-rs", "openssl-sys"];

pub(crate) fn broken() -> Vec<String> {
    let tree = |words: &[&str]| {
        let mut all = vec!["tree", "--workspace", "--quiet", "--locked", "--edges", "all"];
        all.extend(words);
        cargo(&all).output()
    };
    let (direct, whole) = match (tree(&["--depth", "1", "--prefix", "depth"]), tree(&["--prefix", "none"])) {
        (Ok(direct), Ok(whole)) => (direct, whole),
        (Err(why), _) | (_, Err(why)) => return vec![format!("cargo tree: {why}")],
    };
    let mut broken = wrong_edges(&direct);
    broken.extend(banned(&whole));
    broken.extend(not_explained());
    broken
}

/// Lines of `cargo tree --prefix depth`: a depth, then a name; depth 0 begins a crate of ours.
fn wrong_edges(tree: &str) -> Vec<String> {
    let mut broken = Vec::new();
    let mut user = "";
    for line in tree.lines() {
        let Some(name) = line.get(1..).and_then(|rest| rest.split(' ').next()) else { continue };
        if line.starts_with('0') {
            user = name;
            if !ALLOWED.iter().any(|(known, _)| *known == name) {
                broken.push(format!("{name}: crate is in no table of allowed edges (tools/xtask/src/tidy/edges.rs)"));
            }
        } else if line.starts_with('1') && !is_allowed(user, name) {
            broken.push(format!("{user} must not use {name}"));
        }
    }
    broken.sort_unstable();
    broken.dedup();
    broken
}

fn is_allowed(user: &str, used: &str) -> bool {
    if let Some((_, users)) = KEPT_IN.iter().find(|(name, _)| *name == used) {
        return users.contains(&user);
    }
    let is_ours = ALLOWED.iter().any(|(name, _)| *name == used);
    let allowed = ALLOWED.iter().find(|(name, _)| *name == user).map_or(&[][..], |(_, sets)| sets);
    !is_ours || allowed.iter().any(|set| set.contains(&used))
}

fn banned(tree: &str) -> Vec<String> {
    let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    NEVER.iter().filter(|name| names.contains(*name)).map(|name| format!("{name} is in the dependency tree")).collect()
}

/// Every crate of the workspace table has its entry in docs/DEPENDENCIES.md.
fn not_explained() -> Vec<String> {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap_or_default();
    let (manifest, page) = (read("Cargo.toml"), read("docs/DEPENDENCIES.md"));
    let table = manifest.split("[workspace.dependencies]").nth(1).unwrap_or_default();
    let table = table.split("\n[").next().unwrap_or_default();
    let names = table.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name.trim());
    names
        .filter(|name| !name.starts_with('#') && !name.starts_with("sakia-") && !page.contains(&format!("`{name}`")))
        .map(|name| format!("{name} has no entry in docs/DEPENDENCIES.md"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_that_points_up_is_found() {
        let tree = "0sakia-io v0.1.0 (/x)\n1bytes v1\n1sakia-engine v0.1.0 (/y)\n0sakia-engine v0.1.0 (/y)\n1sakia-io v0.1.0 (/x)\n";
        assert_eq!(wrong_edges(tree), ["sakia-io must not use sakia-engine"]);
    }

    #[test]
    fn crates_with_a_home_are_used_nowhere_else() {
        assert!(!is_allowed("sakia-engine", "tokio") && is_allowed("sakia-remote", "tokio"));
        assert!(!is_allowed("sakia-engine", "io-uring") && is_allowed("sakia-io", "io-uring"));
        assert!(is_allowed("sakia-engine", "bytes"));
    }

    #[test]
    fn a_crate_in_no_table_is_told() {
        assert_eq!(wrong_edges("0strange v0.1.0 (/x)\n").len(), 1);
    }
}
