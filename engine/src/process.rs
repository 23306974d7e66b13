//! A whole process: a broker's threads, or a controller's, from start to clean stop.
//!
//! Path: `sakia server` and the simulator call `start_broker` and `start_controller`; the first shard that runs is the
//! control shard. It takes the data folder, starts the others, and stops them in the order in which nothing is lost:
//! owner shards (logs written and closed), combiner (objects in flight), the mark of a clean stop, the controller told.
//!
//! Invariant: the mark of a clean stop is taken away before anything is written, and left only after every log is closed.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sakia_io::{
    Class, Receiver, Reply, Sender, ShardHandle, ShardSpec, Signal, Spawner, fill_random, mailbox, oneshot, spawn,
    timeout,
};
use sakia_metrics::Registry;
use sakia_protocol::ids::{BrokerEpoch, Offset, Uuid};
use sakia_remote::ObjectStore;
use tracing::{error, info, warn};

use crate::combiner::{self, BucketState, CombinerStart};
use crate::control::broker::{self, BrokerControl};
use crate::control::controller::{self, ControllerProcess};
use crate::counters::BrokerCounters;
use crate::http::{self, StatusPage};
use crate::limits::{CHECKPOINTS_ASKED, COMBINER_MAILBOX, CONTROL_MAILBOX, SHARD_MAILBOX, STOP_LIMIT};
use crate::log::checkpoint::{FolderIdentity, OffsetCheckpoint};
use crate::log::folder::{Checkpoints, DataFolder};
use crate::messages::{Addresses, CheckpointRow, CombinerMessage, ControlMessage, ShardId, ShardMessage};
use crate::select::{Either, either};
use crate::settings::{Listener, Settings};
use crate::shard::{self, FolderState, ShardStart};

/// Makes the store on the combiner's thread.
pub type StoreFactory = Box<dyn FnOnce() -> Rc<dyn ObjectStore> + Send>;

/// What a broker process is made of.
pub struct BrokerStart {
    /// Its settings.
    pub settings: Arc<Settings>,
    /// Threads, or simulated shards.
    pub spawner: Arc<dyn Spawner>,
    /// The bucket; `None` if the object path is off.
    pub store: Option<StoreFactory>,
    /// Where everything is counted.
    pub registry: Registry,
    /// Prefix of names in the bucket.
    pub prefix: String,
}

/// What a controller process is made of.
pub struct ControllerStart {
    /// Its settings.
    pub settings: Arc<Settings>,
    /// Threads, or simulated shards.
    pub spawner: Arc<dyn Spawner>,
    /// Where everything is counted.
    pub registry: Registry,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It was stopped, cleanly.
    Stopped,
    /// It could not go on; the log says why.
    Failed,
}

/// A process that runs.
pub struct Running {
    stop: Signal,
    failed: Arc<AtomicBool>,
    control: ShardHandle,
    others: Arc<Mutex<Vec<ShardHandle>>>,
}

impl Running {
    /// What asks it to stop cleanly when raised.
    #[must_use]
    pub fn stopper(&self) -> Signal {
        self.stop.clone()
    }

    /// Asks it to stop cleanly. Returns at once.
    pub fn stop(&self) {
        self.stop.raise();
    }

    /// Waits until it has ended.
    #[must_use]
    pub fn join(self) -> Ended {
        self.control.join();
        let others = std::mem::take(&mut *self.others.lock().unwrap_or_else(PoisonError::into_inner));
        others.into_iter().for_each(ShardHandle::join);
        if self.failed.load(Ordering::Acquire) { Ended::Failed } else { Ended::Stopped }
    }
}

/// Starts a broker.
///
/// # Errors
/// The first thread could not be started. What goes wrong later is logged and ends the process as `Failed`.
pub fn start_broker(start: BrokerStart) -> io::Result<Running> {
    let stop = Signal::new();
    let failed = Arc::new(AtomicBool::new(false));
    let others = Arc::new(Mutex::new(Vec::new()));
    let control = {
        let (stop, failed, others) = (stop.clone(), failed.clone(), others.clone());
        let spec = ShardSpec { name: "control".to_owned(), cpu: None };
        let spawner = start.spawner.clone();
        spawner.start(
            spec,
            Box::new(move || {
                Box::pin(async move {
                    if let Err(why) = run_broker(start, stop, others).await {
                        error!("{why}");
                        failed.store(true, Ordering::Release);
                    }
                })
            }),
        )?
    };
    Ok(Running { stop, failed, control, others })
}

/// Starts a controller.
///
/// # Errors
/// As `start_broker`.
pub fn start_controller(start: ControllerStart) -> io::Result<Running> {
    let stop = Signal::new();
    let failed = Arc::new(AtomicBool::new(false));
    let ended = failed.clone();
    let stopping = stop.clone();
    let spec = ShardSpec { name: "control".to_owned(), cpu: None };
    let spawner = start.spawner.clone();
    let control = spawner.start(
        spec,
        Box::new(move || {
            Box::pin(async move {
                if let Err(why) = run_controller(start, stopping).await {
                    error!("{why}");
                    ended.store(true, Ordering::Release);
                }
            })
        }),
    )?;
    Ok(Running { stop, failed, control, others: Arc::default() })
}

async fn run_controller(start: ControllerStart, stop: Signal) -> Result<(), String> {
    let _lock = take_folder(&start.settings.folder).await?;
    if let Some((host, port)) = start.settings.http.clone() {
        let status: Rc<dyn Fn() -> StatusPage> = {
            let settings = start.settings.clone();
            Rc::new(move || StatusPage::of_controller(&settings))
        };
        serve_http(&host, port, start.registry.clone(), status)?;
    }
    controller::run(ControllerProcess { settings: start.settings, registry: start.registry, stop }).await
}

/// One process at a time in a data folder.
async fn take_folder(folder: &Path) -> Result<DataFolder, String> {
    DataFolder::open(folder).await.map_err(|why| match why.kind() {
        io::ErrorKind::WouldBlock => format!("the data folder {} is in use by another process", folder.display()),
        _ => format!("cannot use the data folder {}: {why}", folder.display()),
    })
}

/// What the owner shards need to know of it.
async fn folder_state(folder: &DataFolder) -> io::Result<FolderState> {
    let partitions = folder.partitions().await?.into_iter().map(|partition| {
        let key = (partition.topic.clone(), partition.partition);
        let high_watermark = folder.high_watermarks().offsets.get(&key).copied();
        let opening = folder.opening(&partition);
        (partition, (opening, high_watermark))
    });
    Ok(FolderState { path: folder.path().to_owned(), partitions: Arc::new(partitions.collect()) })
}

fn random_id() -> Uuid {
    let mut bytes = [0; 16];
    fill_random(&mut bytes);
    Uuid::from_bytes(bytes)
}

/// The folder's own id, and the cluster it belongs to; a new folder gets an id and has no cluster yet.
async fn identity(settings: &Settings) -> Result<(Uuid, Option<String>), String> {
    let folder = settings.folder.display();
    let read = FolderIdentity::read(&settings.folder).await;
    match read.map_err(|why| format!("cannot read the data folder {folder}: {why}"))? {
        Some(identity) if identity.node == settings.node_id => Ok((identity.directory, Some(identity.cluster))),
        Some(identity) => {
            Err(format!("{folder} is the data folder of node {}, not of {}", identity.node, settings.node_id))
        }
        None => Ok((random_id(), None)),
    }
}

async fn run_broker(start: BrokerStart, stop: Signal, handles: Arc<Mutex<Vec<ShardHandle>>>) -> Result<(), String> {
    let settings = start.settings.clone();
    let folder = take_folder(&settings.folder).await?;
    let unreadable = |why: io::Error| format!("cannot read the data folder {}: {why}", settings.folder.display());
    let state = folder_state(&folder).await.map_err(unreadable)?;
    let (directory, cluster_id) = identity(&settings).await?;
    let counters = Arc::new(BrokerCounters::new(&start.registry));
    let failure = Signal::new();
    let metadata_index = Arc::new(AtomicI64::new(-1));
    let bucket = BucketState::default();
    let (checkpoint, checkpoints) = mailbox::<Reply<()>>(CHECKPOINTS_ASKED);

    let (shard_senders, shard_inboxes): (Vec<_>, Vec<_>) =
        (0..settings.shards).map(|_| mailbox::<ShardMessage>(SHARD_MAILBOX)).unzip();
    let (control, control_inbox) = mailbox::<ControlMessage>(CONTROL_MAILBOX);
    let (combiner, combiner_inbox) = mailbox::<CombinerMessage>(COMBINER_MAILBOX);
    let addresses =
        Addresses { shards: shard_senders.into(), combiner: start.store.is_some().then_some(combiner), control };
    let applied: Vec<Arc<AtomicI64>> = (0..settings.shards).map(|_| Arc::new(AtomicI64::new(-1))).collect();
    let shared = ShardsStart {
        settings: settings.clone(),
        addresses: addresses.clone(),
        counters: counters.clone(),
        folder: state,
        checkpoint,
        failure: failure.clone(),
        bucket: bucket.clone(),
    };
    start_shards(&*start.spawner, shared, shard_inboxes, &applied, &handles)?;
    if let Some(store) = start.store {
        let combiner = CombinerStart {
            settings: settings.clone(),
            inbox: combiner_inbox,
            shards: addresses.shards.clone(),
            counters,
            metadata_index: metadata_index.clone(),
            prefix: start.prefix,
            bucket,
        };
        let handle = start_combiner(&*start.spawner, combiner, store);
        keep(&handles, handle.map_err(|why| format!("cannot start the combiner: {why}"))?);
    }
    let control = BrokerControl {
        settings: settings.clone(),
        inbox: control_inbox,
        addresses: addresses.clone(),
        applied: applied.into(),
        metadata_index,
        folder: settings.folder.clone(),
        directory,
        cluster_id,
        previous_broker_epoch: folder.clean_stop().and_then(|mark| mark.broker_epoch),
        failure: failure.clone(),
        image: Rc::default(),
    };
    let parts = Parts { settings, addresses, failure, stop, folder, checkpoints };
    live(parts, control, start.registry).await
}

/// What all owner shards share.
struct ShardsStart {
    settings: Arc<Settings>,
    addresses: Addresses,
    counters: Arc<BrokerCounters>,
    folder: FolderState,
    checkpoint: Sender<Reply<()>>,
    failure: Signal,
    bucket: BucketState,
}

fn start_shards(
    spawner: &dyn Spawner,
    shared: ShardsStart,
    inboxes: Vec<Receiver<ShardMessage>>,
    applied: &[Arc<AtomicI64>],
    handles: &Mutex<Vec<ShardHandle>>,
) -> Result<(), String> {
    let listen = addresses(&shared.settings.listeners)?;
    let sessions = Arc::new(AtomicU64::new(1));
    let connections = Arc::new(AtomicUsize::new(0));
    for (number, (inbox, applied)) in inboxes.into_iter().zip(applied).enumerate() {
        let start = ShardStart {
            id: ShardId::new(number),
            settings: shared.settings.clone(),
            inbox,
            addresses: shared.addresses.clone(),
            counters: shared.counters.clone(),
            folder: shared.folder.clone(),
            checkpoint: shared.checkpoint.clone(),
            listen: listen.clone(),
            applied: applied.clone(),
            failure: shared.failure.clone(),
            bucket: shared.bucket.clone(),
            sessions: sessions.clone(),
            connections: connections.clone(),
        };
        let cpu = shared.settings.shard_cpus.get(number).copied();
        let spec = ShardSpec { name: format!("shard-{number}"), cpu };
        let handle = spawner.start(spec, Box::new(move || Box::pin(shard::run(start))));
        keep(handles, handle.map_err(|why| format!("cannot start shard {number}: {why}"))?);
    }
    Ok(())
}

fn keep(handles: &Mutex<Vec<ShardHandle>>, handle: ShardHandle) {
    handles.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
}

fn start_combiner(spawner: &dyn Spawner, start: CombinerStart, store: StoreFactory) -> io::Result<ShardHandle> {
    let spec = ShardSpec { name: "combiner".to_owned(), cpu: start.settings.combiner_cpu };
    spawner.start(spec, Box::new(move || Box::pin(async move { combiner::run(start, store()).await })))
}

/// What the control shard needs of the process while it runs.
struct Parts {
    settings: Arc<Settings>,
    addresses: Addresses,
    failure: Signal,
    stop: Signal,
    folder: DataFolder,
    checkpoints: Receiver<Reply<()>>,
}

async fn live(parts: Parts, control: BrokerControl, registry: Registry) -> Result<(), String> {
    let Parts { settings, addresses, failure, stop, folder, checkpoints } = parts;
    let folder = Rc::new(folder);
    if let Some((host, port)) = settings.http.clone() {
        let (settings, image) = (settings.clone(), control.image.clone());
        let status: Rc<dyn Fn() -> StatusPage> = Rc::new(move || StatusPage::of_broker(&settings, &image.borrow()));
        serve_http(&host, port, registry, status)?;
    }
    let saving = checkpoint_for_ever(settings.clone(), addresses.clone(), folder.clone(), checkpoints);
    let saving = spawn(Class::Foreground, saving);
    let broker = spawn(Class::Foreground, broker::run(control));
    if let Either::Left(()) = either(failure.wait(), stop.wait()).await {
        return Err("the broker cannot go on: see the line above".to_owned());
    }
    info!("stopping");
    // The controller moves leadership away first, while this broker still serves.
    let (reply, answer) = oneshot();
    let told = async {
        let _ = addresses.control.send(ControlMessage::Stop { reply }).await;
        answer.await
    };
    if timeout(STOP_LIMIT, told).await.is_err() {
        warn!("the controller did not let this broker go in time");
    }
    let stopped = timeout(STOP_LIMIT, broker).await.map_or(None, |stopped| stopped.broker_epoch);
    drop(saving);
    let rows = stop_shards(&addresses).await;
    stop_combiner(&addresses).await;
    if let Err(why) = leave(&folder, rows, stopped).await {
        warn!("the state of a clean stop could not be written; the next start recovers: {why}");
    }
    info!("stopped");
    Ok(())
}

/// Closes every log; gives what the checkpoint files are to hold. A shard that does not end in time is left: its next
/// start recovers.
async fn stop_shards(addresses: &Addresses) -> Option<Vec<CheckpointRow>> {
    let mut rows = Vec::new();
    for shard in addresses.shards.iter() {
        let (reply, answer) = oneshot();
        let asked = timeout(STOP_LIMIT, async {
            shard.send(ShardMessage::Stop { reply }).await.ok()?;
            answer.await
        });
        match asked.await {
            Ok(Some(more)) => rows.extend(more),
            _ => {
                warn!("a shard did not stop in time");
                return None;
            }
        }
    }
    Some(rows)
}

async fn stop_combiner(addresses: &Addresses) {
    let Some(combiner) = &addresses.combiner else { return };
    let (reply, answer) = oneshot();
    let asked = timeout(STOP_LIMIT, async {
        let _ = combiner.send(CombinerMessage::Stop { reply }).await;
        answer.await
    });
    if asked.await.is_err() {
        warn!("objects were in flight when the combiner was stopped");
    }
}

/// Everything that makes the next start quick and the stop a clean one, the mark last.
async fn leave(folder: &DataFolder, rows: Option<Vec<CheckpointRow>>, epoch: Option<BrokerEpoch>) -> io::Result<()> {
    let Some(rows) = rows else { return Ok(()) };
    folder.write_checkpoints(&checkpoints(&rows)).await?;
    broker::leave_clean_stop(folder.path(), epoch).await
}

fn checkpoints(rows: &[CheckpointRow]) -> Checkpoints {
    let file = |offset: fn(&CheckpointRow) -> Offset| OffsetCheckpoint {
        offsets: rows.iter().map(|row| ((row.topic.clone(), row.partition), offset(row))).collect(),
    };
    Checkpoints {
        recovery_points: file(|row| row.recovery_point),
        log_starts: file(|row| row.log_start),
        high_watermarks: file(|row| row.high_watermark),
    }
}

/// Saves checkpoints every so often, and whenever a shard asks (a log was truncated: its recovery point must not stand
/// above what is written there next). Ends when a shard does not answer any more.
async fn checkpoint_for_ever(
    settings: Arc<Settings>,
    addresses: Addresses,
    folder: Rc<DataFolder>,
    mut asked: Receiver<Reply<()>>,
) {
    loop {
        let mut replies = Vec::new();
        let more = asked.recv_many(&mut replies, CHECKPOINTS_ASKED);
        let _ = timeout(settings.replica.checkpoint_interval, more).await;
        let Some(rows) = gather(&addresses).await else { return };
        if let Err(why) = folder.write_checkpoints(&checkpoints(&rows)).await {
            warn!("checkpoints could not be written: {why}");
        }
        for reply in replies {
            let _ = reply.send(());
        }
    }
}

async fn gather(addresses: &Addresses) -> Option<Vec<CheckpointRow>> {
    let mut rows = Vec::new();
    for shard in addresses.shards.iter() {
        let (reply, answer) = oneshot();
        shard.send(ShardMessage::Checkpoint { reply }).await.ok()?;
        rows.extend(answer.await?);
    }
    Some(rows)
}

/// Where to listen; a host name is not looked up: a listener binds an address or every address.
fn addresses(listeners: &[Listener]) -> Result<Vec<SocketAddr>, String> {
    let one = |listener: &Listener| {
        let host = match listener.host.as_str() {
            "" => "0.0.0.0",
            "localhost" => "127.0.0.1",
            host => host,
        };
        let ip = host.parse().map_err(|_| {
            format!("listener {}: `{host}` is no IP address; name hosts in advertised.listeners", listener.name)
        })?;
        Ok(SocketAddr::new(ip, listener.port))
    };
    listeners.iter().map(one).collect()
}

fn serve_http(host: &str, port: u16, registry: Registry, status: Rc<dyn Fn() -> StatusPage>) -> Result<(), String> {
    let listener = Listener { name: "http".to_owned(), host: host.to_owned(), port };
    for address in addresses(&[listener])? {
        http::serve(address, registry.clone(), status.clone())
            .map_err(|why| format!("cannot serve http on {address}: {why}"))?;
    }
    Ok(())
}
