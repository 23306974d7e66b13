//! What a broker counts outside the log and the bucket: one struct, made once per process, shared by its threads.

use sakia_metrics::{Counter, Counters, Description, Gauge, Gauges, Histogram, LATENCY_MICROS, Registry, Unit};

/// Topics with series of their own; the rest is counted together.
const TOPIC_SERIES_MAX: usize = 10_000;

const fn per_topic(name: &'static str, help: &'static str) -> Description {
    Description::new(name, help).labels(&["topic"]).series_max(TOPIC_SERIES_MAX)
}

/// Counters of a broker process.
pub struct BrokerCounters {
    /// Record bytes appended by producers.
    pub bytes_in: Counters,
    /// Record bytes sent to consumers.
    pub bytes_out: Counters,
    /// Record bytes sent to replicas in fetch replies. With the object path in use this stays 0.
    pub replication_bytes_out: Counters,
    /// Record bytes that came from leaders in fetch replies.
    pub replication_bytes_in: Counters,
    /// Record bytes that came from the bucket.
    pub wal_bytes_in: Counters,
    /// References handed to replicas.
    pub references_out: Counter,
    /// Bytes of fetch replies to replicas other than record bytes.
    pub replication_control_bytes_out: Counter,
    /// Times that a partition went back to record bytes (R12), by reason.
    pub fallbacks: Counters,
    /// Partitions that are served as bytes although they could be served by reference.
    pub fallback_partitions: Gauge,
    /// Partitions led here.
    pub leader_partitions: Gauges,
    /// Partitions that live here.
    pub partitions: Gauges,
    /// Led partitions whose ISR lacks an assigned replica.
    pub under_replicated: Gauges,
    /// ISR changes proposed, by direction.
    pub isr_changes: Counters,
    /// Requests by API.
    pub requests: Counters,
    /// Time of requests, by API.
    pub request_micros: sakia_metrics::Histograms,
    /// Open connections.
    pub connections: Gauge,
    /// Connections closed because of what they sent.
    pub bad_connections: Counter,
    /// Combined objects written, and how many of them hold several partitions.
    pub objects: Counter,
    /// Combined objects with slices of more than one partition.
    pub objects_of_several: Counter,
    /// Bytes of combined objects written.
    pub object_bytes: Counter,
    /// Objects that the metadata topic was not told of.
    pub announcements_dropped: Counter,
    /// GETs of objects for followers that were answered.
    pub object_gets: Counter,
    /// Time of PUTs.
    pub put_micros: Histogram,
    /// Time of GETs.
    pub get_micros: Histogram,
    /// Age of an object's oldest byte when its PUT was answered.
    pub publish_micros: Histogram,
}

/// A topic's handles, kept by its partitions so that counting takes no lock.
pub struct TopicCounters {
    /// Record bytes appended by producers.
    pub bytes_in: Counter,
    /// Record bytes sent to consumers.
    pub bytes_out: Counter,
    /// Record bytes sent to replicas in fetch replies.
    pub replication_bytes_out: Counter,
    /// Record bytes that came from leaders in fetch replies.
    pub replication_bytes_in: Counter,
    /// Record bytes that came from the bucket.
    pub wal_bytes_in: Counter,
}

impl BrokerCounters {
    /// The handles of one topic.
    #[must_use]
    pub fn of_topic(&self, topic: &str) -> TopicCounters {
        TopicCounters {
            bytes_in: self.bytes_in.with(&[topic]),
            bytes_out: self.bytes_out.with(&[topic]),
            replication_bytes_out: self.replication_bytes_out.with(&[topic]),
            replication_bytes_in: self.replication_bytes_in.with(&[topic]),
            wal_bytes_in: self.wal_bytes_in.with(&[topic]),
        }
    }

    /// Registers everything.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        let counter = |name, help| registry.counters(Description::new(name, help)).with(&[]);
        let gauge = |name, help| registry.gauges(Description::new(name, help)).with(&[]);
        let micros = |name, help| {
            registry.histograms(Description::new(name, help).unit(Unit::Millionth), LATENCY_MICROS).with(&[])
        };
        let by_shard = |name, help| registry.gauges(Description::new(name, help).labels(&["shard"]));
        let topics = |name, help| registry.counters(per_topic(name, help));
        Self {
            bytes_in: topics("kafka_server_brokertopicmetrics_bytesin_total", "Record bytes appended by producers."),
            bytes_out: topics("kafka_server_brokertopicmetrics_bytesout_total", "Record bytes sent to consumers."),
            replication_bytes_out: topics(
                "kafka_server_brokertopicmetrics_replicationbytesout_total",
                "Record bytes sent to replicas.",
            ),
            replication_bytes_in: topics(
                "kafka_server_brokertopicmetrics_replicationbytesin_total",
                "Record bytes that came from leaders.",
            ),
            wal_bytes_in: topics(
                "kafka_server_remote_wal_fetch_bytes_total",
                "Record bytes that came from the bucket.",
            ),
            references_out: counter("sakia_references_out_total", "References handed to replicas."),
            replication_control_bytes_out: counter(
                "sakia_replication_control_bytes_out_total",
                "Bytes of fetch replies to replicas other than record bytes.",
            ),
            fallbacks: registry.counters(
                Description::new("sakia_wal_fallbacks_total", "Times that a partition went back to record bytes.")
                    .labels(&["reason"]),
            ),
            fallback_partitions: gauge("sakia_wal_fallback_partitions", "Partitions replicated by record bytes."),
            leader_partitions: by_shard("kafka_server_replicamanager_leadercount", "Partitions led here."),
            partitions: by_shard("kafka_server_replicamanager_partitioncount", "Partitions that live here."),
            under_replicated: by_shard(
                "kafka_server_replicamanager_underreplicatedpartitions",
                "Led partitions whose ISR lacks an assigned replica.",
            ),
            isr_changes: registry
                .counters(Description::new("sakia_isr_changes_total", "ISR changes proposed.").labels(&["direction"])),
            requests: registry.counters(
                Description::new("kafka_network_requestmetrics_requests_total", "Requests.").labels(&["request"]),
            ),
            request_micros: registry.histograms(
                Description::new("kafka_network_requestmetrics_totaltime_seconds", "Time of requests.")
                    .labels(&["request"])
                    .unit(Unit::Millionth),
                LATENCY_MICROS,
            ),
            connections: gauge("kafka_server_socketservermetrics_connectioncount", "Open connections."),
            bad_connections: counter("sakia_bad_connections_total", "Connections closed because of what they sent."),
            objects: counter("sakia_wal_objects_total", "Combined objects written."),
            objects_of_several: counter("sakia_wal_objects_of_several_total", "Objects with several partitions."),
            object_bytes: counter("sakia_wal_object_bytes_total", "Bytes of combined objects written."),
            announcements_dropped: counter(
                "sakia_wal_metadata_dropped_total",
                "Objects that __remote_wal_log_metadata was not told of.",
            ),
            object_gets: counter("sakia_wal_object_gets_total", "Objects read for followers."),
            put_micros: micros("kafka_server_remote_wal_put_seconds", "Time of PUTs of combined objects."),
            get_micros: micros("kafka_server_remote_wal_get_seconds", "Time of GETs of combined objects."),
            publish_micros: micros(
                "sakia_wal_publish_age_seconds",
                "Age of an object's oldest byte when its PUT was answered.",
            ),
        }
    }
}
