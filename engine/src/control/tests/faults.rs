//! What happens when brokers or the controller fall silent, are killed, or are not who they say.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sakia_controller::Event;
use sakia_controller::image::Standing;
use sakia_io::Class;
use sakia_io::sim::Crash;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::BrokerId;
use sakia_protocol::messages::create_topics::CreateTopicsRequest;

use super::cluster::{Cluster, FakeBroker, SECOND, plain};
use crate::log::checkpoint::{CleanStop, FolderIdentity};
use crate::messages::ControlMessage;
use crate::rpc::Peer;

/// The broker that leads the first partition of a topic, and the other one.
fn by_leadership<'a>(topic: &str, one: &'a FakeBroker, two: &'a FakeBroker) -> (&'a FakeBroker, &'a FakeBroker) {
    let leader = one.partition(topic, 0).unwrap().1.leader;
    if leader == Some(BrokerId::new(1)) { (one, two) } else { (two, one) }
}

#[test]
fn a_broker_that_falls_silent_is_fenced_and_what_it_led_moves_in_the_same_entry() {
    let cluster = Cluster::new(11);
    let (one, two) = cluster.two_brokers();
    cluster.auto_create(&one, &["orders"]);
    cluster.until(|| two.partition("orders", 0).is_some());
    let (gone, left) = by_leadership("orders", &one, &two);
    let (gone_id, first_epoch) = (gone.partition("orders", 0).unwrap().1.leader.unwrap().get(), gone.epoch());
    let before = left.partition("orders", 0).unwrap().1;
    gone.machine.crash(Crash::Kill);
    let killed = cluster.world.now();
    cluster.until(|| matches!(left.standing(gone_id), Some((_, Standing::Fenced))));
    let took = cluster.world.now() - killed;
    assert!(took > SECOND && took < SECOND * 4, "the session lasts 3 s: {took:?}");
    let after = left.partition("orders", 0).unwrap().1;
    assert_ne!(after.leader, before.leader);
    assert_eq!((after.leader_epoch.get(), after.isr.len()), (before.leader_epoch.get() + 1, 1));
    let together = left.seen(|seen| {
        let (_, events) = seen.deltas.last().cloned().unwrap();
        let fenced = events.iter().any(|event| matches!(event, Event::BrokerStandingChanged(_)));
        fenced && events.iter().any(|event| matches!(event, Event::PartitionChanged(_)))
    });
    assert!(together);

    gone.machine.up();
    let back = cluster.start_broker(gone_id, &gone.machine.name());
    cluster.until(|| left.knows_active(gone_id) && back.knows_active(gone_id));
    assert!(back.epoch() > first_epoch);
    assert_eq!(back.partition("orders", 0).unwrap().1.leader, after.leader, "coming back moves nothing");
}

#[test]
fn a_broker_restarted_on_its_folder_is_back_at_once_and_in_a_new_epoch() {
    let cluster = Cluster::new(12);
    let (one, two) = cluster.two_brokers();
    let first = one.epoch();
    one.machine.crash(Crash::Kill);
    one.machine.up();
    let restarted = cluster.world.now();
    let back = cluster.start_broker(1, "broker1");
    cluster.until(|| back.knows_active(1) && two.standing(1) == back.standing(1));
    assert!(cluster.world.now() - restarted < SECOND, "it need not wait for the end of the session that was killed");
    assert!(back.epoch() > first);
}

#[test]
fn a_second_process_with_the_same_id_is_kept_out() {
    let cluster = Cluster::new(13);
    let (one, two) = cluster.two_brokers();
    let intruder = cluster.start_broker(1, "elsewhere");
    cluster.world.run_for(SECOND * 20);
    assert!(two.knows_active(1));
    assert_eq!(two.standing(1), Some((one.epoch(), Standing::Active)));
    assert_eq!(intruder.seen(|seen| seen.image.index.get()), 0, "it was told nothing");
}

#[test]
fn topics_that_were_answered_outlive_a_killed_controller_and_brokers_go_on() {
    for seed in 100..108 {
        let cluster = Cluster::new(seed);
        let (one, two) = cluster.two_brokers();
        let epochs = (one.epoch(), two.epoch());
        let created = Rc::new(RefCell::new(Vec::new()));
        let (names, address) = (created.clone(), cluster.controller_address());
        let load = cluster.world.spawn_client(&cluster.client, async move {
            let peer = Peer::new(address, Class::Foreground);
            for number in 0.. {
                // As fast as an administrator's script, not as fast as the simulated disk.
                sakia_io::sleep(Duration::from_millis(3)).await;
                let name = format!("topic-{number}");
                let request = CreateTopicsRequest { topics: vec![plain(&name)], ..CreateTopicsRequest::default() };
                if let Ok(answer) = peer.call(&request, 7, SECOND).await
                    && answer.topics[0].error_code == ErrorCode::None.code()
                {
                    names.borrow_mut().push(name);
                }
            }
        });
        let mut random = cluster.world.random();
        for _ in 0..3 {
            cluster.world.run_for(Duration::from_micros(random.within(100_000..900_000)));
            cluster.kill_controller();
            cluster.world.run_for(Duration::from_micros(random.within(1_000..900_000)));
            cluster.start_controller();
        }
        let before = created.borrow().len();
        cluster.until(|| created.borrow().len() >= before + 5);
        assert!(before > 0, "seed {seed}: nothing was created under load");
        let wanted = created.borrow().clone();
        let has_all =
            |broker: &FakeBroker| broker.seen(|seen| wanted.iter().all(|name| seen.image.topic_named(name).is_some()));
        cluster.until(|| has_all(&one) && has_all(&two));
        assert_eq!((one.epoch(), two.epoch()), epochs, "seed {seed}: brokers keep their registration");
        assert!(one.knows_active(2) && two.knows_active(1), "seed {seed}: nobody was fenced");
        drop(load);
    }
}

#[test]
fn brokers_outlive_a_long_absence_of_the_controller() {
    let cluster = Cluster::new(14);
    let (one, two) = cluster.two_brokers();
    cluster.auto_create(&one, &["orders"]);
    let epochs = (one.epoch(), two.epoch());
    cluster.kill_controller();
    cluster.world.run_for(SECOND * 30);
    let codes = cluster.auto_create(&one, &["more"]);
    assert_eq!(codes, [("more".to_owned(), ErrorCode::LeaderNotAvailable)], "an answer comes although nobody decides");
    cluster.start_controller();
    // A new controller gives everybody a full session.
    cluster.world.run_for(SECOND * 5);
    assert_eq!((one.epoch(), two.epoch()), epochs);
    assert!(one.knows_active(2) && two.knows_active(1));
    assert_eq!(cluster.auto_create(&two, &["more"]), [("more".to_owned(), ErrorCode::None)]);
}

#[test]
fn a_broker_that_stops_hands_its_leaderships_over_and_leaves_its_mark() {
    let cluster = Cluster::new(15);
    let (one, two) = cluster.two_brokers();
    cluster.auto_create(&one, &["orders"]);
    cluster.until(|| two.partition("orders", 0).is_some());
    let (stopping, left) = by_leadership("orders", &one, &two);
    let id = stopping.partition("orders", 0).unwrap().1.leader.unwrap();
    let epoch = stopping.epoch();
    let began = cluster.world.now();
    cluster.tell(stopping, |reply| ControlMessage::Stop { reply });
    assert!(cluster.world.now() - began < SECOND, "the controller is there, so a stop is quick");
    cluster.until(|| stopping.seen(|seen| seen.stopped.is_some()));
    assert_eq!(stopping.seen(|seen| seen.stopped.unwrap().broker_epoch), Some(epoch));
    assert!(matches!(left.standing(id.get()), Some((_, Standing::Fenced | Standing::ShuttingDown))));
    assert_ne!(left.partition("orders", 0).unwrap().1.leader, Some(id));
    cluster.world.run_for(SECOND);
    let mark = stopping.machine.disk().content("/data/.kafka_cleanshutdown").unwrap();
    assert_eq!(CleanStop::decode(&mark), Ok(CleanStop { broker_epoch: Some(epoch) }));
    // Its session ended with it: the next process is registered at once.
    let began = cluster.world.now();
    let back = cluster.start_broker(id.get(), &stopping.machine.name());
    cluster.until(|| back.knows_active(id.get()));
    assert!(cluster.world.now() - began < SECOND);
}

#[test]
fn a_stop_without_a_controller_is_bounded() {
    let cluster = Cluster::new(16);
    let (one, _two) = cluster.two_brokers();
    cluster.kill_controller();
    cluster.world.run_for(SECOND);
    let began = cluster.world.now();
    cluster.tell(&one, |reply| ControlMessage::Stop { reply });
    assert!(cluster.world.now() - began < SECOND * 3);
    let stopped = one.seen(|seen| seen.stopped);
    cluster.until(|| one.seen(|seen| seen.stopped.is_some()));
    assert!(stopped.is_none_or(|stopped| stopped.broker_epoch.is_some()));
}

#[test]
fn a_data_folder_of_another_cluster_ends_the_broker() {
    let cluster = Cluster::new(17);
    let (one, two) = cluster.two_brokers();
    let identity = FolderIdentity::decode(&one.machine.disk().content("/data/meta.properties").unwrap()).unwrap();
    assert_eq!(identity.cluster, one.seen(|seen| seen.image.cluster_id.clone()));
    // The controller comes back with an empty folder: a new cluster.
    cluster.controller.crash(Crash::Kill);
    cluster.controller.up();
    let wiping = async { sakia_io::fs::remove_dir_all("/data".as_ref()).await.unwrap() };
    cluster.world.block_on(&cluster.controller, SECOND * 10, wiping).unwrap();
    cluster.start_controller();
    cluster.until(|| one.failure.is_raised() && two.failure.is_raised());
    assert_eq!(one.seen(|seen| seen.image.cluster_id.clone()), identity.cluster, "shards were told nothing of it");
}

#[test]
fn a_network_cut_fences_and_its_end_brings_the_broker_back_in_its_epoch() {
    let cluster = Cluster::new(18);
    let (one, two) = cluster.two_brokers();
    let epoch = one.epoch();
    cluster.world.network().cut(&one.machine, &cluster.controller);
    cluster.until(|| matches!(two.standing(1), Some((_, Standing::Fenced))));
    cluster.world.network().heal_all();
    cluster.until(|| two.knows_active(1) && one.knows_active(1));
    assert_eq!(one.epoch(), epoch);
    let index = one.seen(|seen| seen.image.index.get());
    assert!(one.metadata_index.load(Ordering::Acquire) >= index);
}

#[test]
fn a_broker_whose_stream_is_over_registers_anew_and_leads_again_but_not_in_a_hot_loop() {
    let cluster = Cluster::new(23);
    let (one, two) = cluster.two_brokers();
    cluster.auto_create(&one, &["orders"]);
    cluster.until(|| two.partition("orders", 0).is_some());
    let (leader, other) = by_leadership("orders", &one, &two);
    let (id, first) = (leader.partition("orders", 0).unwrap().1.leader.unwrap(), leader.epoch());
    let before = other.partition("orders", 0).unwrap().1;
    let stream_over = |broker_epoch| {
        let control = leader.control.clone();
        let telling = async move { assert!(control.send(ControlMessage::StreamOver { broker_epoch }).await.is_ok()) };
        cluster.world.block_on(&leader.machine, SECOND, telling).unwrap();
    };
    let began = cluster.world.now();
    stream_over(first);
    cluster.until(|| leader.epoch() > first && other.knows_active(id.get()) && leader.knows_active(id.get()));
    assert!(cluster.world.now() - began < SECOND, "it need not wait for the end of a session");
    let second = leader.epoch();
    assert_eq!(leader.seen(|seen| seen.registrations.clone()), [first, second], "the combiner begins a new stream");
    let after = other.partition("orders", 0).unwrap().1;
    assert!(after.leader != before.leader && after.leader_epoch > before.leader_epoch);
    cluster.until(|| leader.seen(|seen| seen.hand_overs == 0));

    // The word on the first stream, once more, is about nothing; the next stream's end has to wait.
    stream_over(first);
    stream_over(second);
    cluster.world.run_for(SECOND * 9);
    assert_eq!(leader.epoch(), second);
    assert_eq!(leader.seen(|seen| seen.hand_overs), 0, "it leads on meanwhile");
    cluster.world.run_for(SECOND * 2);
    assert!(leader.epoch() > second);
    assert!(!leader.failure.is_raised(), "nobody took it for another process");
}

#[test]
fn a_registration_is_given_up_only_once_the_controller_answers() {
    let cluster = Cluster::new(24);
    let (one, two) = cluster.two_brokers();
    let first = one.epoch();
    cluster.kill_controller();
    let control = one.control.clone();
    let telling = async move { control.send(ControlMessage::StreamOver { broker_epoch: first }).await.is_ok() };
    assert!(cluster.world.block_on(&one.machine, SECOND, telling).unwrap());
    cluster.world.run_for(SECOND * 10);
    assert_eq!(one.epoch(), first);
    assert_eq!(one.seen(|seen| seen.hand_overs), 0, "producers are served while the controller is away");
    cluster.start_controller();
    cluster.until(|| one.epoch() > first && two.knows_active(1) && one.knows_active(1));
}

#[test]
fn a_seed_replays_exactly() {
    let run = |seed| {
        let cluster = Cluster::new(seed);
        let (one, two) = cluster.two_brokers();
        cluster.auto_create(&one, &["orders"]);
        cluster.kill_controller();
        cluster.start_controller();
        cluster.auto_create(&two, &["more"]);
        (cluster.world.trace_hash(), cluster.world.operations(), one.seen(|seen| seen.image.encode()))
    };
    for seed in 19..22 {
        let first = run(seed);
        assert!((0..3).all(|_| first == run(seed)), "seed {seed}");
    }
}
