//! What a shard wants to tell other threads, collected over a turn and sent in batches.
//!
//! Path: from partitions (down here) to the combiner and the fetchers. A partition never waits for another thread: it leaves
//! its message here and goes on.
//!
//! Invariant: a message that finds its mailbox full stays and is sent with the next turn; nothing is lost. What waits is
//! bounded: ready ranges by the memory of the tails; of a followed partition only the newest word is kept.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use sakia_io::{TrySendError, sleep};
use sakia_protocol::ids::{BrokerId, PartitionKey};
use sakia_remote::pack::ReadyRange;

use crate::limits::LEND_RETRY;
use crate::messages::{Addresses, CombinerMessage, FetcherMessage, ShardMessage};
use crate::placement::Placement;
use crate::wake::Wake;

/// The outbox of one shard.
pub struct Outbox {
    addresses: Addresses,
    placement: Placement,
    ready: RefCell<Vec<ReadyRange>>,
    fetchers: RefCell<BTreeMap<(BrokerId, About), FetcherMessage>>,
    wake: Wake,
}

/// What a message to a fetcher is about. A newer one about the same replaces it: generations grow, so the last word of a
/// partition says all of the earlier ones. Sessions come after partitions: a new one begins from the ends told before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum About {
    Partition(PartitionKey),
    Session,
}

impl Outbox {
    /// An empty outbox.
    #[must_use]
    pub fn new(addresses: Addresses, placement: Placement) -> Rc<Self> {
        Rc::new(Self {
            addresses,
            placement,
            ready: RefCell::default(),
            fetchers: RefCell::default(),
            wake: Wake::default(),
        })
    }

    /// Whether there is a combiner to lend to.
    #[must_use]
    pub fn has_combiner(&self) -> bool {
        self.addresses.combiner.is_some()
    }

    /// Lends bytes to the combiner.
    pub fn lend(&self, range: ReadyRange) {
        self.ready.borrow_mut().push(range);
        self.wake.wake();
    }

    /// Tells the fetcher of a leader.
    pub fn tell_fetcher(&self, leader: BrokerId, message: FetcherMessage) {
        let about = match &message {
            FetcherMessage::Follow(followed) => About::Partition(followed.key),
            FetcherMessage::Unfollow { key, .. } => About::Partition(*key),
            FetcherMessage::NewSession => About::Session,
        };
        self.fetchers.borrow_mut().insert((leader, about), message);
        self.wake.wake();
    }

    /// Sends what partitions left here, once per turn, for ever.
    pub async fn run(self: Rc<Self>) {
        loop {
            self.wake.wait().await;
            let full = !self.send_ready() | !self.send_fetchers();
            if full {
                sleep(LEND_RETRY).await;
                self.wake.wake();
            }
        }
    }

    /// `false` if the mailbox was full and the ranges stayed.
    fn send_ready(&self) -> bool {
        let ranges = self.ready.take();
        let Some(combiner) = self.addresses.combiner.as_ref().filter(|_| !ranges.is_empty()) else { return true };
        match combiner.try_send(CombinerMessage::Ready(ranges)) {
            Err(TrySendError::Full(CombinerMessage::Ready(mut ranges))) => {
                ranges.append(&mut self.ready.borrow_mut());
                self.ready.replace(ranges);
                false
            }
            _ => true,
        }
    }

    fn send_fetchers(&self) -> bool {
        let messages = self.fetchers.take();
        let mut kept = BTreeMap::new();
        for ((leader, about), message) in messages {
            let shard = &self.addresses.shards[self.placement.fetcher(leader).index()];
            let message = ShardMessage::Fetcher { leader, message };
            if let Err(TrySendError::Full(ShardMessage::Fetcher { leader, message })) = shard.try_send(message) {
                kept.insert((leader, about), message);
            }
        }
        let sent_all = kept.is_empty();
        self.fetchers.replace(kept);
        sent_all
    }
}
