//! Kafka's requests by number.
//!
//! Every key of Kafka 4.2 is here by name, so that a log line can name what a client asked for. A message type exists
//! only for those with a table in `schema/`; what a listener advertises is decided by the listener. Keys from 20000 on
//! are our own, spoken on the controller listener only.

use std::fmt;
use std::ops::RangeInclusive;

use crate::codec::{Form, WireError};

/// A message that is never in compact form.
const NEVER: i16 = i16::MAX;

macro_rules! api_keys {
    ($($key:literal $name:ident $min:literal..=$max:literal $flexible:tt)*) => {
        /// Which request a frame holds.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(i16)]
        pub enum ApiKey {
            $(
                #[doc = concat!("Key ", stringify!($key), ".")]
                $name = $key,
            )*
        }

        impl ApiKey {
            /// Every key, in growing order.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The request with this number, if we have heard of it.
            #[must_use]
            pub const fn from_wire(key: i16) -> Option<Self> {
                match key {
                    $($key => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The number on the wire.
            #[must_use]
            pub const fn key(self) -> i16 {
                match self {
                    $(Self::$name => $key,)*
                }
            }

            /// Kafka's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The versions that exist: those our message reads and writes, or Kafka's if we have no message.
            #[must_use]
            pub const fn versions(self) -> RangeInclusive<i16> {
                match self {
                    $(Self::$name => $min..=$max,)*
                }
            }

            /// First version in compact form.
            const fn flexible_from(self) -> i16 {
                match self {
                    $(Self::$name => $flexible,)*
                }
            }
        }
    };
}

impl ApiKey {
    /// First of the keys that are our own.
    pub const FIRST_PRIVATE: i16 = 20_000;

    /// Whether `version` has compact lengths and tagged fields.
    #[must_use]
    pub const fn is_flexible(self, version: i16) -> bool {
        version >= self.flexible_from()
    }

    /// The form of a message of `version`.
    ///
    /// # Errors
    /// `Version` if there is no such version.
    pub const fn form(self, version: i16) -> Result<Form, WireError> {
        let versions = self.versions();
        if version < *versions.start() || version > *versions.end() {
            return Err(WireError::Version(version));
        }
        Ok(Form::of(version, self.flexible_from()))
    }

    /// Version of the header before a request of `version`.
    #[must_use]
    pub const fn request_header_version(self, version: i16) -> i16 {
        match self {
            Self::ControlledShutdown if version == 0 => 0,
            _ if self.is_flexible(version) => 2,
            _ => 1,
        }
    }

    /// Version of the header before the response to a request of `version`.
    #[must_use]
    pub const fn response_header_version(self, version: i16) -> i16 {
        match self {
            Self::ApiVersions => 0,
            _ if self.is_flexible(version) => 1,
            _ => 0,
        }
    }

    /// Whether this is one of our own, never to be advertised to clients.
    #[must_use]
    pub const fn is_private(self) -> bool {
        self.key() >= Self::FIRST_PRIVATE
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

api_keys! {
    0 Produce 3..=13 9
    1 Fetch 4..=18 12
    2 ListOffsets 1..=11 6
    3 Metadata 0..=13 9
    4 LeaderAndIsr 0..=7 4
    5 StopReplica 0..=4 2
    6 UpdateMetadata 0..=8 6
    7 ControlledShutdown 0..=3 3
    8 OffsetCommit 2..=10 8
    9 OffsetFetch 1..=10 6
    10 FindCoordinator 0..=6 3
    11 JoinGroup 0..=9 6
    12 Heartbeat 0..=4 4
    13 LeaveGroup 0..=5 4
    14 SyncGroup 0..=5 4
    15 DescribeGroups 0..=6 5
    16 ListGroups 0..=5 3
    17 SaslHandshake 0..=1 NEVER
    18 ApiVersions 0..=4 3
    19 CreateTopics 2..=7 5
    20 DeleteTopics 1..=6 4
    21 DeleteRecords 0..=2 2
    22 InitProducerId 0..=5 2
    23 OffsetForLeaderEpoch 2..=4 4
    24 AddPartitionsToTxn 0..=5 3
    25 AddOffsetsToTxn 0..=4 3
    26 EndTxn 0..=5 3
    27 WriteTxnMarkers 1..=1 1
    28 TxnOffsetCommit 0..=5 3
    29 DescribeAcls 1..=3 2
    30 CreateAcls 1..=3 2
    31 DeleteAcls 1..=3 2
    32 DescribeConfigs 1..=4 4
    33 AlterConfigs 0..=2 2
    34 AlterReplicaLogDirs 1..=2 2
    35 DescribeLogDirs 1..=4 2
    36 SaslAuthenticate 0..=2 2
    37 CreatePartitions 0..=3 2
    38 CreateDelegationToken 1..=3 2
    39 RenewDelegationToken 1..=2 2
    40 ExpireDelegationToken 1..=2 2
    41 DescribeDelegationToken 1..=3 2
    42 DeleteGroups 0..=2 2
    43 ElectLeaders 0..=2 2
    44 IncrementalAlterConfigs 0..=1 1
    45 AlterPartitionReassignments 0..=1 0
    46 ListPartitionReassignments 0..=0 0
    47 OffsetDelete 0..=0 NEVER
    48 DescribeClientQuotas 0..=1 1
    49 AlterClientQuotas 0..=1 1
    50 DescribeUserScramCredentials 0..=0 0
    51 AlterUserScramCredentials 0..=0 0
    52 Vote 0..=2 0
    53 BeginQuorumEpoch 0..=1 1
    54 EndQuorumEpoch 0..=1 1
    55 DescribeQuorum 0..=2 0
    56 AlterPartition 2..=3 0
    57 UpdateFeatures 0..=2 0
    58 Envelope 0..=0 0
    59 FetchSnapshot 0..=1 0
    60 DescribeCluster 0..=2 0
    61 DescribeProducers 0..=0 0
    62 BrokerRegistration 0..=4 0
    63 BrokerHeartbeat 0..=1 0
    64 UnregisterBroker 0..=0 0
    65 DescribeTransactions 0..=0 0
    66 ListTransactions 0..=2 0
    67 AllocateProducerIds 0..=0 0
    68 ConsumerGroupHeartbeat 0..=1 0
    69 ConsumerGroupDescribe 0..=1 0
    70 ControllerRegistration 0..=0 0
    71 GetTelemetrySubscriptions 0..=0 0
    72 PushTelemetry 0..=0 0
    73 AssignReplicasToDirs 0..=0 0
    74 ListConfigResources 0..=1 0
    75 DescribeTopicPartitions 0..=0 0
    76 ShareGroupHeartbeat 1..=1 0
    77 ShareGroupDescribe 1..=1 0
    78 ShareFetch 1..=2 0
    79 ShareAcknowledge 1..=2 0
    80 AddRaftVoter 0..=1 0
    81 RemoveRaftVoter 0..=0 0
    82 UpdateRaftVoter 0..=0 0
    83 InitializeShareGroupState 0..=0 0
    84 ReadShareGroupState 0..=0 0
    85 WriteShareGroupState 0..=1 0
    86 DeleteShareGroupState 0..=0 0
    87 ReadShareGroupStateSummary 0..=1 0
    88 StreamsGroupHeartbeat 0..=0 0
    89 StreamsGroupDescribe 0..=0 0
    90 DescribeShareGroupOffsets 0..=1 0
    91 AlterShareGroupOffsets 0..=0 0
    92 DeleteShareGroupOffsets 0..=0 0
    20001 MetadataStream 0..=0 0
    20011 RaftAppendEntries 0..=0 0
    20012 RaftVote 0..=0 0
    20013 RaftPreVote 0..=0 0
    20014 RaftInstallSnapshot 0..=0 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kafkas_keys_are_dense_and_come_back() {
        for key in 0..=92 {
            assert_eq!(ApiKey::from_wire(key).map(ApiKey::key), Some(key));
        }
        assert_eq!(ApiKey::from_wire(93), None);
        assert_eq!(ApiKey::from_wire(-1), None);
        for key in ApiKey::ALL {
            assert_eq!(ApiKey::from_wire(key.key()), Some(*key));
            assert!(key.versions().start() <= key.versions().end());
            assert_eq!(key.is_private(), key.key() > 92);
        }
    }

    #[test]
    fn every_table_agrees_with_its_key() {
        macro_rules! check {
            ($($api:ident $module:ident $versions:expr, $flexible:expr, $request:ident $response:ident;)*) => {
                $(
                    assert_eq!(ApiKey::$api.versions(), $versions, "{}", ApiKey::$api);
                    assert_eq!(ApiKey::$api.flexible_from(), $flexible, "{}", ApiKey::$api);
                )*
            };
        }
        crate::for_each_api!(check);
    }
}
