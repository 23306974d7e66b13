//! DescribeConfigs: settings of topics and brokers, with where each value comes from.

use std::rc::Rc;

use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResponse,
    DescribeConfigsResult,
};

use super::{decode, respond};
use crate::connection::{Request, Response};
use crate::settings::{BROKER, Kind, Setting, TOPIC};
use crate::shard::Shard;

// Kafka's resource types, sources and value types.
const RESOURCE_TOPIC: i8 = 2;
const RESOURCE_BROKER: i8 = 4;
const SOURCE_TOPIC: i8 = 1;
const SOURCE_STATIC_BROKER: i8 = 4;
const SOURCE_DEFAULT: i8 = 5;

pub(super) async fn answer(shard: Rc<Shard>, request: Request) -> Response {
    let body: DescribeConfigsRequest = match decode(&request) {
        Ok(body) => body,
        Err(close) => return close,
    };
    let results = body.resources.into_iter().map(|resource| describe(&shard, resource)).collect();
    respond(&request, &DescribeConfigsResponse { results, ..DescribeConfigsResponse::default() })
}

fn describe(shard: &Shard, resource: DescribeConfigsResource) -> DescribeConfigsResult {
    let rows = match resource.resource_type {
        RESOURCE_TOPIC => topic_rows(shard, &resource),
        RESOURCE_BROKER => broker_rows(shard, &resource),
        other => Err((ErrorCode::InvalidRequest, format!("resource type {other} has no settings here"))),
    };
    let (error_code, error_message, configs) = match rows {
        Ok(rows) => (ErrorCode::None, None, rows),
        Err((code, message)) => (code, Some(message), Vec::new()),
    };
    DescribeConfigsResult {
        error_code: error_code.code(),
        error_message,
        resource_type: resource.resource_type,
        resource_name: resource.resource_name,
        configs,
    }
}

type Rows = Result<Vec<DescribeConfigsResourceResult>, (ErrorCode, String)>;

fn topic_rows(shard: &Shard, resource: &DescribeConfigsResource) -> Rows {
    let name = &resource.resource_name;
    let topic = shard.with_image(|image| image.topic_named(name).cloned());
    let topic = topic.ok_or_else(|| (ErrorCode::UnknownTopicOrPartition, format!("no topic is named {name}")))?;
    let settings = shard.topic_settings(&topic);
    let asked = TOPIC.iter().filter(|setting| is_asked(resource, setting.name));
    Ok(asked
        .filter_map(|setting| {
            let source = if topic.configs.contains_key(setting.name) { SOURCE_TOPIC } else { SOURCE_DEFAULT };
            Some(result(setting, settings.text(setting.name)?, source))
        })
        .collect())
}

fn broker_rows(shard: &Shard, resource: &DescribeConfigsResource) -> Rows {
    let me = shard.settings.node_id.to_string();
    if !resource.resource_name.is_empty() && resource.resource_name != me {
        let message = format!("broker {} is another broker; ask it itself", resource.resource_name);
        return Err((ErrorCode::InvalidRequest, message));
    }
    let asked = BROKER.iter().filter(|setting| is_asked(resource, setting.name));
    Ok(asked
        .map(|setting| match shard.settings.texts.get(setting.name) {
            Some(text) => result(setting, text.clone(), SOURCE_STATIC_BROKER),
            None => result(setting, setting.default.to_owned(), SOURCE_DEFAULT),
        })
        .collect())
}

fn is_asked(resource: &DescribeConfigsResource, name: &str) -> bool {
    resource.configuration_keys.as_ref().is_none_or(|keys| keys.iter().any(|key| key == name))
}

fn result(setting: &Setting, value: String, source: i8) -> DescribeConfigsResourceResult {
    DescribeConfigsResourceResult {
        name: setting.name.to_owned(),
        value: Some(value),
        read_only: true,
        config_source: source,
        is_sensitive: false,
        synonyms: Vec::new(),
        config_type: config_type(setting.kind),
        documentation: Some(setting.text.to_owned()),
    }
}

fn config_type(kind: Kind) -> i8 {
    match kind {
        Kind::Boolean => 1,
        Kind::Text | Kind::OneOf(_) => 2,
        Kind::Integer { .. } | Kind::Milliseconds { .. } | Kind::Bytes { .. } => 5,
        Kind::List => 7,
    }
}
