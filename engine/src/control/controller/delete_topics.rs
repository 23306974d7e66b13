//! DeleteTopics: by name, from version 6 also by id.

use std::collections::BTreeSet;

use sakia_controller::command::DeleteTopic;
use sakia_controller::{CommandError, Image};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{TopicId, Uuid};
use sakia_protocol::messages::delete_topics::{
    DeletableTopicResult, DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse,
};
use tracing::info;

use super::{ControllerApi, refusal, unproposed};
use crate::control::limits::TOPICS_PER_REQUEST_MAX;
use crate::control::topics::is_internal;
use crate::messages::Refusal;

impl ControllerApi {
    pub(super) async fn delete_topics(&self, body: DeleteTopicsRequest, version: i16) -> DeleteTopicsResponse {
        let named = |name: String| DeleteTopicState { name: Some(name), topic_id: Uuid::ZERO };
        let topics: Vec<DeleteTopicState> = match version {
            ..6 => body.topic_names.into_iter().map(named).collect(),
            _ => body.topics,
        };
        let active = self.activation().await.map_err(|error| unproposed(&error));
        let too_many = topics.len() > TOPICS_PER_REQUEST_MAX;
        let mut seen = BTreeSet::new();
        let mut responses = Vec::with_capacity(topics.len());
        for topic in topics {
            let found = match &active {
                Err(refusal) => Err(refusal.clone()),
                Ok(()) if too_many => Err(invalid("too many topics in one request")),
                Ok(()) => find(&self.controller.image(), &topic),
            };
            let deleted = match found {
                Ok((id, name)) if seen.insert(id) => match self.delete_topic(id, &name).await {
                    Ok(()) => Ok((id, name)),
                    Err(refusal) => Err(in_the_words_of(&topic, refusal)),
                },
                Ok(_) => Err(invalid("the topic is named twice")),
                Err(refusal) => Err(refusal),
            };
            responses.push(result(topic, deleted));
        }
        DeleteTopicsResponse { throttle_time_ms: 0, responses }
    }

    async fn delete_topic(&self, topic_id: TopicId, name: &str) -> Result<(), Refusal> {
        self.propose(DeleteTopic { topic_id }).await?;
        info!(topic = name, id = %topic_id, "topic deleted");
        Ok(())
    }
}

fn invalid(why: &str) -> Refusal {
    Refusal::with_message(ErrorCode::InvalidRequest, why)
}

/// The topic that is meant, if it may be deleted. Pure.
fn find(image: &Image, topic: &DeleteTopicState) -> Result<(TopicId, String), Refusal> {
    let found = match (&topic.name, topic.topic_id.is_zero()) {
        (Some(name), true) => image.topic_named(name).ok_or_else(|| {
            Refusal::with_message(ErrorCode::UnknownTopicOrPartition, format!("no topic is named {name}"))
        })?,
        (None, false) => {
            let topic_id = topic.topic_id;
            image.topic(&topic_id).ok_or_else(|| refusal(&CommandError::UnknownTopicId { topic_id }))?
        }
        (Some(_), false) => return Err(invalid("a topic is named by name or by id, not both")),
        (None, true) => return Err(invalid("neither name nor id of the topic is given")),
    };
    if is_internal(&found.name) {
        return Err(invalid("the topic is the cluster's own"));
    }
    Ok((found.id, found.name.clone()))
}

/// Somebody else deleted the topic meanwhile: who named it by name knows no id.
fn in_the_words_of(topic: &DeleteTopicState, refusal: Refusal) -> Refusal {
    match &topic.name {
        Some(name) if refusal.code == ErrorCode::UnknownTopicId => {
            Refusal::with_message(ErrorCode::UnknownTopicOrPartition, format!("no topic is named {name}"))
        }
        _ => refusal,
    }
}

fn result(topic: DeleteTopicState, deleted: Result<(TopicId, String), Refusal>) -> DeletableTopicResult {
    match deleted {
        Ok((topic_id, name)) => {
            DeletableTopicResult { name: Some(name), topic_id, error_code: ErrorCode::None.code(), error_message: None }
        }
        Err(Refusal { code, message, .. }) => DeletableTopicResult {
            name: topic.name,
            topic_id: topic.topic_id,
            error_code: code.code(),
            error_message: message,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_named_in_one_way() {
        let code = |name: Option<&str>, id: u8| {
            let topic = DeleteTopicState { name: name.map(str::to_owned), topic_id: Uuid::from_bytes([id; 16]) };
            find(&Image::default(), &topic).map_or_else(|refusal| refusal.code, |_| ErrorCode::None)
        };
        assert_eq!(code(Some("t"), 1), ErrorCode::InvalidRequest);
        assert_eq!(code(None, 0), ErrorCode::InvalidRequest);
        assert_eq!(code(Some("t"), 0), ErrorCode::UnknownTopicOrPartition);
        assert_eq!(code(None, 1), ErrorCode::UnknownTopicId);
        let by = |name: Option<&str>| DeleteTopicState { name: name.map(str::to_owned), topic_id: Uuid::ZERO };
        let unknown = || Refusal::code(ErrorCode::UnknownTopicId);
        assert_eq!(in_the_words_of(&by(Some("t")), unknown()).code, ErrorCode::UnknownTopicOrPartition);
        assert_eq!(in_the_words_of(&by(None), unknown()).code, ErrorCode::UnknownTopicId);
    }
}
