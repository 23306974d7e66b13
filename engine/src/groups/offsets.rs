//! How far a group has read: committed offsets, who may commit them, when they are forgotten.
//!
//! Pure. An offset becomes visible when its record is committed; until then a fetch shows the one before.

use std::collections::BTreeMap;
use std::time::Duration;

use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{LeaderEpoch, Offset};
use sakia_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitResponse, OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
};
use sakia_protocol::messages::offset_fetch::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponseGroup, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
};

use super::group::{Group, State};
use super::limits::OFFSETS_PER_GROUP_MAX;
use super::records::GroupRecord;
use super::request::{GroupAnswer, Ticket, commit_refused};
use super::turn::{Then, Turn};

/// One committed offset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    /// The next offset to read.
    pub offset: Offset,
    /// Epoch of the record before it, where the client said so.
    pub leader_epoch: Option<LeaderEpoch>,
    /// Whatever the client put beside it.
    pub metadata: String,
    /// When it was committed.
    pub committed_ms: i64,
    /// When it is forgotten, where the client said so (requests up to version 4).
    pub expires_ms: Option<i64>,
}

/// Committed offsets of one group, by topic and partition.
#[derive(Clone, Debug, Default)]
pub struct Offsets {
    topics: BTreeMap<String, BTreeMap<i32, Committed>>,
    count: usize,
}

/// A commit whose records are on their way into the log.
#[derive(Clone, Debug)]
pub(super) struct Committing {
    pub(super) ticket: Ticket,
    pub(super) answer: OffsetCommitResponse,
    pub(super) commits: Vec<(String, i32, Committed)>,
}

impl Offsets {
    /// Whether nothing is committed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of partitions with an offset.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// The offset of one partition.
    #[must_use]
    pub fn of(&self, topic: &str, partition: i32) -> Option<&Committed> {
        self.topics.get(topic)?.get(&partition)
    }

    /// Takes over a committed record.
    pub fn insert(&mut self, topic: String, partition: i32, committed: Committed) {
        if self.topics.entry(topic).or_default().insert(partition, committed).is_none() {
            self.count += 1;
        }
    }

    /// Takes over a committed tombstone.
    pub fn remove(&mut self, topic: &str, partition: i32) {
        let Some(partitions) = self.topics.get_mut(topic) else { return };
        if partitions.remove(&partition).is_some() {
            self.count -= 1;
        }
        if partitions.is_empty() {
            self.topics.remove(topic);
        }
    }

    /// Every partition with its offset.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i32, &Committed)> {
        self.topics.iter().flat_map(|(topic, partitions)| {
            partitions.iter().map(|(partition, committed)| (topic.as_str(), *partition, committed))
        })
    }

    fn has_room_for(&self, topic: &str, partition: i32) -> bool {
        self.count < OFFSETS_PER_GROUP_MAX || self.of(topic, partition).is_some()
    }
}

impl Group {
    /// Whether a commit comes from somebody who may: a current member, or anybody while the group has no members.
    fn check_commit(&self, request: &OffsetCommitRequest) -> Result<(), ErrorCode> {
        let generation = request.generation_id_or_member_epoch;
        let names_itself = !request.member_id.is_empty() || request.group_instance_id.is_some();
        if generation < 0 && self.state == State::Empty {
            return Ok(());
        }
        if generation < 0 && !names_itself {
            return Err(ErrorCode::UnknownMemberId);
        }
        self.check_member(&request.member_id, request.group_instance_id.as_deref())?;
        if generation != self.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        // The generation has no assignment yet, so what the member read belongs to the one before.
        if self.state == State::CompletingRebalance {
            return Err(ErrorCode::RebalanceInProgress);
        }
        Ok(())
    }

    /// Offsets are committed: those that may be go into one append.
    pub(super) fn commit(&mut self, ticket: Ticket, request: OffsetCommitRequest, turn: &mut Turn<'_>) {
        if let Err(error) = self.check_commit(&request) {
            turn.answer(ticket, GroupAnswer::Commit(commit_refused(&request, error)));
            return;
        }
        self.touch(&request.member_id, turn.now());
        let retention = u64::try_from(request.retention_time_ms).ok().map(Duration::from_millis);
        let mut commits = Vec::new();
        let topics = request.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|row| {
                let judged = self.judge(&topic.name, row, retention, turn);
                let error = judged.as_ref().err().copied().unwrap_or(ErrorCode::None);
                commits.extend(judged.map(|committed| (topic.name.clone(), row.partition_index, committed)));
                OffsetCommitResponsePartition { partition_index: row.partition_index, error_code: error.code() }
            });
            let partitions = partitions.collect();
            OffsetCommitResponseTopic { name: topic.name.clone(), topic_id: topic.topic_id, partitions }
        });
        let answer = OffsetCommitResponse { topics: topics.collect(), ..Default::default() };
        if commits.is_empty() {
            turn.answer(ticket, GroupAnswer::Commit(answer));
            return;
        }
        let records = commits.iter().map(|(topic, partition, committed)| GroupRecord::Offset {
            group_id: turn.group_id.clone(),
            topic: topic.clone(),
            partition: *partition,
            committed: Some(committed.clone()),
        });
        let records = records.collect();
        turn.append(records, Then::Commit(Committing { ticket, answer, commits }));
    }

    fn judge(
        &self,
        topic: &str,
        row: &OffsetCommitRequestPartition,
        retention: Option<Duration>,
        turn: &Turn<'_>,
    ) -> Result<Committed, ErrorCode> {
        let metadata = row.committed_metadata.clone().unwrap_or_default();
        if metadata.len() > turn.settings.offset_metadata_bytes_max {
            return Err(ErrorCode::OffsetMetadataTooLarge);
        }
        if !self.offsets.has_room_for(topic, row.partition_index) {
            return Err(ErrorCode::InvalidCommitOffsetSize);
        }
        let offset = Offset::from_wire(row.committed_offset).ok_or(ErrorCode::OffsetOutOfRange)?;
        let committed_ms = turn.clock.wall_ms;
        let retention_ms = retention.and_then(|retention| i64::try_from(retention.as_millis()).ok());
        Ok(Committed {
            offset,
            leader_epoch: LeaderEpoch::from_wire(row.committed_leader_epoch),
            metadata,
            committed_ms,
            expires_ms: retention_ms.map(|retention_ms| committed_ms.saturating_add(retention_ms)),
        })
    }

    /// The records of a commit stand, or could not be written.
    pub(super) fn committed(&mut self, then: Committing, stored: Result<(), ErrorCode>, turn: &mut Turn<'_>) {
        let answer = match stored {
            Ok(()) => {
                for (topic, partition, committed) in then.commits {
                    self.offsets.insert(topic, partition, committed);
                }
                then.answer
            }
            Err(error) => then.answer_failed(error),
        };
        turn.answer(then.ticket, GroupAnswer::Commit(answer));
    }

    /// Topics that its members subscribe to, where that can be known: `None` if a member's subscription is not readable.
    pub(super) fn subscribed(&self) -> Option<Vec<String>> {
        let protocol = self.protocol.as_ref()?;
        let topics: Option<Vec<Vec<String>>> = self.members.values().map(|member| member.topics(protocol)).collect();
        Some(topics?.concat())
    }

    /// Offsets that are to be forgotten: past the time their client named, else committed, or their group left empty,
    /// longer ago than the retention. What members subscribe to is kept.
    pub(super) fn expired_offsets(&self, wall_ms: i64, retention: Duration) -> Vec<(String, i32)> {
        let retention_ms = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
        let is_simple = self.protocol_type.is_none();
        let subscribed = (self.state != State::Empty).then(|| self.subscribed());
        let expired = self.offsets.iter().filter(|(topic, _, committed)| {
            if let Some(expires_ms) = committed.expires_ms {
                return self.members.is_empty() && expires_ms <= wall_ms;
            }
            let since_ms = match &subscribed {
                None if is_simple => committed.committed_ms,
                None => committed.committed_ms.max(self.state_since_ms),
                Some(Some(topics)) if topics.iter().all(|known| known != topic) && self.state == State::Stable => {
                    committed.committed_ms
                }
                Some(_) => return false,
            };
            wall_ms.saturating_sub(since_ms) >= retention_ms
        });
        expired.map(|(topic, partition, _)| (topic.to_owned(), partition)).collect()
    }
}

impl Committing {
    /// The answer after a failed write: partitions that were refused before keep their reason.
    pub(super) fn answer_failed(&self, error: ErrorCode) -> OffsetCommitResponse {
        let mut answer = self.answer.clone();
        for row in answer.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
            if row.error_code == 0 {
                row.error_code = error.code();
            }
        }
        answer
    }
}

/// What a fetch of offsets shows: every partition that is named, or all that have an offset. `None`: no such group, which
/// is no error.
pub(super) fn fetch(offsets: Option<&Offsets>, request: &OffsetFetchRequestGroup) -> OffsetFetchResponseGroup {
    let topics = match &request.topics {
        Some(topics) => topics.iter().map(|topic| fetch_named(offsets, topic)).collect(),
        None => offsets.map(fetch_all).unwrap_or_default(),
    };
    OffsetFetchResponseGroup { group_id: request.group_id.clone(), topics, ..Default::default() }
}

fn fetch_named(offsets: Option<&Offsets>, topic: &OffsetFetchRequestTopics) -> OffsetFetchResponseTopics {
    let partitions = topic.partition_indexes.iter().map(|partition| {
        let committed = offsets.and_then(|offsets| offsets.of(&topic.name, *partition));
        committed_row(*partition, committed)
    });
    OffsetFetchResponseTopics { name: topic.name.clone(), topic_id: topic.topic_id, partitions: partitions.collect() }
}

fn fetch_all(offsets: &Offsets) -> Vec<OffsetFetchResponseTopics> {
    let topics = offsets.topics.iter().map(|(name, partitions)| OffsetFetchResponseTopics {
        name: name.clone(),
        partitions: partitions.iter().map(|(number, committed)| committed_row(*number, Some(committed))).collect(),
        ..Default::default()
    });
    topics.collect()
}

fn committed_row(partition_index: i32, committed: Option<&Committed>) -> OffsetFetchResponsePartitions {
    let metadata = committed.map(|committed| committed.metadata.clone());
    OffsetFetchResponsePartitions {
        partition_index,
        committed_offset: Offset::to_wire(committed.map(|committed| committed.offset)),
        committed_leader_epoch: LeaderEpoch::to_wire(committed.and_then(|committed| committed.leader_epoch)),
        metadata: Some(metadata.unwrap_or_default()),
        error_code: ErrorCode::None.code(),
    }
}
