//! Apache Kafka: jars by Maven, two brokers and a controller by KRaft, heap and collector as its own start script sets.
//!
//! Settings that must be comparable are those of `sakia dev`: two replicas, `min.insync.replicas` 1, no sync on the
//! produce path. Everything else is Kafka's default.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::{Cluster, Folder, loopback};
use crate::failure::Failure;
use crate::machine;
use crate::process::{EndBy, Process, output_of};

const FETCH_WITHIN: Duration = Duration::from_secs(600);
const FORMAT_WITHIN: Duration = Duration::from_secs(60);

/// As in kafka-server-start.sh and kafka-run-class.sh.
const JVM: [&str; 7] = [
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
];

/// A node: its number, its role, its port above the base.
const NODES: [(u16, &str, u16); 3] = [(1, "broker", 92), (2, "broker", 192), (3, "controller", 93)];

/// Fills the folder with the jars of the test tools' pom.xml, unless they are there.
pub(crate) fn jars(libs: &Path) -> Result<(), Failure> {
    let there = fs::read_dir(libs).is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("kafka_2.13-"))
    });
    if there {
        return Ok(());
    }
    fs::create_dir_all(libs).map_err(|error| Failure::of(libs.display(), error))?;
    let pom = machine::repository().join("tools/sakia/tests/java/pom.xml");
    let words = [
        "mvn".to_owned(),
        "-B".to_owned(),
        "-q".to_owned(),
        "-f".to_owned(),
        pom.display().to_string(),
        "dependency:copy-dependencies".to_owned(),
        format!("-DoutputDirectory={}", libs.display()),
    ];
    output_of(&words, FETCH_WITHIN).map(|_| ())
}

/// Formats three folders, starts three JVMs, waits for both brokers.
pub(super) fn start(libs: &Path, folder: &Path, port_base: u16) -> Result<Cluster, Failure> {
    fs::create_dir_all(folder).map_err(|error| Failure::of(folder.display(), error))?;
    let guard = Folder(folder.to_owned());
    let files = Files { libs, folder, port_base };
    let cluster_id = output_of(&files.java(&["kafka.tools.StorageTool", "random-uuid"]), FORMAT_WITHIN)?;
    for (node, role, port) in NODES {
        files.format(node, role, port, cluster_id.trim())?;
    }
    let mut processes = Vec::new();
    let mut pids = BTreeMap::new();
    for (node, role, _) in NODES {
        let name = format!("{role} {node}");
        let properties = files.properties(node).display().to_string();
        let mut words = files.java(&["kafka.Kafka", &properties]);
        words.splice(1..1, JVM.map(str::to_owned));
        let output = folder.join(format!("{node}.log"));
        let process = Process::start(&format!("Kafka's {name}"), &words, &output, EndBy::Killing)?;
        pids.insert(name, process.id());
        processes.push(process);
    }
    let brokers = [loopback(port_base + 92), loopback(port_base + 192)];
    let remarks = json!({ "version": "4.3.1", "jvm": JVM.join(" ") });
    let mut cluster =
        Cluster { processes, folder: guard, logs: &["."], pids, bootstrap: brokers[0], pages: Vec::new(), remarks };
    cluster.wait_until_ready(&brokers)?;
    Ok(cluster)
}

struct Files<'a> {
    libs: &'a Path,
    folder: &'a Path,
    port_base: u16,
}

impl Files<'_> {
    /// A JVM with the jars; warnings of the tools stay out of standard output.
    fn java(&self, words: &[&str]) -> Vec<String> {
        let log = machine::repository().join("tools/sakia/tests/java/log4j2.xml");
        let mut command = vec!["java".to_owned(), format!("-Dlog4j2.configurationFile={}", log.display())];
        command.extend(["-cp".to_owned(), format!("{}/*", self.libs.display())]);
        command.extend(words.iter().map(|word| (*word).to_owned()));
        command
    }

    fn properties(&self, node: u16) -> PathBuf {
        self.folder.join(format!("{node}.properties"))
    }

    fn format(&self, node: u16, role: &str, port: u16, cluster_id: &str) -> Result<(), Failure> {
        let base = self.port_base;
        let listener = match role {
            "controller" => format!("listeners=CONTROLLER://127.0.0.1:{}\n", base + port),
            _ => format!("listeners=PLAINTEXT://127.0.0.1:{}\nbroker.rack=az{node}\n", base + port),
        };
        let text = format!(
            "process.roles={role}\n\
             node.id={node}\n\
             controller.quorum.voters=3@127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
             {listener}\
             log.dirs={folder}\n\
             offsets.topic.replication.factor=2\n\
             min.insync.replicas=1\n\
             group.initial.rebalance.delay.ms=0\n",
            controller = base + 93,
            folder = self.folder.join(format!("data-{node}")).display(),
        );
        let path = self.properties(node);
        fs::write(&path, text).map_err(|error| Failure::of(path.display(), error))?;
        let path = path.display().to_string();
        let words = self.java(&["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", &path]);
        output_of(&words, FORMAT_WITHIN).map(|_| ())
    }
}
