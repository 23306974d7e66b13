//! `cargo xtask …`: what a developer and CI run over the repository.
//!
//! ```text
//! check                            format, tidy, lints, unit tests: before a commit (< 2 min warm)
//! test                             everything: tidy, format, lints, all tests, client tests
//! tidy                             crate edges, named crates, unsafe, headers
//! docs                             prints docs/SETTINGS.md from the tables of settings
//! sim --seeds N [--start S]        simulated clusters, one per seed
//! sim --seed X [--trace]           one of them again
//! planted                          known mistakes, one at a time: the simulator finds each
//! kill [--rounds N]                kill -9 of leaders under an idempotent producer, on real processes
//! wire [CLIENT]                    the client tests alone: kcat, confluent, kafka-python, java, hostile
//! perf baseline [...]              the whole broker beside Apache Kafka; words go on to sakia-perf (`perf --help`)
//! ```
//! Reading order: this file, `steps` (how anything is run and counted), `tidy`, `clients`.
//!
//! Everything is built in one profile and with one set of features (`--release --workspace`), so nothing is built twice.

mod arguments;
mod clients;
mod steps;
mod tidy;

use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::steps::{Step, Steps, cargo, is_ci, root};

const USAGE: &str = "cargo xtask check | test | tidy | docs | sim --seeds N [--start S] | sim --seed X [--trace] | planted | kill [--rounds N] | wire [CLIENT] | perf baseline [...]";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let mut arguments = Arguments::new(words);
    let mut steps = Steps::new();
    let result = run(&command, &mut arguments, &mut steps).and_then(|()| arguments.finish());
    if let Err(why) = result {
        eprintln!("{why}\n{USAGE}");
        return ExitCode::from(2);
    }
    steps.finish()
}

fn run(command: &str, arguments: &mut Arguments, steps: &mut Steps) -> Result<(), String> {
    match command {
        "check" => check(steps),
        "test" => test(steps),
        "tidy" => steps.claims("tidy", tidy::run),
        "docs" => docs(steps),
        "sim" => sim(arguments, steps)?,
        "planted" => planted(steps),
        "kill" => {
            let rounds = arguments.number("--rounds")?.unwrap_or(10);
            steps.tests("build", release_tests(&["--no-run"]));
            clients::kill(steps, rounds);
        }
        "wire" => {
            steps.tests("build", release_tests(&["--no-run"]));
            clients::run(steps, arguments.word().as_deref());
        }
        "perf" => {
            steps.tests("build", release_tests(&["--no-run"]));
            let program = cargo(&["run", "--release", "--quiet", "--package", "sakia-perf", "--"]);
            steps.run("perf", arguments.rest().iter().fold(program, Step::argument));
        }
        _ => return Err(format!("no such task: {command:?}")),
    }
    Ok(())
}

fn check(steps: &mut Steps) {
    style(steps);
    steps.tests("unit tests", release_tests(&["--lib", "--bins"]));
}

fn test(steps: &mut Steps) {
    style(steps);
    steps.tests("tests", random_tests(release_tests(&["--no-fail-fast"])));
    planted(steps);
    clients::run(steps, None);
    clients::faults(steps);
}

fn style(steps: &mut Steps) {
    steps.claims("tidy", tidy::run);
    steps.run("format", cargo(&["fmt", "--all", "--check"]));
    let lints = ["clippy", "--release", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    steps.run("lints", cargo(&lints));
}

fn release_tests(more: &[&str]) -> Step {
    let mut words = vec!["test", "--release", "--workspace"];
    words.extend(more);
    cargo(&words)
}

/// Known mistakes, one at a time: the simulator finds each.
fn planted(steps: &mut Steps) {
    let words = ["--features", "sakia-engine/planted", "--test", "sim", "planted"];
    steps.tests("planted bugs", release_tests(&words));
}

/// CI draws as much as the documents promise; elsewhere a run of all tests stays short.
fn random_tests(step: Step) -> Step {
    let (seeds, frames) = if is_ci() { (1000, 1_000_000) } else { (100, 100_000) };
    step.variable("SAKIA_SIM_SEEDS", seeds).variable("SAKIA_SIM_ALL", 1).variable("SAKIA_FUZZ_FRAMES", frames)
}

fn docs(steps: &mut Steps) {
    let page = root().join("docs/SETTINGS.md");
    let command = cargo(&["run", "--release", "--quiet", "--package", "sakia", "--", "settings"]);
    steps.write("docs/SETTINGS.md", command, &page);
}

/// The simulator is a test of the engine; the seeds come through the environment.
fn sim(arguments: &mut Arguments, steps: &mut Steps) -> Result<(), String> {
    let mut command = release_tests(&["--test", "sim", "--", "--nocapture"]);
    if let Some(seed) = arguments.number("--seed")? {
        command = command.variable("SAKIA_SIM_SEED", seed);
        if arguments.flag("--trace") {
            command = command.variable("SAKIA_SIM_TRACE", "debug");
        }
    } else {
        let seeds = arguments.number("--seeds")?.ok_or("sim needs --seeds N or --seed X")?;
        command = command.variable("SAKIA_SIM_SEEDS", seeds).variable("SAKIA_SIM_ALL", 1);
        command = command.variable("SAKIA_SIM_START", arguments.number("--start")?.unwrap_or(1));
    }
    steps.tests("simulation", command);
    Ok(())
}
