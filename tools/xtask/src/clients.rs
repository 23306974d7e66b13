//! Client tests: real Kafka clients against real processes of `sakia dev`, from `tools/sakia/tests/wire`, `java`, `hostile`
//! and `faults`.
//!
//! Each script starts a cluster of its own on ports of its own, and says what it checks. A client that is not on this
//! machine is skipped with a line; in CI that is a failure.

use crate::steps::{Step, Steps, root, target};

struct Client {
    name: &'static str,
    script: &'static str,
    /// What must work for the client to be there.
    probe: fn() -> bool,
    remedy: &'static str,
}

const CLIENTS: &[Client] = &[
    Client {
        name: "kcat",
        script: "with_kcat.py",
        probe: || python("") && Step::new("kcat").argument("-V").works(),
        remedy: "apt-get install kcat",
    },
    Client {
        name: "confluent",
        script: "with_confluent.py",
        probe: || python("import confluent_kafka"),
        remedy: "pip install confluent-kafka",
    },
    Client {
        name: "kafka-python",
        script: "with_kafka_python.py",
        probe: || python("import kafka; assert int(kafka.__version__.split('.')[0]) >= 3"),
        remedy: "pip install 'kafka-python>=3.0'",
    },
    Client {
        name: "java",
        script: "with_java.py",
        probe: || python("") && Step::new("java").argument("-version").works() && jars().join(TOOLS_JAR).exists(),
        remedy: "mvn -q -f tools/sakia/tests/java/pom.xml dependency:copy-dependencies -DoutputDirectory=$PWD/target/kafka-libs",
    },
    Client { name: "hostile", script: "with_hostile.py", probe: || python(""), remedy: "apt-get install python3" },
];

/// Faults of real processes and of the bucket, seen by an idempotent producer: name, script, arguments of a short run.
const FAULTS: &[(&str, &str, &[&str])] = &[
    ("kill -9", "kill.py", &["--rounds", "4"]),
    ("bucket trouble", "bucket.py", &[]),
    ("controller killed", "controller.py", &["--kills", "3"]),
    ("planned restarts", "rolling.py", &[]),
];

/// One of the jars of Apache Kafka's own tools.
const TOOLS_JAR: &str = "kafka-tools-4.3.1.jar";

fn jars() -> std::path::PathBuf {
    target().join("kafka-libs")
}

fn python(program: &str) -> bool {
    Step::new("python3").argument("-c").argument(program).works()
}

fn script(folder: &str, name: &str) -> Step {
    Step::new("python3")
        .argument(root().join("tools/sakia/tests").join(folder).join(name))
        .argument("--sakia")
        .argument(target().join("release/sakia"))
        .argument("--work")
        .argument(target().join("wire"))
        .argument("--kafka-libs")
        .argument(jars())
        .variable("PYTHONDONTWRITEBYTECODE", 1)
        .variable("PYTHONUNBUFFERED", 1)
}

/// Runs the client tests, or the one with this name.
pub(crate) fn run(steps: &mut Steps, only: Option<&str>) {
    for client in CLIENTS.iter().filter(|client| only.is_none_or(|name| name == client.name)) {
        let name = format!("client {}", client.name);
        if (client.probe)() {
            steps.run(&name, script("wire", client.script));
        } else {
            steps.skip(&name, &format!("not on this machine: {}", client.remedy));
        }
    }
}

/// A short run of every fault.
pub(crate) fn faults(steps: &mut Steps) {
    for (name, file, words) in FAULTS {
        fault(steps, name, words.iter().fold(script("faults", file), Step::argument));
    }
}

/// Kills leaders and controllers under an idempotent producer.
pub(crate) fn kill(steps: &mut Steps, rounds: u64) {
    fault(steps, "kill -9", script("faults", "kill.py").argument("--rounds").argument(rounds.to_string()));
}

fn fault(steps: &mut Steps, name: &str, step: Step) {
    if python("import confluent_kafka") {
        steps.run(name, step);
    } else {
        steps.skip(name, "confluent-kafka is not on this machine: pip install confluent-kafka");
    }
}
