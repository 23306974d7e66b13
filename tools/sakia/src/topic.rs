//! `sakia topic`: create, list, describe, delete.

use clap::Subcommand;
use sakia_protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use sakia_protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use sakia_protocol::messages::metadata::MetadataResponseTopic;
use serde_json::{Value, json};

use crate::Asking;
use crate::client::{Client, check};
use crate::failure::Failure;
use crate::output::{list, print, row, table};

/// The controller's patience with a request.
const TIMEOUT_MS: i32 = 20_000;

/// Verbs of `sakia topic`.
#[derive(Subcommand)]
pub(crate) enum TopicCommand {
    /// Creates a topic
    Create {
        /// Its name
        name: String,
        /// Its partitions; the broker's default unless given
        #[arg(long)]
        partitions: Option<i32>,
        /// Its replicas; the broker's default unless given
        #[arg(long)]
        replication_factor: Option<i16>,
        /// A setting of the topic; may be repeated
        #[arg(long = "config", value_name = "KEY=VALUE")]
        configs: Vec<String>,
        #[command(flatten)]
        asking: Asking,
    },
    /// Lists topics
    List {
        #[command(flatten)]
        asking: Asking,
    },
    /// Shows partitions with leaders and replicas
    Describe {
        /// Topics; all unless given
        names: Vec<String>,
        #[command(flatten)]
        asking: Asking,
    },
    /// Deletes topics
    Delete {
        /// Topics
        #[arg(required = true)]
        names: Vec<String>,
        #[command(flatten)]
        asking: Asking,
    },
}

pub(crate) fn run(command: TopicCommand) -> Result<(), Failure> {
    match command {
        TopicCommand::Create { name, partitions, replication_factor, configs, asking } => {
            let topic = CreatableTopic {
                name,
                num_partitions: partitions.unwrap_or(-1),
                replication_factor: replication_factor.unwrap_or(-1),
                configs: configs.iter().map(|text| config(text)).collect::<Result<_, _>>()?,
                ..Default::default()
            };
            create(topic, &asking)
        }
        TopicCommand::List { asking } => names(&asking),
        TopicCommand::Describe { names, asking } => describe(&names, &asking),
        TopicCommand::Delete { names, asking } => delete(&names, &asking),
    }
}

fn config(text: &str) -> Result<CreatableTopicConfig, Failure> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| Failure::refused(format!("--config {text}: must be key=value")))?;
    Ok(CreatableTopicConfig { name: name.to_owned(), value: Some(value.to_owned()) })
}

fn create(topic: CreatableTopic, asking: &Asking) -> Result<(), Failure> {
    let mut client = Client::connect(&asking.bootstrap_server)?;
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: TIMEOUT_MS, ..Default::default() };
    let answer = client.ask(&request)?;
    for topic in &answer.topics {
        check(topic.error_code, &format!("topic {}", topic.name), topic.error_message.as_deref())?;
        let value = json!({
            "topic": topic.name,
            "topic_id": topic.topic_id.to_string(),
            "partitions": topic.num_partitions,
            "replication_factor": topic.replication_factor,
        });
        print(asking.shown.form(), &value, || {
            let (partitions, replicas) = (topic.num_partitions, topic.replication_factor);
            format!("created topic {}: {partitions} partitions, {replicas} replicas each\n", topic.name)
        })?;
    }
    Ok(())
}

fn names(asking: &Asking) -> Result<(), Failure> {
    let topics = Client::connect(&asking.bootstrap_server)?.metadata(None)?.topics;
    let mut names: Vec<String> = topics.into_iter().filter_map(|topic| topic.name).collect();
    names.sort_unstable();
    print(asking.shown.form(), &json!(names), || names.iter().map(|name| format!("{name}\n")).collect())
}

fn describe(names: &[String], asking: &Asking) -> Result<(), Failure> {
    let mut client = Client::connect(&asking.bootstrap_server)?;
    let mut topics = client.metadata(Some(names).filter(|names| !names.is_empty()))?.topics;
    topics.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    for topic in &topics {
        check(topic.error_code, &format!("topic {}", topic.name.as_deref().unwrap_or("?")), None)?;
    }
    let value: Vec<Value> = topics.iter().map(topic_value).collect();
    print(asking.shown.form(), &json!(value), || {
        let mut rows = vec![row([&"topic", &"partition", &"leader", &"epoch", &"replicas", &"in sync"])];
        for topic in &mut topics {
            topic.partitions.sort_unstable_by_key(|partition| partition.partition_index);
            let name = topic.name.as_deref().unwrap_or("?");
            rows.extend(topic.partitions.iter().map(|partition| {
                let leader = if partition.leader_id < 0 { "none".to_owned() } else { partition.leader_id.to_string() };
                let (replicas, isr) = (list(&partition.replica_nodes), list(&partition.isr_nodes));
                row([&name, &partition.partition_index, &leader, &partition.leader_epoch, &replicas, &isr])
            }));
        }
        table(&rows)
    })
}

fn topic_value(topic: &MetadataResponseTopic) -> Value {
    let partitions = topic.partitions.iter().map(|partition| {
        json!({
            "partition": partition.partition_index,
            "leader": (partition.leader_id >= 0).then_some(partition.leader_id),
            "leader_epoch": partition.leader_epoch,
            "replicas": partition.replica_nodes,
            "isr": partition.isr_nodes,
        })
    });
    json!({
        "topic": topic.name,
        "topic_id": topic.topic_id.to_string(),
        "internal": topic.is_internal,
        "partitions": partitions.collect::<Vec<_>>(),
    })
}

fn delete(names: &[String], asking: &Asking) -> Result<(), Failure> {
    let mut client = Client::connect(&asking.bootstrap_server)?;
    // Versions below 6 name topics in one field, later ones in another; each version writes its own.
    let request = DeleteTopicsRequest {
        topics: names.iter().map(|name| DeleteTopicState { name: Some(name.clone()), ..Default::default() }).collect(),
        topic_names: names.to_vec(),
        timeout_ms: TIMEOUT_MS,
    };
    for topic in client.ask(&request)?.responses {
        let name = topic.name.unwrap_or_else(|| topic.topic_id.to_string());
        check(topic.error_code, &format!("topic {name}"), topic.error_message.as_deref())?;
    }
    print(asking.shown.form(), &json!({ "deleted": names }), || format!("deleted {}\n", names.join(", ")))
}
