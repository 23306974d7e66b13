//! One controller node: the log, the image, and who is alive.
//!
//! Path: the control shard calls `propose`, `register` and `heartbeat` for requests, and serves `image` and
//! `events_after` to brokers. Everything runs on the shard that called `open`.
//!
//! Invariant: a node serves as the active controller only after its own `ActivateController` is applied, so its image
//! holds everything before it. A node whose log failed serves nothing more (`failed` returns) and must end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ClientWriteError, RaftError};
use openraft::{BasicNode, Config, Raft, SnapshotPolicy};
use sakia_io::{Class, Signal, Task, fs, now, sleep, spawn, timeout, wall_clock_ms};
use sakia_protocol::ids::{BrokerEpoch, BrokerId, ControllerEpoch, MetadataIndex, Uuid};

use crate::command::{ActivateController, Command, FenceBroker, Proposal, RegisterBroker};
use crate::error::CommandError;
use crate::event::Event;
use crate::image::{BrokerImage, Image};
use crate::network::NoPeers;
use crate::node_types::{Committed, ControllerConfig, OpenError, ProposeError};
use crate::raft_types::{ProposalBytes, Quorum};
use crate::sessions::{Heartbeat, HeartbeatAnswer, Sessions, Step, answer, decide_heartbeat};
use crate::state_machine::StateMachine;
use crate::store::LogStore;
use crate::watch;

/// A running controller node. Clones are the same node.
#[derive(Clone)]
pub struct Controller(Rc<Node>);

struct Node {
    config: ControllerConfig,
    raft: Raft<Quorum, StateMachine>,
    machine: StateMachine,
    /// The controller epoch in which this node is active.
    active: watch::Sender<Option<ControllerEpoch>>,
    sessions: RefCell<Sessions>,
    failed: Signal,
    tasks: RefCell<Vec<Task<()>>>,
    writing: RefCell<Option<Task<()>>>,
    _lock: fs::FolderLock,
}

impl Controller {
    /// Opens the node's log, makes it a quorum of one if it is new, and starts its tasks on this shard.
    ///
    /// # Errors
    /// See `OpenError`; nothing runs then.
    pub async fn open(config: ControllerConfig) -> Result<Self, OpenError> {
        let dir = config.dir.clone();
        let disk = |source| OpenError::Disk { dir: dir.clone(), source };
        make_durable_folder(&dir).await.map_err(disk)?;
        let lock = fs::lock(&dir).await.map_err(|source| match source.kind() {
            io::ErrorKind::WouldBlock => OpenError::InUse { dir: dir.clone() },
            _ => disk(source),
        })?;
        let (store, writing) = LogStore::open(&dir, raft_id(config.node_id), config.segment_bytes).await?;
        let machine = StateMachine::open(&dir).await.map_err(disk)?;
        if let Some(purged) = store.purged().filter(|purged| machine.applied() < Some(*purged)) {
            return Err(OpenError::SnapshotMissing { purged: purged.index });
        }
        let raft = start_raft(&config, store, machine.clone()).await?;
        let node = Node {
            sessions: RefCell::new(Sessions::new(config.session_timeout, now().as_duration())),
            config,
            raft,
            machine,
            active: watch::Sender::new(None),
            failed: Signal::new(),
            tasks: RefCell::new(Vec::new()),
            writing: RefCell::new(Some(writing)),
            _lock: lock,
        };
        let controller = Self(Rc::new(node));
        controller.start_tasks();
        Ok(controller)
    }

    /// Proposes a command and waits until it is applied here. Dropped midway, the outcome is unknown.
    ///
    /// # Errors
    /// See `ProposeError`.
    pub async fn propose(&self, command: impl Into<Command>) -> Result<Committed, ProposeError> {
        let epoch = self.active_epoch().ok_or_else(|| self.not_active())?;
        self.write(epoch, command.into()).await
    }

    /// Registers a broker process: refuses while another process with its id is alive, fences one that is not. The
    /// process before it on the same log folders is not alive: it held their locks.
    ///
    /// # Errors
    /// `DuplicateRegistration` until the other's session has ended; else see `ProposeError`.
    pub async fn register(&self, command: RegisterBroker) -> Result<BrokerEpoch, ProposeError> {
        let (broker, incarnation) = (command.broker, command.incarnation);
        let image = self.image();
        if let Some(other) = image.brokers.get(&broker).filter(|known| known.incarnation != incarnation) {
            let broker_epoch = other.epoch;
            let may_live = self.0.sessions.borrow().is_alive(broker, broker_epoch, now().as_duration());
            if may_live && !has_taken_its_folders(&command, other) {
                return Err(CommandError::DuplicateRegistration { broker }.into());
            }
            if !other.is_fenced() {
                self.propose(FenceBroker { broker, broker_epoch }).await?;
            }
        }
        let committed = self.propose(command).await?;
        let image = self.image();
        let found = image.brokers.get(&broker).filter(|found| found.incarnation == incarnation);
        let epoch = found.ok_or(CommandError::StaleBrokerEpoch { broker })?.epoch;
        self.0.sessions.borrow_mut().hear(broker, epoch, MetadataIndex::ZERO, now().as_duration());
        tracing::info!(%broker, %epoch, index = %committed.index, "broker registered");
        Ok(epoch)
    }

    /// Takes a broker's heartbeat; fences, unfences or moves its leaderships away as it wishes.
    ///
    /// # Errors
    /// `StaleBrokerEpoch` for a replaced process; else see `ProposeError`.
    pub async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<HeartbeatAnswer, ProposeError> {
        self.active_epoch().ok_or_else(|| self.not_active())?;
        let step = {
            let mut sessions = self.0.sessions.borrow_mut();
            decide_heartbeat(&mut sessions, &self.image(), &heartbeat, now().as_duration())?
        };
        match step {
            Step::Answer(answer) => Ok(answer),
            Step::Propose(command) => {
                self.propose(command).await?;
                Ok(answer(&self.image(), &heartbeat))
            }
            Step::Stop(command) => {
                self.propose(command).await?;
                self.0.sessions.borrow_mut().end(heartbeat.broker, heartbeat.broker_epoch);
                Ok(HeartbeatAnswer { should_shut_down: true, ..answer(&self.image(), &heartbeat) })
            }
        }
    }

    /// The cluster after the last applied entry.
    #[must_use]
    pub fn image(&self) -> Arc<Image> {
        self.0.machine.image()
    }

    /// All events above `index`, those of one index together; `None` if some are gone (take the image).
    #[must_use]
    pub fn events_after(&self, index: MetadataIndex) -> Option<Vec<(MetadataIndex, Event)>> {
        self.0.machine.events_after(index)
    }

    /// Waits until an entry above `index` is applied, at most `max_wait`.
    pub async fn wait_past(&self, index: MetadataIndex, max_wait: Duration) {
        // Both outcomes mean: look again.
        let _ = timeout(max_wait, self.0.machine.wait_past(index)).await;
    }

    /// The last index that is committed and applied here.
    #[must_use]
    pub fn commit_index(&self) -> MetadataIndex {
        self.image().index
    }

    /// Whether this node may answer requests to the controller.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.active_epoch().is_some()
    }

    /// The epoch in which this node is the active controller.
    #[must_use]
    pub fn active_epoch(&self) -> Option<ControllerEpoch> {
        let image_epoch = self.image().controller_epoch;
        (*self.0.active.borrow()).filter(|epoch| *epoch == image_epoch)
    }

    /// Returns when this node is the active controller. It may lose that again at any time.
    pub async fn wait_active(&self) {
        let mut active = self.0.active.subscribe();
        // The sender lives in `self`, so the wait cannot fail.
        let _ = active.wait_for(Option::is_some).await;
    }

    /// The node that leads the log, if known here.
    #[must_use]
    pub fn leader(&self) -> Option<BrokerId> {
        let leader = self.0.raft.server_metrics().borrow_watched().current_leader;
        leader.and_then(|id| i32::try_from(id).ok()).and_then(BrokerId::from_wire)
    }

    /// Returns when the node cannot go on: its log failed. The process must end.
    pub async fn failed(&self) {
        self.0.failed.wait().await;
    }

    /// Stops raft and its log, and waits for what is being written.
    pub async fn shutdown(&self) {
        self.0.active.send_replace(None);
        self.0.tasks.borrow_mut().clear();
        // The library reports only that its task did not end, which ours always do.
        let _ = self.0.raft.shutdown().await;
        let writing = self.0.writing.borrow_mut().take();
        if let Some(writing) = writing {
            // A reader of the library may outlive its task; then the last write is awaited, not the end.
            let _ = timeout(self.0.config.propose_timeout, writing).await;
        }
    }

    fn not_active(&self) -> ProposeError {
        ProposeError::NotActive { leader: self.leader() }
    }

    async fn write(&self, controller_epoch: ControllerEpoch, command: Command) -> Result<Committed, ProposeError> {
        let proposal = Proposal { controller_epoch, wall_clock_ms: wall_clock_ms(), command };
        let bytes = ProposalBytes(proposal.encode());
        let written = timeout(self.0.config.propose_timeout, self.0.raft.client_write(bytes)).await;
        let response = written.map_err(|_| ProposeError::Unknown)?.map_err(|error| match error {
            RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => self.not_active(),
            RaftError::APIError(_) => ProposeError::Unknown,
            RaftError::Fatal(_) => ProposeError::Stopped,
        })?;
        let decision = response.data.result.expect("a command has an outcome")?;
        let index = MetadataIndex::new(i64::try_from(response.log_id.index).expect("log indexes stay below 2^63"));
        Ok(Committed { index, events: decision.events, refused: decision.refused })
    }

    fn start_tasks(&self) {
        let activation = spawn(Class::Foreground, self.clone().follow_leadership());
        let fencing = spawn(Class::Foreground, self.clone().fence_expired());
        self.0.tasks.borrow_mut().extend([activation, fencing]);
    }

    /// Activates this node whenever it becomes the raft leader, and passivates it when it no longer is.
    async fn follow_leadership(self) {
        let mut metrics = self.0.raft.server_metrics();
        let mut active_term = None;
        loop {
            let (leads, term) = {
                let seen = metrics.borrow_and_update();
                (seen.state.is_leader(), seen.vote.leader_id.term)
            };
            if !leads {
                self.0.active.send_replace(None);
                active_term = None;
            } else if active_term != Some(term) {
                self.0.active.send_replace(None);
                match self.activate().await {
                    Ok(()) => active_term = Some(term),
                    Err(error) => {
                        tracing::warn!(%error, term, "controller is not active yet");
                        sleep(self.0.config.heartbeat_interval).await;
                        if !matches!(error, ProposeError::Stopped) {
                            continue;
                        }
                    }
                }
            }
            if metrics.changed().await.is_err() {
                break;
            }
        }
        tracing::error!("raft has stopped, this controller serves nothing more");
        self.0.active.send_replace(None);
        self.0.failed.raise();
    }

    async fn activate(&self) -> Result<(), ProposeError> {
        let cluster_id = self.0.config.cluster_id.clone().unwrap_or_else(random_cluster_id);
        let command = ActivateController { node: self.0.config.node_id, cluster_id, incarnation: random_uuid() };
        let committed = self.write(self.image().controller_epoch, command.into()).await?;
        let Some(Event::ControllerActivated(event)) = committed.events.first() else {
            unreachable!("an activation activates");
        };
        let sessions = Sessions::new(self.0.config.session_timeout, now().as_duration());
        *self.0.sessions.borrow_mut() = sessions;
        self.0.active.send_replace(Some(event.controller_epoch));
        tracing::info!(node = %self.0.config.node_id, epoch = %event.controller_epoch, "controller active");
        Ok(())
    }

    /// Looks for ended sessions, ten times per session.
    async fn fence_expired(self) {
        let pause = self.0.config.session_timeout / 10;
        let mut checked = now();
        loop {
            sleep(pause).await;
            let late = (now() - checked).saturating_sub(pause);
            checked = now();
            let expired = {
                let (mut sessions, image) = (self.0.sessions.borrow_mut(), self.image());
                if late > self.0.config.session_timeout / 2 {
                    sessions.forgive(late);
                }
                sessions.retain_registered(&image);
                sessions.expired(&image, now().as_duration())
            };
            if !self.is_active() {
                continue;
            }
            for command in expired {
                tracing::warn!(broker = %command.broker, epoch = %command.broker_epoch, "broker session ended, fencing it");
                if let Err(error) = self.propose(command).await {
                    tracing::warn!(%error, "broker is not fenced yet");
                }
            }
        }
    }
}

/// Whether a process has all log folders of another under the same kernel boot, so that the other must have ended. Were
/// it alive by some mistake (a copied folder), it would be fenced like one whose session ended.
fn has_taken_its_folders(command: &RegisterBroker, other: &BrokerImage) -> bool {
    let same_boot = !other.boot_id.is_zero() && other.boot_id == command.boot_id;
    let all = other.log_folders.iter().all(|folder| command.log_folders.contains(folder));
    same_boot && !other.log_folders.is_empty() && all
}

/// Makes the folder and syncs the names of all folders above it, else a power loss may take the whole log.
async fn make_durable_folder(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir).await?;
    for above in dir.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
        match fs::sync_dir(above).await {
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
            _ => {} // a folder we may not even read was not made by us
        }
    }
    Ok(())
}

fn raft_id(node: BrokerId) -> u64 {
    u64::try_from(node.get()).expect("node ids are not negative")
}

fn random_uuid() -> Uuid {
    Uuid::from_bytes(sakia_io::random_bytes())
}

/// Kafka draws ids until one has no leading dash, which a command line would take for an option.
fn random_cluster_id() -> String {
    loop {
        let id = random_uuid().to_string();
        if !id.starts_with('-') {
            return id;
        }
    }
}

async fn start_raft(
    config: &ControllerConfig,
    store: LogStore,
    machine: StateMachine,
) -> Result<Raft<Quorum, StateMachine>, OpenError> {
    let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let refused = |error: &dyn std::fmt::Display| OpenError::Raft { reason: error.to_string() };
    let raft_config = Config {
        cluster_name: "sakia".to_owned(),
        election_timeout_min: milliseconds(config.election_timeout.start),
        election_timeout_max: milliseconds(config.election_timeout.end),
        heartbeat_interval: milliseconds(config.heartbeat_interval),
        snapshot_policy: SnapshotPolicy::LogsSinceLast(config.entries_per_snapshot),
        max_in_snapshot_log_to_keep: config.entries_kept,
        enable_pre_vote: Some(true),
        backoff: "50ms".to_owned(),
        ..Config::default()
    };
    let raft_config = Arc::new(raft_config.validate().map_err(|error| refused(&error))?);
    let id = raft_id(config.node_id);
    let raft = Raft::new(id, raft_config, NoPeers, store, machine).await.map_err(|error| refused(&error))?;
    if !raft.is_initialized().await.map_err(|error| refused(&error))? {
        let members = BTreeMap::from([(id, BasicNode::default())]);
        raft.initialize(members).await.map_err(|error| refused(&error))?;
    }
    Ok(raft)
}
