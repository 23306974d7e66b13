//! AlterPartition: leaders change the in-sync sets of their partitions.
//!
//! Every check of epochs is made where the command is applied, in log order (KIP-903).

use sakia_controller::Image;
use sakia_controller::command::{AlterPartition, IsrChange};
use sakia_controller::image::{IsrMember, LeaderRecovery};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, PartitionIndex, PartitionKey, TopicId};
use sakia_protocol::messages::alter_partition::{
    AlterPartitionRequest, AlterPartitionResponse, PartitionData, PartitionResult, TopicResult,
};
use tracing::debug;

use super::ControllerApi;

/// A row of the request: its number, and its place among the changes or why it is none.
type Row = (i32, Result<usize, ErrorCode>);

impl ControllerApi {
    pub(super) async fn alter_partition(&self, body: AlterPartitionRequest, version: i16) -> AlterPartitionResponse {
        match self.altered(body, version).await {
            Ok(topics) => AlterPartitionResponse { topics, ..AlterPartitionResponse::default() },
            Err(error_code) => AlterPartitionResponse { error_code, ..AlterPartitionResponse::default() },
        }
    }

    async fn altered(&self, body: AlterPartitionRequest, version: i16) -> Result<Vec<TopicResult>, i16> {
        let ids = (BrokerId::from_wire(body.broker_id), BrokerEpoch::from_wire(body.broker_epoch));
        let (Some(broker), Some(broker_epoch)) = ids else { return Err(ErrorCode::StaleBrokerEpoch.code()) };
        self.activation().await.map_err(|error| error.code())?;
        let before = self.controller.image();
        let mut changes: Vec<IsrChange> = Vec::new();
        let mut topics: Vec<(TopicId, Vec<Row>)> = Vec::new();
        for topic in body.topics {
            let mut rows = Vec::new();
            for row in topic.partitions {
                let place = changes.len();
                let change = change(&before, topic.topic_id, &row, version);
                rows.push((row.partition_index, change.map(|change| changes.push(change)).map(|()| place)));
            }
            topics.push((topic.topic_id, rows));
        }
        let refused = if changes.is_empty() {
            Vec::new()
        } else {
            let committed = self.controller.propose(AlterPartition { broker, broker_epoch, changes }).await;
            committed.map_err(|error| error.code())?.refused
        };
        let after = self.controller.image();
        let result = |topic_id: TopicId, (number, change): Row| {
            let code = match change {
                Err(code) => Some(code.code()),
                Ok(place) => refused.iter().find(|(at, _)| *at == place).map(|(_, error)| {
                    debug!(%broker, topic = %topic_id, partition = number, "an ISR was refused: {error}");
                    error.code()
                }),
            };
            partition_result(&after, topic_id, number, code)
        };
        let topic_result = |(topic_id, rows): (TopicId, Vec<Row>)| TopicResult {
            topic_id,
            partitions: rows.into_iter().map(|row| result(topic_id, row)).collect(),
        };
        Ok(topics.into_iter().map(topic_result).collect())
    }
}

/// A row as a change. Pure.
fn change(image: &Image, topic_id: TopicId, row: &PartitionData, version: i16) -> Result<IsrChange, ErrorCode> {
    let partition = PartitionIndex::from_wire(row.partition_index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let recovery = match row.leader_recovery_state {
        0 => LeaderRecovery::Recovered,
        1 => LeaderRecovery::Recovering,
        _ => return Err(ErrorCode::InvalidRequest),
    };
    // Version 2, and a sender that does not know, mean the present registration.
    let present = |broker| image.brokers.get(&broker).map(|found| found.epoch);
    let member = |broker: i32, epoch: Option<BrokerEpoch>| {
        let broker = BrokerId::from_wire(broker).ok_or(ErrorCode::InvalidRequest)?;
        let broker_epoch = epoch.or_else(|| present(broker)).ok_or(ErrorCode::IneligibleReplica)?;
        Ok(IsrMember { broker, broker_epoch })
    };
    let isr: Result<Vec<IsrMember>, ErrorCode> = if version >= 3 {
        let members = row.new_isr_with_epochs.iter();
        members.map(|state| member(state.broker_id, BrokerEpoch::from_wire(state.broker_epoch))).collect()
    } else {
        row.new_isr.iter().map(|broker| member(*broker, None)).collect()
    };
    Ok(IsrChange {
        key: PartitionKey { topic_id, partition },
        leader_epoch: LeaderEpoch::from_wire(row.leader_epoch).ok_or(ErrorCode::FencedLeaderEpoch)?,
        partition_epoch: PartitionEpoch::from_wire(row.partition_epoch).ok_or(ErrorCode::InvalidUpdateVersion)?,
        isr: isr?,
        recovery,
    })
}

fn partition_result(image: &Image, topic_id: TopicId, number: i32, refused: Option<i16>) -> PartitionResult {
    let partition = PartitionIndex::from_wire(number);
    let record = partition.and_then(|partition| image.partition(&PartitionKey { topic_id, partition }));
    match (refused, record) {
        (None, Some(record)) => PartitionResult {
            partition_index: number,
            error_code: ErrorCode::None.code(),
            leader_id: BrokerId::to_wire(record.leader),
            leader_epoch: record.leader_epoch.get(),
            isr: record.isr.iter().map(|member| member.broker.get()).collect(),
            leader_recovery_state: i8::from(record.recovery == LeaderRecovery::Recovering),
            partition_epoch: record.partition_epoch.get(),
        },
        (refused, _) => PartitionResult {
            partition_index: number,
            error_code: refused.unwrap_or(ErrorCode::UnknownTopicOrPartition.code()),
            ..PartitionResult::default()
        },
    }
}
