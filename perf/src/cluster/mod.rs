//! Two brokers and a controller (and Sakia's bucket) as processes on loopback.
//!
//! Always: dropping a cluster ends its processes, brokers first, and takes its folder away.

mod kafka;
mod sakia;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) use kafka::jars;
use serde_json::Value;

use crate::failure::Failure;
use crate::process::Process;
use crate::usage::{Meter, Usage};
use crate::wire::Client;

const READY_WITHIN: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Cluster {
    /// In the order in which they are to end.
    processes: Vec<Process>,
    folder: Folder,
    /// What its processes write about themselves, below the folder.
    logs: &'static [&'static str],
    /// Pid of each member: `broker 1`, `broker 2`, `controller 3`, `bucket`.
    pids: BTreeMap<String, u32>,
    bootstrap: SocketAddr,
    /// Ports that serve counts: name and address of the page.
    pages: Vec<(String, SocketAddr)>,
    /// What it said of itself that belongs to the results.
    pub(crate) remarks: Value,
}

/// Taken away when dropped; declared behind the processes, so that nobody writes into it any more.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Cluster {
    /// Sakia, by `sakia dev`.
    pub(crate) fn sakia(binary: &Path, folder: &Path, port_base: u16) -> Result<Self, Failure> {
        sakia::start(binary, folder, port_base)
    }

    /// Apache Kafka from a folder of jars.
    pub(crate) fn kafka(libs: &Path, folder: &Path, port_base: u16) -> Result<Self, Failure> {
        kafka::start(libs, folder, port_base)
    }

    pub(crate) fn bootstrap(&self) -> SocketAddr {
        self.bootstrap
    }

    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Client::connect(self.bootstrap)
    }

    /// What each member has used up to now.
    pub(crate) fn usage(&self, meter: Meter) -> Result<BTreeMap<String, Usage>, Failure> {
        self.pids.iter().map(|(name, pid)| Ok((name.clone(), meter.read(*pid)?))).collect()
    }

    /// Copies what its processes wrote about themselves: after a failure the folder goes, the reasons stay.
    pub(crate) fn save_logs(&self, to: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(to)?;
        for folder in self.logs.iter().map(|folder| self.folder.0.join(folder)) {
            for entry in std::fs::read_dir(folder)? {
                let path = entry?.path();
                if let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|ending| ending == "log"))
                {
                    std::fs::copy(&path, to.join(name))?;
                }
            }
        }
        Ok(())
    }

    /// Pages of counts, by name.
    pub(crate) fn pages(&self) -> &[(String, SocketAddr)] {
        &self.pages
    }

    /// Waits until every broker says that both live.
    fn wait_until_ready(&mut self, brokers: &[SocketAddr]) -> Result<(), Failure> {
        let deadline = Instant::now() + READY_WITHIN;
        for broker in brokers {
            while !knows_both(*broker) {
                self.processes.iter_mut().try_for_each(Process::must_run)?;
                if Instant::now() > deadline {
                    return Err(Failure::new(format!("the broker at {broker} is not ready in time")));
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
        Ok(())
    }
}

fn knows_both(broker: SocketAddr) -> bool {
    Client::connect(broker).and_then(|mut client| client.live_brokers()).is_ok_and(|count| count == 2)
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)
}
