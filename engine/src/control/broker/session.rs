//! A broker's session with the controller: registration, heartbeats, clean stop.
//!
//! Path: from the start of the process to the controller's leave to stop. One request at a time on a connection of its
//! own, so that nothing delays a heartbeat.
//!
//! Invariant: a heartbeat reports what every shard has applied, so the broker is served only when all of them know its
//! registration.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use sakia_io::{Moment, fs, now, random_u64, sleep};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{BrokerEpoch, MetadataIndex};
use sakia_protocol::messages::broker_heartbeat::{BrokerHeartbeatRequest, BrokerHeartbeatResponse};
use sakia_protocol::messages::broker_registration::{BrokerRegistrationRequest, Feature, Listener};
use tracing::{info, warn};

use super::Broker;
use crate::control::limits::{
    EAGER_HEARTBEAT, REGISTRATION_MAX, REGISTRATION_PAUSE, SHUTDOWN_MAX, SHUTDOWN_UNREACHABLE_MAX,
};
use crate::rpc::RpcError;
use crate::select::{Either, either};

/// The level of our own replication through the bucket: a reply may carry references.
const WAL_FEATURE: &str = "sakia.wal";

/// Where Linux says under which boot we run.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Shortest limit of a heartbeat.
const HEARTBEAT_LIMIT_MIN: Duration = Duration::from_millis(500);

/// Kafka's number of PLAINTEXT.
const PLAINTEXT: i16 = 0;

/// How a registration ended.
enum Ended {
    /// The broker may stop, or cannot wait any longer.
    Stopped,
    /// The controller does not know it any more.
    Lost,
    /// It was given up, to register anew.
    GivenUp,
}

/// What the last heartbeats said.
struct Pulse {
    /// Whether the controller says that the broker serves.
    serves: bool,
    /// Since when nothing was heard.
    silent_since: Option<Moment>,
    /// When a stop that is under way ends without the controller.
    stop_at: Option<Moment>,
}

impl Broker {
    /// Registers and keeps the session; returns when the broker may stop.
    pub(super) async fn keep_session(self: Rc<Self>) {
        let boot_id = boot_id(Path::new(BOOT_ID)).await;
        loop {
            let Some(epoch) = self.register(boot_id.as_deref()).await else { return };
            self.registration.set(Some(epoch));
            self.last_registration.set(Some(epoch));
            self.registered.wake();
            if self.over.get() == Some(epoch) {
                // Lost and found again: its stream is over all the same.
                self.renewal.wake();
            }
            match self.beat(epoch).await {
                Ended::Stopped => return,
                Ended::Lost => {
                    warn!(broker = %self.settings.node_id, %epoch, "the controller lost this broker, it registers again");
                    self.registration.set(None);
                }
                Ended::GivenUp => self.gave_up(epoch),
            }
        }
    }

    /// Asks until the controller takes the registration; `None` once the broker shall stop.
    async fn register(&self, boot_id: Option<&str>) -> Option<BrokerEpoch> {
        let mut said = String::new();
        loop {
            if self.stopping.get() {
                return None;
            }
            if self.failed.get() {
                self.session_wake.wait().await;
                continue;
            }
            let request = self.registration_request(boot_id);
            let reason = match self.session.call(&request, 4, REGISTRATION_MAX).await {
                Ok(answer) => match ErrorCode::from_wire(answer.error_code) {
                    ErrorCode::None => {
                        let epoch = BrokerEpoch::from_wire(answer.broker_epoch);
                        info!(broker = %self.settings.node_id, epoch = answer.broker_epoch, "registered");
                        return Some(epoch.expect("a registration that was taken has an epoch"));
                    }
                    code => self.registration_refused(code),
                },
                Err(error) => error.to_string(),
            };
            if reason != said {
                warn!(broker = %self.settings.node_id, "not registered yet: {reason}");
                said = reason;
            }
            either(sleep(half_by_chance(REGISTRATION_PAUSE)), self.session_wake.wait()).await;
        }
    }

    /// Says why, and ends the process where asking again cannot help.
    fn registration_refused(&self, code: ErrorCode) -> String {
        match code {
            ErrorCode::DuplicateBrokerRegistration => {
                "node.id is in use by a process whose session has not ended".to_owned()
            }
            ErrorCode::InconsistentClusterId => {
                self.fail("the data folder belongs to another cluster than the controller");
                code.name().to_owned()
            }
            ErrorCode::InvalidRegistration | ErrorCode::UnsupportedVersion | ErrorCode::PolicyViolation => {
                self.fail("the controller refuses this broker; its listeners, rack or features are not acceptable");
                code.name().to_owned()
            }
            other => other.name().to_owned(),
        }
    }

    fn registration_request(&self, boot_id: Option<&str>) -> BrokerRegistrationRequest {
        let listener = |listener: &crate::settings::Listener| Listener {
            name: listener.name.clone(),
            host: listener.host.clone(),
            port: listener.port,
            security_protocol: PLAINTEXT,
        };
        BrokerRegistrationRequest {
            broker_id: self.settings.node_id.get(),
            cluster_id: self.cluster_id.borrow().clone().unwrap_or_default(),
            incarnation_id: self.incarnation.get(),
            listeners: self.settings.advertised.iter().map(listener).collect(),
            features: vec![Feature {
                name: WAL_FEATURE.to_owned(),
                min_supported_version: 1,
                max_supported_version: 1,
            }],
            rack: self.settings.rack.clone(),
            is_migrating_zk_broker: false,
            log_dirs: vec![self.directory],
            previous_broker_epoch: BrokerEpoch::to_wire(self.left_epoch.get().or(self.previous_broker_epoch)),
            boot_id: boot_id.map(str::to_owned),
        }
    }

    /// Sends heartbeats until the registration ends.
    async fn beat(&self, epoch: BrokerEpoch) -> Ended {
        let mut pulse = Pulse { serves: false, silent_since: None, stop_at: None };
        loop {
            if self.failed.get() {
                match self.stopping.get() {
                    true => return Ended::Stopped,
                    false => self.session_wake.wait().await,
                }
                continue;
            }
            let began = now();
            if self.stopping.get() && *pulse.stop_at.get_or_insert(began + SHUTDOWN_MAX) <= began {
                warn!(broker = %self.settings.node_id, "stopping although leaderships could not be moved away in time");
                return Ended::Stopped;
            }
            let request = self.heartbeat_request(epoch);
            let answer =
                match either(self.session.call(&request, 1, self.heartbeat_limit()), self.session_wake.wait()).await {
                    Either::Left(answer) => answer,
                    // To stop, or to leave, cannot wait for an answer that may never come.
                    Either::Right(()) => continue,
                };
            if let Some(ended) = self.heard(&mut pulse, answer, epoch, began) {
                return ended;
            }
            let interval = self.settings.heartbeat_interval;
            let eager = self.stopping.get() || self.is_leaving(epoch) || !pulse.serves;
            let pause = if eager { interval.min(EAGER_HEARTBEAT) } else { interval };
            either(sleep(pause.saturating_sub(now() - began)), self.session_wake.wait()).await;
        }
    }

    /// Half a session: an answer that comes later is worth nothing, and the connection may be dead.
    fn heartbeat_limit(&self) -> Duration {
        match self.stopping.get() {
            true => HEARTBEAT_LIMIT_MIN,
            false => (self.settings.session_timeout / 2).max(HEARTBEAT_LIMIT_MIN),
        }
    }

    fn heartbeat_request(&self, epoch: BrokerEpoch) -> BrokerHeartbeatRequest {
        BrokerHeartbeatRequest {
            broker_id: self.settings.node_id.get(),
            broker_epoch: epoch.get(),
            current_metadata_offset: MetadataIndex::to_wire(self.applied_index()),
            want_fence: false,
            want_shut_down: self.stopping.get() || self.is_leaving(epoch),
            offline_log_dirs: Vec::new(),
        }
    }

    fn heard(
        &self,
        pulse: &mut Pulse,
        answer: Result<BrokerHeartbeatResponse, RpcError>,
        epoch: BrokerEpoch,
        began: Moment,
    ) -> Option<Ended> {
        let broker = self.settings.node_id;
        let trouble = match answer {
            Ok(answer) => match ErrorCode::from_wire(answer.error_code) {
                ErrorCode::None => {
                    if pulse.silent_since.take().is_some() {
                        info!(%broker, "the controller answers again");
                    }
                    if pulse.serves == answer.is_fenced {
                        pulse.serves = !answer.is_fenced;
                        info!(%broker, serves = pulse.serves, "standing in the cluster changed");
                    }
                    let ended = if self.stopping.get() { Ended::Stopped } else { Ended::GivenUp };
                    let asked = self.stopping.get() || self.is_leaving(epoch);
                    return (asked && answer.should_shut_down).then_some(ended);
                }
                ErrorCode::StaleBrokerEpoch | ErrorCode::BrokerIdNotRegistered => {
                    return Some(if self.stopping.get() { Ended::Stopped } else { Ended::Lost });
                }
                code => code.name().to_owned(),
            },
            Err(error) => error.to_string(),
        };
        if pulse.silent_since.is_none() {
            warn!(%broker, "no answer to a heartbeat: {trouble}");
        }
        let silent = now() - *pulse.silent_since.get_or_insert(began);
        if self.stopping.get() && silent >= SHUTDOWN_UNREACHABLE_MAX {
            warn!(%broker, "stopping without the controller, which does not answer");
            return Some(Ended::Stopped);
        }
        None
    }
}

/// The boot under which this machine runs; `None` where the system does not say.
async fn boot_id(path: &Path) -> Option<String> {
    let bytes = fs::read_file(path).await.ok()?;
    let text = std::str::from_utf8(&bytes).ok()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Brokers that lost the controller together do not come back together.
fn half_by_chance(pause: Duration) -> Duration {
    let half = pause / 2;
    let micros = u64::try_from(half.as_micros()).expect("a pause is short").max(1);
    half + Duration::from_micros(random_u64() % micros)
}
