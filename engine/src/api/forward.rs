//! Requests that the controller decides: sent to it as they were received, answered as it answers.

use std::rc::Rc;

use sakia_io::oneshot;

use crate::connection::{Request, Response};
use crate::messages::ControlMessage;
use crate::shard::Shard;

pub(super) async fn answer(shard: Rc<Shard>, request: Request) -> Response {
    let (reply, answer) = oneshot();
    let message = ControlMessage::Forward { frame: request.frame.clone(), reply };
    if shard.addresses.control.send(message).await.is_err() {
        return Response::Close("the broker is stopping".to_owned());
    }
    match answer.await.flatten() {
        Some(frame) => Response::Pieces(vec![frame]),
        // As Kafka: no controller can be reached, the client tries again on another connection.
        None => Response::Close(format!("no controller answered {}", request.api_key.name())),
    }
}
