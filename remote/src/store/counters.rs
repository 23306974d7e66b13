//! Counts of attempts, shared by a store and whoever shows them.
//!
//! Counted like the bucket's ledger: every attempt sent, by verb and by class of the status that came back; bytes are
//! those of object bodies. An attempt without an answer has the class `Unanswered`, which the ledger may or may not
//! have seen (DESIGN 13.9).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Kind of request, as it is billed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verb {
    /// Write an object.
    Put,
    /// Read an object or a range of it.
    Get,
    /// Ask for an object's facts.
    Head,
    /// Delete one or many.
    Delete,
    /// List names.
    List,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Self; 5] = [Self::Put, Self::Get, Self::Head, Self::Delete, Self::List];

    /// Name in metrics and in the ledger.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::Head => "head",
            Self::Delete => "delete",
            Self::List => "list",
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Put => 0,
            Self::Get => 1,
            Self::Head => 2,
            Self::Delete => 3,
            Self::List => 4,
        }
    }
}

/// Class of the answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StatusClass {
    /// 1xx and 2xx.
    Success,
    /// 3xx.
    Redirect,
    /// 4xx.
    ClientError,
    /// 5xx and anything above.
    ServerError,
    /// No status came.
    Unanswered,
}

impl StatusClass {
    /// Every class.
    pub const ALL: [Self; 5] = [Self::Success, Self::Redirect, Self::ClientError, Self::ServerError, Self::Unanswered];

    /// Class of an HTTP status.
    #[must_use]
    pub const fn of(status: u16) -> Self {
        match status {
            0..300 => Self::Success,
            300..400 => Self::Redirect,
            400..500 => Self::ClientError,
            _ => Self::ServerError,
        }
    }

    /// Name in metrics and in the ledger.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "2xx",
            Self::Redirect => "3xx",
            Self::ClientError => "4xx",
            Self::ServerError => "5xx",
            Self::Unanswered => "unanswered",
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Success => 0,
            Self::Redirect => 1,
            Self::ClientError => 2,
            Self::ServerError => 3,
            Self::Unanswered => 4,
        }
    }
}

/// Running counts; clones share them.
#[derive(Clone, Default)]
pub struct StoreCounters {
    cells: Arc<Cells>,
}

#[derive(Default)]
struct Cells {
    attempts: [[AtomicU64; 5]; 5],
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

impl StoreCounters {
    /// Counts one attempt with its answer.
    pub fn attempt(&self, verb: Verb, class: StatusClass) {
        self.cells.attempts[verb.index()][class.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts bytes of an object body that were sent.
    pub fn sent(&self, bytes: u64) {
        self.cells.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes of an object body that came.
    pub fn received(&self, bytes: u64) {
        self.cells.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The counts now.
    #[must_use]
    pub fn counts(&self) -> StoreCounts {
        let mut attempts = [[0; 5]; 5];
        for (row, cells) in attempts.iter_mut().zip(&self.cells.attempts) {
            for (count, cell) in row.iter_mut().zip(cells) {
                *count = cell.load(Ordering::Relaxed);
            }
        }
        StoreCounts {
            attempts,
            sent_bytes: self.cells.sent_bytes.load(Ordering::Relaxed),
            received_bytes: self.cells.received_bytes.load(Ordering::Relaxed),
        }
    }
}

impl fmt::Debug for StoreCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts().fmt(f)
    }
}

/// Counts at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StoreCounts {
    attempts: [[u64; 5]; 5],
    /// Bytes of object bodies sent.
    pub sent_bytes: u64,
    /// Bytes of object bodies received.
    pub received_bytes: u64,
}

impl StoreCounts {
    /// Attempts of one verb and class.
    #[must_use]
    pub fn of(&self, verb: Verb, class: StatusClass) -> u64 {
        self.attempts[verb.index()][class.index()]
    }

    /// Attempts of one verb, whatever came back.
    #[must_use]
    pub fn attempts(&self, verb: Verb) -> u64 {
        self.attempts[verb.index()].iter().sum()
    }

    /// Attempts of one verb that a store answered.
    #[must_use]
    pub fn answered(&self, verb: Verb) -> u64 {
        self.attempts(verb) - self.of(verb, StatusClass::Unanswered)
    }

    /// What was added since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = *self;
        for (row, before) in difference.attempts.iter_mut().zip(&earlier.attempts) {
            for (count, before) in row.iter_mut().zip(before) {
                *count -= before;
            }
        }
        difference.sent_bytes -= earlier.sent_bytes;
        difference.received_bytes -= earlier.received_bytes;
        difference
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_counts_and_answered_leaves_out_what_got_no_answer() {
        let counters = StoreCounters::default();
        counters.clone().attempt(Verb::Put, StatusClass::of(200));
        counters.attempt(Verb::Put, StatusClass::of(503));
        counters.attempt(Verb::Put, StatusClass::Unanswered);
        counters.sent(10);
        let counts = counters.counts();
        assert_eq!((counts.attempts(Verb::Put), counts.answered(Verb::Put)), (3, 2));
        assert_eq!(counts.of(Verb::Put, StatusClass::ServerError), 1);
        assert_eq!(counts.attempts(Verb::Get), 0);
        counters.sent(5);
        assert_eq!(counters.counts().since(&counts).sent_bytes, 5);
    }
}
