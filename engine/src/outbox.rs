//! What a shard wants to tell other threads, collected over a turn and sent in batches.
//!
//! Path: from partitions (down here) to the combiner, the control shard and the fetchers. A partition never waits for
//! another thread: it leaves its message here and goes on.
//!
//! Invariant: a message that finds its mailbox full stays and is sent with the next turn; nothing is lost. What waits is
//! bounded: ready ranges by the memory of the tails, proposals and fetcher messages by the number of partitions.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use sakia_io::{TrySendError, oneshot, sleep};
use sakia_protocol::ids::{BrokerId, PartitionKey};
use sakia_remote::pack::ReadyRange;

use crate::limits::LEND_RETRY;
use crate::messages::{Addresses, CombinerMessage, ControlMessage, FetcherMessage, IsrProposal, ShardMessage};
use crate::placement::Placement;
use crate::wake::Wake;

/// The outbox of one shard.
pub struct Outbox {
    addresses: Addresses,
    placement: Placement,
    ready: RefCell<Vec<ReadyRange>>,
    fetchers: RefCell<Vec<(BrokerId, FetcherMessage)>>,
    proposals: RefCell<BTreeMap<PartitionKey, IsrProposal>>,
    wake: Wake,
    closed: Cell<bool>,
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
            proposals: RefCell::default(),
            wake: Wake::default(),
            closed: Cell::new(false),
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
        self.fetchers.borrow_mut().push((leader, message));
        self.wake.wake();
    }

    /// Proposes an ISR; a newer proposal of the same partition replaces an older one that was not sent.
    pub fn propose(&self, proposal: IsrProposal) {
        self.proposals.borrow_mut().insert(proposal.key, proposal);
        self.wake.wake();
    }

    /// Ends `run` after what is queued was offered once more.
    pub fn close(&self) {
        self.closed.set(true);
        self.wake.wake();
    }

    /// Sends what partitions left here, once per turn, until `close`.
    pub async fn run(self: Rc<Self>) {
        loop {
            self.wake.wait().await;
            let full = !self.send_ready() | !self.send_fetchers() | !self.send_proposals();
            if self.closed.get() {
                return;
            }
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
        let mut kept = Vec::new();
        for (leader, message) in messages {
            let shard = &self.addresses.shards[self.placement.fetcher(leader).index()];
            let message = ShardMessage::Fetcher { leader, message };
            if let Err(TrySendError::Full(ShardMessage::Fetcher { leader, message })) = shard.try_send(message) {
                kept.push((leader, message));
            }
        }
        let sent_all = kept.is_empty();
        kept.append(&mut self.fetchers.borrow_mut());
        self.fetchers.replace(kept);
        sent_all
    }

    fn send_proposals(&self) -> bool {
        let proposals: Vec<IsrProposal> = self.proposals.take().into_values().collect();
        if proposals.is_empty() {
            return true;
        }
        // The outcome comes as a metadata event; a proposal that was refused is made again by the next look at the ISR.
        let (reply, _) = oneshot();
        match self.addresses.control.try_send(ControlMessage::AlterPartition { proposals, reply }) {
            Err(TrySendError::Full(ControlMessage::AlterPartition { proposals, .. })) => {
                let mut kept = self.proposals.borrow_mut();
                for proposal in proposals {
                    kept.entry(proposal.key).or_insert(proposal);
                }
                false
            }
            _ => true,
        }
    }
}
