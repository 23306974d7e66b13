//! The first thing to work: a cluster comes up, takes records through the bucket, survives its leader.

use std::time::Duration;

use sakia_io::sim::Crash;

use crate::checks;
use crate::cluster::{Cluster, Shape};
use crate::consumer::{Consumer, Source};
use crate::history::{History, Promise};
use crate::kafka::Kafka;
use crate::producer::{self, Writing};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_topic_lives_through_the_bucket_and_through_the_crash_of_its_leader() {
    let mut cluster = Cluster::started(1, &Shape::default());
    let hosts = cluster.hosts();
    let place = ("orders".to_owned(), 0);
    let created = cluster.world.block_on(&cluster.outside, MINUTE, {
        let kafka = Kafka::new("admin", &hosts);
        async move { kafka.create_topic("orders", 1, 2, &[("min.insync.replicas", "1")]).await }
    });
    created.expect("a topic is created");
    checks::wait_full_isr(&cluster, std::slice::from_ref(&place));

    let history = History::new();
    let writing = Writing::steady(&place, "w0", Promise::All);
    let random = cluster.world.random();
    let writer = producer::run(Kafka::new("w0", &hosts), history.clone(), writing, random);
    let writer = cluster.spawn_awaited(&history, writer);
    let consumers: Vec<_> = [Source::Leader, Source::Follower]
        .into_iter()
        .map(|source| Consumer::new(Kafka::new("reader", &hosts), history.clone(), &place, source))
        .collect();
    for consumer in &consumers {
        cluster.world.spawn_client(&cluster.outside, consumer.clone().run());
    }
    cluster.world.run_for(Duration::from_secs(2));
    let acknowledged = history.with(&place, |partition| partition.acknowledged);
    assert!(acknowledged > 100, "only {acknowledged} records were acknowledged");
    let sent: u64 = cluster.metric("kafka_server_brokertopicmetrics_replicationbytesout_total", "orders");
    assert_eq!(sent, 0, "followers read the bucket");
    assert!(cluster.metric("sakia_references_out_total", "") > 0);

    let leader = checks::leader_of(&cluster, &place);
    cluster.crash_broker(leader, Crash::Kill);
    cluster.world.run_for(Duration::from_secs(3));
    let later = history.with(&place, |partition| partition.acknowledged);
    assert!(later > acknowledged + 100, "nothing was acknowledged after the failover");
    cluster.start_broker(leader);
    cluster.world.run_for(Duration::from_secs(3));
    checks::finish(&mut cluster, &history, &consumers);
    assert!(writer.is_done());
}
