//! Settings of a process as typed values. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use sakia_protocol::ids::BrokerId;

use super::table::BROKER;
use super::topic::TopicSettings;
use super::values::{SettingsError, Values, Warning};

/// What a process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Holds partitions and serves clients.
    Broker,
    /// Votes on the cluster's metadata.
    Controller,
}

/// A name and an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listener {
    /// Name, as `PLAINTEXT`.
    pub name: String,
    /// Host; empty binds every address.
    pub host: String,
    /// Port; 0 lets the system choose.
    pub port: u16,
}

/// One controller of the quorum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Voter {
    /// Its `node.id`.
    pub id: BrokerId,
    /// Its address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// Settings of the object path (KIP-1176).
#[derive(Clone, Debug)]
pub struct WalSettings {
    /// Master switch.
    pub enabled: bool,
    /// Address of the bucket; empty if not set.
    pub url: String,
    /// Threads of the S3 client.
    pub store_threads: usize,
    /// Age of its oldest byte at which an object is due.
    pub interval: Duration,
    /// Size at which an object is due.
    pub upload_bytes: usize,
    /// PUTs in flight.
    pub puts_in_flight: usize,
    /// Bytes that may wait for the combiner.
    pub queue_bytes: usize,
    /// Age of bytes without an object after which followers get record bytes.
    pub fallback_after: Duration,
    /// Age at which objects are deleted.
    pub retention: Duration,
}

/// Settings of replication.
#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// `replica.lag.time.max.ms`.
    pub lag_max: Duration,
    /// `replica.fetch.wait.max.ms`.
    pub fetch_wait_max: Duration,
    /// `replica.fetch.max.bytes`.
    pub partition_bytes: usize,
    /// `replica.fetch.response.max.bytes`.
    pub response_bytes: usize,
    /// `replica.high.watermark.checkpoint.interval.ms`.
    pub checkpoint_interval: Duration,
    /// Whether consumers are sent to the replica of their zone.
    pub rack_aware: bool,
}

/// Settings of groups.
#[derive(Clone, Debug)]
pub struct GroupSettings {
    /// Partitions of `__consumer_offsets`.
    pub partitions: usize,
    /// Replicas of `__consumer_offsets`.
    pub replication_factor: usize,
    /// How long offsets of an empty group are kept.
    pub offsets_retention: Duration,
    /// Wait for more members before a first rebalance.
    pub initial_delay: Duration,
    /// Shortest session.
    pub session_min: Duration,
    /// Longest session.
    pub session_max: Duration,
    /// Members of one group.
    pub members_max: usize,
}

/// Settings of one process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What this process is.
    pub roles: Vec<Role>,
    /// `node.id`.
    pub node_id: BrokerId,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// Where clients are served.
    pub listeners: Vec<Listener>,
    /// What clients are told, in the order of `listeners`.
    pub advertised: Vec<Listener>,
    /// Where controllers and brokers are served.
    pub controller_listeners: Vec<Listener>,
    /// The quorum.
    pub voters: Vec<Voter>,
    /// The data folder.
    pub folder: PathBuf,
    /// Address of `/metrics`; `None` if turned off.
    pub http: Option<(String, u16)>,
    /// Shards of this broker.
    pub shards: usize,
    /// Processors of the shards; empty if not pinned.
    pub shard_cpus: Vec<usize>,
    /// Processor of the combiner.
    pub combiner_cpu: Option<usize>,
    /// Memory for log tails of all shards.
    pub tail_bytes: usize,
    /// Whether asking for an unknown topic creates it.
    pub auto_create: bool,
    /// `num.partitions`.
    pub partitions_default: usize,
    /// `default.replication.factor`.
    pub replication_default: usize,
    /// `broker.session.timeout.ms`.
    pub session_timeout: Duration,
    /// `broker.heartbeat.interval.ms`.
    pub heartbeat_interval: Duration,
    /// `socket.request.max.bytes`.
    pub request_bytes_max: usize,
    /// `connections.max.idle.ms`.
    pub idle_max: Duration,
    /// `max.connections`.
    pub connections_max: usize,
    /// `log.retention.check.interval.ms`.
    pub retention_check: Duration,
    /// Replication.
    pub replica: ReplicaSettings,
    /// Groups.
    pub groups: GroupSettings,
    /// The object path.
    pub wal: WalSettings,
    /// What a topic gets that sets nothing itself.
    pub topic_defaults: TopicSettings,
    /// The settings as they were written.
    pub texts: BTreeMap<String, String>,
}

impl Settings {
    /// Reads a `server.properties` map.
    ///
    /// # Errors
    /// The first key that is unknown, refused, missing, or has a bad value, with what to do.
    pub fn from_properties(texts: &BTreeMap<String, String>) -> Result<(Self, Vec<Warning>), SettingsError> {
        let (values, warnings) = Values::check(BROKER, texts)?;
        let roles = roles(&values)?;
        let (client, controller) = split_listeners(&values)?;
        if roles.contains(&Role::Broker) && client.is_empty() {
            return Err(missing("listeners", "a broker needs a listener, as `PLAINTEXT://127.0.0.1:9092`"));
        }
        if roles.contains(&Role::Controller) && controller.is_empty() {
            return Err(missing("listeners", "a controller needs one, as `CONTROLLER://127.0.0.1:9093`"));
        }
        let settings = Self {
            node_id: node_id(&values)?,
            rack: values.is_set("broker.rack").then(|| values.text("broker.rack").to_owned()),
            advertised: advertised(&values, &client)?,
            listeners: client,
            controller_listeners: controller,
            voters: voters(&values)?,
            folder: folder(&values)?,
            http: http(&values),
            shards: values.len("shards"),
            shard_cpus: cpus(&values)?,
            combiner_cpu: combiner_cpu(&values)?,
            tail_bytes: values.len("memory.tail.bytes"),
            auto_create: values.switch("auto.create.topics.enable"),
            partitions_default: values.len("num.partitions"),
            replication_default: values.len("default.replication.factor"),
            session_timeout: limit(&values, "broker.session.timeout.ms"),
            heartbeat_interval: limit(&values, "broker.heartbeat.interval.ms"),
            request_bytes_max: values.len("socket.request.max.bytes"),
            idle_max: limit(&values, "connections.max.idle.ms"),
            connections_max: values.len("max.connections"),
            retention_check: limit(&values, "log.retention.check.interval.ms"),
            replica: replica(&values),
            groups: groups(&values),
            wal: wal(&values)?,
            topic_defaults: TopicSettings::from_broker(&values),
            texts: texts.clone(),
            roles,
        };
        Ok((settings, warnings))
    }

    /// Whether this process has the role.
    #[must_use]
    pub fn is(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }
}

fn missing(name: &'static str, hint: &'static str) -> SettingsError {
    SettingsError::Missing { name, hint }
}

fn bad(name: &str, value: &str, expected: &str) -> SettingsError {
    SettingsError::Value { name: name.to_owned(), value: value.to_owned(), expected: expected.to_owned() }
}

fn limit(values: &Values, name: &str) -> Duration {
    values.duration(name).expect("the range of this limit has no negative values")
}

fn roles(values: &Values) -> Result<Vec<Role>, SettingsError> {
    let roles: Vec<Role> = values
        .list("process.roles")
        .map(|word| match word {
            "broker" => Ok(Role::Broker),
            "controller" => Ok(Role::Controller),
            other => Err(bad("process.roles", other, "must be `broker` or `controller`")),
        })
        .collect::<Result<_, _>>()?;
    match roles.as_slice() {
        [_] => Ok(roles),
        [] => Err(missing("process.roles", "`broker` or `controller`")),
        _ => Err(bad("process.roles", values.text("process.roles"), "one role per process for now")),
    }
}

fn node_id(values: &Values) -> Result<BrokerId, SettingsError> {
    if !values.is_set("node.id") {
        return Err(missing("node.id", "a number that no other process of the cluster has"));
    }
    let id = i32::try_from(values.number("node.id")).expect("the range of node.id fits i32");
    Ok(BrokerId::new(id))
}

/// Splits `NAME://host:port`; an IPv6 host stands in brackets.
fn listener(key: &'static str, text: &str) -> Result<Listener, SettingsError> {
    let malformed = || bad(key, text, "must look like NAME://host:port");
    let (name, address) = text.split_once("://").ok_or_else(malformed)?;
    let (host, port) = address.rsplit_once(':').ok_or_else(malformed)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().map_err(|_| malformed())?;
    Ok(Listener { name: name.to_ascii_uppercase(), host: host.to_owned(), port })
}

fn split_listeners(values: &Values) -> Result<(Vec<Listener>, Vec<Listener>), SettingsError> {
    let controller_names: Vec<String> = values.list("controller.listener.names").map(str::to_ascii_uppercase).collect();
    let mut client = Vec::new();
    let mut controller = Vec::new();
    for text in values.list("listeners") {
        let listener = listener("listeners", text)?;
        if controller_names.contains(&listener.name) {
            controller.push(listener);
        } else if listener.name == "PLAINTEXT" {
            client.push(listener);
        } else {
            return Err(bad("listeners", text, "only PLAINTEXT and the controller's listener exist for now"));
        }
    }
    Ok((client, controller))
}

fn is_wildcard(host: &str) -> bool {
    matches!(host, "" | "0.0.0.0" | "::")
}

/// What clients are told: never a wildcard (field failure ops-1). A listener of port 0 is told as it will be bound.
fn advertised(values: &Values, listeners: &[Listener]) -> Result<Vec<Listener>, SettingsError> {
    let mut told: Vec<Listener> = values
        .list("advertised.listeners")
        .map(|text| listener("advertised.listeners", text))
        .collect::<Result<_, _>>()?;
    if let Some(wild) = told.iter().find(|l| is_wildcard(&l.host)) {
        return Err(bad("advertised.listeners", &wild.host, "clients cannot connect to a wildcard address"));
    }
    if let Some(told) = told.iter().find(|l| l.port == 0) {
        return Err(bad("advertised.listeners", &told.host, "clients cannot connect to port 0"));
    }
    listeners
        .iter()
        .map(|bound| {
            if let Some(at) = told.iter().position(|l| l.name == bound.name) {
                return Ok(told.swap_remove(at));
            }
            if is_wildcard(&bound.host) {
                return Err(missing(
                    "advertised.listeners",
                    "a listener binds every address; say which one clients use",
                ));
            }
            Ok(bound.clone())
        })
        .collect()
}

fn voters(values: &Values) -> Result<Vec<Voter>, SettingsError> {
    let parse = |text: &str, expected: &str, id: Option<&str>, address: &str| {
        let (host, port) = address.rsplit_once(':').ok_or_else(|| bad("controller.quorum.voters", text, expected))?;
        let id = id.map_or(Ok(0), str::parse).map_err(|_| bad("controller.quorum.voters", text, expected))?;
        let port = port.parse().map_err(|_| bad("controller.quorum.voters", text, expected))?;
        let id = BrokerId::from_wire(id).ok_or_else(|| bad("controller.quorum.voters", text, expected))?;
        Ok(Voter { id, host: host.to_owned(), port })
    };
    let mut voters: Vec<Voter> = values
        .list("controller.quorum.voters")
        .map(|text| {
            let expected = "must look like id@host:port";
            let (id, address) = text.split_once('@').ok_or_else(|| bad("controller.quorum.voters", text, expected))?;
            parse(text, expected, Some(id), address)
        })
        .collect::<Result<_, _>>()?;
    if voters.is_empty() {
        voters = values
            .list("controller.quorum.bootstrap.servers")
            .map(|text| parse(text, "must look like host:port", None, text))
            .collect::<Result<_, _>>()?;
    }
    if voters.is_empty() {
        return Err(missing("controller.quorum.voters", "the controllers, as `3@127.0.0.1:9093`"));
    }
    if voters.len() > 1 {
        return Err(bad("controller.quorum.voters", values.text("controller.quorum.voters"), "one voter for now"));
    }
    Ok(voters)
}

fn folder(values: &Values) -> Result<PathBuf, SettingsError> {
    let mut folders = values.list("log.dirs");
    let first = folders.next().ok_or_else(|| missing("log.dirs", "the data folder, as `/var/lib/sakia`"))?;
    if folders.next().is_some() {
        return Err(bad("log.dirs", values.text("log.dirs"), "one data folder for now"));
    }
    Ok(PathBuf::from(first))
}

fn http(values: &Values) -> Option<(String, u16)> {
    let port = u16::try_from(values.number("http.port")).expect("the range of http.port fits u16");
    (port != 0).then(|| (values.text("http.host").to_owned(), port))
}

fn cpus(values: &Values) -> Result<Vec<usize>, SettingsError> {
    let cpus: Vec<usize> = values
        .list("shard.cpus")
        .map(|text| text.parse().map_err(|_| bad("shard.cpus", text, "must be processor numbers")))
        .collect::<Result<_, _>>()?;
    if !cpus.is_empty() && cpus.len() != values.len("shards") {
        return Err(bad("shard.cpus", values.text("shard.cpus"), "must name one processor per shard"));
    }
    Ok(cpus)
}

fn combiner_cpu(values: &Values) -> Result<Option<usize>, SettingsError> {
    let text = values.text("combiner.cpu");
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| bad("combiner.cpu", text, "must be a processor number"))
}

fn replica(values: &Values) -> ReplicaSettings {
    ReplicaSettings {
        lag_max: limit(values, "replica.lag.time.max.ms"),
        fetch_wait_max: limit(values, "replica.fetch.wait.max.ms"),
        partition_bytes: values.len("replica.fetch.max.bytes"),
        response_bytes: values.len("replica.fetch.response.max.bytes"),
        checkpoint_interval: limit(values, "replica.high.watermark.checkpoint.interval.ms"),
        rack_aware: values.text("replica.selector.class").ends_with("RackAwareReplicaSelector"),
    }
}

fn groups(values: &Values) -> GroupSettings {
    GroupSettings {
        partitions: values.len("offsets.topic.num.partitions"),
        replication_factor: values.len("offsets.topic.replication.factor"),
        offsets_retention: Duration::from_secs(values.size("offsets.retention.minutes") * 60),
        initial_delay: limit(values, "group.initial.rebalance.delay.ms"),
        session_min: limit(values, "group.min.session.timeout.ms"),
        session_max: limit(values, "group.max.session.timeout.ms"),
        members_max: values.len("group.max.size"),
    }
}

/// The object path's settings. R12: the window is at most a quarter of the fallback delay.
fn wal(values: &Values) -> Result<WalSettings, SettingsError> {
    let settings = WalSettings {
        enabled: values.switch("remote.log.wal.storage.system.enable"),
        url: values.text("remote.wal.storage.url").to_owned(),
        store_threads: values.len("remote.wal.store.threads"),
        interval: limit(values, "remote.wal.log.manager.combiner.task.interval.ms"),
        upload_bytes: values.len("remote.wal.log.manager.combiner.task.upload.bytes"),
        puts_in_flight: values.len("remote.wal.log.manager.combiner.thread.pool.size"),
        queue_bytes: values.len("remote.wal.log.manager.combiner.queue.size"),
        fallback_after: limit(values, "remote.wal.fallback.after.ms"),
        retention: limit(values, "remote.wal.retention.ms"),
    };
    if settings.interval * 4 > settings.fallback_after {
        let name = "remote.wal.log.manager.combiner.task.interval.ms";
        return Err(bad(name, values.text(name), "must be at most a quarter of remote.wal.fallback.after.ms"));
    }
    if settings.enabled && settings.url.is_empty() {
        return Err(missing("remote.wal.storage.url", "remote.log.wal.storage.system.enable=true needs a bucket"));
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let mut texts: BTreeMap<String, String> = [
            ("node.id", "1"),
            ("log.dirs", "/data"),
            ("controller.quorum.voters", "3@127.0.0.1:9093"),
            ("listeners", "PLAINTEXT://127.0.0.1:9092"),
        ]
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
        texts.extend(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        Settings::from_properties(&texts).map(|(settings, _)| settings)
    }

    #[test]
    fn wildcard_is_never_advertised() {
        assert!(matches!(
            read(&[("listeners", "PLAINTEXT://:9092")]),
            Err(SettingsError::Missing { name: "advertised.listeners", .. })
        ));
        let wild = [("listeners", "PLAINTEXT://:9092"), ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092")];
        assert!(read(&wild).is_err());
        let named = [("listeners", "PLAINTEXT://:9092"), ("advertised.listeners", "PLAINTEXT://b1:19092")];
        let settings = read(&named).expect("valid");
        assert_eq!(settings.advertised, vec![Listener { name: "PLAINTEXT".into(), host: "b1".into(), port: 19092 }]);
    }

    #[test]
    fn port_zero_is_never_advertised_by_name() {
        assert!(read(&[("advertised.listeners", "PLAINTEXT://b1:0")]).is_err());
        let settings = read(&[("listeners", "PLAINTEXT://127.0.0.1:0")]).expect("the process chooses a port");
        assert_eq!(settings.advertised, settings.listeners);
    }

    #[test]
    fn ipv6_listener_is_read() {
        let settings = read(&[("listeners", "PLAINTEXT://[::1]:9092")]).expect("valid");
        assert_eq!(settings.listeners[0].host, "::1");
    }

    #[test]
    fn window_above_a_quarter_of_the_fallback_delay_is_refused() {
        let name = "remote.wal.log.manager.combiner.task.interval.ms";
        assert!(read(&[(name, "251")]).is_err());
        assert!(read(&[(name, "250")]).is_ok());
    }

    #[test]
    fn object_path_needs_a_bucket() {
        assert!(read(&[("remote.log.wal.storage.system.enable", "true")]).is_err());
    }
}
