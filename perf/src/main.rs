//! `sakia-perf`: the whole broker under load, beside Apache Kafka, in one run on one machine.
//!
//! Reading order: `baseline` (what is run in which order), `side` (the three things compared), `cluster` (their
//! processes), then how load is made (`producer_perf`, `end_to_end` over `wire`) and what is measured (`usage`), and
//! where it goes (`results`, `table`).
//!
//! Always: figures are compared within one run only; everything listens on loopback; every process that was started is
//! ended by its own pid; every wait has a bound.

mod baseline;
mod cluster;
mod counts;
mod end_to_end;
mod failure;
mod load;
mod machine;
mod process;
mod producer_perf;
mod results;
mod side;
mod table;
mod usage;
mod wire;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "sakia-perf", version, about = "The whole broker under load")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Sakia with the object path, without it, and Apache Kafka, in turns; one table of ratios
    Baseline(baseline::BaselineArguments),
}

fn main() -> ExitCode {
    let Command::Baseline(arguments) = Cli::parse().command;
    match baseline::run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("sakia-perf: {why}");
            ExitCode::FAILURE
        }
    }
}
