//! `sakia server`: one broker or controller, from its settings to its exit code.
//!
//! Path: properties → settings → the machine is looked at → threads start → signal → clean stop.
//! Exit code 2: refused before anything was started. 1: it could not go on, or did not stop in time. 0: stopped.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as SocketName, UnixListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use clap::Args;
use sakia_engine::process::{
    BrokerStart, ControllerStart, Ended, Running, StoreFactory, start_broker, start_controller,
};
use sakia_engine::settings::{Listener, Role, Settings};
use sakia_io::Threads;
use sakia_metrics::Registry;
use sakia_remote::ObjectStore as _;
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;
use crate::stop::{self, Input};
use crate::{properties, store};

/// From the request to stop to the end of the process, at most.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// How long a port may seem taken: the kernel takes down the ring of a killed process, and with it what that was accepting
/// on, a little after the process itself.
const PORT_FREE_WITHIN: Duration = Duration::from_secs(1);
const PORT_LOOK_EVERY: Duration = Duration::from_millis(10);

/// Arguments of `sakia server`.
#[derive(Args)]
pub(crate) struct ServerArguments {
    /// File in the format of server.properties
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// A setting that wins over file and environment; may be repeated
    #[arg(long = "override", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// What the end of standard input means
    #[arg(long, hide = true, value_enum, default_value_t = Input::Ignored)]
    input: Input,
}

/// What is told unless RUST_LOG says otherwise: the raft library tells its inner steps as if they were news.
const TOLD: &str = "info,openraft=warn";

/// Lines about what happens go to standard error.
pub(crate) fn start_lines() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(TOLD));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
}

/// Runs until it is stopped or fails.
pub(crate) fn run(arguments: &ServerArguments) -> Result<(), Failure> {
    start_lines();
    let mut settings = read_settings(arguments)?;
    sakia_io::preflight(std::slice::from_ref(&settings.folder)).map_err(Failure::refused)?;
    let lowered = leave_files_for_logs(&mut settings);
    choose_ports(&mut settings)?;
    let settings = Arc::new(settings);
    let _ports = take_ports(&settings)?;
    let (heard, words) = mpsc::channel();
    let signals = heard.clone();
    stop::on_signal(signals, || Word::Stop("signal")).map_err(Failure::failed)?;
    stop::on_input_end(arguments.input, heard.clone(), Word::Stop("the parent's word")).map_err(Failure::failed)?;
    let running = start(&settings)?;
    let stopper = running.stopper();
    info!("{}", start_line(&settings));
    if let Some(what) = lowered {
        warn!("{what}");
    }
    std::thread::Builder::new()
        .name("end".to_owned())
        .spawn(move || heard.send(Word::Ended(running.join())))
        .map_err(Failure::failed)?;
    wait(&words, || stopper.raise())
}

fn read_settings(arguments: &ServerArguments) -> Result<Settings, Failure> {
    let mut texts = properties::read_file(&arguments.config)?;
    properties::add_environment(&mut texts, variables().into_iter());
    properties::add_overrides(&mut texts, &arguments.overrides)?;
    let (settings, warnings) = Settings::from_properties(&texts).map_err(Failure::refused)?;
    for warning in warnings {
        warn!("setting `{}` has no effect: {}", warning.name, warning.reason);
    }
    Ok(settings)
}

/// Variables whose name and value are text; others cannot be settings.
fn variables() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

fn start(settings: &Arc<Settings>) -> Result<Running, Failure> {
    let (settings, registry, spawner) = (settings.clone(), Registry::new(), Arc::new(Threads));
    if settings.is(Role::Controller) {
        return start_controller(ControllerStart { settings, spawner, registry }).map_err(Failure::failed);
    }
    let mut prefix = String::new();
    let mut factory: Option<StoreFactory> = None;
    if settings.wal.enabled {
        let opened = store::open(&settings.wal.url, settings.wal.store_threads)?;
        store::show_counts(opened.store.counters(), &registry).map_err(Failure::failed)?;
        prefix = opened.prefix;
        factory = Some(Box::new(move || store::shared(opened.store)));
    }
    start_broker(BrokerStart { settings, spawner, store: factory, registry, prefix }).map_err(Failure::failed)
}

fn start_line(settings: &Settings) -> String {
    let role = if settings.is(Role::Controller) { "controller" } else { "broker" };
    let mut parts = vec![format!("{role} {} starts: io_uring", settings.node_id)];
    if settings.is(Role::Broker) {
        let shards = if settings.shards == 1 { "shard" } else { "shards" };
        parts.push(format!("{} {shards}", settings.shards));
        parts.push(match settings.shard_cpus.as_slice() {
            [] => "threads not pinned (set shard.cpus)".to_owned(),
            cpus => format!("pinned to {cpus:?}"),
        });
        parts.push(format!("object path {}", if settings.wal.enabled { "on" } else { "off" }));
    }
    if let Some(rack) = &settings.rack {
        parts.push(format!("zone {rack}"));
    }
    for listener in settings.listeners.iter().chain(&settings.controller_listeners) {
        parts.push(format!("{}://{}:{}", listener.name, listener.host, listener.port));
    }
    parts.push(format!("data in {}", settings.folder.display()));
    if let Some((host, port)) = &settings.http {
        parts.push(format!("http://{host}:{port}/"));
    }
    parts.join(", ")
}

/// What the main thread is told.
enum Word {
    Stop(&'static str),
    Ended(Ended),
}

/// Waits for the end; asks for it when told to, and gives up on a stop that takes too long.
fn wait(words: &Receiver<Word>, stop: impl Fn()) -> Result<(), Failure> {
    let mut deadline: Option<Instant> = None;
    loop {
        let word = match deadline {
            None => words.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(deadline) => words.recv_timeout(deadline.saturating_duration_since(Instant::now())),
        };
        match word {
            Ok(Word::Ended(Ended::Stopped)) => return Ok(()),
            Ok(Word::Ended(Ended::Failed)) => {
                return Err(Failure::failed("stopped because it could not go on; see the log"));
            }
            Ok(Word::Stop(_)) if deadline.is_some() => {}
            Ok(Word::Stop(whose)) => {
                info!("asked to stop ({whose})");
                deadline = Some(Instant::now() + STOP_WITHIN);
                stop();
            }
            Err(_) => {
                let seconds = STOP_WITHIN.as_secs();
                return Err(Failure::failed(format!("did not stop within {seconds} s; the next start recovers")));
            }
        }
    }
}

/// Gives listeners of port 0 a free one, here and in what clients are told: shards that bind 0 would each get their own.
fn choose_ports(settings: &mut Settings) -> Result<(), Failure> {
    for bound in settings.listeners.iter_mut().chain(&mut settings.controller_listeners).filter(|one| one.port == 0) {
        let free = TcpListener::bind(SocketAddr::new(address_of(bound), 0)).map_err(Failure::refused)?;
        bound.port = free.local_addr().map_err(Failure::refused)?.port();
    }
    for (told, bound) in settings.advertised.iter_mut().zip(&settings.listeners).filter(|(told, _)| told.port == 0) {
        told.port = bound.port;
    }
    Ok(())
}

/// A port belongs to this process until it is dropped.
struct PortLock {
    _name: UnixListener,
}

/// Connections take half of the files that may be open: the other half is for logs, or idle peers would take the disk from them.
/// Gives what is to be told if that changes the setting.
fn leave_files_for_logs(settings: &mut Settings) -> Option<String> {
    let limit = sakia_io::open_files_limit()?;
    let room = usize::try_from(limit / 2).unwrap_or(usize::MAX);
    let wanted = settings.connections_max;
    settings.connections_max = wanted.min(room);
    (wanted > room).then(|| {
        format!(
            "max.connections={wanted} is lowered to {room}: {limit} files may be open (`ulimit -n`, LimitNOFILE in systemd), \
             and logs need the other half"
        )
    })
}

/// Shards share a port (SO_REUSEPORT), so a second process could bind it as well and get half of the connections.
fn take_ports(settings: &Settings) -> Result<Vec<PortLock>, Failure> {
    let http =
        settings.http.as_ref().map(|(host, port)| Listener { name: "http".into(), host: host.clone(), port: *port });
    let listeners = settings.listeners.iter().chain(&settings.controller_listeners).chain(&http);
    listeners.filter(|listener| listener.port != 0).map(take_port).collect()
}

fn take_port(listener: &Listener) -> Result<PortLock, Failure> {
    let port = listener.port;
    let taken = || Failure::refused(format!("port {port} ({}) is taken by another process", listener.name));
    // A name without a file, known in this network namespace only, like the port; gone when the process is gone.
    let name = SocketName::from_abstract_name(format!("sakia-port-{port}")).map_err(Failure::refused)?;
    let lock = UnixListener::bind_addr(&name).map_err(|_| taken())?;
    let ip = address_of(listener);
    let until = Instant::now() + PORT_FREE_WITHIN;
    loop {
        // Bound without SO_REUSEPORT: fails if anybody at all listens there.
        match TcpListener::bind(SocketAddr::new(ip, port)) {
            Ok(_) => return Ok(PortLock { _name: lock }),
            Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => {
                let name = &listener.name;
                return Err(Failure::refused(format!("cannot listen on {ip}:{port} ({name}): {error}")));
            }
            Err(_) if Instant::now() >= until => return Err(taken()),
            Err(_) => std::thread::sleep(PORT_LOOK_EVERY),
        }
    }
}

fn address_of(listener: &Listener) -> IpAddr {
    let host = if listener.host == "localhost" { "127.0.0.1" } else { &listener.host };
    host.parse().unwrap_or(IpAddr::from([0, 0, 0, 0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(port: u16) -> Listener {
        Listener { name: "PLAINTEXT".into(), host: "127.0.0.1".into(), port }
    }

    #[test]
    fn a_taken_port_is_refused_by_name() {
        let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = other.local_addr().expect("bound").port();
        let Err(Failure::Refused(why)) = take_port(&listener(port)) else { panic!("the port is taken") };
        assert!(why.contains(&port.to_string()) && why.contains("PLAINTEXT"), "{why}");
        drop(other);
        let lock = take_port(&listener(port)).unwrap_or_else(|_| panic!("the port is free"));
        assert!(take_port(&listener(port)).is_err(), "two of us must not share it");
        drop(lock);
        assert!(take_port(&listener(port)).is_ok());
    }

    #[test]
    fn the_end_gives_the_exit_code() {
        let end = |ended| {
            let (tell, words) = mpsc::channel();
            tell.send(Word::Stop("test")).expect("open");
            tell.send(Word::Ended(ended)).expect("open");
            let asked = std::cell::Cell::new(0);
            (wait(&words, || asked.set(asked.get() + 1)), asked.get())
        };
        assert!(matches!(end(Ended::Stopped), (Ok(()), 1)));
        assert!(matches!(end(Ended::Failed), (Err(Failure::Failed(_)), 1)));
    }
}
