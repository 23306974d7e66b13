//! `sakia dev`: a whole cluster on this machine, each process its own, so that one can be killed.
//!
//! Reading order: this file (start, watch, stop), `layout` (what runs where), `child`, `round_trip`, `greeting`.
//!
//! The data folder has one owner at a time: the lock on `dev.lock`. A second terminal that restarts a killed broker
//! waits for that lock in the background: when it gets it, the owner stops, and so does the broker.

mod child;
mod greeting;
mod layout;
mod round_trip;

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use self::child::Process;
use self::layout::{Layout, Member, PORT_BASE, PORT_SPAN};
use crate::client::Client;
use crate::failure::Failure;
use crate::output;
use crate::properties;
use crate::stop;

/// From the start of the processes to a cluster that answers.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Between two looks at processes and ports.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Each part of stopping; together below 10 s.
const BROKERS_STOP_WITHIN: Duration = Duration::from_secs(7);
const OTHERS_STOP_WITHIN: Duration = Duration::from_secs(1);
/// The system takes a moment to close what a killed process had open.
const PORTS_FREE_WITHIN: Duration = Duration::from_secs(5);

/// Arguments of `sakia dev`.
#[derive(Args)]
pub(crate) struct DevArguments {
    /// Folder of everything that is kept
    #[arg(long, default_value = "./sakia-dev-data", value_name = "FOLDER")]
    data: PathBuf,
    /// Starts anew: what an earlier run kept is deleted
    #[arg(long)]
    fresh: bool,
    /// Starts one killed process again (node.id 1, 2 or 3); from a second terminal
    #[arg(long, value_name = "NODE", conflicts_with = "fresh")]
    restart: Option<u16>,
    /// Partitions of a topic that is created without a number
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    partitions: u16,
    /// Least milliseconds of a PUT
    #[arg(long, default_value_t = 5, value_name = "MS")]
    put_latency: u64,
    /// Least milliseconds of a GET
    #[arg(long, default_value_t = 4, value_name = "MS")]
    get_latency: u64,
    /// Port of the bucket; the others lie above it
    #[arg(long, hide = true, default_value_t = PORT_BASE, value_parser = clap::value_parser!(u16).range(1024..=i64::from(u16::MAX - PORT_SPAN)))]
    port_base: u16,
    /// A setting for controller and brokers
    #[arg(long = "override", hide = true, value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// Runs until Ctrl-C.
pub(crate) fn run(arguments: &DevArguments) -> Result<(), Failure> {
    let data = absolute(&arguments.data)?;
    let layout = Layout { data, port_base: arguments.port_base, partitions: arguments.partitions };
    match arguments.restart {
        Some(node) => restart(node, &layout, arguments),
        None => whole_cluster(&layout, arguments),
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::refused(format!("{}: {error}", path.display())))
}

/// What the main thread is told; processes are looked at in between.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Stop,
    /// The owner of the data folder ends; told to a second terminal only.
    OwnerEnded,
}

fn whole_cluster(layout: &Layout, arguments: &DevArguments) -> Result<(), Failure> {
    let lock = take_folder(layout)?;
    if arguments.fresh {
        start_anew(layout)?;
    }
    sakia_io::preflight(std::slice::from_ref(&layout.data)).map_err(Failure::refused)?;
    Member::ALL.iter().try_for_each(|member| ports_are_free(layout, *member))?;
    fs::create_dir_all(layout.logs()).map_err(Failure::refused)?;
    write_properties(layout, &arguments.overrides)?;
    let (heard, words) = mpsc::channel();
    stop::on_signal(heard, || Word::Stop).map_err(Failure::failed)?;
    output::write("starting a bucket, a controller in az3 and brokers in az1 and az2\n")?;
    let mut processes = Vec::new();
    let result = live(&mut processes, layout, arguments, &words);
    // Tells a second terminal that it is over, before the brokers lose their controller.
    drop(lock);
    let stopped = stop_all(&mut processes, layout);
    result.and(stopped)
}

fn live(
    processes: &mut Vec<Process>,
    layout: &Layout,
    arguments: &DevArguments,
    words: &Receiver<Word>,
) -> Result<(), Failure> {
    for member in Member::ALL {
        processes.push(Process::start(member, layout, arguments)?);
    }
    if wait_until_ready(processes, layout, words)? == Ready::Stopped {
        return Ok(());
    }
    let round_trip = round_trip::measure(&layout.storage_url())?;
    let pids: Vec<(Member, u32)> = processes.iter().map(|process| (process.member, process.id())).collect();
    output::write(&greeting::text(layout, &pids, round_trip))?;
    watch(processes, layout, words)
}

/// One owner of the folder at a time.
fn take_folder(layout: &Layout) -> Result<File, Failure> {
    let refused = |error: std::io::Error| Failure::refused(format!("data folder {}: {error}", layout.data.display()));
    fs::create_dir_all(&layout.data).map_err(refused)?;
    let lock = File::create(layout.lock_file()).map_err(refused)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            Err(Failure::refused(format!("another `sakia dev` runs with data folder {}", layout.data.display())))
        }
        Err(TryLockError::Error(error)) => Err(refused(error)),
    }
}

/// Deletes what earlier runs kept, and nothing else: the folder may be somebody's own.
fn start_anew(layout: &Layout) -> Result<(), Failure> {
    let refused =
        |path: &Path, error: std::io::Error| Failure::refused(format!("cannot delete {}: {error}", path.display()));
    for path in layout.kept_between_runs() {
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(refused(&path, error)),
            _ => {}
        }
    }
    Ok(())
}

fn ports_are_free(layout: &Layout, member: Member) -> Result<(), Failure> {
    let ports = [Some(layout.port(member)), layout.http_port(member)];
    for port in ports.into_iter().flatten() {
        if let Err(error) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            let name = member.name();
            return Err(Failure::refused(match error.kind() {
                std::io::ErrorKind::AddrInUse => {
                    format!(
                        "port {port} is in use: {name} still runs and is to be ended first, or another process has it"
                    )
                }
                _ => format!("cannot listen on port {port} ({name}): {error}"),
            }));
        }
    }
    Ok(())
}

fn write_properties(layout: &Layout, overrides: &[String]) -> Result<(), Failure> {
    for member in Member::ALL {
        let Some(mut texts) = layout.properties(member) else { continue };
        properties::add_overrides(&mut texts, overrides)?;
        let path = layout.properties_file(member);
        fs::write(&path, properties::to_text(&texts))
            .map_err(|error| Failure::refused(format!("cannot write {}: {error}", path.display())))?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ready {
    Yes,
    Stopped,
}

/// Waits until both brokers say that both live. A process that ends on the way ends it all, with its last lines.
fn wait_until_ready(processes: &mut [Process], layout: &Layout, words: &Receiver<Word>) -> Result<Ready, Failure> {
    let deadline = Instant::now() + READY_WITHIN;
    let brokers: Vec<Member> = Member::ALL.into_iter().filter(|member| member.is_broker()).collect();
    let mut missing = brokers.clone();
    while !missing.is_empty() {
        if words.recv_timeout(LOOK_EVERY) == Ok(Word::Stop) {
            return Ok(Ready::Stopped);
        }
        for process in processes.iter_mut() {
            if let Some(status) = process.newly_ended() {
                let tail = child::tail(&layout.log_file(process.member));
                return Err(Failure::failed(format!("{} {}:\n{tail}", process.member.name(), child::describe(status))));
            }
        }
        missing.retain(|broker| live_brokers(layout, *broker) != Some(brokers.len()));
        if Instant::now() > deadline {
            let names: Vec<String> = missing.iter().map(|member| member.name()).collect();
            let (names, logs) = (names.join(" and "), layout.logs());
            return Err(Failure::failed(format!("{names} did not become ready in time; see {}", logs.display())));
        }
    }
    Ok(Ready::Yes)
}

/// How many brokers this one says are alive.
fn live_brokers(layout: &Layout, broker: Member) -> Option<usize> {
    let mut client = Client::connect_within(&layout.address(broker), Duration::from_secs(1)).ok()?;
    client.metadata(Some(&[])).ok().map(|answer| answer.brokers.len())
}

/// Until Ctrl-C. A process that ends meanwhile is told, not restarted.
fn watch(processes: &mut [Process], layout: &Layout, words: &Receiver<Word>) -> Result<(), Failure> {
    loop {
        match words.recv_timeout(LOOK_EVERY) {
            Ok(_) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        for process in processes.iter_mut() {
            let Some(status) = process.newly_ended() else { continue };
            let (name, how) = (process.member.name(), child::describe(status));
            let again = match process.member.node() {
                Some(node) => format!("; start it again: {}", greeting::restart_line(layout, node)),
                None => "; stop and start `sakia dev` again".to_owned(),
            };
            output::write(&format!("{name} (pid {}) {how}{again}\n", process.id()))?;
        }
    }
}

/// Brokers first, while controller and bucket still answer; then those.
fn stop_all(processes: &mut [Process], layout: &Layout) -> Result<(), Failure> {
    let _ = output::write("\nstopping\n");
    let mut late = Vec::new();
    let brokers_until = Instant::now() + BROKERS_STOP_WITHIN;
    late.extend(stop_some(processes, |process| process.member.is_broker(), BROKERS_STOP_WITHIN));
    wait_for_restarted(layout, Member::is_broker, brokers_until);
    for member in [Member::Controller, Member::Bucket] {
        late.extend(stop_some(processes, |process| process.member == member, OTHERS_STOP_WITHIN));
    }
    let controller_until = Instant::now() + OTHERS_STOP_WITHIN;
    wait_for_restarted(layout, |member| member == Member::Controller, controller_until);
    if late.is_empty() {
        return output::write("stopped\n");
    }
    Err(Failure::failed(format!("{} did not stop in time and was killed; the next start recovers", late.join(", "))))
}

/// Asks the chosen ones to stop and waits; gives the names of those that had to be killed.
fn stop_some(processes: &mut [Process], chosen: impl Fn(&Process) -> bool, within: Duration) -> Vec<String> {
    let deadline = Instant::now() + within;
    let mut chosen: Vec<&mut Process> = processes.iter_mut().filter(|process| chosen(process)).collect();
    chosen.iter_mut().for_each(|process| process.ask_to_stop());
    while !chosen.iter_mut().all(|process| process.has_ended()) && Instant::now() < deadline {
        thread::sleep(LOOK_EVERY);
    }
    let late = chosen.iter_mut().filter_map(|process| {
        let is_late = !process.has_ended();
        process.kill();
        is_late.then(|| process.member.name())
    });
    late.collect()
}

/// What a second terminal restarted stops by itself; its ports say when.
fn wait_for_restarted(layout: &Layout, chosen: impl Fn(Member) -> bool, until: Instant) {
    let members: Vec<Member> = Member::ALL.into_iter().filter(|member| chosen(*member)).collect();
    wait_for_ports(layout, &members, until);
}

/// Waits until nobody listens on the ports of these any more, or the time is over.
fn wait_for_ports(layout: &Layout, members: &[Member], until: Instant) {
    while members.iter().any(|member| ports_are_free(layout, *member).is_err()) && Instant::now() < until {
        thread::sleep(LOOK_EVERY);
    }
}

/// The second terminal: one process again, with the files of the first start.
fn restart(node: u16, layout: &Layout, arguments: &DevArguments) -> Result<(), Failure> {
    let member = Member::of_node(node).ok_or_else(|| {
        Failure::refused(format!("--restart {node}: there are nodes 1, 2 (brokers) and 3 (controller)"))
    })?;
    if !layout.properties_file(member).exists() {
        let folder = layout.data.display();
        return Err(Failure::refused(format!(
            "{folder} has no files of a `sakia dev`; name the folder of the one that runs with --data, or start one without --restart"
        )));
    }
    wait_for_ports(layout, &[member], Instant::now() + PORTS_FREE_WITHIN);
    ports_are_free(layout, member)?;
    let (heard, words) = mpsc::channel();
    stop::on_signal(heard.clone(), || Word::Stop).map_err(Failure::failed)?;
    stop_with_owner(layout, heard)?;
    let mut processes = vec![Process::start(member, layout, arguments)?];
    let (name, pid) = (member.name(), processes[0].id());
    output::write(&format!("{name} runs again, pid {pid}; Ctrl-C here or in the first terminal stops it\n"))?;
    let result = watch_one(&mut processes[0], layout, &words);
    if matches!(result, Ok(Word::OwnerEnded)) && member == Member::Controller {
        // Brokers need it to hand over what they lead.
        let brokers: Vec<Member> = Member::ALL.into_iter().filter(|member| member.is_broker()).collect();
        wait_for_ports(layout, &brokers, Instant::now() + BROKERS_STOP_WITHIN);
    }
    let late = stop_some(&mut processes, |_| true, BROKERS_STOP_WITHIN);
    let _ = std::io::stdout().flush();
    match late.is_empty() {
        true => result.map(drop),
        false => Err(Failure::failed(format!("{name} did not stop in time and was killed"))),
    }
}

/// Says to stop when the owner of the folder does.
fn stop_with_owner(layout: &Layout, heard: mpsc::Sender<Word>) -> Result<(), Failure> {
    let lock = File::open(layout.lock_file()).map_err(Failure::refused)?;
    match lock.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {}
        _ => return Err(Failure::refused("the first terminal's `sakia dev` has ended; start it without --restart")),
    }
    thread::Builder::new()
        .name("owner".to_owned())
        .spawn(move || {
            // An error ends the wait as well: without a lock there is no owner.
            let _ = lock.lock_shared();
            let _ = heard.send(Word::OwnerEnded);
        })
        .map_err(Failure::failed)?;
    Ok(())
}

/// Until somebody says to stop.
fn watch_one(process: &mut Process, layout: &Layout, words: &Receiver<Word>) -> Result<Word, Failure> {
    loop {
        match words.recv_timeout(LOOK_EVERY) {
            Ok(word) => return Ok(word),
            Err(RecvTimeoutError::Disconnected) => return Ok(Word::Stop),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(status) = process.newly_ended() {
            let tail = child::tail(&layout.log_file(process.member));
            return Err(Failure::failed(format!("{} {}:\n{tail}", process.member.name(), child::describe(status))));
        }
    }
}
