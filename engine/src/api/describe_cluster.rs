//! DescribeCluster: the brokers and the cluster's id.

use std::rc::Rc;

use sakia_controller::image::Standing;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::messages::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};

use super::{decode, metadata, respond};
use crate::connection::{Request, Response};
use crate::shard::Shard;

const OPERATIONS_UNKNOWN: i32 = i32::MIN;
/// Kafka's endpoint types: 1 brokers, 2 controllers.
const ENDPOINT_BROKERS: i8 = 1;

pub(super) async fn answer(shard: Rc<Shard>, request: Request) -> Response {
    let body: DescribeClusterRequest = match decode(&request) {
        Ok(body) => body,
        Err(close) => return close,
    };
    if request.api_version >= 1 && body.endpoint_type != ENDPOINT_BROKERS {
        let refused = DescribeClusterResponse {
            error_code: ErrorCode::MismatchedEndpointType.code(),
            error_message: Some("this listener describes brokers; ask a controller for controllers".to_owned()),
            ..DescribeClusterResponse::default()
        };
        return respond(&request, &refused);
    }
    let response = shard.with_image(|image| DescribeClusterResponse {
        endpoint_type: ENDPOINT_BROKERS,
        cluster_id: image.cluster_id.clone(),
        controller_id: metadata::controller(&shard, image),
        brokers: image
            .brokers
            .iter()
            .filter(|(_, broker)| body.include_fenced_brokers || broker.standing != Standing::Fenced)
            .filter_map(|(id, broker)| {
                let listener = broker.listeners.first()?;
                Some(DescribeClusterBroker {
                    broker_id: id.get(),
                    host: listener.host.clone(),
                    port: i32::from(listener.port),
                    rack: broker.rack.clone(),
                    is_fenced: broker.standing == Standing::Fenced,
                })
            })
            .collect(),
        cluster_authorized_operations: OPERATIONS_UNKNOWN,
        ..DescribeClusterResponse::default()
    });
    respond(&request, &response)
}
