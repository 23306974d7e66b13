//! One file per Kafka request, with its response and their parts. Generated from `schema/` by `sakia-codegen`;
//! do not edit.
//!
//! Fields have Kafka's names; a field that a version does not have reads as its default and is not written. What
//! may be null in some version is an `Option`, null by default.

pub mod add_offsets_to_txn;
pub mod add_partitions_to_txn;
pub mod allocate_producer_ids;
pub mod alter_partition;
pub mod alter_partition_reassignments;
pub mod alter_user_scram_credentials;
pub mod api_versions;
pub mod broker_heartbeat;
pub mod broker_registration;
pub mod consumer_group_describe;
pub mod consumer_group_heartbeat;
pub mod create_acls;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_acls;
pub mod delete_groups;
pub mod delete_records;
pub mod delete_topics;
pub mod describe_acls;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_groups;
pub mod describe_log_dirs;
pub mod describe_topic_partitions;
pub mod describe_user_scram_credentials;
pub mod elect_leaders;
pub mod end_txn;
pub mod fetch;
pub mod find_coordinator;
pub mod heartbeat;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod join_group;
pub mod leave_group;
pub mod list_groups;
pub mod list_offsets;
pub mod list_partition_reassignments;
pub mod metadata;
pub mod metadata_stream;
pub mod offset_commit;
pub mod offset_delete;
pub mod offset_fetch;
pub mod offset_for_leader_epoch;
pub mod produce;
pub mod sasl_authenticate;
pub mod sasl_handshake;
pub mod sync_group;
pub mod txn_offset_commit;
pub mod write_txn_markers;

/// Hands every api with a message to macro `$visit`: key, module, versions, first flexible version, types.
#[macro_export]
macro_rules! for_each_api {
    ($visit:ident) => {
        $visit! {
            Produce produce 3..=13, 9, ProduceRequest ProduceResponse;
            Fetch fetch 4..=18, 12, FetchRequest FetchResponse;
            ListOffsets list_offsets 1..=11, 6, ListOffsetsRequest ListOffsetsResponse;
            Metadata metadata 0..=13, 9, MetadataRequest MetadataResponse;
            OffsetCommit offset_commit 2..=10, 8, OffsetCommitRequest OffsetCommitResponse;
            OffsetFetch offset_fetch 1..=10, 6, OffsetFetchRequest OffsetFetchResponse;
            FindCoordinator find_coordinator 0..=6, 3, FindCoordinatorRequest FindCoordinatorResponse;
            JoinGroup join_group 0..=9, 6, JoinGroupRequest JoinGroupResponse;
            Heartbeat heartbeat 0..=4, 4, HeartbeatRequest HeartbeatResponse;
            LeaveGroup leave_group 0..=5, 4, LeaveGroupRequest LeaveGroupResponse;
            SyncGroup sync_group 0..=5, 4, SyncGroupRequest SyncGroupResponse;
            DescribeGroups describe_groups 0..=6, 5, DescribeGroupsRequest DescribeGroupsResponse;
            ListGroups list_groups 0..=5, 3, ListGroupsRequest ListGroupsResponse;
            SaslHandshake sasl_handshake 0..=1, 32767, SaslHandshakeRequest SaslHandshakeResponse;
            ApiVersions api_versions 0..=4, 3, ApiVersionsRequest ApiVersionsResponse;
            CreateTopics create_topics 2..=7, 5, CreateTopicsRequest CreateTopicsResponse;
            DeleteTopics delete_topics 1..=6, 4, DeleteTopicsRequest DeleteTopicsResponse;
            DeleteRecords delete_records 0..=2, 2, DeleteRecordsRequest DeleteRecordsResponse;
            InitProducerId init_producer_id 0..=5, 2, InitProducerIdRequest InitProducerIdResponse;
            OffsetForLeaderEpoch offset_for_leader_epoch 2..=4, 4, OffsetForLeaderEpochRequest OffsetForLeaderEpochResponse;
            AddPartitionsToTxn add_partitions_to_txn 0..=5, 3, AddPartitionsToTxnRequest AddPartitionsToTxnResponse;
            AddOffsetsToTxn add_offsets_to_txn 0..=4, 3, AddOffsetsToTxnRequest AddOffsetsToTxnResponse;
            EndTxn end_txn 0..=5, 3, EndTxnRequest EndTxnResponse;
            WriteTxnMarkers write_txn_markers 1..=1, 1, WriteTxnMarkersRequest WriteTxnMarkersResponse;
            TxnOffsetCommit txn_offset_commit 0..=5, 3, TxnOffsetCommitRequest TxnOffsetCommitResponse;
            DescribeAcls describe_acls 1..=3, 2, DescribeAclsRequest DescribeAclsResponse;
            CreateAcls create_acls 1..=3, 2, CreateAclsRequest CreateAclsResponse;
            DeleteAcls delete_acls 1..=3, 2, DeleteAclsRequest DeleteAclsResponse;
            DescribeConfigs describe_configs 1..=4, 4, DescribeConfigsRequest DescribeConfigsResponse;
            DescribeLogDirs describe_log_dirs 1..=4, 2, DescribeLogDirsRequest DescribeLogDirsResponse;
            SaslAuthenticate sasl_authenticate 0..=2, 2, SaslAuthenticateRequest SaslAuthenticateResponse;
            CreatePartitions create_partitions 0..=3, 2, CreatePartitionsRequest CreatePartitionsResponse;
            DeleteGroups delete_groups 0..=2, 2, DeleteGroupsRequest DeleteGroupsResponse;
            ElectLeaders elect_leaders 0..=2, 2, ElectLeadersRequest ElectLeadersResponse;
            IncrementalAlterConfigs incremental_alter_configs 0..=1, 1, IncrementalAlterConfigsRequest IncrementalAlterConfigsResponse;
            AlterPartitionReassignments alter_partition_reassignments 0..=1, 0, AlterPartitionReassignmentsRequest AlterPartitionReassignmentsResponse;
            ListPartitionReassignments list_partition_reassignments 0..=0, 0, ListPartitionReassignmentsRequest ListPartitionReassignmentsResponse;
            OffsetDelete offset_delete 0..=0, 32767, OffsetDeleteRequest OffsetDeleteResponse;
            DescribeUserScramCredentials describe_user_scram_credentials 0..=0, 0, DescribeUserScramCredentialsRequest DescribeUserScramCredentialsResponse;
            AlterUserScramCredentials alter_user_scram_credentials 0..=0, 0, AlterUserScramCredentialsRequest AlterUserScramCredentialsResponse;
            AlterPartition alter_partition 2..=3, 0, AlterPartitionRequest AlterPartitionResponse;
            DescribeCluster describe_cluster 0..=2, 0, DescribeClusterRequest DescribeClusterResponse;
            BrokerRegistration broker_registration 0..=4, 0, BrokerRegistrationRequest BrokerRegistrationResponse;
            BrokerHeartbeat broker_heartbeat 0..=1, 0, BrokerHeartbeatRequest BrokerHeartbeatResponse;
            AllocateProducerIds allocate_producer_ids 0..=0, 0, AllocateProducerIdsRequest AllocateProducerIdsResponse;
            ConsumerGroupHeartbeat consumer_group_heartbeat 0..=1, 0, ConsumerGroupHeartbeatRequest ConsumerGroupHeartbeatResponse;
            ConsumerGroupDescribe consumer_group_describe 0..=1, 0, ConsumerGroupDescribeRequest ConsumerGroupDescribeResponse;
            DescribeTopicPartitions describe_topic_partitions 0..=0, 0, DescribeTopicPartitionsRequest DescribeTopicPartitionsResponse;
            MetadataStream metadata_stream 0..=0, 0, MetadataStreamRequest MetadataStreamResponse;
        }
    };
}
