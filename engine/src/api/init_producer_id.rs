//! InitProducerId: identities for idempotent producers. Transactions do not exist yet.

use std::rc::Rc;

use sakia_io::oneshot;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};

use super::{decode, respond};
use crate::connection::{Request, Response};
use crate::messages::ControlMessage;
use crate::shard::Shard;

pub(super) async fn answer(shard: Rc<Shard>, request: Request) -> Response {
    let body: InitProducerIdRequest = match decode(&request) {
        Ok(body) => body,
        Err(close) => return close,
    };
    let response = if body.transactional_id.is_some() {
        refused(ErrorCode::CoordinatorNotAvailable)
    } else {
        match producer_id(&shard).await {
            Ok(producer_id) => InitProducerIdResponse { producer_id, producer_epoch: 0, ..Default::default() },
            Err(code) => refused(code),
        }
    };
    respond(&request, &response)
}

fn refused(code: ErrorCode) -> InitProducerIdResponse {
    InitProducerIdResponse { error_code: code.code(), producer_id: -1, producer_epoch: -1, ..Default::default() }
}

async fn producer_id(shard: &Rc<Shard>) -> Result<i64, ErrorCode> {
    let (reply, answer) = oneshot();
    let unavailable = ErrorCode::CoordinatorNotAvailable;
    shard.addresses.control.send(ControlMessage::ProducerId { reply }).await.map_err(|_| unavailable)?;
    answer.await.ok_or(unavailable)?
}
