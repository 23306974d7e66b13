//! AllocateProducerIds: a block of producer ids for one broker process.

use sakia_controller::command::AllocateProducerIds;
use sakia_controller::{Event, ProposeError};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{BrokerEpoch, BrokerId};
use sakia_protocol::messages::allocate_producer_ids::{AllocateProducerIdsRequest, AllocateProducerIdsResponse};

use super::ControllerApi;

impl ControllerApi {
    pub(super) async fn allocate_producer_ids(&self, body: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse {
        match self.allocated(&body).await {
            Ok((first, count)) => AllocateProducerIdsResponse {
                producer_id_start: first,
                producer_id_len: count,
                ..AllocateProducerIdsResponse::default()
            },
            Err(error_code) => AllocateProducerIdsResponse { error_code, ..AllocateProducerIdsResponse::default() },
        }
    }

    async fn allocated(&self, body: &AllocateProducerIdsRequest) -> Result<(i64, i32), i16> {
        let ids = (BrokerId::from_wire(body.broker_id), BrokerEpoch::from_wire(body.broker_epoch));
        let (Some(broker), Some(broker_epoch)) = ids else { return Err(ErrorCode::StaleBrokerEpoch.code()) };
        let code = |error: ProposeError| error.code();
        self.activation().await.map_err(code)?;
        let committed = self.controller.propose(AllocateProducerIds { broker, broker_epoch }).await.map_err(code)?;
        let Some(Event::ProducerIdsAllocated(block)) = committed.events.first() else {
            unreachable!("an accepted allocation gives a block");
        };
        Ok((block.first, i32::try_from(block.count).expect("a block has a thousand ids")))
    }
}
