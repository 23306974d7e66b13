//! The three things that are compared.

/// Who carries the load.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub(crate) enum Side {
    /// Sakia, followers replicate through the bucket.
    Objects,
    /// Sakia, followers get record bytes from the leader, as in Kafka.
    Bytes,
    /// Apache Kafka.
    Kafka,
}

impl Side {
    pub(crate) const ALL: [Self; 3] = [Self::Objects, Self::Bytes, Self::Kafka];

    /// In results and names of topics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Objects => "sakia-objects",
            Self::Bytes => "sakia-bytes",
            Self::Kafka => "kafka",
        }
    }

    /// In tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Objects => "Sakia, object path",
            Self::Bytes => "Sakia, record bytes",
            Self::Kafka => "Apache Kafka 4.3.1",
        }
    }

    /// Settings of its topics.
    pub(crate) fn topic_configs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Objects => &[("remote.wal.storage.enable", "true")],
            Self::Bytes => &[("remote.wal.storage.enable", "false")],
            Self::Kafka => &[],
        }
    }
}
