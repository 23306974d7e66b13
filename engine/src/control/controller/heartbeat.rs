//! BrokerHeartbeat: a broker keeps its session, and is unfenced or stopped as it wishes.
//!
//! Sessions are soft state of the active controller, which fences by itself the brokers whose session ended.

use sakia_controller::{Heartbeat, Wish};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{BrokerEpoch, BrokerId, MetadataIndex};
use sakia_protocol::messages::broker_heartbeat::{BrokerHeartbeatRequest, BrokerHeartbeatResponse};
use tracing::debug;

use super::ControllerApi;

impl ControllerApi {
    pub(super) async fn heartbeat(&self, body: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse {
        let error = |error_code| BrokerHeartbeatResponse { error_code, ..BrokerHeartbeatResponse::default() };
        let ids = (BrokerId::from_wire(body.broker_id), BrokerEpoch::from_wire(body.broker_epoch));
        let (Some(broker), Some(broker_epoch)) = ids else { return error(ErrorCode::StaleBrokerEpoch.code()) };
        let applied = MetadataIndex::from_wire(body.current_metadata_offset).unwrap_or(MetadataIndex::ZERO);
        let heartbeat = Heartbeat { broker, broker_epoch, applied, wish: wish(&body) };
        match self.controller.heartbeat(heartbeat).await {
            Ok(answer) => BrokerHeartbeatResponse {
                throttle_time_ms: 0,
                error_code: ErrorCode::None.code(),
                is_caught_up: answer.is_caught_up,
                is_fenced: answer.is_fenced,
                should_shut_down: answer.should_shut_down,
            },
            Err(refused) => {
                debug!(%broker, %broker_epoch, "a heartbeat was refused: {refused}");
                error(refused.code())
            }
        }
    }
}

fn wish(body: &BrokerHeartbeatRequest) -> Wish {
    match (body.want_shut_down, body.want_fence) {
        (true, _) => Wish::Stopped,
        (false, true) => Wish::Fenced,
        (false, false) => Wish::Active,
    }
}
