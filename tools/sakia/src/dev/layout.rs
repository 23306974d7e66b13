//! What `sakia dev` runs and where: processes, ports, folders, settings. Pure.
//!
//! | process | node.id | zone | Kafka | controller | HTTP |
//! | --- | --- | --- | --- | --- | --- |
//! | broker | 1 | az1 | 9092 | | 9644 |
//! | broker | 2 | az2 | 9192 | | 9744 |
//! | controller | 3 | az3 | | 9093 | 9844 |
//! | bucket | | | | | 9000 |
//!
//! All ports count from one base (9000), so that tests run several clusters side by side.

use std::path::PathBuf;

use crate::client::Bootstrap;
use crate::properties::Properties;

pub(super) const ACCESS_KEY: &str = "sakia";
pub(super) const SECRET_KEY: &str = "sakia-secret";
pub(super) const PORT_BASE: u16 = 9000;
/// The highest port is this far above the base.
pub(super) const PORT_SPAN: u16 = 844;

/// A process of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Member {
    Bucket,
    Controller,
    Broker(u16),
}

impl Member {
    /// In the order in which they start; they stop the other way round.
    pub(super) const ALL: [Self; 4] = [Self::Bucket, Self::Controller, Self::Broker(1), Self::Broker(2)];

    /// The one with this `node.id`.
    pub(super) fn of_node(node: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|member| member.node() == Some(node))
    }

    pub(super) fn is_broker(self) -> bool {
        matches!(self, Self::Broker(_))
    }

    pub(super) fn node(self) -> Option<u16> {
        match self {
            Self::Bucket => None,
            Self::Controller => Some(3),
            Self::Broker(node) => Some(node),
        }
    }

    pub(super) fn zone(self) -> Option<String> {
        self.node().map(|node| format!("az{node}"))
    }

    /// Of its folder and files.
    pub(super) fn file_name(self) -> String {
        match self {
            Self::Bucket => "bucket".to_owned(),
            Self::Controller => "controller-3".to_owned(),
            Self::Broker(node) => format!("broker-{node}"),
        }
    }

    /// For people.
    pub(super) fn name(self) -> String {
        self.file_name().replace('-', " ")
    }

    /// Where it is asked for work, above the base.
    fn port(self) -> u16 {
        match self {
            Self::Bucket => 0,
            Self::Controller => 93,
            Self::Broker(node) => 92 + 100 * (node - 1),
        }
    }

    fn http_port(self) -> Option<u16> {
        self.node().map(|node| 644 + 100 * (node - 1))
    }
}

/// One cluster on this machine.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) data: PathBuf,
    pub(super) port_base: u16,
    pub(super) partitions: u16,
}

impl Layout {
    pub(super) fn port(&self, member: Member) -> u16 {
        self.port_base + member.port()
    }

    pub(super) fn http_port(&self, member: Member) -> Option<u16> {
        member.http_port().map(|port| self.port_base + port)
    }

    pub(super) fn address(&self, member: Member) -> Bootstrap {
        Bootstrap::new("127.0.0.1", self.port(member))
    }

    pub(super) fn folder(&self, member: Member) -> PathBuf {
        self.data.join(member.file_name())
    }

    pub(super) fn properties_file(&self, member: Member) -> PathBuf {
        self.data.join(format!("{}.properties", member.file_name()))
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.data.join("logs")
    }

    pub(super) fn log_file(&self, member: Member) -> PathBuf {
        self.logs().join(format!("{}.log", member.file_name()))
    }

    pub(super) fn lock_file(&self) -> PathBuf {
        self.data.join("dev.lock")
    }

    pub(super) fn storage_url(&self) -> String {
        let port = self.port(Member::Bucket);
        format!("s3://sakia-wal/dev?endpoint=http://127.0.0.1:{port}&region=us-east-1&path-style=true")
    }

    /// The settings of a broker or controller; the bucket has none.
    pub(super) fn properties(&self, member: Member) -> Option<Properties> {
        let node = member.node()?;
        let port = self.port(member);
        let (role, listener) = match member {
            Member::Controller => ("controller", format!("CONTROLLER://127.0.0.1:{port}")),
            _ => ("broker", format!("PLAINTEXT://127.0.0.1:{port}")),
        };
        let mut properties = self.cluster_properties();
        let own = [
            ("process.roles", role.to_owned()),
            ("node.id", node.to_string()),
            ("broker.rack", member.zone().expect("who has a node.id has a zone")),
            ("listeners", listener),
            ("log.dirs", self.folder(member).display().to_string()),
            ("http.port", self.http_port(member).expect("who has a node.id has a page").to_string()),
        ];
        properties.extend(own.map(|(key, value)| (key.to_owned(), value)));
        Some(properties)
    }

    /// What all of them agree on.
    fn cluster_properties(&self) -> Properties {
        let voters = format!("3@{}", self.address(Member::Controller));
        let (url, partitions) = (self.storage_url(), self.partitions.to_string());
        let texts: [(&str, &str); 15] = [
            ("controller.quorum.voters", &voters),
            ("controller.listener.names", "CONTROLLER"),
            ("num.partitions", &partitions),
            ("default.replication.factor", "2"),
            ("offsets.topic.replication.factor", "2"),
            ("min.insync.replicas", "1"),
            ("broker.session.timeout.ms", "3000"),
            ("group.initial.rebalance.delay.ms", "0"),
            ("replica.selector.class", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
            ("shards", "1"),
            ("remote.log.wal.storage.system.enable", "true"),
            ("log.remote.wal.storage.enable", "true"),
            ("remote.wal.storage.url", &url),
            ("auto.create.topics.enable", "true"),
            ("http.host", "127.0.0.1"),
        ];
        texts.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// Everything below the data folder that a fresh start takes away.
    pub(super) fn kept_between_runs(&self) -> Vec<PathBuf> {
        let mut paths = vec![self.logs()];
        for member in Member::ALL {
            paths.extend([self.folder(member), self.properties_file(member)]);
        }
        paths
    }
}

#[cfg(test)]
mod tests {
    use sakia_engine::settings::{Role, Settings};

    use super::*;

    fn layout() -> Layout {
        Layout { data: PathBuf::from("/d"), port_base: PORT_BASE, partitions: 6 }
    }

    #[test]
    fn ports_are_those_people_know() {
        let layout = layout();
        let ports = Member::ALL.map(|member| (layout.port(member), layout.http_port(member)));
        assert_eq!(ports, [(9000, None), (9093, Some(9844)), (9092, Some(9644)), (9192, Some(9744))]);
        let highest = ports.into_iter().filter_map(|(_, http)| http).max();
        assert_eq!(highest, Some(PORT_BASE + PORT_SPAN));
    }

    #[test]
    fn settings_are_accepted_and_none_is_without_effect() {
        for member in Member::ALL {
            let Some(properties) = layout().properties(member) else { continue };
            let (settings, warnings) = Settings::from_properties(&properties).expect("valid");
            assert!(warnings.is_empty(), "{warnings:?}");
            assert_eq!(settings.is(Role::Controller), member == Member::Controller);
            assert_eq!(settings.rack, member.zone());
            assert!(settings.wal.enabled && settings.replica.rack_aware);
        }
    }

    #[test]
    fn members_are_found_by_node() {
        assert_eq!(Member::of_node(2), Some(Member::Broker(2)));
        assert_eq!(Member::of_node(3), Some(Member::Controller));
        assert_eq!(Member::of_node(4), None);
    }
}
