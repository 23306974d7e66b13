//! Who is alive: heartbeats of brokers on the active controller, never in the log.
//!
//! Path: a broker's heartbeat comes in, `decide_heartbeat` says what to propose and what to answer; a check every so often
//! asks `expired` whom to fence. A new controller knows no heartbeats and gives every broker a full session; a controller
//! that was itself paused forgives what it could not hear. No safety depends on any of this: a broker fenced too early
//! loses its leaderships cleanly, one fenced too late acknowledges nothing that its ISR does not have.
//! Times are durations since the start of the shard's clock. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use sakia_protocol::ids::{BrokerEpoch, BrokerId, MetadataIndex};

use crate::command::{Command, ControlledShutdown, FenceBroker, UnfenceBroker};
use crate::error::CommandError;
use crate::image::{Image, Standing};

/// What a broker says of itself, every so often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The sender.
    pub broker: BrokerId,
    /// Its epoch.
    pub broker_epoch: BrokerEpoch,
    /// Up to where it has taken over the log.
    pub applied: MetadataIndex,
    /// What it wants.
    pub wish: Wish,
}

/// What a broker wants to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Not ready, or not willing, to serve.
    Fenced,
    /// To serve.
    Active,
    /// To stop.
    Stopped,
}

/// The answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatAnswer {
    /// Whether it has taken over its own registration.
    pub is_caught_up: bool,
    /// Whether it is fenced now.
    pub is_fenced: bool,
    /// Whether it may stop now: it leads nothing, and the others know.
    pub should_shut_down: bool,
}

/// Heartbeats heard since this controller became active.
#[derive(Debug)]
pub struct Sessions {
    timeout: Duration,
    began: Duration,
    heard: BTreeMap<BrokerId, Session>,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    broker_epoch: BrokerEpoch,
    /// `None`: it has said good-bye.
    last: Option<Duration>,
    applied: MetadataIndex,
    /// Since which index it is about to stop.
    stopping: Option<MetadataIndex>,
}

impl Sessions {
    /// A new controller: every registered broker has a full session from `now`.
    #[must_use]
    pub const fn new(timeout: Duration, now: Duration) -> Self {
        Self { timeout, began: now, heard: BTreeMap::new() }
    }

    /// Notes a heartbeat, or a registration, of a broker epoch that is in the image.
    pub fn hear(&mut self, broker: BrokerId, broker_epoch: BrokerEpoch, applied: MetadataIndex, now: Duration) {
        let known = self.heard.get(&broker).filter(|session| session.broker_epoch == broker_epoch);
        let stopping = known.and_then(|session| session.stopping);
        self.heard.insert(broker, Session { broker_epoch, last: Some(now), applied, stopping });
    }

    /// Notes that a broker has stopped: its session ends at once, so that it can register again.
    pub fn end(&mut self, broker: BrokerId, broker_epoch: BrokerEpoch) {
        let applied = MetadataIndex::ZERO;
        self.heard.insert(broker, Session { broker_epoch, last: None, applied, stopping: None });
    }

    /// Whether the process with this epoch may still be there.
    #[must_use]
    pub fn is_alive(&self, broker: BrokerId, broker_epoch: BrokerEpoch, now: Duration) -> bool {
        let last = match self.heard.get(&broker).filter(|session| session.broker_epoch == broker_epoch) {
            Some(session) => session.last,
            None => Some(self.began),
        };
        last.is_some_and(|last| now.saturating_sub(last) < self.timeout)
    }

    /// Brokers to fence now, by id.
    #[must_use]
    pub fn expired(&self, image: &Image, now: Duration) -> Vec<FenceBroker> {
        let serving = image.brokers.iter().filter(|(_, broker)| !broker.is_fenced());
        let late = serving.filter(|(id, broker)| !self.is_alive(**id, broker.epoch, now));
        late.map(|(&broker, found)| FenceBroker { broker, broker_epoch: found.epoch }).collect()
    }

    /// Gives everybody the time in which this controller itself did not run.
    pub fn forgive(&mut self, pause: Duration) {
        self.began = self.began.saturating_add(pause);
        for session in self.heard.values_mut() {
            session.last = session.last.map(|last| last.saturating_add(pause));
        }
    }

    /// Forgets brokers that are no longer registered.
    pub fn retain_registered(&mut self, image: &Image) {
        self.heard.retain(|broker, session| image.broker_at(*broker, session.broker_epoch).is_some());
    }

    /// Since when a broker is about to stop; `now` is noted at the first call.
    fn stopping_since(&mut self, broker: BrokerId, now: MetadataIndex) -> MetadataIndex {
        self.heard.get_mut(&broker).map_or(now, |session| *session.stopping.get_or_insert(now))
    }

    /// Whether every other active broker has taken over `index`. One whose session has ended must be fenced first: it may
    /// lead what the one that stops gave away, and then nobody else holds that.
    fn others_passed(&self, image: &Image, broker: BrokerId, index: MetadataIndex) -> bool {
        let mut others = image.brokers.iter().filter(|(id, other)| **id != broker && other.is_active());
        others.all(|(id, _)| self.heard.get(id).is_some_and(|session| session.applied >= index))
    }
}

/// What a heartbeat leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Answer at once.
    Answer(HeartbeatAnswer),
    /// Propose this, then answer from the image after it.
    Propose(Command),
    /// Propose this, end the session and tell the broker to stop.
    Stop(Command),
}

/// Notes the heartbeat and decides what follows.
///
/// # Errors
/// `StaleBrokerEpoch` for a process that was replaced or never registered.
pub fn decide_heartbeat(
    sessions: &mut Sessions,
    image: &Image,
    heartbeat: &Heartbeat,
    now: Duration,
) -> Result<Step, CommandError> {
    let Heartbeat { broker, broker_epoch, applied, wish } = *heartbeat;
    let found = image.broker_at(broker, broker_epoch).ok_or(CommandError::StaleBrokerEpoch { broker })?;
    sessions.hear(broker, broker_epoch, applied, now);
    let is_caught_up = is_caught_up(heartbeat);
    Ok(match (wish, found.standing) {
        (Wish::Active, Standing::Fenced) if is_caught_up => {
            Step::Propose(UnfenceBroker { broker, broker_epoch }.into())
        }
        (Wish::Fenced, Standing::Active) => Step::Propose(FenceBroker { broker, broker_epoch }.into()),
        (Wish::Stopped, Standing::Active) => Step::Propose(ControlledShutdown { broker, broker_epoch }.into()),
        (Wish::Stopped, Standing::ShuttingDown) => {
            let since = sessions.stopping_since(broker, image.index);
            let leads = image.partitions().any(|(_, partition)| partition.leader == Some(broker));
            if !leads && sessions.others_passed(image, broker, since) {
                Step::Stop(FenceBroker { broker, broker_epoch }.into())
            } else {
                Step::Answer(answer(image, heartbeat))
            }
        }
        (Wish::Stopped, Standing::Fenced) => {
            sessions.end(broker, broker_epoch);
            Step::Answer(HeartbeatAnswer { is_caught_up, is_fenced: true, should_shut_down: true })
        }
        _ => Step::Answer(answer(image, heartbeat)),
    })
}

/// The answer to a heartbeat as things stand.
#[must_use]
pub fn answer(image: &Image, heartbeat: &Heartbeat) -> HeartbeatAnswer {
    let found = image.broker_at(heartbeat.broker, heartbeat.broker_epoch);
    HeartbeatAnswer {
        is_caught_up: is_caught_up(heartbeat),
        is_fenced: found.is_none_or(|broker| broker.standing == Standing::Fenced),
        should_shut_down: false,
    }
}

fn is_caught_up(heartbeat: &Heartbeat) -> bool {
    heartbeat.applied.get() >= heartbeat.broker_epoch.get()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sakia_protocol::ids::Uuid;

    use super::*;
    use crate::event::BrokerRegistered;
    use crate::image::BrokerImage;

    const TIMEOUT: Duration = Duration::from_secs(3);

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    /// Brokers 1 and 2, registered at index 1 and 2.
    fn image(standings: [Standing; 2]) -> Image {
        let mut image = Image::default();
        for (number, standing) in (1..).zip(standings) {
            let registration = BrokerImage {
                epoch: BrokerEpoch::new(i64::from(number)),
                incarnation: Uuid::ZERO,
                boot_id: Uuid::ZERO,
                log_folders: Vec::new(),
                rack: None,
                listeners: Vec::new(),
                features: BTreeMap::new(),
                standing,
            };
            let event = BrokerRegistered { broker: BrokerId::new(number), registration };
            image.apply(MetadataIndex::new(i64::from(number)), &event.into());
        }
        image
    }

    fn heartbeat(number: i32, applied: i64, wish: Wish) -> Heartbeat {
        let broker_epoch = BrokerEpoch::new(i64::from(number));
        Heartbeat { broker: BrokerId::new(number), broker_epoch, applied: MetadataIndex::new(applied), wish }
    }

    #[test]
    fn a_new_controller_gives_everybody_a_full_session() {
        let image = image([Standing::Active, Standing::Fenced]);
        let sessions = Sessions::new(TIMEOUT, seconds(100));
        assert_eq!(sessions.expired(&image, seconds(102)), []);
        let late = sessions.expired(&image, seconds(103));
        assert_eq!(late.len(), 1, "the fenced one is not fenced again");
        assert_eq!(late[0].broker, BrokerId::new(1));
    }

    #[test]
    fn a_heartbeat_renews_the_session_of_its_epoch_only() {
        let image = image([Standing::Active, Standing::Active]);
        let mut sessions = Sessions::new(TIMEOUT, seconds(0));
        sessions.hear(BrokerId::new(1), BrokerEpoch::new(1), MetadataIndex::ZERO, seconds(2));
        sessions.hear(BrokerId::new(2), BrokerEpoch::new(99), MetadataIndex::ZERO, seconds(2));
        let late: Vec<i32> = sessions.expired(&image, seconds(4)).iter().map(|late| late.broker.get()).collect();
        assert_eq!(late, [2]);
    }

    #[test]
    fn the_time_in_which_the_controller_stood_still_is_forgiven() {
        let image = image([Standing::Active, Standing::Active]);
        let mut sessions = Sessions::new(TIMEOUT, seconds(0));
        sessions.hear(BrokerId::new(1), BrokerEpoch::new(1), MetadataIndex::ZERO, seconds(2));
        sessions.forgive(seconds(60));
        assert_eq!(sessions.expired(&image, seconds(62)), []);
        assert_eq!(sessions.expired(&image, seconds(65)).len(), 2);
    }

    #[test]
    fn a_broker_is_unfenced_when_it_has_taken_over_its_own_registration() {
        let image = image([Standing::Fenced, Standing::Fenced]);
        let mut sessions = Sessions::new(TIMEOUT, seconds(0));
        let step = decide_heartbeat(&mut sessions, &image, &heartbeat(2, 1, Wish::Active), seconds(1)).unwrap();
        let waiting = HeartbeatAnswer { is_caught_up: false, is_fenced: true, should_shut_down: false };
        assert_eq!(step, Step::Answer(waiting));
        let step = decide_heartbeat(&mut sessions, &image, &heartbeat(2, 2, Wish::Active), seconds(1)).unwrap();
        assert!(matches!(step, Step::Propose(Command::UnfenceBroker(_))));
    }

    #[test]
    fn a_replaced_process_is_told_so() {
        let image = image([Standing::Active, Standing::Active]);
        let mut sessions = Sessions::new(TIMEOUT, seconds(0));
        let old = Heartbeat { broker_epoch: BrokerEpoch::ZERO, ..heartbeat(1, 5, Wish::Active) };
        let refused = decide_heartbeat(&mut sessions, &image, &old, seconds(1));
        assert_eq!(refused, Err(CommandError::StaleBrokerEpoch { broker: BrokerId::new(1) }));
    }

    #[test]
    fn a_stopping_broker_waits_until_the_others_know() {
        let mut sessions = Sessions::new(TIMEOUT, seconds(0));
        let active = image([Standing::Active, Standing::Active]);
        let stop = heartbeat(1, 9, Wish::Stopped);
        let step = decide_heartbeat(&mut sessions, &active, &stop, seconds(1)).unwrap();
        assert!(matches!(step, Step::Propose(Command::ControlledShutdown(_))));
        let mut stopping = image([Standing::ShuttingDown, Standing::Active]);
        stopping.advance(MetadataIndex::new(10));
        let waiting = |sessions: &mut Sessions| {
            let step = decide_heartbeat(sessions, &stopping, &stop, seconds(1)).unwrap();
            matches!(step, Step::Answer(answer) if !answer.should_shut_down)
        };
        assert!(waiting(&mut sessions), "nothing was heard of broker 2");
        sessions.hear(BrokerId::new(2), BrokerEpoch::new(2), MetadataIndex::new(9), seconds(1));
        assert!(waiting(&mut sessions), "broker 2 is behind");
        sessions.hear(BrokerId::new(2), BrokerEpoch::new(2), MetadataIndex::new(10), seconds(1));
        let step = decide_heartbeat(&mut sessions, &stopping, &stop, seconds(1)).unwrap();
        assert!(matches!(step, Step::Stop(Command::FenceBroker(_))));
    }

    #[test]
    fn a_broker_that_has_stopped_may_register_again_at_once() {
        let image = image([Standing::Fenced, Standing::Active]);
        let mut sessions = Sessions::new(TIMEOUT, seconds(0));
        let (broker, epoch) = (BrokerId::new(1), BrokerEpoch::new(1));
        assert!(sessions.is_alive(broker, epoch, seconds(1)));
        let step = decide_heartbeat(&mut sessions, &image, &heartbeat(1, 9, Wish::Stopped), seconds(1)).unwrap();
        assert!(matches!(step, Step::Answer(HeartbeatAnswer { should_shut_down: true, .. })));
        assert!(!sessions.is_alive(broker, epoch, seconds(1)));
    }
}
