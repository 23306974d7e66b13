//! What a controller shows: whether it is active, and how the cluster is.

use std::time::Duration;

use sakia_controller::{Controller, Image};
use sakia_metrics::{Description, Gauge, Registry};

/// Between looks when nothing is applied.
const LOOK: Duration = Duration::from_secs(1);

/// Shortest time between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// Gauges of a controller process.
pub(super) struct ControllerGauges {
    active: Gauge,
    active_brokers: Gauge,
    fenced_brokers: Gauge,
    topics: Gauge,
    partitions: Gauge,
    offline_partitions: Gauge,
    applied_index: Gauge,
}

impl ControllerGauges {
    pub(super) fn new(registry: &Registry) -> Self {
        let gauge = |name: &'static str, help: &'static str| registry.gauges(Description::new(name, help)).with(&[]);
        Self {
            active: gauge("kafka_controller_kafkacontroller_activecontrollercount", "1 on the active controller"),
            active_brokers: gauge("kafka_controller_kafkacontroller_activebrokercount", "Brokers that serve"),
            fenced_brokers: gauge(
                "kafka_controller_kafkacontroller_fencedbrokercount",
                "Registered brokers that do not",
            ),
            topics: gauge("kafka_controller_kafkacontroller_globaltopiccount", "Topics of the cluster"),
            partitions: gauge("kafka_controller_kafkacontroller_globalpartitioncount", "Partitions of the cluster"),
            offline_partitions: gauge(
                "kafka_controller_kafkacontroller_offlinepartitionscount",
                "Partitions without a leader",
            ),
            applied_index: gauge(
                "kafka_controller_kafkacontroller_lastappliedrecordoffset",
                "Index of the last applied entry of the controller log",
            ),
        }
    }

    /// Follows the controller, for ever.
    pub(super) async fn follow(self, controller: Controller) {
        loop {
            let image = controller.image();
            self.set(&image);
            self.active.set(i64::from(controller.is_active()));
            sakia_io::sleep(PAUSE).await;
            controller.wait_past(image.index, LOOK).await;
        }
    }

    fn set(&self, image: &Image) {
        let number = |count: usize| i64::try_from(count).expect("bounded by the limits of the metadata");
        let fenced = image.brokers.values().filter(|broker| broker.is_fenced()).count();
        self.active_brokers.set(number(image.brokers.len() - fenced));
        self.fenced_brokers.set(number(fenced));
        self.topics.set(number(image.topics().len()));
        let (mut partitions, mut offline) = (0, 0);
        for (_, partition) in image.partitions() {
            partitions += 1;
            offline += usize::from(partition.leader.is_none());
        }
        self.partitions.set(number(partitions));
        self.offline_partitions.set(number(offline));
        self.applied_index.set(image.index.get());
    }
}
