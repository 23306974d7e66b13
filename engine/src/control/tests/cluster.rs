//! A controller, brokers without partitions of their own, and what tests ask of them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sakia_controller::image::{PartitionImage, Standing};
use sakia_controller::{Event, Image};
use sakia_io::sim::{Crash, Machine, World};
use sakia_io::{Class, Receiver, Sender, ShardMain, ShardSpec, Signal, fs, mailbox, oneshot, spawn};
use sakia_metrics::Registry;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{BrokerEpoch, BrokerId, MetadataIndex, PartitionIndex, PartitionKey, Uuid};
use sakia_protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};

use crate::control::broker::{self, BrokerControl, Stopped};
use crate::control::controller::{self, ControllerProcess};
use crate::log::checkpoint::{CleanStop, FolderIdentity};
use crate::messages::{Addresses, CombinerMessage, ControlMessage, ShardMessage};
use crate::rpc::{Peer, PeerAddress, RpcError};
use crate::settings::Settings;

pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const SECOND: Duration = Duration::from_secs(1);
const PORT: u16 = 9093;
const SHARDS: usize = 2;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What the shards of one broker have seen.
#[derive(Default)]
pub(super) struct Seen {
    /// The cluster as every shard was told.
    pub(super) image: Image,
    /// Every delta since the last image: index and events.
    pub(super) deltas: Vec<(MetadataIndex, Arc<[Event]>)>,
    /// What the combiner was told.
    pub(super) registrations: Vec<BrokerEpoch>,
    /// Hand-overs under way, over all shards.
    pub(super) hand_overs: usize,
    /// How `run` ended.
    pub(super) stopped: Option<Stopped>,
}

/// One broker process.
#[derive(Clone)]
pub(super) struct FakeBroker {
    pub(super) machine: Machine,
    pub(super) control: Sender<ControlMessage>,
    pub(super) failure: Signal,
    pub(super) metadata_index: Arc<AtomicI64>,
    seen: Arc<Mutex<Seen>>,
    id: i32,
}

impl FakeBroker {
    pub(super) fn seen<T>(&self, read: impl FnOnce(&Seen) -> T) -> T {
        read(&self.seen.lock().unwrap())
    }

    pub(super) fn partition(&self, topic: &str, number: i32) -> Option<(PartitionKey, PartitionImage)> {
        self.seen(|seen| {
            let topic = seen.image.topic_named(topic)?;
            let key = PartitionKey { topic_id: topic.id, partition: PartitionIndex::new(number) };
            Some((key, seen.image.partition(&key)?.clone()))
        })
    }

    /// Epoch and standing of a broker, as this one knows it.
    pub(super) fn standing(&self, broker: i32) -> Option<(BrokerEpoch, Standing)> {
        self.seen(|seen| seen.image.brokers.get(&BrokerId::new(broker)).map(|found| (found.epoch, found.standing)))
    }

    pub(super) fn knows_active(&self, broker: i32) -> bool {
        matches!(self.standing(broker), Some((_, Standing::Active)))
    }

    pub(super) fn epoch(&self) -> BrokerEpoch {
        self.standing(self.id).expect("it is registered").0
    }
}

/// The cluster of a test.
pub(super) struct Cluster {
    pub(super) world: World,
    pub(super) controller: Machine,
    pub(super) client: Machine,
    /// Extra settings of every process.
    extra: Vec<(&'static str, String)>,
}

impl Cluster {
    pub(super) fn new(seed: u64) -> Self {
        Self::with(seed, &[])
    }

    /// A cluster whose processes have these settings too.
    pub(super) fn with(seed: u64, extra: &[(&'static str, &str)]) -> Self {
        let extra = extra.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let world = World::new(seed);
        let controller = world.machine("controller");
        let client = world.machine("client");
        let cluster = Self { world, controller, client, extra };
        cluster.start_controller();
        cluster
    }

    fn settings(&self, own: &[(&str, &str)]) -> Arc<Settings> {
        let mut texts: BTreeMap<String, String> = [
            ("log.dirs", "/data"),
            ("controller.quorum.voters", "3@controller:9093"),
            ("broker.session.timeout.ms", "3000"),
            ("default.replication.factor", "2"),
            ("offsets.topic.replication.factor", "2"),
            ("offsets.topic.num.partitions", "3"),
            ("num.partitions", "2"),
            ("http.port", "0"),
        ]
        .iter()
        .chain(own)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
        texts.extend(self.extra.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        Arc::new(Settings::from_properties(&texts).expect("valid settings").0)
    }

    /// Starts the controller process; its stop signal.
    pub(super) fn start_controller(&self) -> Signal {
        let own = [("process.roles", "controller"), ("node.id", "3"), ("listeners", "CONTROLLER://0.0.0.0:9093")];
        let stop = Signal::new();
        let process =
            ControllerProcess { settings: self.settings(&own), registry: Registry::new(), stop: stop.clone() };
        let main: ShardMain =
            Box::new(move || Box::pin(async move { controller::run(process).await.expect("the controller runs") }));
        let spec = ShardSpec { name: "control".to_owned(), cpu: None };
        self.controller.spawner().start(spec, main).expect("the machine is up");
        stop
    }

    /// `kill -9` of the controller.
    pub(super) fn kill_controller(&self) {
        self.controller.crash(Crash::Kill);
        self.controller.up();
    }

    /// Starts a broker on the machine of that name.
    pub(super) fn start_broker(&self, id: i32, machine: &str) -> FakeBroker {
        let machine = self.world.machine(machine);
        let number = id.to_string();
        let own = [
            ("process.roles", "broker"),
            ("node.id", number.as_str()),
            ("listeners", "PLAINTEXT://0.0.0.0:9092"),
            ("advertised.listeners", &format!("PLAINTEXT://{}:9092", machine.name())),
        ];
        let (control, inbox) = mailbox(64);
        let broker = FakeBroker {
            machine: machine.clone(),
            control: control.clone(),
            failure: Signal::new(),
            metadata_index: Arc::new(AtomicI64::new(-1)),
            seen: Arc::default(),
            id,
        };
        let start = (self.settings(&own), inbox, broker.clone_for_process(), machine.address());
        let spec = ShardSpec { name: "control".to_owned(), cpu: None };
        let main: ShardMain = Box::new(move || {
            let (settings, inbox, process, address) = start;
            Box::pin(run_broker(settings, inbox, process, address))
        });
        machine.spawner().start(spec, main).expect("the machine is up");
        broker
    }

    /// Starts brokers 1 and 2 and waits until each knows that both serve.
    pub(super) fn two_brokers(&self) -> (FakeBroker, FakeBroker) {
        let (one, two) = (self.start_broker(1, "broker1"), self.start_broker(2, "broker2"));
        self.until(|| [&one, &two].iter().all(|broker| broker.knows_active(1) && broker.knows_active(2)));
        (one, two)
    }

    pub(super) fn until(&self, condition: impl Fn() -> bool) {
        self.world.run_until(MINUTE, |_| condition()).unwrap();
    }

    /// A client's own connection to the controller.
    pub(super) fn controller_address(&self) -> PeerAddress {
        PeerAddress {
            host: self.controller.name(),
            port: PORT,
            client_id: "test".to_owned(),
            answer_bytes_max: 1 << 24,
        }
    }

    /// Asks the controller as an administrator.
    pub(super) fn ask<R>(&self, request: R, version: i16) -> R::Response
    where
        R: sakia_protocol::api::Request + 'static,
        R::Response: 'static,
    {
        let address = self.controller_address();
        let asking = async move {
            let peer = Peer::new(address, Class::Foreground);
            loop {
                match peer.call(&request, version, SECOND * 10).await {
                    // It may not listen yet.
                    Err(RpcError::Unreachable { .. }) => {}
                    answer => return answer.expect("the controller answers"),
                }
            }
        };
        self.world.block_on(&self.client, MINUTE, asking).unwrap()
    }

    pub(super) fn create(&self, topics: Vec<CreatableTopic>) -> CreateTopicsResponse {
        self.ask(CreateTopicsRequest { topics, timeout_ms: 10_000, validate_only: false }, 7)
    }

    /// Sends a message to a broker's control shard and waits for its reply.
    pub(super) fn tell<T: Send + 'static>(
        &self,
        broker: &FakeBroker,
        message: impl FnOnce(sakia_io::Reply<T>) -> ControlMessage + 'static,
    ) -> T {
        let control = broker.control.clone();
        let asking = async move {
            let (reply, answer) = oneshot();
            assert!(control.send(message(reply)).await.is_ok(), "the control shard takes messages");
            answer.await.expect("the control shard replies")
        };
        self.world.block_on(&broker.machine, MINUTE, asking).unwrap()
    }

    /// Has a broker bring topics to be.
    pub(super) fn auto_create(&self, broker: &FakeBroker, names: &[&str]) -> Vec<(String, ErrorCode)> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        self.tell(broker, move |reply| ControlMessage::AutoCreate { names, reply })
    }
}

/// A topic with defaults.
pub(super) fn plain(name: &str) -> CreatableTopic {
    CreatableTopic { name: name.to_owned(), num_partitions: -1, replication_factor: -1, ..CreatableTopic::default() }
}

/// What goes into the process (a `Machine` stays with the test).
struct Process {
    control: Sender<ControlMessage>,
    failure: Signal,
    metadata_index: Arc<AtomicI64>,
    seen: Arc<Mutex<Seen>>,
}

impl FakeBroker {
    fn clone_for_process(&self) -> Process {
        Process {
            control: self.control.clone(),
            failure: self.failure.clone(),
            metadata_index: self.metadata_index.clone(),
            seen: self.seen.clone(),
        }
    }
}

async fn run_broker(settings: Arc<Settings>, inbox: Receiver<ControlMessage>, process: Process, address: IpAddr) {
    let folder = PathBuf::from("/data");
    fs::create_dir_all(&folder).await.unwrap();
    boot(address).await;
    let clean_stop = CleanStop::take(&folder).await.unwrap();
    let identity = FolderIdentity::read(&folder).await.unwrap();
    let directory = identity.as_ref().map_or_else(random_uuid, |identity| identity.directory);
    let (shards, inboxes): (Vec<_>, Vec<_>) = (0..SHARDS).map(|_| mailbox::<ShardMessage>(4)).unzip();
    let (combiner, combiner_inbox) = mailbox::<CombinerMessage>(4);
    let applied: Vec<Arc<AtomicI64>> = (0..SHARDS).map(|_| Arc::new(AtomicI64::new(-1))).collect();
    let node = settings.node_id;
    for (inbox, applied) in inboxes.into_iter().zip(&applied) {
        spawn(Class::Foreground, fake_shard(node, inbox, applied.clone(), process.seen.clone())).detach();
    }
    spawn(Class::Foreground, fake_combiner(combiner_inbox, process.seen.clone())).detach();
    let addresses = Addresses { shards: shards.into(), combiner: Some(combiner), control: process.control };
    let stopped = broker::run(BrokerControl {
        settings,
        inbox,
        addresses,
        applied: applied.into(),
        metadata_index: process.metadata_index,
        folder: folder.clone(),
        directory,
        cluster_id: identity.map(|identity| identity.cluster),
        previous_broker_epoch: clean_stop.and_then(|mark| mark.broker_epoch),
        failure: process.failure,
        image: Rc::new(RefCell::new(Image::default())),
    })
    .await;
    broker::leave_clean_stop(&folder, stopped.broker_epoch).await.unwrap();
    process.seen.lock().unwrap().stopped = Some(stopped);
}

/// A machine that was not rebooted has the boot id that it had.
async fn boot(address: IpAddr) {
    let path = Path::new(BOOT_ID);
    if !fs::exists(path).await.unwrap() {
        let IpAddr::V4(address) = address else { panic!("simulated addresses are version 4") };
        let host = address.octets()[3];
        fs::create_dir_all(path.parent().unwrap()).await.unwrap();
        let text = format!("00112233-4455-6677-8899-aabbccddee{host:02x}\n");
        fs::replace_file(path, text.into_bytes()).await.unwrap();
    }
}

fn random_uuid() -> Uuid {
    Uuid::from_bytes(sakia_io::random_bytes())
}

/// Follows the metadata as a shard does, and checks what a shard relies on.
async fn fake_shard(me: BrokerId, mut inbox: Receiver<ShardMessage>, applied: Arc<AtomicI64>, seen: Arc<Mutex<Seen>>) {
    let mut own: Option<Image> = None;
    while let Some(message) = inbox.recv().await {
        let index = match message {
            ShardMessage::Image { index, image } => {
                assert_eq!(image.index, index);
                // R2: the image holds the registration of this process.
                let registration = image.brokers.get(&me).expect("a delivered image knows its broker");
                assert!(registration.epoch.get() <= index.get());
                own = Some(image.as_ref().clone());
                let mut seen = seen.lock().unwrap();
                if index >= seen.image.index {
                    seen.image = image.as_ref().clone();
                    seen.deltas.clear();
                }
                index
            }
            ShardMessage::Delta { index, events } => {
                let image = own.as_mut().expect("an image comes before what changed");
                assert!(index > image.index, "metadata comes in order, once");
                events.iter().for_each(|event| image.apply(index, event));
                image.advance(index);
                let mut seen = seen.lock().unwrap();
                if index > seen.image.index {
                    seen.image = image.clone();
                    seen.deltas.push((index, events));
                }
                index
            }
            ShardMessage::HandOver { reply } => {
                seen.lock().unwrap().hand_overs += 1;
                let _ = reply.send(());
                continue;
            }
            ShardMessage::Resume => {
                seen.lock().unwrap().hand_overs -= 1;
                continue;
            }
            _ => panic!("the control shard sends metadata, hand-overs and their ends only"),
        };
        applied.store(index.get(), Ordering::Release);
    }
}

async fn fake_combiner(mut inbox: Receiver<CombinerMessage>, seen: Arc<Mutex<Seen>>) {
    while let Some(message) = inbox.recv().await {
        if let CombinerMessage::Registered { broker_epoch, incarnation } = message {
            let mut seen = seen.lock().unwrap();
            assert_eq!(incarnation, seen.image.incarnation);
            seen.registrations.push(broker_epoch);
        }
    }
}
