//! `sakia group`: consumer groups, asked from each broker that coordinates some.

use clap::Subcommand;
use sakia_protocol::messages::describe_groups::{DescribeGroupsRequest, DescribedGroup};
use sakia_protocol::messages::find_coordinator::FindCoordinatorRequest;
use sakia_protocol::messages::list_groups::ListGroupsRequest;
use serde_json::{Value, json};

use crate::Asking;
use crate::client::{Bootstrap, Client, address_of, check};
use crate::failure::Failure;
use crate::output::{print, row, table};

/// Verbs of `sakia group`.
#[derive(Subcommand)]
pub(crate) enum GroupCommand {
    /// Lists groups
    List {
        #[command(flatten)]
        asking: Asking,
    },
    /// Shows state and members of a group
    Describe {
        /// Its id
        group: String,
        #[command(flatten)]
        asking: Asking,
    },
}

pub(crate) fn run(command: GroupCommand) -> Result<(), Failure> {
    match command {
        GroupCommand::List { asking } => names(&asking),
        GroupCommand::Describe { group, asking } => describe(&group, &asking),
    }
}

fn names(asking: &Asking) -> Result<(), Failure> {
    let brokers = Client::connect(&asking.bootstrap_server)?.metadata(Some(&[]))?.brokers;
    let mut groups = Vec::new();
    for broker in &brokers {
        let answer = Client::connect(&address_of(broker)?)?.ask(&ListGroupsRequest::default())?;
        check(answer.error_code, &format!("groups of broker {}", broker.node_id), None)?;
        groups.extend(answer.groups.into_iter().map(|group| (group, broker.node_id)));
    }
    groups.sort_unstable_by(|(a, _), (b, _)| a.group_id.cmp(&b.group_id));
    let value: Vec<Value> = groups
        .iter()
        .map(|(group, broker)| {
            json!({
                "group": group.group_id,
                "state": group.group_state,
                "protocol_type": group.protocol_type,
                "coordinator": broker,
            })
        })
        .collect();
    print(asking.shown.form(), &json!(value), || {
        let mut rows = vec![row([&"group", &"state", &"protocol type", &"coordinator"])];
        let cells = groups
            .iter()
            .map(|(group, broker)| row([&group.group_id, &group.group_state, &group.protocol_type, broker]));
        rows.extend(cells);
        table(&rows)
    })
}

/// The broker that coordinates the group.
fn coordinator(client: &mut Client, group: &str) -> Result<Bootstrap, Failure> {
    // Versions below 4 ask for one key, later ones for a list; each version writes its own.
    let request = FindCoordinatorRequest {
        key: group.to_owned(),
        coordinator_keys: vec![group.to_owned()],
        ..Default::default()
    };
    let answer = client.ask(&request)?;
    let (code, host, port) = match answer.coordinators.first() {
        Some(found) => (found.error_code, found.host.clone(), found.port),
        None => (answer.error_code, answer.host, answer.port),
    };
    check(code, &format!("coordinator of group {group}"), None)?;
    let port = u16::try_from(port).map_err(|_| Failure::failed("the coordinator has no port"))?;
    Ok(Bootstrap::new(&host, port))
}

fn describe(group: &str, asking: &Asking) -> Result<(), Failure> {
    let address = coordinator(&mut Client::connect(&asking.bootstrap_server)?, group)?;
    let request = DescribeGroupsRequest { groups: vec![group.to_owned()], ..Default::default() };
    let answer = Client::connect(&address)?.ask(&request)?;
    let found = answer.groups.first().ok_or_else(|| Failure::failed(format!("group {group}: no answer")))?;
    check(found.error_code, &format!("group {group}"), found.error_message.as_deref())?;
    print(asking.shown.form(), &value_of(found, &address), || text_of(found, &address))
}

fn value_of(group: &DescribedGroup, coordinator: &Bootstrap) -> Value {
    let members = group.members.iter().map(|member| {
        json!({
            "member": member.member_id,
            "instance": member.group_instance_id,
            "client": member.client_id,
            "host": member.client_host,
        })
    });
    json!({
        "group": group.group_id,
        "state": group.group_state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol_data,
        "coordinator": coordinator.to_string(),
        "members": members.collect::<Vec<_>>(),
    })
}

fn text_of(group: &DescribedGroup, coordinator: &Bootstrap) -> String {
    let mut rows = vec![row([&"member", &"instance", &"client", &"host"])];
    rows.extend(group.members.iter().map(|member| {
        let instance = member.group_instance_id.as_deref().unwrap_or("–");
        row([&member.member_id, &instance, &member.client_id, &member.client_host])
    }));
    let protocol = if group.protocol_data.is_empty() { "none" } else { &group.protocol_data };
    format!(
        "group {}: {}, assignor {protocol}, coordinator {coordinator}\n{}",
        group.group_id,
        group.group_state,
        table(&rows)
    )
}
