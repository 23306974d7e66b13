//! One file per Kafka request, with its response and their parts. Generated from `schema/` by `sakia-codegen`;
//! do not edit.
//!
//! Fields have Kafka's names; a field that a version does not have reads as its default and is not written. What
//! may be null in some version is an `Option`, null by default.

pub mod allocate_producer_ids;
pub mod alter_partition;
pub mod api_versions;
pub mod broker_heartbeat;
pub mod broker_registration;
pub mod create_topics;
pub mod delete_topics;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_groups;
pub mod fetch;
pub mod find_coordinator;
pub mod heartbeat;
pub mod init_producer_id;
pub mod join_group;
pub mod leave_group;
pub mod list_groups;
pub mod list_offsets;
pub mod metadata;
pub mod metadata_stream;
pub mod offset_commit;
pub mod offset_fetch;
pub mod offset_for_leader_epoch;
pub mod produce;
pub mod sync_group;

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
            ApiVersions api_versions 0..=4, 3, ApiVersionsRequest ApiVersionsResponse;
            CreateTopics create_topics 2..=7, 5, CreateTopicsRequest CreateTopicsResponse;
            DeleteTopics delete_topics 1..=6, 4, DeleteTopicsRequest DeleteTopicsResponse;
            InitProducerId init_producer_id 0..=5, 2, InitProducerIdRequest InitProducerIdResponse;
            OffsetForLeaderEpoch offset_for_leader_epoch 2..=4, 4, OffsetForLeaderEpochRequest OffsetForLeaderEpochResponse;
            DescribeConfigs describe_configs 1..=4, 4, DescribeConfigsRequest DescribeConfigsResponse;
            AlterPartition alter_partition 2..=3, 0, AlterPartitionRequest AlterPartitionResponse;
            DescribeCluster describe_cluster 0..=2, 0, DescribeClusterRequest DescribeClusterResponse;
            BrokerRegistration broker_registration 0..=4, 0, BrokerRegistrationRequest BrokerRegistrationResponse;
            BrokerHeartbeat broker_heartbeat 0..=1, 0, BrokerHeartbeatRequest BrokerHeartbeatResponse;
            AllocateProducerIds allocate_producer_ids 0..=0, 0, AllocateProducerIdsRequest AllocateProducerIdsResponse;
            MetadataStream metadata_stream 0..=0, 0, MetadataStreamRequest MetadataStreamResponse;
        }
    };
}
