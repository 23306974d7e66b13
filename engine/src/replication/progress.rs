//! What a leader knows of one follower, and how a fetch changes it.
//!
//! Pure. Path: checked fetch → [`Progress::take`] → `leader.rs` moves the high watermark.
//! Invariant: registration and session never go back (Rule: R11): a fetch that was overtaken by a younger one, or that
//! comes from a process that is gone, changes nothing.
//! Invariant: `caught_up` never lies after the moment at which the follower really held everything (Rule: R10).

use std::time::Duration;

use sakia_protocol::ids::{BrokerEpoch, BrokerId, Offset};

use super::fetch_plan::CheckedFetch;

/// Place of a fetch among all fetches of one broker's process: connection, then request in it. Later ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SessionStamp {
    /// Number of the session; a later session has a greater one.
    pub session: u64,
    /// Number of the request in the session.
    pub epoch: u64,
}

/// What became of a fetch's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchVerdict {
    /// Taken; the high watermark if it moved.
    Taken { high_watermark: Option<Offset> },
    /// Overtaken: from an older process of that broker, or older than a fetch seen before. Nothing changed.
    Stale,
    /// The broker is not a replica of this partition.
    NotAReplica,
}

/// How something was given to a follower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandedBy {
    /// As references: the follower reads the bucket.
    Reference,
    /// As record bytes.
    Bytes,
}

/// What was given and has not come back as a stored end yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handed {
    /// First offset not given yet.
    pub next: Offset,
    /// How the last part was given.
    pub by: HandedBy,
    /// When the first part of it was given, or when the follower's end last grew.
    pub at: Duration,
}

/// The one mark of R10: the leader's stored end at some earlier fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    offset: Offset,
    time: Duration,
}

/// One follower, as its leader sees it in this leader epoch.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Which broker.
    pub broker: BrokerId,
    /// The registration under which the metadata knows it; `None`: fenced, shutting down or unknown.
    pub registered: Option<BrokerEpoch>,
    broker_epoch: Option<BrokerEpoch>,
    stamp: Option<SessionStamp>,
    end: Option<Offset>,
    log_start: Option<Offset>,
    mark: Option<Mark>,
    caught_up: Option<Duration>,
    bytes_until: Option<Offset>,
    handed: Option<Handed>,
    high_watermark_told: Option<Offset>,
}

impl Progress {
    /// A follower of whom nothing is known yet. Members of the ISR begin as caught up at `now`, as in Kafka: a new leader
    /// gives them one lag time to report.
    #[must_use]
    pub(super) fn unknown(broker: BrokerId, registered: Option<BrokerEpoch>, caught_up: Option<Duration>) -> Self {
        Self {
            broker,
            registered,
            broker_epoch: None,
            stamp: None,
            end: None,
            log_start: None,
            mark: None,
            caught_up,
            bytes_until: None,
            handed: None,
            high_watermark_told: None,
        }
    }

    /// Stored end; `None` before its first fetch in this leader epoch.
    #[must_use]
    pub fn end(&self) -> Option<Offset> {
        self.end
    }

    /// First offset of its log.
    #[must_use]
    pub fn log_start(&self) -> Option<Offset> {
        self.log_start
    }

    /// Until when it certainly held everything that was stored here.
    #[must_use]
    pub fn caught_up(&self) -> Option<Duration> {
        self.caught_up
    }

    /// What was given and is not stored there yet.
    #[must_use]
    pub fn handed(&self) -> Option<Handed> {
        self.handed
    }

    /// Whether it lacks news of the high watermark.
    #[must_use]
    pub fn wants_high_watermark(&self, high_watermark: Offset) -> bool {
        self.high_watermark_told.is_none_or(|told| told < high_watermark)
    }

    /// The registration under which it fetches, if that is the one that the metadata knows (KIP-903).
    #[must_use]
    pub fn live_epoch(&self) -> Option<BrokerEpoch> {
        self.registered.filter(|registered| self.broker_epoch == Some(*registered))
    }

    /// Whether it holds everything, or did so at most `lag_max` ago.
    #[must_use]
    pub fn is_caught_up(&self, stored: Offset, now: Duration, lag_max: Duration) -> bool {
        let holds_all = self.end.is_some_and(|end| end >= stored);
        holds_all || self.caught_up.is_some_and(|time| now.saturating_sub(time) <= lag_max)
    }

    /// Takes a fetch, unless it is stale. `stored` is the leader's stored end now.
    pub(super) fn take(&mut self, fetch: &CheckedFetch, stored: Offset, now: Duration) -> Taken {
        let fetch = fetch.fetch();
        if fetch.broker_epoch < self.broker_epoch {
            return Taken::Stale;
        }
        let same_process = fetch.broker_epoch == self.broker_epoch;
        if same_process && self.stamp.is_some_and(|seen| fetch.stamp < seen) {
            return Taken::Stale;
        }
        let same_session = same_process && self.stamp.is_some_and(|seen| seen.session == fetch.stamp.session);
        if !same_session {
            // What an ended session was given is lost: it is given again from the end that the new one reports.
            self.handed = None;
            self.high_watermark_told = None;
        }
        self.broker_epoch = fetch.broker_epoch;
        self.stamp = Some(fetch.stamp);
        self.log_start = fetch.log_start;
        self.bytes_until = fetch.bytes_until;
        self.take_end(fetch.end, now);
        self.take_mark(fetch.end, stored, now);
        Taken::Taken
    }

    fn take_end(&mut self, end: Offset, now: Duration) {
        let before = self.end.replace(end);
        self.handed = match self.handed {
            // It truncated: what was given above does not continue its log any more.
            Some(_) if before.is_some_and(|before| end < before) => None,
            Some(handed) if end >= handed.next => None,
            Some(handed) if before.is_some_and(|before| end > before) => Some(Handed { at: now, ..handed }),
            handed => handed,
        };
    }

    /// Rule: R10, word by word.
    fn take_mark(&mut self, end: Offset, stored: Offset, now: Duration) {
        let fresh = Some(Mark { offset: stored, time: now });
        match self.mark {
            _ if end >= stored => {
                self.caught_up = Some(now);
                self.mark = fresh;
            }
            Some(mark) if end >= mark.offset => {
                self.caught_up = self.caught_up.max(Some(mark.time));
                self.mark = fresh;
            }
            Some(_) => {}
            None => self.mark = fresh,
        }
    }

    pub(super) fn told(&mut self, handed: Option<(Offset, HandedBy)>, high_watermark: Offset, now: Duration) {
        self.high_watermark_told = self.high_watermark_told.max(Some(high_watermark));
        if let Some((next, by)) = handed {
            // More references make those under way no younger: a follower that stores nothing of them gets bytes in time.
            let under_way = self.handed.filter(|under_way| under_way.by == HandedBy::Reference && by == under_way.by);
            self.handed = Some(Handed { next, by, at: under_way.map_or(now, |under_way| under_way.at) });
        }
    }

    pub(super) fn stamp(&self) -> Option<SessionStamp> {
        self.stamp
    }
}

/// Whether a fetch was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    Taken,
    Stale,
}
