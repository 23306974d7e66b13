//! Claims about one controller node in the simulated world: activation, restarts, crashes, sessions, followers.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use sakia_controller::command::{CreateTopic, DeleteTopic, RegisterBroker};
use sakia_controller::image::{Configs, Image, Standing};
use sakia_controller::{CommandError, Controller, ControllerConfig, Heartbeat, OpenError, ProposeError, Wish};
use sakia_io::sim::{Crash, Failing, Machine, World};
use sakia_io::{Class, ShardSpec, Spawner, Threads, now, sleep, spawn};
use sakia_protocol::ids::{BrokerEpoch, BrokerId, MetadataIndex, TopicId, Uuid};

const MINUTE: Duration = Duration::from_secs(60);

fn config() -> ControllerConfig {
    ControllerConfig {
        session_timeout: Duration::from_secs(3),
        segment_bytes: 256 * 1024,
        ..ControllerConfig::new(BrokerId::new(3), PathBuf::from("/data/meta"))
    }
}

fn registration(broker: i32, process: u8) -> RegisterBroker {
    RegisterBroker {
        broker: BrokerId::new(broker),
        incarnation: Uuid::from_bytes([process; 16]),
        previous_broker_epoch: None,
        boot_id: Uuid::ZERO,
        log_folders: Vec::new(),
        rack: None,
        listeners: Vec::new(),
        features: BTreeMap::new(),
    }
}

fn topic_id(number: u64) -> TopicId {
    let mut bytes = [1; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    Uuid::from_bytes(bytes)
}

fn topic(number: u64) -> CreateTopic {
    CreateTopic {
        topic_id: topic_id(number),
        name: format!("topic-{number}"),
        configs: Configs::new(),
        assignments: vec![vec![BrokerId::new(1)]],
    }
}

async fn active() -> Controller {
    active_with(config()).await
}

async fn active_with(config: ControllerConfig) -> Controller {
    let controller = Controller::open(config).await.unwrap();
    controller.wait_active().await;
    controller
}

/// Registers a broker and unfences it.
async fn join(controller: &Controller, broker: i32, process: u8) -> BrokerEpoch {
    let epoch = controller.register(registration(broker, process)).await.unwrap();
    let answer = beat(controller, broker, epoch, Wish::Active).await.unwrap();
    assert!(!answer.is_fenced);
    epoch
}

async fn beat(
    controller: &Controller,
    broker: i32,
    broker_epoch: BrokerEpoch,
    wish: Wish,
) -> Result<sakia_controller::HeartbeatAnswer, ProposeError> {
    let applied = controller.commit_index();
    controller.heartbeat(Heartbeat { broker: BrokerId::new(broker), broker_epoch, applied, wish }).await
}

fn run<T: 'static>(seed: u64, test: impl Future<Output = T> + 'static) -> T {
    let world = World::new(seed);
    let machine = world.machine("controller");
    world.block_on(&machine, 10 * MINUTE, test).unwrap()
}

#[test]
fn a_new_node_is_active_within_a_second_and_draws_a_cluster_id() {
    run(1, async {
        let started = now();
        let controller = active().await;
        assert!(now() - started < Duration::from_secs(1));
        let image = controller.image();
        assert_eq!((image.cluster_id.len(), image.controller_epoch.get()), (22, 1));
        assert_eq!(image.controller_id, Some(BrokerId::new(3)));
        assert_eq!(controller.leader(), Some(BrokerId::new(3)));
        assert!(!image.incarnation.is_zero());
    });
}

#[test]
fn a_restarted_node_has_everything_and_a_higher_controller_epoch() {
    run(2, async {
        let controller = active().await;
        join(&controller, 1, 1).await;
        for number in 0..20 {
            controller.propose(topic(number)).await.unwrap();
        }
        let before = controller.image();
        controller.shutdown().await;
        assert!(matches!(controller.propose(topic(99)).await, Err(ProposeError::NotActive { .. })));
        drop(controller);
        let controller = active().await;
        let after = controller.image();
        assert_eq!(after.controller_epoch.get(), 2);
        assert_eq!((&after.cluster_id, after.incarnation), (&before.cluster_id, before.incarnation));
        assert_eq!(after.topics().collect::<Vec<_>>(), before.topics().collect::<Vec<_>>());
        assert_eq!(after.brokers, before.brokers);
    });
}

#[test]
fn a_folder_has_one_process() {
    run(3, async {
        let controller = active().await;
        let second = Controller::open(config()).await;
        assert!(matches!(second, Err(OpenError::InUse { .. })));
        controller.shutdown().await;
    });
}

#[test]
fn snapshots_bound_the_log_and_a_restart_begins_with_them() {
    run(4, async {
        let small = ControllerConfig { entries_per_snapshot: 50, entries_kept: 10, ..config() };
        let controller = active_with(small.clone()).await;
        join(&controller, 1, 1).await;
        for number in 0..300 {
            controller.propose(topic(number)).await.unwrap();
            controller.propose(DeleteTopic { topic_id: topic_id(number) }).await.unwrap();
        }
        controller.propose(topic(1000)).await.unwrap();
        sleep(Duration::from_secs(5)).await;
        let before = controller.image();
        controller.shutdown().await;
        drop(controller);
        let names = sakia_io::fs::list_dir("/data/meta".as_ref()).await.unwrap();
        let snapshots = names.iter().filter(|entry| entry.name.starts_with("snapshot-") && entry.len > 0);
        assert_eq!(snapshots.count(), 2);
        let logs = names.iter().filter(|entry| entry.name.ends_with(".log"));
        assert!(logs.count() <= 3, "purged segments are removed: {names:?}");
        let controller = active_with(small).await;
        let after = controller.image();
        assert_eq!(after.topics().collect::<Vec<_>>(), before.topics().collect::<Vec<_>>());
        assert_eq!(controller.events_after(MetadataIndex::ZERO), None, "too old: take the image");
    });
}

#[test]
fn a_follower_that_applies_the_events_has_the_same_image() {
    run(5, async {
        let controller = active().await;
        let mut copy = Image::clone(&controller.image());
        join(&controller, 1, 1).await;
        join(&controller, 2, 2).await;
        for number in 0..10 {
            controller.propose(topic(number)).await.unwrap();
        }
        controller.propose(DeleteTopic { topic_id: topic_id(3) }).await.unwrap();
        for (index, event) in controller.events_after(copy.index).unwrap() {
            copy.apply(index, &event);
        }
        copy.advance(controller.commit_index());
        assert_eq!(copy.encode(), controller.image().encode());
        assert_eq!(controller.events_after(copy.index), Some(Vec::new()));
    });
}

#[test]
fn a_wait_ends_with_the_next_entry_or_its_time() {
    run(6, async {
        let controller = active().await;
        join(&controller, 1, 1).await;
        let index = controller.commit_index();
        let other = controller.clone();
        let started = now();
        spawn(Class::Foreground, async move {
            sleep(Duration::from_millis(100)).await;
            other.propose(topic(1)).await.unwrap();
        })
        .detach();
        controller.wait_past(index, MINUTE).await;
        assert!(controller.commit_index() > index);
        assert!(now() - started < Duration::from_secs(1));
        let started = now();
        controller.wait_past(controller.commit_index(), Duration::from_millis(300)).await;
        let waited = now() - started;
        assert!((Duration::from_millis(300)..Duration::from_millis(400)).contains(&waited), "{waited:?}");
    });
}

#[test]
fn a_silent_broker_is_fenced_after_its_session_and_one_that_beats_is_not() {
    run(7, async {
        let controller = active().await;
        let one = join(&controller, 1, 1).await;
        let two = join(&controller, 2, 2).await;
        let standing = |broker| controller.image().brokers[&BrokerId::new(broker)].standing;
        for _ in 0..5 {
            beat(&controller, 2, two, Wish::Active).await.unwrap();
            sleep(Duration::from_millis(500)).await;
        }
        assert_eq!(standing(1), Standing::Active, "2.5 s of 3 s");
        for _ in 0..3 {
            beat(&controller, 2, two, Wish::Active).await.unwrap();
            sleep(Duration::from_millis(500)).await;
        }
        assert_eq!((standing(1), standing(2)), (Standing::Fenced, Standing::Active));
        let answer = beat(&controller, 1, one, Wish::Active).await.unwrap();
        assert!(!answer.is_fenced, "it comes back with its next heartbeat");
    });
}

#[test]
fn a_second_process_waits_for_the_session_of_the_first() {
    run(8, async {
        let controller = active().await;
        let first = join(&controller, 1, 1).await;
        let refused = controller.register(registration(1, 2)).await;
        let duplicate = CommandError::DuplicateRegistration { broker: BrokerId::new(1) };
        assert_eq!(refused, Err(ProposeError::Refused(duplicate)));
        sleep(Duration::from_secs(3)).await;
        let second = controller.register(registration(1, 2)).await.unwrap();
        assert!(second > first);
        let stale = beat(&controller, 1, first, Wish::Active).await.unwrap_err();
        assert_eq!(stale.code(), 77);
    });
}

#[test]
fn the_next_process_on_the_same_log_folders_of_the_same_boot_need_not_wait() {
    run(11, async {
        let controller = active().await;
        let on_disk = |process| RegisterBroker {
            boot_id: Uuid::from_bytes([7; 16]),
            log_folders: vec![Uuid::from_bytes([8; 16])],
            ..registration(1, process)
        };
        let first = controller.register(on_disk(1)).await.unwrap();
        beat(&controller, 1, first, Wish::Active).await.unwrap();
        controller.propose(topic(1)).await.unwrap();
        let second = controller.register(on_disk(2)).await.unwrap();
        assert!(second > first);
        beat(&controller, 1, second, Wish::Active).await.unwrap();
        let image = controller.image();
        let partition = &image.topic(&topic_id(1)).unwrap().partitions[0];
        assert_eq!(partition.leader, Some(BrokerId::new(1)));
        assert_eq!(partition.leader_epoch.get(), 2, "none led in between, and the new process leads anew");
        let elsewhere = RegisterBroker { boot_id: Uuid::from_bytes([9; 16]), ..on_disk(3) };
        assert!(controller.register(elsewhere).await.is_err());
    });
}

#[test]
fn a_controlled_shutdown_ends_at_once_and_the_next_process_may_register() {
    run(9, async {
        let controller = active().await;
        let one = join(&controller, 1, 1).await;
        let two = join(&controller, 2, 2).await;
        controller.propose(topic(1)).await.unwrap();
        assert!(!beat(&controller, 1, one, Wish::Stopped).await.unwrap().should_shut_down);
        beat(&controller, 2, two, Wish::Active).await.unwrap();
        let answer = beat(&controller, 1, one, Wish::Stopped).await.unwrap();
        assert!(answer.should_shut_down && answer.is_fenced);
        let again = RegisterBroker { previous_broker_epoch: Some(one), ..registration(1, 3) };
        controller.register(again).await.unwrap();
    });
}

#[test]
fn a_failed_disk_ends_the_node_and_acknowledges_nothing() {
    let world = World::new(10);
    let machine = world.machine("controller");
    let disk = machine.disk();
    let test = async move {
        let controller = active().await;
        join(&controller, 1, 1).await;
        disk.fail_syncs(Failing::all());
        let refused = controller.propose(topic(1)).await;
        assert!(matches!(refused, Err(ProposeError::Stopped | ProposeError::Unknown)), "{refused:?}");
        controller.failed().await;
        assert!(!controller.is_active());
    };
    world.block_on(&machine, MINUTE, test).unwrap();
}

#[test]
fn a_node_on_a_real_disk_commits_many_commands_at_once_and_restarts() {
    let folder = std::env::temp_dir().join(format!("sakia-controller-node-{}", std::process::id()));
    let root = folder.clone();
    let main = async move || {
        let real = ControllerConfig { dir: root.join("meta"), ..config() };
        let controller = active_with(real.clone()).await;
        join(&controller, 1, 1).await;
        let tasks: Vec<_> = (0..200)
            .map(|number| {
                let controller = controller.clone();
                spawn(Class::Foreground, async move { controller.propose(topic(number)).await.unwrap() })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        let before = controller.image();
        controller.shutdown().await;
        drop(controller);
        let controller = active_with(real).await;
        assert_eq!(controller.image().topics().collect::<Vec<_>>(), before.topics().collect::<Vec<_>>());
        controller.shutdown().await;
        sakia_io::fs::remove_dir_all(&root).await.unwrap();
    };
    let spec = ShardSpec { name: "controller".to_owned(), cpu: None };
    Threads.start(spec, Box::new(move || Box::pin(async move { main().await }))).unwrap().join();
    assert!(!folder.exists(), "the test ran to its end");
}

/// `SAKIA_SIM_SEEDS` and `SAKIA_SIM_START` run more, or others.
fn seeds(count: u64) -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let start = number("SAKIA_SIM_START").unwrap_or(0);
    start..start + number("SAKIA_SIM_SEEDS").unwrap_or(count)
}

/// Proposes topics for ever from four tasks; notes each that is acknowledged.
async fn load(controller: Controller, acknowledged: Rc<RefCell<Vec<u64>>>, from: u64) {
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let (controller, acknowledged) = (controller.clone(), Rc::clone(&acknowledged));
            spawn(Class::Foreground, async move {
                for number in (from + task..).step_by(4) {
                    controller.propose(topic(number)).await.unwrap();
                    acknowledged.borrow_mut().push(number);
                    sleep(Duration::from_millis(10)).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
}

fn crash_run(seed: u64) -> u64 {
    let world = World::new(seed);
    let machine: Machine = world.machine("controller");
    let mut random = world.random();
    let acknowledged: Rc<RefCell<Vec<u64>>> = Rc::default();
    for round in 0..5_u64 {
        let noted = Rc::clone(&acknowledged);
        let client = world.spawn_client(&machine, async move {
            let small = ControllerConfig { entries_per_snapshot: 40, entries_kept: 10, ..config() };
            let controller = active_with(small).await;
            let image = controller.image();
            for number in noted.borrow().iter() {
                assert!(image.topic(&topic_id(*number)).is_some(), "seed {seed} round {round}: topic {number} is lost");
            }
            if round == 0 {
                join(&controller, 1, 1).await;
            } else if let Some(broker) = image.brokers.get(&BrokerId::new(1)) {
                let epoch = broker.epoch;
                beat(&controller, 1, epoch, Wish::Active).await.unwrap();
            } else {
                join(&controller, 1, 1).await;
            }
            load(controller, noted, round * 1_000_000).await;
        });
        world.run_for(random.duration(&(Duration::from_millis(50)..Duration::from_millis(1500))));
        assert!(!client.is_done());
        machine.crash(*random.pick(&[Crash::Kill, Crash::PowerLoss]));
        machine.up();
    }
    assert!(!acknowledged.borrow().is_empty(), "seed {seed}");
    world.trace_hash()
}

#[test]
fn nothing_acknowledged_is_lost_whatever_the_crash() {
    for seed in seeds(8) {
        crash_run(seed);
    }
}

#[test]
fn a_simulated_controller_replays_from_its_seed() {
    assert_eq!(crash_run(200), crash_run(200));
}
