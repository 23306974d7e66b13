//! What must go on: load, whatever the bucket does, and the way back to references once it works (R10, R12).
//!
//! Every claim is a figure: of the metrics that brokers show, of the metadata that they give, of virtual time.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use sakia_io::now;
use sakia_io::sim::Random;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::batch::{BatchBuilder, Compression};
use sakia_remote::ObjectKey;
use sakia_remote::store::simulated::Reach;

use crate::checks;
use crate::cluster::{Cluster, Shape, object_key};
use crate::consumer::{Consumer, Source};
use crate::history::{History, Place, Promise};
use crate::kafka::{Kafka, ProducedTo};
use crate::producer::{self, Writing};
use crate::witness::Witness;

const PATIENCE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
/// `replica.lag.time.max.ms` of the simulator's clusters.
const LAG_MAX: Duration = Duration::from_millis(1500);
/// Longer than the fallback delay, an attempt's timeout and the longest rest of an open breaker together.
const FINDS_BACK_WITHIN: Duration = Duration::from_secs(10);

/// A cluster of two brokers with one topic. Each broker leads a partition that is written with acks=all and one with acks=1.
struct Rig {
    cluster: Cluster,
    history: Rc<History>,
    consumers: Vec<Rc<Consumer>>,
    places: Vec<Place>,
}

impl Rig {
    fn new(seed: u64) -> Self {
        let cluster = Cluster::started(seed, &Shape::default());
        let hosts = cluster.hosts();
        let created = cluster.world.block_on(&cluster.outside, PATIENCE, async move {
            let kafka = Kafka::new("admin", &hosts);
            kafka.create_topic("steady", 4, 2, &[("min.insync.replicas", "2")]).await;
        });
        created.expect("a topic is created");
        let places: Vec<Place> = (0..4).map(|partition| ("steady".to_owned(), partition)).collect();
        checks::wait_full_isr(&cluster, &places);
        let history = History::new();
        let disks = cluster.brokers.iter().map(|node| node.machine.clone()).collect();
        history.witness.replace(Some(Witness::new(disks, [("steady".to_owned(), 2)].into())));
        Self { cluster, history, consumers: Vec::new(), places }
    }

    /// A writer on each partition.
    fn write(&mut self, pause_ms: std::ops::Range<u64>) {
        let mut random = self.cluster.world.random();
        let hosts = self.cluster.hosts();
        for place in self.places.clone() {
            let promise = if place.1 < 2 { Promise::All } else { Promise::Leader };
            let pause = Duration::from_millis(pause_ms.start)..Duration::from_millis(pause_ms.end);
            let writing = Writing { pause, ..Writing::steady(&place, &format!("w{}", place.1), promise) };
            self.begin(writing, random.fork(), &hosts);
            let consumer = Consumer::new(Kafka::new("reader", &hosts), self.history.clone(), &place, Source::Follower);
            self.cluster.world.spawn_client(&self.cluster.outside, consumer.clone().run());
            self.consumers.push(consumer);
        }
    }

    fn begin(&self, writing: Writing, random: Random, hosts: &[String]) {
        let kafka = Kafka::new(&writing.writer, hosts);
        let writing = producer::run(kafka, self.history.clone(), writing, random);
        self.cluster.spawn_awaited(&self.history, writing);
    }

    fn run_for(&self, duration: Duration) {
        self.cluster.world.run_for(duration);
    }

    /// Records acknowledged of each partition.
    fn acknowledged(&self) -> Vec<usize> {
        self.places.iter().map(|place| self.history.with(place, |partition| partition.acknowledged)).collect()
    }

    /// Record bytes sent to replicas.
    fn bytes_out(&self) -> u64 {
        self.cluster.metric("kafka_server_brokertopicmetrics_replicationbytesout_total", "steady")
    }

    fn references_out(&self) -> u64 {
        self.cluster.metric("sakia_references_out_total", "")
    }

    fn fallbacks(&self, reason: &str) -> u64 {
        self.cluster.metric("sakia_wal_fallbacks_total", reason)
    }

    fn shrinks(&self) -> u64 {
        self.cluster.metric("sakia_isr_changes_total", "shrink")
    }

    fn under_replicated(&self) -> u64 {
        self.cluster.metric("kafka_server_replicamanager_underreplicatedpartitions", "")
    }

    /// Lets time pass and looks every 50 ms whether an ISR lacks a member.
    fn run_in_sync(&self, duration: Duration) {
        let end = self.cluster.world.now() + duration;
        while self.cluster.world.now() < end {
            self.run_for(Duration::from_millis(50));
            let at = self.cluster.world.now().as_duration();
            assert_eq!(self.under_replicated(), 0, "an ISR lacks a replica at {at:?}");
            assert_eq!(self.shrinks(), 0, "an ISR was to shrink at {at:?}");
        }
    }

    /// Lets time pass; in every second something is acknowledged on every partition.
    fn run_acknowledged(&self, seconds: u32) {
        for _ in 0..seconds {
            let before = self.acknowledged();
            self.run_for(SECOND);
            let after = self.acknowledged();
            let at = self.cluster.world.now().as_duration();
            assert!(
                all_grew(&before, &after),
                "the second before {at:?} acknowledged nothing somewhere: {before:?}, {after:?}"
            );
        }
    }

    /// Replication goes by reference: two seconds of load send no record bytes.
    fn is_by_reference(&self) {
        let (bytes, references, before) = (self.bytes_out(), self.references_out(), self.acknowledged());
        self.run_for(SECOND * 2);
        assert_eq!(self.bytes_out() - bytes, 0, "record bytes go to replicas");
        assert!(self.references_out() > references, "no reference goes out");
        assert!(all_grew(&before, &self.acknowledged()), "something is not written");
        let fallen_back = self.cluster.metric("sakia_wal_fallback_partitions", "");
        assert_eq!(fallen_back, 0, "partitions are replicated by bytes");
    }

    /// Lets clients finish, and checks everything.
    fn finish(mut self) {
        checks::finish(&mut self.cluster, &self.history, &self.consumers);
    }
}

fn all_grew(before: &[usize], after: &[usize]) -> bool {
    before.iter().zip(after).all(|(before, after)| after > before)
}

#[test]
fn steady_load_keeps_every_replica_in_sync() {
    let mut rig = Rig::new(11);
    rig.write(1..4);
    rig.run_in_sync(LAG_MAX * 4);
    rig.is_by_reference();
    let acknowledged: usize = rig.acknowledged().iter().sum();
    assert!(acknowledged > 1000, "only {acknowledged} records were acknowledged");
    rig.finish();
}

#[test]
fn a_record_after_two_idle_minutes_is_committed_at_once() {
    let rig = Rig::new(12);
    rig.run_in_sync(Duration::from_secs(120));
    let hosts = rig.cluster.hosts();
    let place = rig.places[0].clone();
    let took = rig.cluster.world.block_on(&rig.cluster.outside, PATIENCE, async move {
        let kafka = Kafka::new("late", &hosts);
        let (id, view) = kafka.partition(&place.0, 0).await.expect("metadata is given");
        let leader = view.leader.expect("it is led");
        let began = now();
        let records = producer::encode(BatchBuilder::new(Compression::None), &[Bytes::from_static(b"late")]);
        let produced = ProducedTo { topic: &place.0, id, partition: 0, acks: -1, records: &records };
        let row = kafka.produce(leader, produced).await.expect("it is answered");
        assert_eq!(ErrorCode::from_wire(row.error_code), ErrorCode::None);
        now() - began
    });
    let took = took.expect("it is answered");
    assert!(took < Duration::from_millis(100), "it took {took:?}");
    assert_eq!(rig.bytes_out(), 0, "it went through the bucket");
    assert!(rig.references_out() > 0);
}

#[test]
fn a_bucket_that_is_gone_for_a_minute_stops_nobody_and_is_used_again() {
    let mut rig = Rig::new(13);
    rig.write(20..60);
    rig.run_for(SECOND * 2);
    rig.is_by_reference();
    rig.cluster.bucket.change_faults(|faults| faults.reach = Reach::Down);
    let (bytes, references) = (rig.bytes_out(), rig.references_out());
    // While the first fallback is under way something may wait for longer than a second.
    rig.run_for(SECOND * 2);
    rig.run_acknowledged(58);
    assert!(rig.bytes_out() > bytes + 10_000, "replication went on by bytes");
    assert!(rig.references_out() < references + 50, "references to a bucket that is gone");
    assert!(rig.cluster.metric("sakia_wal_fallback_partitions", "") > 0, "the page shows the fallback");
    assert_eq!(rig.shrinks(), 0, "nobody left an ISR");
    rig.cluster.bucket.change_faults(|faults| faults.reach = Reach::Up);
    rig.run_for(FINDS_BACK_WITHIN);
    rig.is_by_reference();
    rig.finish();
}

#[test]
fn a_follower_without_bucket_gets_bytes_and_finds_back() {
    let mut rig = Rig::new(14);
    rig.write(5..15);
    rig.run_for(SECOND * 2);
    rig.is_by_reference();
    let (cut, leader) = (1, 0);
    let name = rig.cluster.brokers[cut].machine.name();
    let bytes_in = |rig: &Rig, broker: usize| {
        rig.cluster.brokers[broker].metric("kafka_server_brokertopicmetrics_replicationbytesin_total", "steady")
    };
    let before = bytes_in(&rig, cut);
    rig.cluster.bucket.change_faults(|faults| {
        faults.cut_clients.insert(name);
    });
    rig.run_for(SECOND * 2);
    rig.run_acknowledged(10);
    assert!(bytes_in(&rig, cut) > before + 10_000, "the broker without bucket gets bytes");
    // What the other one does not get as references it gets as bytes: the leader without bucket uploads nothing.
    assert!(bytes_in(&rig, leader) > 0, "the follower of the broker without bucket gets bytes");
    let reached = rig.cluster.brokers[leader].metric("sakia_wal_objects_total", "");
    assert!(reached > 0, "the other broker goes on using the bucket");
    assert_eq!(rig.shrinks(), 0, "nobody left an ISR");
    rig.cluster.bucket.change_faults(|faults| faults.cut_clients.clear());
    rig.run_for(FINDS_BACK_WITHIN);
    rig.is_by_reference();
    rig.finish();
}

#[test]
fn one_object_that_is_missing_is_replaced_by_bytes_alone() {
    let mut rig = Rig::new(15);
    rig.write(5..15);
    rig.run_for(SECOND * 2);
    rig.is_by_reference();
    let bytes = rig.bytes_out();
    let hidden = hide_next_object(&rig.cluster, 0);
    rig.run_in_sync(SECOND * 3);
    let object = rig.cluster.bucket.object(&hidden).expect("it was put, and nobody finds it");
    let unreadable = rig.fallbacks("object_unreadable");
    assert!((1..=2).contains(&unreadable), "partitions of one object went back to bytes, not {unreadable}");
    let sent = rig.bytes_out() - bytes;
    assert!(sent > 0, "its records came as bytes");
    // Its own records, and at most what came while it was looked for.
    let object = u64::try_from(object.len()).expect("small");
    assert!(sent < object * 16, "{sent} bytes were sent for an object of {object}");
    rig.is_by_reference();
    rig.finish();
}

/// Hides the object that the broker will put next.
fn hide_next_object(cluster: &Cluster, broker: usize) -> ObjectKey {
    let (stream, sequence) = cluster.last_object(broker).expect("it has put some");
    // One may be under way.
    let next = object_key(&stream, sequence + 3);
    cluster.bucket.change_faults(|faults| {
        faults.hidden.insert(next.clone());
    });
    next
}

#[test]
fn a_bucket_that_answers_nothing_for_twenty_seconds_stops_nobody() {
    let mut rig = Rig::new(16);
    rig.write(5..15);
    rig.run_for(SECOND * 2);
    rig.is_by_reference();
    let bytes = rig.bytes_out();
    rig.cluster.bucket.change_faults(|faults| faults.slow = SECOND * 20);
    rig.run_for(SECOND * 2);
    rig.run_acknowledged(18);
    assert!(rig.bytes_out() > bytes + 10_000, "replication went on by bytes");
    assert_eq!(rig.shrinks(), 0, "nobody left an ISR");
    rig.cluster.bucket.change_faults(|faults| faults.slow = Duration::ZERO);
    // What was asked in the stall is answered as late as that.
    rig.run_for(SECOND * 20 + FINDS_BACK_WITHIN);
    rig.is_by_reference();
    rig.finish();
}
