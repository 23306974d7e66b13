//! What a coordinator is asked and what comes of it.
//!
//! Pure. A request comes with a ticket of the caller's; its answer, now or later, carries that ticket. Records of an
//! [`Append`] must be committed (acks=all in `__consumer_offsets`), then [`super::Coordinator::append_finished`] says so.
//! Invariant: each ticket is answered exactly once.

use std::time::Duration;

use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::Uuid;
use sakia_protocol::messages::describe_groups::DescribedGroup;
use sakia_protocol::messages::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use sakia_protocol::messages::join_group::{JoinGroupRequest, JoinGroupResponse};
use sakia_protocol::messages::leave_group::{LeaveGroupRequest, LeaveGroupResponse, MemberResponse};
use sakia_protocol::messages::list_groups::ListedGroup;
use sakia_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use sakia_protocol::messages::offset_delete::{OffsetDeleteRequest, OffsetDeleteResponse};
use sakia_protocol::messages::offset_fetch::{OffsetFetchRequestGroup, OffsetFetchResponseGroup};
use sakia_protocol::messages::sync_group::{SyncGroupRequest, SyncGroupResponse};

use super::records::GroupRecord;

/// Names one request of the caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket(pub u64);

/// A request about one group (or, for `List`, all groups of a coordinator).
#[derive(Clone, Debug)]
pub struct GroupRequest {
    /// Client id of the connection; empty if it has none.
    pub client_id: String,
    /// Address of the client, as Kafka shows it: `/10.0.0.1`.
    pub client_host: String,
    /// A random id, new for each request: becomes part of a member id.
    pub fresh: Uuid,
    /// What is asked.
    pub body: GroupBody,
}

/// The requests.
#[derive(Clone, Debug)]
pub enum GroupBody {
    /// Enter the group, or its next generation.
    Join { version: i16, request: JoinGroupRequest },
    /// Hand in or fetch the assignment.
    Sync(SyncGroupRequest),
    /// Still here.
    Heartbeat(HeartbeatRequest),
    /// Leave. From version 3 on the request lists members.
    Leave { version: i16, request: LeaveGroupRequest },
    /// Commit offsets. Topics go by name; who asked by id gets the id back.
    Commit(OffsetCommitRequest),
    /// Fetch committed offsets of one group.
    FetchOffsets(OffsetFetchRequestGroup),
    /// Describe one group.
    Describe { version: i16, group_id: String },
    /// List the groups of this coordinator whose state and type are named (empty: all).
    List { states: Vec<String>, types: Vec<String> },
    /// Delete one group.
    Delete { group_id: String },
    /// Delete committed offsets of one group.
    DeleteOffsets(OffsetDeleteRequest),
}

/// The answers, one kind per request.
#[derive(Clone, PartialEq, Debug)]
pub enum GroupAnswer {
    /// To `Join`.
    Join(JoinGroupResponse),
    /// To `Sync`.
    Sync(SyncGroupResponse),
    /// To `Heartbeat`.
    Heartbeat(HeartbeatResponse),
    /// To `Leave`.
    Leave(LeaveGroupResponse),
    /// To `Commit`.
    Commit(OffsetCommitResponse),
    /// To `FetchOffsets`.
    FetchOffsets(OffsetFetchResponseGroup),
    /// To `Describe`.
    Describe(DescribedGroup),
    /// To `List`.
    List { error: ErrorCode, groups: Vec<ListedGroup> },
    /// To `Delete`.
    Delete(ErrorCode),
    /// To `DeleteOffsets`.
    DeleteOffsets(OffsetDeleteResponse),
}

impl GroupBody {
    /// The group it is about; `None` for `List`.
    #[must_use]
    pub fn group_id(&self) -> Option<&str> {
        Some(match self {
            Self::Join { request, .. } => &request.group_id,
            Self::Sync(request) => &request.group_id,
            Self::Heartbeat(request) => &request.group_id,
            Self::Leave { request, .. } => &request.group_id,
            Self::Commit(request) => &request.group_id,
            Self::FetchOffsets(request) => &request.group_id,
            Self::Describe { group_id, .. } | Self::Delete { group_id } => group_id,
            Self::List { .. } => return None,
            Self::DeleteOffsets(request) => &request.group_id,
        })
    }

    /// The answer that says only `error`, in the place where this kind of answer has it.
    #[must_use]
    pub fn refused(&self, error: ErrorCode) -> GroupAnswer {
        let error_code = error.code();
        match self {
            Self::Join { version, request } => {
                GroupAnswer::Join(join_refused(*version, request.member_id.clone(), error))
            }
            Self::Sync(_) => GroupAnswer::Sync(SyncGroupResponse { error_code, ..Default::default() }),
            Self::Heartbeat(_) => GroupAnswer::Heartbeat(HeartbeatResponse { error_code, ..Default::default() }),
            Self::Leave { version, request } => GroupAnswer::Leave(leave_refused(*version, request, error)),
            Self::Commit(request) => GroupAnswer::Commit(commit_refused(request, error)),
            Self::FetchOffsets(request) => GroupAnswer::FetchOffsets(OffsetFetchResponseGroup {
                group_id: request.group_id.clone(),
                error_code,
                ..Default::default()
            }),
            Self::Describe { group_id, .. } => {
                GroupAnswer::Describe(DescribedGroup { error_code, group_id: group_id.clone(), ..Default::default() })
            }
            Self::List { .. } => GroupAnswer::List { error, groups: Vec::new() },
            Self::Delete { .. } => GroupAnswer::Delete(error),
            Self::DeleteOffsets(_) => {
                GroupAnswer::DeleteOffsets(OffsetDeleteResponse { error_code, ..Default::default() })
            }
        }
    }
}

/// A refused join. Before version 7 the name of the protocol is not nullable.
pub(super) fn join_refused(version: i16, member_id: String, error: ErrorCode) -> JoinGroupResponse {
    JoinGroupResponse {
        error_code: error.code(),
        protocol_name: (version < 7).then(String::new),
        member_id,
        ..Default::default()
    }
}

fn leave_refused(version: i16, request: &LeaveGroupRequest, error: ErrorCode) -> LeaveGroupResponse {
    let members = request.members.iter().filter(|_| version >= 3).map(|member| MemberResponse {
        member_id: member.member_id.clone(),
        group_instance_id: member.group_instance_id.clone(),
        error_code: error.code(),
    });
    LeaveGroupResponse { error_code: error.code(), members: members.collect(), ..Default::default() }
}

/// Every partition of a commit with the same error.
pub(super) fn commit_refused(request: &OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse {
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| OffsetCommitResponsePartition {
            partition_index: partition.partition_index,
            error_code: error.code(),
        });
        OffsetCommitResponseTopic {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions: partitions.collect(),
        }
    });
    OffsetCommitResponse { topics: topics.collect(), ..Default::default() }
}

/// Time as a coordinator sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    /// Since the broker's start: deadlines.
    pub now: Duration,
    /// Since 1970: what is written into records.
    pub wall_ms: i64,
}

/// Settings of all coordinators of a broker.
#[derive(Clone, Debug)]
pub struct GroupSettings {
    /// `group.initial.rebalance.delay.ms`.
    pub initial_rebalance_delay: Duration,
    /// `group.min.session.timeout.ms`.
    pub session_timeout_min: Duration,
    /// `group.max.session.timeout.ms`.
    pub session_timeout_max: Duration,
    /// `group.max.size`.
    pub group_size_max: usize,
    /// `offset.metadata.max.bytes`.
    pub offset_metadata_bytes_max: usize,
    /// `offsets.retention.minutes`.
    pub offsets_retention: Duration,
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self {
            initial_rebalance_delay: Duration::from_secs(3),
            session_timeout_min: Duration::from_secs(6),
            session_timeout_max: Duration::from_secs(30 * 60),
            group_size_max: super::limits::MEMBERS_MAX,
            offset_metadata_bytes_max: super::limits::OFFSET_METADATA_BYTES_MAX,
            offsets_retention: Duration::from_secs(7 * 24 * 60 * 60),
        }
    }
}

/// Names one append among those of its coordinator; they grow in the order in which they must stand in the log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AppendNumber(pub u64);

/// Records that go into the coordinator's partition, as one batch, in this order of numbers.
#[derive(Clone, PartialEq, Debug)]
pub struct Append {
    /// Names it when it is finished.
    pub number: AppendNumber,
    /// At least one.
    pub records: Vec<GroupRecord>,
}

/// What a call brought about.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Effects {
    /// Answers to go out.
    pub answers: Vec<(Ticket, GroupAnswer)>,
    /// Records to be committed.
    pub appends: Vec<Append>,
}

impl Effects {
    /// One answer and nothing else.
    #[must_use]
    pub fn answer(ticket: Ticket, answer: GroupAnswer) -> Self {
        Self { answers: vec![(ticket, answer)], appends: Vec::new() }
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.appends.is_empty()
    }
}
