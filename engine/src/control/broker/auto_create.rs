//! Topics that come to be because a client asked for them, and the offsets topic when the first group appears.
//!
//! The answer comes when the shards of this broker have the topic, so that the client's next look finds it.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use sakia_controller::apply::check_topic_name;
use sakia_io::{Class, Moment, Reply, now, sleep, spawn, timeout};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use tracing::{info, warn};

use super::{Broker, Place};
use crate::control::limits::{AUTO_CREATE_MAX, AUTO_CREATES_MAX};
use crate::control::topics::{OFFSETS_TOPIC, is_internal};
use crate::rpc::RpcError;
use crate::settings::Settings;

/// Between looks whether the shards have a topic.
const LOOK: Duration = Duration::from_millis(2);

type Codes = Vec<(String, ErrorCode)>;

impl Broker {
    pub(super) fn auto_create(self: &Rc<Self>, names: Vec<String>, reply: Reply<Codes>) {
        let Some(place) = Place::take(&self.auto_creates, AUTO_CREATES_MAX) else {
            let _ = reply.send(names.into_iter().map(|name| (name, ErrorCode::LeaderNotAvailable)).collect());
            return;
        };
        let broker = self.clone();
        spawn(Class::Foreground, async move {
            let codes = broker.create_topics(names).await;
            // The client may have gone.
            let _ = reply.send(codes);
            drop(place);
        })
        .detach();
    }

    async fn create_topics(&self, names: Vec<String>) -> Codes {
        let deadline = now() + AUTO_CREATE_MAX;
        let mut codes: BTreeMap<String, ErrorCode> = BTreeMap::new();
        for name in names {
            let known = self.image.borrow().topic_named(&name).is_some();
            let code = if known { ErrorCode::None } else { check_name(&name) };
            codes.insert(name, code);
        }
        let missing = |image: &sakia_controller::Image, name: &str| image.topic_named(name).is_none();
        let wanted: Vec<&String> = codes.iter().filter(|row| *row.1 == ErrorCode::None).map(|row| row.0).collect();
        let topics: Vec<CreatableTopic> = {
            let image = self.image.borrow();
            wanted.iter().filter(|name| missing(&image, name)).map(|name| topic(name, &self.settings)).collect()
        };
        if !topics.is_empty() {
            let timeout_ms = i32::try_from(AUTO_CREATE_MAX.as_millis()).expect("a few seconds");
            let request = CreateTopicsRequest { topics, timeout_ms, validate_only: false };
            let results = self.ask_for_topics(&request, deadline).await;
            codes.extend(results);
        }
        let created = codes.iter().filter(|row| *row.1 == ErrorCode::None).map(|row| row.0);
        self.wait_for_topics(&created.collect::<Vec<_>>(), deadline).await;
        codes.into_iter().collect()
    }

    async fn ask_for_topics(&self, request: &CreateTopicsRequest, deadline: Moment) -> Codes {
        let answer = loop {
            let left = deadline.as_duration().saturating_sub(now().as_duration());
            match self.admin.call(request, 7, left).await {
                Err(RpcError::Unreachable { .. }) if now() < deadline => {}
                answer => break answer,
            }
        };
        match answer {
            Ok(answer) => answer.topics.into_iter().map(|row| (row.name, code_for_client(row.error_code))).collect(),
            Err(error) => {
                warn!(%error, "topics that clients asked for could not be created");
                request.topics.iter().map(|row| (row.name.clone(), ErrorCode::LeaderNotAvailable)).collect()
            }
        }
    }

    /// Waits until every shard has applied metadata with these topics, or the deadline.
    async fn wait_for_topics(&self, names: &[&String], deadline: Moment) {
        let left = deadline.as_duration().saturating_sub(now().as_duration());
        let seen = async {
            let index = loop {
                {
                    let image = self.image.borrow();
                    if names.iter().all(|name| image.topic_named(name).is_some()) {
                        break image.index;
                    }
                }
                sleep(LOOK).await;
            };
            while self.applied_index() < Some(index) {
                sleep(LOOK).await;
            }
        };
        if timeout(left, seen).await.is_err() {
            info!(topics = names.len(), "topics that clients asked for are not known here yet");
        }
    }
}

/// Whether a client may bring a topic of this name to be.
fn check_name(name: &str) -> ErrorCode {
    match check_topic_name(name) {
        Err(error) => ErrorCode::from_wire(error.code()),
        Ok(()) if is_internal(name) && name != OFFSETS_TOPIC => ErrorCode::UnknownTopicOrPartition,
        Ok(()) => ErrorCode::None,
    }
}

/// Somebody else may have been faster; and what a client cannot mend it asks for again.
fn code_for_client(code: i16) -> ErrorCode {
    match ErrorCode::from_wire(code) {
        ErrorCode::TopicAlreadyExists => ErrorCode::None,
        ErrorCode::NotController | ErrorCode::RequestTimedOut => ErrorCode::LeaderNotAvailable,
        other => other,
    }
}

fn topic(name: &str, settings: &Settings) -> CreatableTopic {
    let plain = CreatableTopic {
        name: name.to_owned(),
        num_partitions: -1,
        replication_factor: -1,
        ..CreatableTopic::default()
    };
    if name != OFFSETS_TOPIC {
        return plain;
    }
    let config =
        |name: &str, value: &str| CreatableTopicConfig { name: name.to_owned(), value: Some(value.to_owned()) };
    CreatableTopic {
        num_partitions: i32::try_from(settings.groups.partitions).expect("the range of the setting fits"),
        replication_factor: i16::try_from(settings.groups.replication_factor).expect("the range of the setting fits"),
        // It is replayed whole: without compaction nothing may be deleted by age, or a group would lose its offsets.
        configs: vec![config("retention.ms", "-1"), config("retention.bytes", "-1")],
        ..plain
    }
}
