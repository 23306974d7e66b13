//! What must hold for the repository and no compiler checks. Each broken claim is one line.
//!
//! `edges`: which crate may use which. `sources`: what may be named where, `unsafe`, headers, left-overs.

mod edges;
mod sources;

/// All claims that do not hold.
pub(crate) fn run() -> Vec<String> {
    let mut broken = edges::broken();
    broken.extend(sources::broken());
    broken
}
