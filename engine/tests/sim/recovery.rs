//! What a broker meets that is no fault of a machine: somebody else's object in its stream, topics that were deleted behind its
//! back, a controller that was restored from an old copy.

use std::time::Duration;

use bytes::Bytes;
use sakia_io::fs;
use sakia_io::sim::{Crash, Machine};

use crate::checks;
use crate::cluster::{Cluster, FOLDER, Shape, object_key};
use crate::consumer::{Consumer, Source};
use crate::history::{History, Promise};
use crate::kafka::Kafka;
use crate::producer::{self, Writing};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_foreign_object_in_the_stream_brings_a_new_registration_and_references_go_on() {
    for seed in 1..=4 {
        let mut cluster = Cluster::started(seed, &Shape::default());
        let hosts = cluster.hosts();
        let place = ("orders".to_owned(), 0);
        create(&cluster, "orders");
        checks::wait_full_isr(&cluster, std::slice::from_ref(&place));
        let history = History::new();
        for (number, promise) in [Promise::All, Promise::Leader].into_iter().enumerate() {
            let writer = format!("w{number}");
            let writing = Writing::steady(&place, &writer, promise);
            let random = cluster.world.random();
            let running = producer::run(Kafka::new(&writer, &hosts), history.clone(), writing, random);
            cluster.spawn_awaited(&history, running);
        }
        let consumer = Consumer::new(Kafka::new("reader", &hosts), history.clone(), &place, Source::Leader);
        cluster.world.spawn_client(&cluster.outside, consumer.clone().run());
        cluster.world.run_for(Duration::from_secs(1));

        let leader = checks::leader_of(&cluster, &place);
        let (stream, sequence) = cluster.last_object(leader).expect("it has written something");
        let bucket = cluster.bucket.clone();
        let begun = stream.clone();
        let intruding = async move {
            for next in sequence + 1..sequence + 40 {
                let key = object_key(&begun, next);
                if bucket.object(&key).is_none() {
                    bucket.overwrite(&key, Bytes::from_static(b"somebody else's"));
                }
            }
        };
        cluster.world.block_on(&cluster.outside, MINUTE, intruding).expect("nothing is waited for");
        cluster.world.run_for(Duration::from_secs(3));
        let renewed = cluster.last_object(checks::leader_of(&cluster, &place)).map(|(stream, _)| stream);
        assert!(renewed.is_some_and(|renewed| renewed != stream), "seed {seed}");
        checks::wait_full_isr(&cluster, std::slice::from_ref(&place));
        let counts = |cluster: &Cluster| {
            let references = cluster.metric("sakia_references_out_total", "");
            let bytes = cluster.metric("kafka_server_brokertopicmetrics_replicationbytesout_total", "orders");
            (references, bytes)
        };
        let before = counts(&cluster);
        cluster.world.run_for(Duration::from_secs(2));
        let after = counts(&cluster);
        assert!(after.0 > before.0 + 50, "seed {seed}: references go on: {before:?}, {after:?}");
        assert_eq!(after.1, before.1, "seed {seed}: followers read the bucket again");
        // The broker whose stream it was uploads again when it leads.
        let other = 1 - leader;
        cluster.stop_broker(other);
        cluster.start_broker(other);
        checks::wait_full_isr(&cluster, std::slice::from_ref(&place));
        cluster.world.run_for(Duration::from_secs(1));
        let stream_now = cluster.last_object(leader).map(|(stream, _)| stream);
        assert!(stream_now.is_some_and(|now| now != stream), "seed {seed}");
        checks::finish(&mut cluster, &history, &[consumer]);
    }
}

#[test]
fn an_object_that_cannot_be_read_sends_only_its_own_partitions_to_bytes() {
    let mut cluster = Cluster::started(9, &Shape::default());
    let kafka = Kafka::new("admin", &cluster.hosts());
    let creating = async move { kafka.create_topic("orders", 12, 2, &[("min.insync.replicas", "1")]).await };
    cluster.world.block_on(&cluster.outside, MINUTE, creating).expect("a topic is created");
    let place = ("orders".to_owned(), 0);
    let places: Vec<_> = (0..12).map(|partition| ("orders".to_owned(), partition)).collect();
    checks::wait_full_isr(&cluster, &places);
    let history = History::new();
    let writing = Writing::steady(&place, "w0", Promise::All);
    let running = producer::run(Kafka::new("w0", &cluster.hosts()), history.clone(), writing, cluster.world.random());
    cluster.spawn_awaited(&history, running);
    cluster.world.run_for(Duration::from_secs(1));
    let leader = checks::leader_of(&cluster, &place);
    let (stream, sequence) = cluster.last_object(leader).expect("it has written something");
    let hidden = 3;
    cluster.bucket.change_faults(|faults| {
        let next = sequence + 5..sequence + 5 + hidden;
        faults.hidden.extend(next.map(|next| object_key(&stream, next)));
    });
    cluster.world.run_for(Duration::from_secs(2));
    let asked = cluster.metric("sakia_wal_fallbacks_total", "object_unreadable");
    assert!(asked > 0, "an object was hidden");
    assert!(asked <= hidden, "one partition is written, and {asked} asked for bytes of {hidden} objects");
    checks::finish(&mut cluster, &history, &[]);
}

const DAY_MS: i64 = 24 * 3600 * 1000;

/// Folders of a broker whose names begin like this.
fn folders(cluster: &Cluster, number: usize, begin: &str) -> Vec<String> {
    let names = cluster.brokers[number].machine.disk().names(FOLDER).expect("it has a data folder");
    names.into_iter().filter(|name| name.starts_with(begin)).collect()
}

fn create(cluster: &Cluster, topic: &'static str) {
    create_on(cluster, topic, 2);
}

fn create_on(cluster: &Cluster, topic: &'static str, replicas: i16) {
    let kafka = Kafka::new("admin", &cluster.hosts());
    let creating = async move { kafka.create_topic(topic, 1, replicas, &[("min.insync.replicas", "1")]).await };
    cluster.world.block_on(&cluster.outside, MINUTE, creating).expect("a topic is created");
}

fn restart(cluster: &mut Cluster, number: usize) {
    cluster.crash_broker(number, Crash::Kill);
    cluster.start_broker(number);
}

#[test]
fn the_folder_of_a_topic_that_was_deleted_meanwhile_is_set_aside_and_deleted_a_week_later() {
    let mut cluster = Cluster::started(5, &Shape { shards: 2, ..Shape::default() });
    create(&cluster, "orders");
    create(&cluster, "kept");
    let kept = ("kept".to_owned(), 0);
    checks::wait_full_isr(&cluster, &[("orders".to_owned(), 0), kept.clone()]);
    assert_eq!(folders(&cluster, 1, "orders"), ["orders-0"]);
    cluster.crash_broker(1, Crash::Kill);
    let kafka = Kafka::new("admin", &cluster.hosts());
    let deleting = async move { kafka.delete_topic("orders").await };
    cluster.world.block_on(&cluster.outside, MINUTE, deleting).expect("it is deleted");
    cluster.start_broker(1);
    checks::wait_full_isr(&cluster, std::slice::from_ref(&kept));
    assert_eq!(folders(&cluster, 1, "orders").len(), 1);
    // Another one of the name: its partition begins empty.
    create(&cluster, "orders");
    checks::wait_full_isr(&cluster, &[("orders".to_owned(), 0), kept.clone()]);
    let found = folders(&cluster, 1, "orders");
    assert_eq!((found.len(), found[0].as_str()), (2, "orders-0"), "{found:?}");
    assert!(found[1].ends_with("-stray"), "{found:?}");
    assert_eq!(folders(&cluster, 1, "kept"), ["kept-0"]);

    cluster.brokers[1].machine.clock().jump_ms(7 * DAY_MS - 60_000);
    restart(&mut cluster, 1);
    checks::wait_full_isr(&cluster, std::slice::from_ref(&kept));
    assert_eq!(folders(&cluster, 1, "orders").len(), 2, "the week is not over");
    cluster.brokers[1].machine.clock().jump_ms(120_000);
    restart(&mut cluster, 1);
    checks::wait_full_isr(&cluster, &[kept]);
    cluster.world.run_for(Duration::from_secs(1));
    assert_eq!(folders(&cluster, 1, "orders"), ["orders-0"]);
}

/// Copies a folder of files and folders of files.
fn copy(cluster: &Cluster, machine: &Machine, from: &'static str, to: &'static str) {
    let copying = async move {
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let (from, to) = (format!("{from}{folder}"), format!("{to}{folder}"));
            fs::create_dir_all(to.as_ref()).await.expect("the disk works");
            for entry in fs::list_dir(from.as_ref()).await.expect("the disk works") {
                let name = &entry.name;
                if entry.is_dir {
                    folders.push(format!("{folder}/{name}"));
                } else {
                    let content = fs::read_file(format!("{from}/{name}").as_ref()).await.expect("the disk works");
                    fs::replace_file(format!("{to}/{name}").as_ref(), content).await.expect("the disk works");
                }
            }
        }
    };
    cluster.world.block_on(machine, MINUTE, copying).expect("files are copied");
}

/// Puts the controller's folder aside and another one in its place; nothing may run there.
fn swap(cluster: &Cluster, keep_as: &'static str, take: &'static str) {
    let machine = &cluster.controller.machine;
    machine.up();
    copy(cluster, machine, FOLDER, keep_as);
    let wiping = async { fs::remove_dir_all(FOLDER.as_ref()).await.expect("the disk works") };
    cluster.world.block_on(machine, MINUTE, wiping).expect("it is removed");
    copy(cluster, machine, take, FOLDER);
}

fn crash_everything(cluster: &mut Cluster) {
    cluster.crash_controller(Crash::Kill);
    for number in 0..cluster.brokers.len() {
        cluster.crash_broker(number, Crash::Kill);
    }
}

fn start_everything(cluster: &mut Cluster) {
    cluster.start_controller();
    for number in 0..cluster.brokers.len() {
        cluster.start_broker(number);
    }
}

/// A cluster with a copy of its controller's folder at `/old`, from the time when it had one topic.
fn with_old_copy(seed: u64) -> Cluster {
    let mut cluster = Cluster::started(seed, &Shape::default());
    create(&cluster, "early");
    checks::wait_full_isr(&cluster, &[("early".to_owned(), 0)]);
    let machine = cluster.controller.machine.clone();
    cluster.crash_controller(Crash::Kill);
    machine.up();
    copy(&cluster, &machine, FOLDER, "/old");
    cluster.start_controller();
    cluster
}

#[test]
pub fn a_controller_restored_from_an_old_copy_costs_no_folder() {
    let mut cluster = with_old_copy(6);
    let early = ("early".to_owned(), 0);
    for topic in ["late", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o"] {
        create(&cluster, topic);
    }
    checks::wait_full_isr(&cluster, &[("late".to_owned(), 0), ("o".to_owned(), 0)]);
    crash_everything(&mut cluster);
    swap(&cluster, "/new", "/old");
    start_everything(&mut cluster);
    checks::wait_full_isr(&cluster, std::slice::from_ref(&early));
    for number in [0, 1] {
        assert_eq!(folders(&cluster, number, "late"), ["late-0"], "the image knows less than the folder");
    }
    // Its log grows beyond what the brokers had seen, and time passes.
    for topic in ["p", "q", "r", "s", "t", "u", "v", "w", "x", "y", "z", "aa", "bb", "cc", "dd", "ee", "ff", "gg"] {
        create(&cluster, topic);
    }
    for number in [0, 1] {
        cluster.brokers[number].machine.clock().jump_ms(8 * DAY_MS);
        restart(&mut cluster, number);
        checks::wait_full_isr(&cluster, std::slice::from_ref(&early));
        assert_eq!(folders(&cluster, number, "late"), ["late-0"], "nor is it ever sure again");
        let seen = cluster.brokers[number].machine.disk().content(format!("{FOLDER}/metadata-seen"));
        assert!(String::from_utf8_lossy(&seen.expect("it is there")).contains("lost=true"));
    }
}

#[test]
fn a_folder_that_was_set_aside_is_taken_back_when_the_cluster_knows_its_topic_again() {
    let mut cluster = with_old_copy(7);
    create(&cluster, "late");
    let (early, late) = (("early".to_owned(), 0), ("late".to_owned(), 0));
    checks::wait_full_isr(&cluster, std::slice::from_ref(&late));
    let history = History::new();
    let writing = Writing::steady(&late, "w0", Promise::All);
    let running = producer::run(Kafka::new("w0", &cluster.hosts()), history.clone(), writing, cluster.world.random());
    cluster.spawn_awaited(&history, running);
    cluster.world.run_for(Duration::from_secs(1));
    history.is_over.set(true);
    cluster.world.run_until(MINUTE, |_| history.running.get() == 0).expect("the producer ends");
    cluster.world.run_for(Duration::from_secs(1));
    let written = checks::read_replica(&cluster.brokers[1], &late).expect("it has a log").bytes;
    assert!(!written.is_empty());
    crash_everything(&mut cluster);
    swap(&cluster, "/new", "/old");
    cluster.start_controller();
    cluster.start_broker(0);
    // What was lost is hidden by what has come since, before the other broker looks.
    for topic in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        create_on(&cluster, topic, 1);
    }
    cluster.start_broker(1);
    checks::wait_full_isr(&cluster, &[early]);
    let aside = folders(&cluster, 1, "late");
    assert!(aside.len() == 1 && aside[0].ends_with("-stray"), "{aside:?}");

    crash_everything(&mut cluster);
    swap(&cluster, "/old", "/new");
    start_everything(&mut cluster);
    checks::wait_full_isr(&cluster, std::slice::from_ref(&late));
    for number in [0, 1] {
        assert_eq!(folders(&cluster, number, "late"), ["late-0"]);
        let read = checks::read_replica(&cluster.brokers[number], &late).expect("it has a log").bytes;
        assert!(read == written, "broker {number}: {} bytes of {}", read.len(), written.len());
    }
}
