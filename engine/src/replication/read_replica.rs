//! Consumers at followers (KIP-392): to which replica a leader sends a consumer, and what a follower answers it.
//!
//! Pure. Invariant: a consumer is never told OFFSET_OUT_OF_RANGE because a follower trails: it would reset and lose its
//! place. Rule: R25, nobody serves an offset above the high watermark it was told in this leadership.

use sakia_protocol::ids::{BrokerId, Offset};

use super::leader::LeaderState;

/// The replica that a consumer of this rack should read from, if not the leader: in sync, alive, in the consumer's rack, and it
/// holds the offset that is asked for. Of several the one that holds most; of equals the smallest id.
pub fn preferred_replica<'a>(
    leader: &LeaderState,
    consumer_rack: &str,
    leader_rack: Option<&str>,
    asked: Offset,
    rack_of: impl Fn(BrokerId) -> Option<&'a str>,
) -> Option<BrokerId> {
    if consumer_rack.is_empty() || leader_rack == Some(consumer_rack) {
        return None;
    }
    let fits = |broker: BrokerId, end: Offset, log_start: Option<Offset>| {
        leader.isr().contains(&broker)
            && rack_of(broker) == Some(consumer_rack)
            && end >= asked
            && log_start.is_none_or(|start| start <= asked)
    };
    let candidates = leader.followers().iter().filter(|follower| follower.live_epoch().is_some());
    let ends = candidates.filter_map(|follower| Some((follower.broker, follower.end()?, follower.log_start())));
    let fitting = ends.filter(|(broker, end, log_start)| fits(*broker, *end, *log_start));
    fitting.min_by_key(|(broker, end, _)| (std::cmp::Reverse(*end), *broker)).map(|(broker, ..)| broker)
}

/// What a follower does with a consumer's fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FollowerRead {
    /// Serve what lies below its high watermark (nothing, if the offset stands at it).
    Serve,
    /// OFFSET_NOT_AVAILABLE 78: the leader may have it.
    NotAvailable,
    /// OFFSET_OUT_OF_RANGE 1: below the start of the log.
    OutOfRange,
}

/// Decides a consumer's fetch at a follower.
#[must_use]
pub fn follower_read(asked: Offset, log_start: Offset, high_watermark: Offset) -> FollowerRead {
    if asked < log_start {
        FollowerRead::OutOfRange
    } else if asked <= high_watermark {
        FollowerRead::Serve
    } else {
        FollowerRead::NotAvailable
    }
}
