//! Bugs that the simulator must find: known mistakes at the places where the rules of replication stand, switched on one at a
//! time by a test. A check that lets one of them pass would let its like pass.
//!
//! Exists for the feature `planted`, which only tests switch on. Without it `is_planted` is a constant `false`, and nothing of
//! this reaches a program.

/// A mistake, by the rule that it breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// R1: a follower reports what is in its memory as stored.
    MemoryEndReported,
    /// R1: a leader counts what is in its memory as stored.
    MemoryEndCounted,
    /// R2: a broker that leads again after a restart does so in its old leader epoch.
    EpochReused,
    /// R3: whoever registers again counts as cleanly stopped, also after a power loss.
    UncleanReturnKept,
    /// R4: a batch that was sent again is answered before its original is committed.
    DuplicateAnsweredEarly,
    /// R5: memory that is let go is written over while leases of it are out.
    ChunkReused,
    /// R7: what was fetched or read under an earlier leadership is still appended.
    OldResultApplied,
    /// R7: who waits for an end of an earlier leadership is answered by an end of a later one.
    OldWaiterAnswered,
    /// R8: a truncation leaves references to what is gone.
    IndexNotCut,
    /// R22: a topic that an old image does not know is taken for deleted.
    OldImageBelieved,
    /// R11: who may have become a member of the ISR is not waited for.
    PendingMemberIgnored,
}

#[cfg(feature = "planted")]
mod switched_on {
    use std::cell::Cell;

    use super::Planted;

    thread_local! {
        static PRESENT: Cell<Option<Planted>> = const { Cell::new(None) };
    }

    /// Whether this thread runs with that mistake.
    #[must_use]
    pub fn is_planted(bug: Planted) -> bool {
        PRESENT.get() == Some(bug)
    }

    /// A mistake that this thread makes until this is dropped. A simulated world runs on one thread.
    pub struct Plant(());

    impl Plant {
        /// Begins to make it.
        #[must_use]
        pub fn new(bug: Planted) -> Self {
            assert_eq!(PRESENT.replace(Some(bug)), None, "one mistake at a time, or nobody knows which one was found");
            Self(())
        }
    }

    impl Drop for Plant {
        fn drop(&mut self) {
            PRESENT.set(None);
        }
    }
}

#[cfg(feature = "planted")]
pub use switched_on::{Plant, is_planted};

/// Never: this is no test of the simulator.
#[cfg(not(feature = "planted"))]
#[inline(always)]
#[must_use]
pub const fn is_planted(_: Planted) -> bool {
    false
}
