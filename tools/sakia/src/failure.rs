//! Why a command ended badly, by what its exit code says.

use std::fmt;

/// One line for a person.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing was begun: settings, machine or arguments do not allow it. Exit code 2.
    Refused(String),
    /// It went wrong on the way. Exit code 1.
    Failed(String),
}

impl Failure {
    pub(crate) fn refused(why: impl fmt::Display) -> Self {
        Self::Refused(why.to_string())
    }

    pub(crate) fn failed(why: impl fmt::Display) -> Self {
        Self::Failed(why.to_string())
    }
}
