//! What a broker meets that is no fault of a machine: somebody else's object in its stream.

use std::time::Duration;

use bytes::Bytes;
use sakia_remote::ObjectKey;

use crate::checks;
use crate::cluster::{Cluster, Shape};
use crate::consumer::{Consumer, Source};
use crate::history::{History, Promise};
use crate::kafka::Kafka;
use crate::producer::{self, Writing};

const MINUTE: Duration = Duration::from_secs(60);

/// The stream that a broker writes at present, and the number of its last object.
fn stream_of(cluster: &Cluster, number: usize) -> (String, u64) {
    let id = format!("/wal/{}/", cluster.brokers[number].id);
    let keys = cluster.bucket.keys();
    let of_broker = keys.iter().map(ObjectKey::as_str).filter(|key| key.contains(&id));
    let parts = of_broker.map(|key| {
        let (stream, sequence) = key.rsplit_once('/').expect("names of objects have slashes");
        let (_, epoch) = stream.rsplit_once('/').expect("and a broker epoch");
        let epoch: u64 = epoch.parse().expect("which is a number");
        (epoch, sequence.parse().expect("they end with a number"), stream.to_owned())
    });
    let (_, sequence, stream) = parts.max().expect("it has written something");
    (stream, sequence)
}

#[test]
fn a_foreign_object_in_the_stream_brings_a_new_registration_and_references_go_on() {
    for seed in 1..=4 {
        let mut cluster = Cluster::started(seed, &Shape::default());
        let hosts = cluster.hosts();
        let place = ("orders".to_owned(), 0);
        let created = cluster.world.block_on(&cluster.outside, MINUTE, {
            let kafka = Kafka::new("admin", &hosts);
            async move { kafka.create_topic("orders", 1, 2, &[("min.insync.replicas", "1")]).await }
        });
        created.expect("a topic is created");
        checks::wait_full_isr(&cluster, std::slice::from_ref(&place));
        let history = History::new();
        for (number, promise) in [Promise::All, Promise::Leader].into_iter().enumerate() {
            history.running.set(history.running.get() + 1);
            let writer = format!("w{number}");
            let writing = Writing::steady(&place, &writer, promise);
            let random = cluster.world.random();
            let running = producer::run(Kafka::new(&writer, &hosts), history.clone(), writing, random);
            cluster.world.spawn_client(&cluster.outside, running);
        }
        let consumer = Consumer::new(Kafka::new("reader", &hosts), history.clone(), &place, Source::Leader);
        cluster.world.spawn_client(&cluster.outside, consumer.clone().run());
        cluster.world.run_for(Duration::from_secs(1));

        let leader = checks::leader_of(&cluster, &place);
        let (stream, sequence) = stream_of(&cluster, leader);
        for next in sequence + 1..sequence + 40 {
            let key = ObjectKey::new(&format!("{stream}/{next:020}"));
            if cluster.bucket.object(&key).is_none() {
                cluster.bucket.overwrite(&key, Bytes::from_static(b"somebody else's"));
            }
        }
        cluster.world.run_for(Duration::from_secs(3));
        let (renewed, _) = stream_of(&cluster, checks::leader_of(&cluster, &place));
        assert_ne!(renewed, stream, "seed {seed}");
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
        let (stream_now, _) = stream_of(&cluster, leader);
        assert_ne!(stream_now, stream, "seed {seed}");
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
    history.running.set(1);
    let writing = Writing::steady(&place, "w0", Promise::All);
    let running = producer::run(Kafka::new("w0", &cluster.hosts()), history.clone(), writing, cluster.world.random());
    cluster.world.spawn_client(&cluster.outside, running);
    cluster.world.run_for(Duration::from_secs(1));
    let leader = checks::leader_of(&cluster, &place);
    let (stream, sequence) = stream_of(&cluster, leader);
    let hidden = 3;
    cluster.bucket.change_faults(|faults| {
        let next = sequence + 5..sequence + 5 + hidden;
        faults.hidden.extend(next.map(|next| ObjectKey::new(&format!("{stream}/{next:020}"))));
    });
    cluster.world.run_for(Duration::from_secs(2));
    let asked = cluster.metric("sakia_wal_fallbacks_total", "object_unreadable");
    assert!(asked > 0, "an object was hidden");
    assert!(asked <= hidden, "one partition is written, and {asked} asked for bytes of {hidden} objects");
    checks::finish(&mut cluster, &history, &[]);
}
