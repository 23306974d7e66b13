//! Looking at groups and ending them: DescribeGroups, ListGroups, DeleteGroups, OffsetDelete, and the retention of offsets.
//!
//! Pure.

use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::Uuid;
use sakia_protocol::messages::describe_groups::{DescribedGroup, DescribedGroupMember};
use sakia_protocol::messages::list_groups::ListedGroup;
use sakia_protocol::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteResponse, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};

use super::coordinator::Coordinator;
use super::group::{DEAD, Group, State};
use super::records::GroupRecord;
use super::request::{Clock, Effects, GroupAnswer, GroupBody, Ticket};
use super::turn::Then;

/// The type of every group here, by Kafka's name.
const CLASSIC: &str = "classic";

impl Coordinator {
    pub(super) fn describe(&self, group_id: &str, version: i16) -> GroupAnswer {
        let Some(group) = self.groups.get(group_id) else {
            // From version 6 on a group that does not exist is an error.
            let error = if version >= 6 { ErrorCode::GroupIdNotFound } else { ErrorCode::None };
            return GroupAnswer::Describe(DescribedGroup {
                error_code: error.code(),
                error_message: (version >= 6).then(|| format!("group {group_id} not found")),
                group_id: group_id.to_owned(),
                group_state: DEAD.to_owned(),
                ..Default::default()
            });
        };
        let protocol = group.protocol.as_ref().filter(|_| group.state == State::Stable);
        let members = group.members.iter().map(|(id, member)| DescribedGroupMember {
            member_id: id.clone(),
            group_instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            // Before a generation is stable, nobody can say which metadata and assignment belong together.
            member_metadata: protocol.map(|protocol| member.metadata(protocol)).unwrap_or_default(),
            member_assignment: protocol.map(|_| member.assignment.clone()).unwrap_or_default(),
        });
        GroupAnswer::Describe(DescribedGroup {
            group_id: group_id.to_owned(),
            group_state: group.state.name().to_owned(),
            protocol_type: group.protocol_type.clone().unwrap_or_default(),
            protocol_data: protocol.cloned().unwrap_or_default(),
            members: members.collect(),
            ..Default::default()
        })
    }

    pub(super) fn list(&self, states: &[String], types: &[String]) -> GroupAnswer {
        let named = |names: &[String], name: &str| {
            names.is_empty() || names.iter().any(|named| named.eq_ignore_ascii_case(name))
        };
        let fits = |group: &&Group| named(states, group.state.name()) && named(types, CLASSIC);
        let groups = self.groups.iter().filter(|(_, group)| fits(group)).map(|(id, group)| ListedGroup {
            group_id: id.clone(),
            protocol_type: group.protocol_type.clone().unwrap_or_default(),
            group_state: group.state.name().to_owned(),
            group_type: CLASSIC.to_owned(),
        });
        GroupAnswer::List { error: ErrorCode::None, groups: groups.collect() }
    }

    /// Deletes a group without members, or some of its offsets.
    pub(super) fn delete(&mut self, ticket: Ticket, body: GroupBody, clock: Clock) -> Effects {
        let group_id = body.group_id().expect("it names a group").to_owned();
        let Some(group) = self.groups.get(&group_id) else {
            return Effects::answer(ticket, body.refused(ErrorCode::GroupIdNotFound));
        };
        match body {
            GroupBody::DeleteOffsets(asked) => {
                let judged = judge_offset_delete(group, &asked);
                self.delete_offsets(ticket, asked, judged, clock)
            }
            body if group.state != State::Empty || !group.promised.is_empty() => {
                Effects::answer(ticket, body.refused(ErrorCode::NonEmptyGroup))
            }
            body => {
                let all = group.offsets.iter().map(|(topic, partition, _)| (topic.to_owned(), partition)).collect();
                let mut records = tombstones(&group_id, all);
                records.push(GroupRecord::Group { group_id: group_id.clone(), state: None });
                let then = Then::Answer { ticket, answer: GroupAnswer::Delete(ErrorCode::None), asked: Box::new(body) };
                let effects = self.turn(&group_id, Uuid::ZERO, clock, |_, turn| {
                    turn.append(records, then);
                });
                self.forget(&group_id);
                effects
            }
        }
    }

    fn delete_offsets(
        &mut self,
        ticket: Ticket,
        asked: OffsetDeleteRequest,
        judged: Result<OffsetDeleteResponse, ErrorCode>,
        clock: Clock,
    ) -> Effects {
        let group_id = asked.group_id.clone();
        let answer = match judged {
            Ok(answer) => answer,
            Err(error) => return Effects::answer(ticket, GroupBody::DeleteOffsets(asked).refused(error)),
        };
        let group = self.groups.get_mut(&group_id).expect("the caller looked it up");
        let rows = answer.topics.iter().flat_map(|topic| topic.partitions.iter().map(|row| (&topic.name, row)));
        let free =
            rows.filter(|(topic, row)| row.error_code == 0 && group.offsets.of(topic, row.partition_index).is_some());
        let gone: Vec<(String, i32)> = free.map(|(topic, row)| (topic.clone(), row.partition_index)).collect();
        if gone.is_empty() {
            return Effects::answer(ticket, GroupAnswer::DeleteOffsets(answer));
        }
        for (topic, partition) in &gone {
            group.offsets.remove(topic, *partition);
        }
        let records = tombstones(&group_id, gone);
        let then = Then::Answer {
            ticket,
            answer: GroupAnswer::DeleteOffsets(answer),
            asked: Box::new(GroupBody::DeleteOffsets(asked)),
        };
        self.turn(&group_id, Uuid::ZERO, clock, |_, turn| {
            turn.append(records, then);
        })
    }

    /// Forgets offsets that are past their retention, and groups that keep nothing any more
    /// (`offsets.retention.check.interval.ms`).
    pub fn expire_offsets(&mut self, clock: Clock) -> Effects {
        let retention = self.settings().offsets_retention;
        let mut effects = Effects::default();
        for group_id in self.groups.keys().cloned().collect::<Vec<_>>() {
            let group = self.groups.get_mut(&group_id).expect("its id was just read");
            let gone = group.expired_offsets(clock.wall_ms, retention);
            for (topic, partition) in &gone {
                group.offsets.remove(topic, *partition);
            }
            let is_over = group.state == State::Empty && group.promised.is_empty() && group.offsets.is_empty();
            let is_over = is_over && !self.pending.concerns(&group_id);
            let mut records = tombstones(&group_id, gone);
            if is_over {
                records.push(GroupRecord::Group { group_id: group_id.clone(), state: None });
            }
            if !records.is_empty() {
                let more = self.turn(&group_id, Uuid::ZERO, clock, |_, turn| {
                    turn.append(records, Then::Nothing);
                });
                effects.appends.extend(more.appends);
            }
            if is_over {
                self.forget(&group_id);
            }
        }
        effects
    }

    /// A topic is gone: nobody will read on from its offsets.
    pub fn on_topic_deleted(&mut self, topic: &str, clock: Clock) -> Effects {
        let mut effects = Effects::default();
        for group_id in self.groups.keys().cloned().collect::<Vec<_>>() {
            let group = self.groups.get_mut(&group_id).expect("its id was just read");
            let of_topic = group.offsets.iter().filter(|(name, ..)| *name == topic);
            let gone: Vec<(String, i32)> = of_topic.map(|(name, partition, _)| (name.to_owned(), partition)).collect();
            if gone.is_empty() {
                continue;
            }
            for (topic, partition) in &gone {
                group.offsets.remove(topic, *partition);
            }
            let records = tombstones(&group_id, gone);
            let more = self.turn(&group_id, Uuid::ZERO, clock, |_, turn| {
                turn.append(records, Then::Nothing);
            });
            effects.appends.extend(more.appends);
        }
        effects
    }
}

fn tombstones(group_id: &str, offsets: Vec<(String, i32)>) -> Vec<GroupRecord> {
    let tombstone =
        |(topic, partition)| GroupRecord::Offset { group_id: group_id.to_owned(), topic, partition, committed: None };
    offsets.into_iter().map(tombstone).collect()
}

/// Which offsets may be deleted: all of a group without members; of a live one those of topics that nobody subscribes to.
fn judge_offset_delete(group: &Group, asked: &OffsetDeleteRequest) -> Result<OffsetDeleteResponse, ErrorCode> {
    let subscribed = match group.state {
        State::Empty => Vec::new(),
        _ => group.subscribed().ok_or(ErrorCode::NonEmptyGroup)?,
    };
    let topics = asked.topics.iter().map(|topic| {
        let is_read = subscribed.contains(&topic.name);
        let error = if is_read { ErrorCode::GroupSubscribedToTopic } else { ErrorCode::None };
        let partitions = topic.partitions.iter().map(|row| OffsetDeleteResponsePartition {
            partition_index: row.partition_index,
            error_code: error.code(),
        });
        OffsetDeleteResponseTopic { name: topic.name.clone(), partitions: partitions.collect() }
    });
    Ok(OffsetDeleteResponse { topics: topics.collect(), ..Default::default() })
}
