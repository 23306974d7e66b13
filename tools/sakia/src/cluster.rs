//! `sakia cluster describe`: the cluster's id and its brokers.

use clap::Subcommand;
use sakia_protocol::messages::describe_cluster::DescribeClusterRequest;
use serde_json::{Value, json};

use crate::Asking;
use crate::client::{Client, check};
use crate::failure::Failure;
use crate::output::{print, row, table};

/// Verbs of `sakia cluster`.
#[derive(Subcommand)]
pub(crate) enum ClusterCommand {
    /// Shows the cluster's id and its brokers
    Describe {
        #[command(flatten)]
        asking: Asking,
    },
}

pub(crate) fn run(command: ClusterCommand) -> Result<(), Failure> {
    let ClusterCommand::Describe { asking } = command;
    let mut client = Client::connect(&asking.bootstrap_server)?;
    let answer = client.ask(&DescribeClusterRequest { include_fenced_brokers: true, ..Default::default() })?;
    check(answer.error_code, "cluster", answer.error_message.as_deref())?;
    let brokers: Vec<Value> = answer
        .brokers
        .iter()
        .map(|broker| {
            json!({
                "id": broker.broker_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "fenced": broker.is_fenced,
            })
        })
        .collect();
    let value = json!({ "cluster_id": answer.cluster_id, "brokers": brokers });
    print(asking.shown.form(), &value, || {
        let mut rows = vec![row([&"broker", &"address", &"zone", &"standing"])];
        rows.extend(answer.brokers.iter().map(|broker| {
            let address = format!("{}:{}", broker.host, broker.port);
            let standing = if broker.is_fenced { "fenced" } else { "active" };
            row([&broker.broker_id, &address, &broker.rack.as_deref().unwrap_or("–"), &standing])
        }));
        format!("cluster {}\n{}", answer.cluster_id, table(&rows))
    })
}
