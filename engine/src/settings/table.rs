//! The tables of settings: broker keys and topic keys. Pure.
//!
//! One row per key. `Effect` says honestly what the key does here: Kafka's operators bring their files along, and a
//! key that silently does nothing is worse than one that is refused.

use std::fmt::Write as _;

/// What a value looks like and where it must lie.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number, `min..=max`.
    Integer { min: i64, max: i64 },
    /// Milliseconds, `min..=max`.
    Milliseconds { min: i64, max: i64 },
    /// Bytes, `min..=max`.
    Bytes { min: i64, max: i64 },
    /// `true` or `false`.
    Boolean,
    /// Any text.
    Text,
    /// Texts separated by commas.
    List,
    /// One of the given words.
    OneOf(&'static [&'static str]),
}

/// What a key does here.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// It works.
    Effective,
    /// Accepted with a warning that gives this reason; changes nothing.
    None(&'static str),
    /// Refused, with this reason, unless it has its default value.
    Refused(&'static str),
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name, as Kafka or the KIP gives it.
    pub name: &'static str,
    /// Type, unit and range.
    pub kind: Kind,
    /// Default, as text; empty is "not set".
    pub default: &'static str,
    /// What it does here.
    pub effect: Effect,
    /// One sentence for `docs/SETTINGS.md`.
    pub text: &'static str,
}

const fn row(name: &'static str, kind: Kind, default: &'static str, text: &'static str) -> Setting {
    Setting { name, kind, default, effect: Effect::Effective, text }
}

const fn ignored(name: &'static str, kind: Kind, default: &'static str, reason: &'static str) -> Setting {
    Setting { name, kind, default, effect: Effect::None(reason), text: reason }
}

const fn refused(name: &'static str, kind: Kind, default: &'static str, reason: &'static str) -> Setting {
    Setting { name, kind, default, effect: Effect::Refused(reason), text: reason }
}

const fn count(min: i64, max: i64) -> Kind {
    Kind::Integer { min, max }
}

const fn ms(min: i64, max: i64) -> Kind {
    Kind::Milliseconds { min, max }
}

const fn bytes(min: i64, max: i64) -> Kind {
    Kind::Bytes { min, max }
}

const I32: i64 = i32::MAX as i64;
const I64: i64 = i64::MAX;

/// Keys of `server.properties`.
pub static BROKER: &[Setting] = &[
    row("process.roles", Kind::List, "broker", "What this process is: `broker` or `controller`."),
    row("node.id", count(0, I32), "", "Identity of this process in the cluster. Must be set."),
    row("broker.rack", Kind::Text, "", "Zone of this broker; replicas are spread over zones and readers find theirs."),
    row("listeners", Kind::List, "PLAINTEXT://:9092", "Addresses to listen on, `NAME://host:port`."),
    row(
        "advertised.listeners",
        Kind::List,
        "",
        "Addresses that clients are told. Must be set where a listener binds a wildcard.",
    ),
    row("controller.listener.names", Kind::List, "CONTROLLER", "Which listeners belong to the controller."),
    row("controller.quorum.voters", Kind::List, "", "The controllers, `id@host:port`."),
    row("controller.quorum.bootstrap.servers", Kind::List, "", "Controllers to ask first, `host:port`."),
    row("log.dirs", Kind::List, "", "Data folder of this process. One folder for now; must be set."),
    row("http.port", count(0, 65_535), "9644", "Port of `/metrics` and the status page; 0 turns both off."),
    row("http.host", Kind::Text, "127.0.0.1", "Address of `/metrics` and the status page."),
    row("shards", count(1, 64), "1", "Shards of this broker: threads that own connections and partitions."),
    row("shard.cpus", Kind::List, "", "Processors to pin the shards to, one number per shard."),
    row("combiner.cpu", Kind::Text, "", "Processor to pin the combiner to."),
    row("memory.tail.bytes", bytes(16 << 20, 1 << 40), "536870912", "Memory for log tails, all shards together."),
    row("auto.create.topics.enable", Kind::Boolean, "true", "Whether asking for an unknown topic creates it."),
    row("num.partitions", count(1, 10_000), "1", "Partitions of a topic that is created without a number."),
    row("default.replication.factor", count(1, 100), "1", "Replicas of a topic that is created without a number."),
    row("min.insync.replicas", count(1, 100), "1", "In-sync replicas that an acks=all write needs."),
    row("message.max.bytes", bytes(61, 64 << 20), "1048588", "Largest record batch."),
    row("log.segment.bytes", bytes(1 << 20, I32), "1073741824", "Size at which a segment rolls."),
    row("log.roll.ms", ms(1, I64), "604800000", "Age at which a segment rolls."),
    row("log.retention.ms", ms(-1, I64), "604800000", "Age at which records are deleted; -1 keeps them."),
    row("log.retention.bytes", bytes(-1, I64), "-1", "Size of a partition above which old segments are deleted."),
    row("log.retention.check.interval.ms", ms(100, I64), "300000", "How often retention looks."),
    row("log.index.interval.bytes", bytes(1024, I32), "4096", "Bytes of log per index entry."),
    row("log.flush.interval.messages", count(1, I64), "9223372036854775807", "Records after which a log is synced."),
    row("log.flush.interval.ms", ms(1, I64), "9223372036854775807", "Time after which a log is synced."),
    row(
        "log.message.timestamp.type",
        Kind::OneOf(&["CreateTime", "LogAppendTime"]),
        "CreateTime",
        "Whose clock stamps records.",
    ),
    row(
        "log.message.timestamp.before.max.ms",
        ms(0, I64),
        "9223372036854775807",
        "How far in the past a record may lie.",
    ),
    row("log.message.timestamp.after.max.ms", ms(0, I64), "3600000", "How far in the future a record may lie."),
    row("log.cleanup.policy", Kind::OneOf(&["delete"]), "delete", "Only `delete` until compaction exists."),
    row("replica.lag.time.max.ms", ms(100, I64), "30000", "Time after which a follower that is behind leaves the ISR."),
    row("replica.fetch.wait.max.ms", ms(1, 60_000), "500", "Longest wait of a follower's fetch."),
    row("replica.fetch.max.bytes", bytes(1024, I32), "1048576", "Record bytes per partition in a follower's fetch."),
    row("replica.fetch.response.max.bytes", bytes(1024, I32), "10485760", "Bytes in a follower's fetch, all together."),
    row("replica.high.watermark.checkpoint.interval.ms", ms(100, I64), "5000", "How often high watermarks are saved."),
    row(
        "replica.selector.class",
        Kind::OneOf(&[
            "",
            "org.apache.kafka.common.replica.LeaderSelector",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ]),
        "",
        "RackAwareReplicaSelector sends consumers with `client.rack` to the replica of their zone.",
    ),
    row("unclean.leader.election.enable", Kind::OneOf(&["false"]), "false", "Only `false` for now."),
    row("broker.session.timeout.ms", ms(200, 600_000), "9000", "Silence after which the controller fences a broker."),
    row("broker.heartbeat.interval.ms", ms(50, 60_000), "500", "How often a broker reports to the controller."),
    row("offsets.topic.num.partitions", count(1, 1000), "50", "Partitions of `__consumer_offsets`."),
    row("offsets.topic.replication.factor", count(1, 100), "3", "Replicas of `__consumer_offsets`."),
    row("offsets.retention.minutes", count(1, I32), "10080", "How long offsets of an empty group are kept."),
    row("group.initial.rebalance.delay.ms", ms(0, 600_000), "3000", "Wait for more members before a first rebalance."),
    row("group.min.session.timeout.ms", ms(1, I32), "6000", "Shortest session a group member may ask for."),
    row("group.max.session.timeout.ms", ms(1, I32), "1800000", "Longest session a group member may ask for."),
    row("group.max.size", count(1, 100_000), "10000", "Members of one group."),
    row("socket.request.max.bytes", bytes(1024, 1 << 30), "104857600", "Largest request."),
    row("connections.max.idle.ms", ms(1000, I64), "600000", "Silence after which a connection is closed."),
    row("max.connections", count(1, 1_000_000), "20000", "Connections of this broker."),
    row("remote.log.wal.storage.system.enable", Kind::Boolean, "false", "Master switch of the object path."),
    row("log.remote.wal.storage.enable", Kind::Boolean, "false", "Whether topics use the object path by default."),
    row("remote.wal.storage.url", Kind::Text, "", "Bucket, `s3://bucket/prefix?endpoint=…&region=…&path-style=true`."),
    row("remote.wal.store.threads", count(1, 16), "1", "Threads of the S3 client."),
    row(
        "remote.wal.log.manager.combiner.task.interval.ms",
        ms(1, 1000),
        "10",
        "Age of its oldest byte at which a combined object is due.",
    ),
    row(
        "remote.wal.log.manager.combiner.task.upload.bytes",
        bytes(4096, 8 << 20),
        "524288",
        "Size at which a combined object is due.",
    ),
    row("remote.wal.log.manager.combiner.thread.pool.size", count(1, 64), "4", "PUTs in flight."),
    row(
        "remote.wal.log.manager.combiner.queue.size",
        bytes(1 << 20, 1 << 40),
        "134217728",
        "Bytes that may wait for the combiner; at the bound followers get record bytes.",
    ),
    row(
        "remote.wal.fallback.after.ms",
        ms(40, 600_000),
        "1000",
        "Age of bytes without an object after which followers get record bytes.",
    ),
    row("remote.wal.retention.ms", ms(1000, I64), "3600000", "Age at which combined objects are deleted."),
    ignored(
        "remote.log.wal.storage.manager.class.name",
        Kind::Text,
        "",
        "The store is chosen by `remote.wal.storage.url`.",
    ),
    ignored("remote.log.wal.storage.manager.class.path", Kind::Text, "", "There is no class path here."),
    ignored("remote.log.wal.storage.manager.impl.prefix", Kind::Text, "", "The store has no class of its own."),
    ignored("remote.wal.log.manager.thread.pool.size", count(1, 1000), "10", "Shards lend bytes; no pool is needed."),
    ignored("num.network.threads", count(1, 1000), "3", "Use `shards`."),
    ignored("num.io.threads", count(1, 1000), "8", "Use `shards`."),
    ignored("num.replica.fetchers", count(1, 1000), "1", "There is one fetcher per leader broker."),
    ignored("num.recovery.threads.per.data.dir", count(1, 1000), "1", "Each shard recovers its own partitions."),
    ignored("background.threads", count(1, 1000), "10", "Shards have background tasks."),
    ignored("socket.send.buffer.bytes", bytes(-1, I32), "102400", "The kernel sizes socket buffers."),
    ignored("socket.receive.buffer.bytes", bytes(-1, I32), "102400", "The kernel sizes socket buffers."),
    ignored("queued.max.requests", count(1, I32), "500", "Requests in flight are bounded per connection."),
    ignored("log.segment.delete.delay.ms", ms(0, I64), "60000", "A segment in use is kept by its readers."),
    ignored("log.preallocate", Kind::Boolean, "false", "Segments grow in place."),
    ignored("log.flush.scheduler.interval.ms", ms(1, I64), "9223372036854775807", "Flushing needs no scheduler."),
    ignored(
        "log.flush.offset.checkpoint.interval.ms",
        ms(1, I64),
        "60000",
        "Recovery points are saved at rolls and stops.",
    ),
    ignored("transaction.state.log.replication.factor", count(1, 100), "3", "There are no transactions yet."),
    ignored("transaction.state.log.min.isr", count(1, 100), "2", "There are no transactions yet."),
    ignored("listener.security.protocol.map", Kind::List, "", "Every listener is PLAINTEXT for now."),
    ignored("inter.broker.listener.name", Kind::Text, "PLAINTEXT", "Brokers use the first client listener."),
    refused("zookeeper.connect", Kind::Text, "", "There is no ZooKeeper; set `controller.quorum.voters`."),
    refused("broker.id", Kind::Text, "", "Use `node.id`."),
    refused("remote.log.storage.system.enable", Kind::Boolean, "false", "Tiered storage does not exist yet."),
    refused("sasl.enabled.mechanisms", Kind::List, "", "There is no SASL yet."),
    refused("ssl.keystore.location", Kind::Text, "", "There is no TLS yet."),
    refused("authorizer.class.name", Kind::Text, "", "There are no ACLs yet."),
];

/// Keys of a topic, with the broker key that gives the default.
pub static TOPIC: &[Setting] = &[
    row("cleanup.policy", Kind::OneOf(&["delete"]), "log.cleanup.policy", "Only `delete` until compaction exists."),
    row("retention.ms", ms(-1, I64), "log.retention.ms", "Age at which records are deleted; -1 keeps them."),
    row("retention.bytes", bytes(-1, I64), "log.retention.bytes", "Size above which old segments are deleted."),
    row("segment.bytes", bytes(14, I32), "log.segment.bytes", "Size at which a segment rolls."),
    row("segment.ms", ms(1, I64), "log.roll.ms", "Age at which a segment rolls."),
    row("index.interval.bytes", bytes(1024, I32), "log.index.interval.bytes", "Bytes of log per index entry."),
    row("max.message.bytes", bytes(61, 64 << 20), "message.max.bytes", "Largest record batch."),
    row("min.insync.replicas", count(1, 100), "min.insync.replicas", "In-sync replicas that acks=all needs."),
    row("flush.messages", count(1, I64), "log.flush.interval.messages", "Records after which a log is synced."),
    row("flush.ms", ms(1, I64), "log.flush.interval.ms", "Time after which a log is synced."),
    row(
        "message.timestamp.type",
        Kind::OneOf(&["CreateTime", "LogAppendTime"]),
        "log.message.timestamp.type",
        "Whose clock stamps records.",
    ),
    row(
        "message.timestamp.before.max.ms",
        ms(0, I64),
        "log.message.timestamp.before.max.ms",
        "How far in the past a record may lie.",
    ),
    row(
        "message.timestamp.after.max.ms",
        ms(0, I64),
        "log.message.timestamp.after.max.ms",
        "How far in the future a record may lie.",
    ),
    row(
        "remote.wal.storage.enable",
        Kind::Boolean,
        "log.remote.wal.storage.enable",
        "Whether followers replicate through the bucket (KIP-1176).",
    ),
    row("remote.wal.ack", Kind::OneOf(&["replica"]), "", "Only `replica` for now."),
    ignored("compression.type", Kind::OneOf(&["producer"]), "", "Logs keep the producer's bytes."),
    ignored("unclean.leader.election.enable", Kind::OneOf(&["false"]), "", "Only `false` for now."),
];

/// The row of a key in one of the tables.
#[must_use]
pub fn find(table: &'static [Setting], name: &str) -> Option<&'static Setting> {
    table.iter().find(|setting| setting.name == name)
}

/// `docs/SETTINGS.md`, from the tables.
#[must_use]
pub fn markdown() -> String {
    let mut page = String::from(
        "# Settings\n\nPrinted from the code by `cargo xtask docs`; a test fails when this page differs.\n\
         A key in no table is refused with the nearest name. `-1` in a range means \"no limit\".\n",
    );
    for (title, table) in [("Broker and controller (`server.properties`)", BROKER), ("Topic", TOPIC)] {
        let _ = write!(page, "\n## {title}\n\n| key | type | default | effect |\n| --- | --- | --- | --- |\n");
        for setting in table {
            let effect = match setting.effect {
                Effect::Effective => setting.text.to_owned(),
                Effect::None(reason) => format!("accepted, no effect: {reason}"),
                Effect::Refused(reason) => format!("refused: {reason}"),
            };
            let default = if setting.default.is_empty() { "–".to_owned() } else { format!("`{}`", setting.default) };
            let _ = writeln!(page, "| `{}` | {} | {default} | {effect} |", setting.name, describe(setting.kind));
        }
    }
    page
}

fn describe(kind: Kind) -> String {
    let range = |unit: &str, min: i64, max: i64| {
        let top = if max >= I32 { "…".to_owned() } else { max.to_string() };
        format!("{unit}, {min}..{top}")
    };
    match kind {
        Kind::Integer { min, max } => range("number", min, max),
        Kind::Milliseconds { min, max } => range("ms", min, max),
        Kind::Bytes { min, max } => range("bytes", min, max),
        Kind::Boolean => "true or false".to_owned(),
        Kind::Text => "text".to_owned(),
        Kind::List => "list".to_owned(),
        Kind::OneOf(words) => words.iter().filter(|w| !w.is_empty()).copied().collect::<Vec<_>>().join(" or "),
    }
}
