//! A whole process: a broker's threads, or a controller's, from start to clean stop.
//!
//! Path: `sakia server` and the simulator call `start_broker` and `start_controller`; the first shard that runs is the
//! control shard. It takes the data folder (`home`), starts the others (`threads`), and stops them in the order in which
//! nothing is lost: the controller moves leaderships away, owner shards write and close their logs, the combiner ends what
//! is in flight, the mark of a clean stop is left.
//!
//! Invariant: the mark of a clean stop is taken away before anything is written, and left only after every log is closed.
//! A process that cannot go on ends all its threads at once.

mod home;
mod threads;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sakia_io::{Class, Receiver, Reply, ShardHandle, ShardSpec, Signal, Spawner, mailbox, oneshot, spawn, timeout};
use sakia_metrics::Registry;
use sakia_remote::ObjectStore;
use tracing::{error, info, warn};

use crate::combiner::BucketState;
use crate::control::broker::{self, BrokerControl, hand_over};
use crate::control::controller::{self, ControllerProcess};
use crate::counters::BrokerCounters;
use crate::http::{self, StatusPage};
use crate::limits::{CHECKPOINTS_ASKED, STOP_LIMIT};
use crate::log::folder::DataFolder;
use crate::messages::{Addresses, ControlMessage};
use crate::select::{Either, either};
use crate::settings::{Listener, Settings};

use home::Home;
use threads::{ForCombiner, ForShards, Handles, Threads, halt, mailboxes, stop_combiner, stop_shards};

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
    others: Handles,
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

    /// Whether it could not go on. Its threads were told to end, and may not have.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Waits until it has ended. One that failed is not waited for beyond its control shard: its other threads were told to
    /// end, and one that hangs on a dead disk must not keep the process.
    #[must_use]
    pub fn join(self) -> Ended {
        self.control.join();
        if self.failed.load(Ordering::Acquire) {
            return Ended::Failed;
        }
        let others = std::mem::take(&mut *self.others.lock().unwrap_or_else(PoisonError::into_inner));
        others.into_iter().for_each(ShardHandle::join);
        Ended::Stopped
    }
}

/// Starts a broker.
///
/// # Errors
/// The first thread could not be started. What goes wrong later is logged and ends the process as `Failed`.
pub fn start_broker(start: BrokerStart) -> io::Result<Running> {
    let stop = Signal::new();
    let failed = Arc::new(AtomicBool::new(false));
    let others: Handles = Arc::new(Mutex::new(Vec::new()));
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

async fn run_broker(start: BrokerStart, stop: Signal, handles: Handles) -> Result<(), String> {
    let BrokerStart { settings, spawner, store, registry, prefix } = start;
    let home = Home::open(&settings).await?;
    let listen = addresses(&settings.listeners)?;
    let (addresses, inboxes) = mailboxes(settings.shards, store.as_ref());
    let (checkpoint, checkpoints) = mailbox::<Reply<()>>(CHECKPOINTS_ASKED);
    let applied: Arc<[Arc<AtomicI64>]> = (0..settings.shards).map(|_| Arc::new(AtomicI64::new(-1))).collect();
    let metadata_index = Arc::new(AtomicI64::new(-1));
    let failure = Signal::new();
    let control = BrokerControl {
        settings: settings.clone(),
        inbox: inboxes.control,
        addresses: addresses.clone(),
        applied: applied.clone(),
        metadata_index: metadata_index.clone(),
        folder: settings.folder.clone(),
        directory: home.directory,
        cluster_id: home.cluster_id.clone(),
        previous_broker_epoch: home.previous_epoch(),
        failure: failure.clone(),
        image: Rc::default(),
    };
    let threads = Threads {
        spawner: &*spawner,
        settings: &settings,
        addresses: &addresses,
        counters: Arc::new(BrokerCounters::new(&registry)),
        bucket: BucketState::default(),
        failure: &failure,
        handles: &handles,
    };
    let folder = home.state.clone();
    let for_shards = ForShards { folder: folder.clone(), checkpoint, listen, applied };
    let bucket = store.map(|store| ForCombiner { store, prefix, metadata_index });
    let ended = match threads.start(inboxes.shards, &for_shards, inboxes.combiner, bucket) {
        Ok(()) => {
            // Only shards ask for checkpoints: the mailbox ends with them.
            drop(for_shards);
            let parts = Parts {
                settings: settings.clone(),
                addresses: addresses.clone(),
                failure: failure.clone(),
                stop,
                home,
                checkpoints,
            };
            live(parts, control, registry).await
        }
        Err(why) => Err(why),
    };
    if ended.is_err() {
        halt(&addresses).await;
        if folder.has_failed.load(Ordering::Relaxed)
            && let Err(why) = DataFolder::leave_failed(&folder.path).await
        {
            error!("the disk's failure could not be noted in the data folder: {why}");
        }
    }
    ended
}

/// What the control shard needs of the process while it runs.
struct Parts {
    settings: Arc<Settings>,
    addresses: Addresses,
    failure: Signal,
    stop: Signal,
    home: Home,
    checkpoints: Receiver<Reply<()>>,
}

async fn live(parts: Parts, control: BrokerControl, registry: Registry) -> Result<(), String> {
    let Parts { settings, addresses, failure, stop, home, checkpoints } = parts;
    let home = Rc::new(home);
    if let Some((host, port)) = settings.http.clone() {
        let (settings, image) = (settings.clone(), control.image.clone());
        let status: Rc<dyn Fn() -> StatusPage> = Rc::new(move || StatusPage::of_broker(&settings, &image.borrow()));
        serve_http(&host, port, registry, status)?;
    }
    let interval = settings.replica.checkpoint_interval;
    let saving =
        spawn(Class::Foreground, home.clone().save_for_ever(interval, addresses.clone(), failure.clone(), checkpoints));
    let broker = spawn(Class::Foreground, broker::run(control));
    if let Either::Left(()) = either(failure.wait(), stop.wait()).await {
        return Err("the broker cannot go on: see the line above".to_owned());
    }
    info!("stopping");
    hand_over(&addresses).await;
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
    let state = stop_shards(&addresses).await;
    stop_combiner(&addresses).await;
    if let Err(why) = home.leave(state, stopped).await {
        warn!("the state of a clean stop could not be written; the next start recovers: {why}");
    }
    info!("stopped");
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use sakia_io::sim::World;

    use super::*;

    #[test]
    fn a_process_that_cannot_go_on_ends_all_its_threads() {
        let texts = [
            ("process.roles", "broker"),
            ("node.id", "1"),
            ("shards", "2"),
            ("log.dirs", "/data"),
            ("listeners", "PLAINTEXT://:9092"),
            ("advertised.listeners", "PLAINTEXT://broker:9092"),
            ("controller.quorum.voters", "9@control:9093"),
            // Found out when everything runs: a host is not looked up.
            ("http.host", "nowhere"),
        ];
        let texts: BTreeMap<String, String> = texts.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let world = World::new(3);
        let machine = world.machine("broker");
        let start = BrokerStart {
            settings: Arc::new(Settings::from_properties(&texts).unwrap().0),
            spawner: machine.spawner(),
            store: None,
            registry: Registry::new(),
            prefix: String::new(),
        };
        let running = start_broker(start).unwrap();
        let ended = world.run_until(Duration::from_secs(5), |_| machine.running_shards() == 0);
        ended.expect("shards end with their process");
        assert_eq!(running.join(), Ended::Failed);
    }
}
