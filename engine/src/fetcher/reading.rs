//! How much of the bucket a fetcher is reading: the bytes of objects that were asked for and not handed on.
//!
//! Path: a reply with references → a `Place` per object goes with it to the combiner → it is dropped when the read has ended,
//! however it ended.
//!
//! Bound: the next fetch waits while `READING_BYTES_MAX` are under way, so the memory of reads stays below that and one reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sakia_io::{Signal, timeout};

use crate::limits::{READING_BYTES_MAX, READING_WAIT};

#[derive(Default)]
struct Shared {
    bytes: AtomicU64,
    freed: Signal,
}

/// Reads of one fetcher. Clones count together.
#[derive(Clone, Default)]
pub(crate) struct Reading(Arc<Shared>);

/// One read, until it is dropped.
pub struct Place {
    reading: Reading,
    bytes: u64,
}

impl Reading {
    /// A read of so many bytes begins.
    pub(crate) fn place(&self, bytes: u64) -> Place {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        Place { reading: self.clone(), bytes }
    }

    /// Waits while too much is under way, but not long: a fetch also reports what was stored.
    pub(super) async fn room(&self) {
        let fits = async {
            while self.0.bytes.load(Ordering::Relaxed) >= READING_BYTES_MAX {
                self.0.freed.wait().await;
            }
        };
        // Whether it fits or the wait is over, the fetch is sent.
        let _ = timeout(READING_WAIT, fits).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.reading.0.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.reading.0.freed.raise();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sakia_io::sim::World;
    use sakia_io::{Class, now, sleep, spawn};

    use super::*;

    #[test]
    fn a_fetch_waits_for_reads_to_end_but_not_for_ever() {
        let world = World::new(1);
        let machine = world.machine("broker");
        let done = world.block_on(&machine, Duration::from_secs(9), async {
            let reading = Reading::default();
            let began = now();
            reading.room().await;
            assert_eq!(now(), began, "nothing is read");
            let place = reading.place(READING_BYTES_MAX);
            reading.room().await;
            assert_eq!(now() - began, READING_WAIT, "what is stored must be reported");
            let ended = spawn(Class::Foreground, async move {
                sleep(READING_WAIT / 2).await;
                drop(place);
            });
            reading.room().await;
            assert!(now() - began < READING_WAIT * 2);
            ended.await;
        });
        done.unwrap();
    }
}
