//! `sakia`: the one binary. Processes of a cluster (`server`, `bucket`, `dev`) and small tools (`topic`, `group`,
//! `cluster`, `log`, `wal`).
//!
//! Reading order: this file (the commands), `server`, `dev`, then the tools, which speak Kafka's protocol through
//! `client`.
//!
//! Exit codes: 0 done, 1 failed while running, 2 refused to start (settings, machine, arguments), each with one line.

mod bucket;
mod client;
mod cluster;
mod dev;
mod failure;
mod group;
mod log_dump;
mod output;
mod properties;
mod server;
mod stop;
mod store;
mod topic;
mod wal_dump;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::client::Bootstrap;
use crate::failure::Failure;
use crate::output::Form;

#[derive(Parser)]
#[command(name = "sakia", version, about = "A Kafka-protocol broker whose followers replicate through a bucket")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a broker or a controller
    Server(server::ServerArguments),
    /// Runs an S3-compatible server for development and tests
    Bucket(bucket::BucketArguments),
    /// Runs a bucket, a controller and two brokers on this machine
    Dev(dev::DevArguments),
    /// Creates, lists, describes and deletes topics
    #[command(subcommand)]
    Topic(topic::TopicCommand),
    /// Lists and describes consumer groups
    #[command(subcommand)]
    Group(group::GroupCommand),
    /// Describes the cluster
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Looks into the log of a partition
    #[command(subcommand)]
    Log(log_dump::LogCommand),
    /// Looks into combined objects
    #[command(subcommand)]
    Wal(wal_dump::WalCommand),
    /// Prints every setting with type, default and effect, as Markdown
    Settings,
}

/// Arguments of every tool that asks a broker.
#[derive(Args)]
pub(crate) struct Asking {
    /// A broker to ask first
    #[arg(long, default_value = "127.0.0.1:9092", value_name = "HOST:PORT")]
    bootstrap_server: Bootstrap,
    #[command(flatten)]
    shown: Shown,
}

/// How a tool answers.
#[derive(Args)]
pub(crate) struct Shown {
    /// Answers in JSON
    #[arg(long)]
    json: bool,
}

impl Shown {
    pub(crate) fn form(&self) -> Form {
        if self.json { Form::Json } else { Form::Text }
    }
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Server(arguments) => server::run(&arguments),
        Command::Bucket(arguments) => bucket::run(&arguments),
        Command::Dev(arguments) => dev::run(&arguments),
        Command::Topic(command) => topic::run(command),
        Command::Group(command) => group::run(command),
        Command::Cluster(command) => cluster::run(command),
        Command::Log(command) => log_dump::run(&command),
        Command::Wal(command) => wal_dump::run(&command),
        Command::Settings => output::write(&sakia_engine::settings::markdown()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Refused(why)) => {
            eprintln!("sakia: {why}");
            ExitCode::from(2)
        }
        Err(Failure::Failed(why)) => {
            eprintln!("sakia: {why}");
            ExitCode::FAILURE
        }
    }
}
