//! The control shard of a broker: its life in the cluster, and what its shards need from the controller.
//!
//! Reading order: this file (what it holds, messages in), `session` (registration, heartbeats, clean stop), `stream`
//! (metadata in, to the shards), `strays` (folders of topics that are gone), `renewal` (a new registration in the midst of
//! its life), then what shards ask for: `proposals` (AlterPartition), `forward`, `auto_create`, `producer_ids`; `wal_topic` keeps the topic of uploads; `clean_stop` is called by the process at its very end.
//!
//! Invariant: a shard gets no metadata below this process's own registration, so it leads only in epochs that were
//! assigned above it (R2); and none at all once another process has registered under this broker's id.

mod auto_create;
mod clean_stop;
mod forward;
mod producer_ids;
mod proposals;
mod renewal;
mod session;
mod strays;
mod stream;
mod wal_topic;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use sakia_controller::Image;
use sakia_io::{Class, Receiver, Reply, Sender, Signal, mailbox, random_bytes, spawn};
use sakia_protocol::ids::{BrokerEpoch, ControllerEpoch, MetadataIndex, Uuid};

use super::limits::{ADMIN_ANSWER_BYTES_MAX, CONTROLLER_ANSWER_BYTES_MAX, PRODUCER_ID_QUESTIONS_MAX};
use crate::log::checkpoint::MetadataSeen;
use crate::messages::{Addresses, ControlMessage};
use crate::rpc::{Peer, PeerAddress};
use crate::select::{Either, either};
use crate::settings::Settings;
use crate::wake::Wake;

pub use clean_stop::leave_clean_stop;
pub use renewal::hand_over;

use producer_ids::Question;
use proposals::Proposals;

/// What the control shard of a broker starts with.
pub struct BrokerControl {
    /// The process's settings.
    pub settings: Arc<Settings>,
    /// Messages in.
    pub inbox: Receiver<ControlMessage>,
    /// The other threads.
    pub addresses: Addresses,
    /// Per owner shard: index of the metadata that it has applied; negative before the first.
    pub applied: Arc<[Arc<AtomicI64>]>,
    /// Written here: index of the metadata that was handed to the shards (the combiner puts it into manifests).
    pub metadata_index: Arc<AtomicI64>,
    /// The data folder: `meta.properties` is written there when the cluster is known.
    pub folder: PathBuf,
    /// `directory.id` of the data folder.
    pub directory: Uuid,
    /// `cluster.id` of the data folder; `None` for a new one.
    pub cluster_id: Option<String>,
    /// The broker epoch that stopped cleanly last (R3).
    pub previous_broker_epoch: Option<BrokerEpoch>,
    /// Raised when the broker must not go on; the reason is in the log.
    pub failure: Signal,
    /// Kept up to date here: the cluster as last heard, for whoever shows it.
    pub image: Rc<RefCell<Image>>,
}

/// How a broker's control ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stopped {
    /// The last registration of this process: for `leave_clean_stop`.
    pub broker_epoch: Option<BrokerEpoch>,
}

/// A broker as its control shard sees it.
struct Broker {
    settings: Arc<Settings>,
    addresses: Addresses,
    applied: Arc<[Arc<AtomicI64>]>,
    metadata_index: Arc<AtomicI64>,
    folder: PathBuf,
    directory: Uuid,
    cluster_id: RefCell<Option<String>>,
    previous_broker_epoch: Option<BrokerEpoch>,
    failure: Signal,
    /// Random id of this process, or of its part since it last registered anew.
    incarnation: Cell<Uuid>,
    /// For registration and heartbeats alone: nothing may delay them.
    session: Peer,
    /// For the long poll of metadata.
    stream: Peer,
    /// For requests of clients.
    admin: Peer,
    /// For what shards need.
    internal: Peer,
    /// The present registration.
    registration: Cell<Option<BrokerEpoch>>,
    /// The last one, also after it was lost.
    last_registration: Cell<Option<BrokerEpoch>>,
    /// Wakes the stream: there is a registration.
    registered: Wake,
    stopping: Cell<bool>,
    /// The broker cannot go on; it waits for the end of its process.
    failed: Cell<bool>,
    /// Wakes the session: the broker shall stop, or register anew.
    session_wake: Wake,
    /// The registration whose object stream is over.
    over: Cell<Option<BrokerEpoch>>,
    /// The registration that asks the controller for leave.
    leaving: Cell<Option<BrokerEpoch>>,
    /// The registration that this process gave up last.
    left_epoch: Cell<Option<BrokerEpoch>>,
    /// Wakes `renew_registrations`.
    renewal: Wake,
    /// Wakes it too: the controller has given leave.
    left: Wake,
    /// The cluster as last heard.
    image: Rc<RefCell<Image>>,
    controller_epoch: Cell<ControllerEpoch>,
    /// Whether the shards have an image.
    delivered: Cell<bool>,
    /// What the data folder knows of the metadata; `None` until the first image was held against it.
    seen: Cell<Option<MetadataSeen>>,
    /// Wakes `delete_strays`: that was done.
    judged: Wake,
    /// The registration that the combiner knows.
    combiner_knows: Cell<Option<BrokerEpoch>>,
    proposals: Proposals,
    producer_ids: Sender<Question>,
    forwards: Rc<Cell<usize>>,
    auto_creates: Rc<Cell<usize>>,
}

/// Runs a broker's control until the broker has stopped, or its mailbox is closed. Main future of the control shard.
pub async fn run(start: BrokerControl) -> Stopped {
    let mut inbox = start.inbox;
    let (producer_ids, questions) = mailbox(PRODUCER_ID_QUESTIONS_MAX);
    let address = controller_address(&start.settings);
    let admin = PeerAddress { answer_bytes_max: ADMIN_ANSWER_BYTES_MAX, ..address.clone() };
    let broker = Rc::new(Broker {
        session: Peer::new(admin.clone(), Class::Foreground),
        stream: Peer::new(address, Class::Foreground),
        internal: Peer::new(admin.clone(), Class::Foreground),
        admin: Peer::new(admin, Class::Foreground),
        settings: start.settings,
        addresses: start.addresses,
        applied: start.applied,
        metadata_index: start.metadata_index,
        folder: start.folder,
        directory: start.directory,
        cluster_id: RefCell::new(start.cluster_id),
        previous_broker_epoch: start.previous_broker_epoch,
        failure: start.failure,
        incarnation: Cell::new(Uuid::from_bytes(random_bytes())),
        registration: Cell::new(None),
        last_registration: Cell::new(None),
        registered: Wake::default(),
        stopping: Cell::new(false),
        failed: Cell::new(false),
        session_wake: Wake::default(),
        over: Cell::new(None),
        leaving: Cell::new(None),
        left_epoch: Cell::new(None),
        renewal: Wake::default(),
        left: Wake::default(),
        image: start.image,
        controller_epoch: Cell::new(ControllerEpoch::ZERO),
        delivered: Cell::new(false),
        seen: Cell::new(None),
        judged: Wake::default(),
        combiner_knows: Cell::new(None),
        proposals: Proposals::default(),
        producer_ids,
        forwards: Rc::default(),
        auto_creates: Rc::default(),
    });
    let tasks = [
        spawn(Class::Foreground, broker.clone().follow_metadata()),
        spawn(Class::Foreground, broker.clone().send_proposals()),
        spawn(Class::Foreground, broker.clone().give_producer_ids(questions)),
        spawn(Class::Background, broker.clone().bring_wal_topic()),
        spawn(Class::Foreground, broker.clone().renew_registrations()),
        spawn(Class::Background, broker.clone().delete_strays()),
    ];
    let mut session = Box::pin(broker.clone().keep_session());
    let mut replies: Vec<Reply<()>> = Vec::new();
    // Ends when the session has ended, or nobody is left to ask for anything.
    while let Either::Left(Some(message)) = either(inbox.recv(), session.as_mut()).await {
        replies.extend(broker.take(message));
    }
    drop(tasks);
    for reply in replies {
        // Whoever asked may have stopped waiting.
        let _ = reply.send(());
    }
    Stopped { broker_epoch: broker.last_registration.get() }
}

fn controller_address(settings: &Settings) -> PeerAddress {
    let voter = settings.voters.first().expect("settings without a controller are refused");
    PeerAddress {
        host: voter.host.clone(),
        port: voter.port,
        client_id: format!("broker-{}", settings.node_id),
        answer_bytes_max: CONTROLLER_ANSWER_BYTES_MAX,
    }
}

impl Broker {
    /// Begins what a message asks for. Gives the reply of a stop.
    fn take(self: &Rc<Self>, message: ControlMessage) -> Option<Reply<()>> {
        match message {
            ControlMessage::AlterPartition { proposals, reply } => self.proposals.add(proposals, reply),
            ControlMessage::Forward { frame, reply } => self.forward(frame, reply),
            ControlMessage::AutoCreate { names, reply } => self.auto_create(names, reply),
            ControlMessage::StreamOver { broker_epoch } => self.stream_over(broker_epoch),
            ControlMessage::ProducerId { reply } => self.ask_producer_id(reply),
            ControlMessage::Stop { reply } => {
                self.stopping.set(true);
                self.session_wake.wake();
                return Some(reply);
            }
        }
        None
    }

    /// Index up to which every shard has applied the metadata.
    fn applied_index(&self) -> Option<MetadataIndex> {
        let least = self.applied.iter().map(|index| index.load(Ordering::Acquire)).min();
        least.and_then(MetadataIndex::from_wire)
    }

    /// The broker cannot go on: says why, and has the process end. Whoever calls this does nothing more.
    fn fail(&self, reason: &str) {
        tracing::error!(broker = %self.settings.node_id, "{reason}");
        self.failed.set(true);
        self.failure.raise();
        self.session_wake.wake();
    }
}

/// One of a bounded number of places; free again when dropped.
struct Place(Rc<Cell<usize>>);

impl Place {
    /// A place, if fewer than `bound` are taken.
    fn take(taken: &Rc<Cell<usize>>, bound: usize) -> Option<Self> {
        (taken.get() < bound).then(|| {
            taken.set(taken.get() + 1);
            Self(taken.clone())
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
