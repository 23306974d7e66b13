//! Fetchers: one per leader broker, on the shard that placement picks.
//!
//! Path: owner shards say where their followers stand (`tell`) → `session` keeps a replica fetch at the leader → record
//! bytes go to the owner shards, references to the combiner.
//!
//! Invariant: a fetcher fetches only from stored ends (R1), and hands on a row only under the generation for which it was
//! asked (R7).

mod reading;
mod session;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use sakia_io::{Class, Moment, spawn};
use sakia_protocol::ids::{BrokerId, PartitionKey};

use crate::messages::{FetcherMessage, Followed};
use crate::shard::Shard;
use crate::wake::Wake;

pub use reading::Place;
use reading::Reading;

/// The fetchers that live on one shard.
#[derive(Default)]
pub struct Fetchers {
    by_leader: RefCell<BTreeMap<BrokerId, Rc<Fetcher>>>,
}

/// One followed partition, and whether it rests after an error.
struct Entry {
    followed: Followed,
    resting_until: Option<Moment>,
    /// How long it rests after the next one.
    rest: Duration,
}

/// The fetcher of one leader.
struct Fetcher {
    leader: BrokerId,
    entries: RefCell<BTreeMap<PartitionKey, Entry>>,
    /// Raised when an entry changed, or the leader's address may have.
    wake: Wake,
    /// The session is to be ended: what it handed out was dropped here.
    anew: Cell<bool>,
    /// What is read from the bucket, over all sessions.
    reading: Reading,
    /// Sessions begun, and fetches sent in all of them: the leader tells by them which fetch is the younger one (R11).
    sessions: Cell<u64>,
    fetches: Cell<u64>,
    /// Partitions whose end lies outside the leader's log, which is to be asked where that begins and ends.
    out_of_range: RefCell<BTreeMap<PartitionKey, Followed>>,
    /// It is being asked.
    finds_ranges: Cell<bool>,
}

impl Fetchers {
    /// An owner shard speaks about one of its partitions.
    pub fn tell(&self, shard: &Rc<Shard>, leader: BrokerId, message: FetcherMessage) {
        let fetcher = self.of(shard, leader);
        match message {
            FetcherMessage::Follow(followed) => {
                let mut entries = fetcher.entries.borrow_mut();
                let known = entries.get(&followed.key);
                if known.is_some_and(|known| known.followed.generation > followed.generation) {
                    return;
                }
                // A new leadership or generation ends a rest: what was refused was asked under the old one.
                let resting_until = known.and_then(|known| {
                    let same = known.followed.generation == followed.generation;
                    known.resting_until.filter(|_| same)
                });
                entries.insert(followed.key, Entry { followed, resting_until, rest: session::REST });
            }
            FetcherMessage::Unfollow { key, generation } => {
                let mut entries = fetcher.entries.borrow_mut();
                if entries.get(&key).is_some_and(|known| known.followed.generation <= generation) {
                    entries.remove(&key);
                }
            }
            FetcherMessage::NewSession => fetcher.anew.set(true),
        }
        fetcher.wake.wake();
    }

    /// A broker's registration or address changed.
    pub fn brokers_changed(&self) {
        for fetcher in self.by_leader.borrow().values() {
            fetcher.wake.wake();
        }
    }

    fn of(&self, shard: &Rc<Shard>, leader: BrokerId) -> Rc<Fetcher> {
        let mut fetchers = self.by_leader.borrow_mut();
        let fetcher = fetchers.entry(leader).or_insert_with(|| {
            let fetcher = Rc::new(Fetcher {
                leader,
                entries: RefCell::default(),
                wake: Wake::default(),
                anew: Cell::new(false),
                reading: Reading::default(),
                sessions: Cell::new(0),
                fetches: Cell::new(0),
                out_of_range: RefCell::default(),
                finds_ranges: Cell::new(false),
            });
            spawn(Class::Foreground, session::run(shard.clone(), fetcher.clone())).detach();
            fetcher
        });
        fetcher.clone()
    }
}
