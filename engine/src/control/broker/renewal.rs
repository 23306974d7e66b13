//! A new registration of a process that goes on (R13): the object stream of the present one is over, and object names hold
//! the broker epoch.
//!
//! Path: the combiner's `StreamOver` → followers get everything, so that acks=1 loses nothing → heartbeats ask for leave, as
//! before a stop → the session ends → `session` registers a new incarnation → the combiner begins its stream.
//!
//! Invariant: the registration that is given up was left cleanly, and the process with all it has appended goes on; so the
//! next one names it as stopped cleanly (R3).

use std::rc::Rc;
use std::time::Duration;

use sakia_io::{Moment, now, oneshot, random_bytes, sleep, timeout};
use sakia_protocol::ids::{BrokerEpoch, Uuid};
use tracing::{info, warn};

use super::Broker;
use crate::control::limits::{RENEWAL_PAUSE_MAX, RENEWAL_PAUSE_MIN, SHUTDOWN_MAX};
use crate::limits::HAND_OVER_LIMIT;
use crate::messages::{Addresses, ShardMessage};

/// How often a process may register anew: every time all it leads moves away and comes back.
#[derive(Default)]
struct Pace {
    last: Option<Moment>,
    pause: Duration,
}

impl Pace {
    /// How long the next one has to wait.
    fn wait(&self, now: Moment) -> Duration {
        let from = self.last.map(|last| (last + self.pause).as_duration());
        from.map_or(Duration::ZERO, |from| from.saturating_sub(now.as_duration()))
    }

    /// One begins. The next pause is twice as long, or the shortest again after a long time without any.
    fn begins(&mut self, now: Moment) {
        let quiet = self.last.is_none_or(|last| now - last >= RENEWAL_PAUSE_MAX);
        self.pause = if quiet { RENEWAL_PAUSE_MIN } else { (self.pause * 2).min(RENEWAL_PAUSE_MAX) };
        self.last = Some(now);
    }
}

impl Broker {
    /// The stream of this registration is over.
    pub(super) fn stream_over(&self, epoch: BrokerEpoch) {
        self.over.set(Some(epoch));
        self.renewal.wake();
    }

    /// Whether this registration is being given up.
    pub(super) fn is_leaving(&self, epoch: BrokerEpoch) -> bool {
        self.leaving.get() == Some(epoch)
    }

    /// The controller let this registration go: the next one is of a new incarnation, else it would get the same epoch.
    pub(super) fn gave_up(&self, epoch: BrokerEpoch) {
        info!(broker = %self.settings.node_id, %epoch, "this registration is given up, the broker registers anew");
        self.left_epoch.set(Some(epoch));
        self.incarnation.set(Uuid::from_bytes(random_bytes()));
        self.registration.set(None);
        self.left.wake();
    }

    /// Registers anew whenever a stream is over, for ever.
    pub(super) async fn renew_registrations(self: Rc<Self>) {
        let mut pace = Pace::default();
        loop {
            self.renewal.wait().await;
            let pause = pace.wait(now());
            if !pause.is_zero() {
                let seconds = pause.as_secs();
                warn!(broker = %self.settings.node_id, seconds, "followers get record bytes until the broker registers anew");
                sleep(pause).await;
            }
            // A registration that was lost meanwhile and came back with its epoch wakes this task again.
            let over = self.over.get().filter(|over| self.registration.get() == Some(*over));
            if let Some(epoch) = over.filter(|_| !self.stopping.get()) {
                pace.begins(now());
                self.leave(epoch).await;
            }
        }
    }

    async fn leave(&self, epoch: BrokerEpoch) {
        hand_over(&self.addresses).await;
        self.leaving.set(Some(epoch));
        self.session_wake.wake();
        let gone = async {
            while self.registration.get() == Some(epoch) {
                self.left.wait().await;
            }
        };
        if timeout(SHUTDOWN_MAX, gone).await.is_err() {
            warn!(broker = %self.settings.node_id, "the controller has not let this registration go yet");
        }
        // What is still led here is served, however long the controller takes.
        for shard in self.addresses.shards.iter() {
            let _ = shard.send(ShardMessage::Resume).await;
        }
    }
}

/// Nothing more is appended, and followers get everything that was: whoever leads next has what acks=1 acknowledged.
pub async fn hand_over(addresses: &Addresses) {
    let mut answers = Vec::new();
    let asked = timeout(HAND_OVER_LIMIT, async {
        for shard in addresses.shards.iter() {
            let (reply, answer) = oneshot();
            if shard.send(ShardMessage::HandOver { reply }).await.is_ok() {
                answers.push(answer);
            }
        }
        for answer in answers {
            let _ = answer.await;
        }
    });
    if asked.await.is_err() {
        warn!("followers did not get everything in time; records that only this broker acknowledged may be lost");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_come_at_once_then_ever_rarer_and_at_once_again_after_a_quiet_time() {
        let at = |seconds: u64| Moment::from_duration(Duration::from_secs(seconds));
        let mut pace = Pace::default();
        assert_eq!(pace.wait(at(5)), Duration::ZERO);
        let mut now = at(5);
        let mut waits = Vec::new();
        for _ in 0..9 {
            pace.begins(now);
            waits.push(pace.wait(now).as_secs());
            now = now + pace.wait(now);
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 600, 10, 20], "the longest pause counts as quiet");
    }
}
