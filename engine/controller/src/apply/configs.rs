//! Changes of dynamic configuration.
//!
//! Incremental operations are resolved here, in log order, so that two of them at once both take effect. Where
//! min.insync.replicas changes, the eligible replicas are settled in the same entry: an ELR that outlived the setting
//! under which its members left the ISR could elect a replica without acknowledged records. Pure.

use std::collections::BTreeSet;

use sakia_protocol::ids::TopicId;

use super::topics::check_configs;
use crate::command::{ConfigChange, ConfigOperation, SetConfigs};
use crate::election::{Brokers, Happening, Rules, decides_eligibility, settle};
use crate::error::CommandError;
use crate::event::{ConfigsSet, Event, PartitionChanged};
use crate::image::{ConfigResource, Configs, Image};

pub(super) fn set(image: &Image, command: &SetConfigs) -> Result<Vec<Event>, CommandError> {
    let SetConfigs { ref resource, ref changes } = *command;
    check(image, resource, changes)?;
    let empty = Configs::new();
    let present = match resource {
        ConfigResource::Topic(id) => image.topic(id).map(|topic| &topic.configs),
        other => image.configs.get(other),
    };
    let present = present.unwrap_or(&empty);
    let mut next = present.clone();
    for change in changes {
        match resolve(present, change) {
            Some(value) => next.insert(change.name.clone(), value),
            None => next.remove(&change.name),
        };
    }
    check_configs(&next)?;
    let changed = |name: &&String| present.get(*name) != next.get(*name);
    let names: BTreeSet<&String> = changes.iter().map(|change| &change.name).filter(changed).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut events = Vec::new();
    let changes = names.iter().map(|&name| (name.clone(), next.get(name).cloned())).collect();
    let set = Event::ConfigsSet(ConfigsSet { resource: resource.clone(), changes });
    let affects = names.iter().any(|name| decides_eligibility(name));
    events.push(set);
    if affects {
        events.extend(settle_eligible(image, resource, &events));
    }
    Ok(events)
}

fn check(image: &Image, resource: &ConfigResource, changes: &[ConfigChange]) -> Result<(), CommandError> {
    match resource {
        ConfigResource::Topic(id) if image.topic(id).is_none() => {
            return Err(CommandError::UnknownTopicId { topic_id: *id });
        }
        // The controller must know the value that a leader uses, or its ELR is wrong.
        ConfigResource::Broker(_) if changes.iter().any(|change| decides_eligibility(&change.name)) => {
            return Err(CommandError::InvalidConfig { reason: "min.insync.replicas cannot be set for one broker" });
        }
        _ => {}
    }
    let mut names = BTreeSet::new();
    for change in changes {
        if !names.insert(&change.name) {
            return Err(CommandError::InvalidRequest { reason: "an entry is changed twice" });
        }
        let positive = change.value.trim().parse::<u16>().is_ok_and(|number| number > 0);
        if decides_eligibility(&change.name) && change.operation != ConfigOperation::Delete && !positive {
            return Err(CommandError::InvalidConfig { reason: "min.insync.replicas must be a positive number" });
        }
    }
    Ok(())
}

fn resolve(present: &Configs, change: &ConfigChange) -> Option<String> {
    let list = || {
        let text = present.get(&change.name).map_or("", String::as_str);
        text.split(',').map(str::trim).filter(|item| !item.is_empty())
    };
    let wanted = || change.value.split(',').map(str::trim).filter(|item| !item.is_empty());
    match change.operation {
        ConfigOperation::Set => Some(change.value.clone()),
        ConfigOperation::Delete => None,
        ConfigOperation::Append => {
            let mut items: Vec<&str> = list().collect();
            for item in wanted() {
                if !items.contains(&item) {
                    items.push(item);
                }
            }
            Some(items.join(","))
        }
        ConfigOperation::Subtract => {
            let dropped: Vec<&str> = wanted().collect();
            let items: Vec<&str> = list().filter(|item| !dropped.contains(item)).collect();
            Some(items.join(","))
        }
    }
}

fn settle_eligible(image: &Image, resource: &ConfigResource, set: &[Event]) -> Vec<Event> {
    let mut next = image.clone();
    for event in set {
        next.apply(image.index, event);
    }
    let concerned = |id: &TopicId| match resource {
        ConfigResource::Topic(topic) => topic == id,
        _ => true,
    };
    let brokers = Brokers::now(image);
    let mut events = Vec::new();
    for topic in next.topics().filter(|topic| concerned(&topic.id)) {
        let rules = Rules::of(&next, topic);
        for (key, before) in topic.keys().zip(&topic.partitions).filter(|(_, before)| !before.elr.is_empty()) {
            let after = settle(before, Happening::Settings, &brokers, rules);
            events.extend(after.map(|partition| Event::PartitionChanged(PartitionChanged { key, partition })));
        }
    }
    events
}
