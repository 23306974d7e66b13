//! What must hold of a cluster at rest, and how it is brought there: everything healed, everybody in sync, nothing under way.
//!
//! DESIGN 13: every replica holds the same bytes (2); every record that was acknowledged with acks=all is there, once and in
//! its producer's order, and no record is there twice (1, 4, 5); what consumers saw is what stands in the log (3); what logs
//! and bucket hold passes its checks, and nothing is there that nobody sent (7); the bucket's ledger lies between what brokers
//! sent and what was answered (9). That no clock decides what is lost (10): the same, while clocks jump and drift (`clocks`).

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use sakia_io::sleep;
use sakia_protocol::batch::{ScanEnd, for_each_record, scan};
use sakia_remote::get::{SliceBytes, open_object};
use sakia_remote::object::{ObjectError, read_head, read_prelude};
use sakia_remote::store::Verb;
use sakia_remote::{ObjectReference, ReferencedObject};

use crate::cluster::{Cluster, FOLDER, Node};
use crate::consumer::Consumer;
use crate::history::{History, PartitionHistory, Place, Promise, name_of, writer_and_number};
use crate::kafka::Kafka;

/// Longer than any chain of timeouts in a healed cluster: sessions, lags, breakers, retries.
const RECOVERS_WITHIN: Duration = Duration::from_secs(60);

/// Records of a replica's log, and its bytes.
pub struct Replica {
    pub bytes: Vec<u8>,
    pub start: i64,
    pub end: i64,
    pub values: BTreeMap<i64, Bytes>,
    /// What stands behind its last whole batch, if that is something.
    pub rest: Option<String>,
}

/// Waits until every replica of these partitions is in sync.
pub fn wait_full_isr(cluster: &Cluster, places: &[Place]) {
    let kafka = Kafka::new("waiting", &cluster.hosts());
    let wanted = places.to_vec();
    let waited = cluster.world.block_on(&cluster.outside, RECOVERS_WITHIN, async move {
        for place in &wanted {
            while !is_in_sync(&kafka, place).await {
                sleep(Duration::from_millis(50)).await;
            }
        }
    });
    if let Err(stalled) = waited {
        panic!("not every replica of {places:?} came back in sync: {stalled}\n{}", describe(cluster, places));
    }
}

/// Whether brokers say, now, that every replica is in sync.
pub fn all_in_sync(cluster: &Cluster, places: &[Place]) -> bool {
    let kafka = Kafka::new("looking", &cluster.hosts());
    let wanted = places.to_vec();
    let looked = cluster.world.block_on(&cluster.outside, Duration::from_secs(1), async move {
        for place in &wanted {
            if !is_in_sync(&kafka, place).await {
                return false;
            }
        }
        true
    });
    looked.unwrap_or(false)
}

async fn is_in_sync(kafka: &Kafka, place: &Place) -> bool {
    // Every broker is asked in turn: one that has older metadata may not know yet who left.
    for _ in 0..2 {
        if kafka.refresh(&[&place.0]).await.is_err() {
            return false;
        }
        let Some(topic) = kafka.topic(&place.0) else { return false };
        let view = &topic.partitions[usize::try_from(place.1).expect("not negative")];
        if view.leader.is_none() || view.isr.len() < view.replicas.len() {
            return false;
        }
    }
    true
}

fn describe(cluster: &Cluster, places: &[Place]) -> String {
    let mut lines = String::new();
    for host in cluster.hosts() {
        for place in places {
            let kafka = Kafka::new("describing", std::slice::from_ref(&host));
            let (asking, topic) = (kafka.clone(), place.0.clone());
            let asked = cluster.world.block_on(&cluster.outside, Duration::from_secs(5), async move {
                asking.refresh(&[&topic]).await.is_ok()
            });
            let view = kafka.topic(&place.0).filter(|_| matches!(asked, Ok(true)));
            let view = view.map(|topic| topic.partitions[usize::try_from(place.1).expect("not negative")].clone());
            lines += &format!("{host} says of {place:?}: {view:?}\n");
        }
    }
    for place in places {
        for node in &cluster.brokers {
            match read_replica(node, place) {
                Some(Replica { start, end, rest, .. }) => {
                    lines += &format!("{place:?} on {}: {start}..{end}, then {rest:?}\n", node.id);
                }
                None => lines += &format!("{place:?} on {}: nothing\n", node.id),
            }
        }
    }
    for node in &cluster.brokers {
        lines += &format!("broker {} has {} shards\n", node.id, node.machine.running_shards());
    }
    lines
}

/// Number of the broker that leads the partition, by somebody's metadata.
pub fn leader_of(cluster: &Cluster, place: &Place) -> usize {
    let kafka = Kafka::new("asking", &cluster.hosts());
    let wanted = place.clone();
    let found = cluster.world.block_on(&cluster.outside, RECOVERS_WITHIN, async move {
        loop {
            let _ = kafka.refresh(&[&wanted.0]).await;
            let topic = kafka.topic(&wanted.0);
            let index = usize::try_from(wanted.1).expect("not negative");
            if let Some(leader) = topic.and_then(|topic| topic.partitions[index].leader) {
                return leader;
            }
            sleep(Duration::from_millis(20)).await;
        }
    });
    let id = found.expect("somebody leads");
    cluster.brokers.iter().position(|node| node.id == id).expect("a broker of this cluster")
}

/// Heals everything, lets clients finish, and checks what must hold in the end.
pub fn finish(cluster: &mut Cluster, history: &Rc<History>, consumers: &[Rc<Consumer>]) {
    cluster.heal();
    history.is_over.set(true);
    let running = history.clone();
    let ended = cluster.world.run_until(RECOVERS_WITHIN, |_| running.running.get() == 0);
    let places: Vec<Place> = history.partitions.borrow().keys().cloned().collect();
    if let Err(stalled) = ended {
        panic!("{} producers do not end: {stalled}\n{}", history.running.get(), describe(cluster, &places));
    }
    wait_full_isr(cluster, &places);
    let ends = wait_ends(cluster, &places);
    for consumer in consumers {
        let end = ends[consumer.place()];
        let reached = cluster.world.run_until(RECOVERS_WITHIN, |_| consumer.position.get() >= end);
        if let Err(stalled) = reached {
            panic!("{} stands at {} of {end}: {stalled}", consumer.name(), consumer.position.get());
        }
    }
    for place in &places {
        let replicas = wait_replicas(cluster, place);
        check_replicas(place, &replicas);
        history.with(place, |partition| check_records(place, partition, &replicas[0].1));
    }
    check_bucket(cluster);
    check_ledger(cluster);
}

/// High watermark of each partition, once nothing lies above it.
fn wait_ends(cluster: &Cluster, places: &[Place]) -> BTreeMap<Place, i64> {
    let kafka = Kafka::new("ends", &cluster.hosts());
    let wanted = places.to_vec();
    let ends = cluster.world.block_on(&cluster.outside, RECOVERS_WITHIN, async move {
        let mut ends = BTreeMap::new();
        for place in wanted {
            let index = usize::try_from(place.1).expect("not negative");
            let end = loop {
                let _ = kafka.refresh(&[&place.0]).await;
                match kafka.offset(&place.0, index, -1).await {
                    Ok(end) => break end,
                    Err(_) => sleep(Duration::from_millis(50)).await,
                }
            };
            ends.insert(place, end);
        }
        ends
    });
    ends.unwrap_or_else(|stalled| panic!("nobody says where the logs end: {stalled}"))
}

/// The replicas' logs, once all of them end at the high watermark.
fn wait_replicas(cluster: &Cluster, place: &Place) -> Vec<(i32, Replica)> {
    let read = || -> Vec<(i32, Replica)> {
        cluster.brokers.iter().filter_map(|node| Some((node.id, read_replica(node, place)?))).collect()
    };
    let mut end = 0;
    for _ in 0..100 {
        // What was sent with acks=0 may still arrive.
        end = wait_ends(cluster, std::slice::from_ref(place))[place];
        let replicas = read();
        let is_whole = |replica: &Replica| replica.end == end && replica.rest.is_none();
        if !replicas.is_empty() && replicas.iter().all(|(_, replica)| is_whole(replica)) {
            return replicas;
        }
        cluster.world.run_for(Duration::from_millis(100));
    }
    panic!(
        "the logs of {place:?} do not end at the high watermark {end}, or hold something else than batches\n{}",
        describe(cluster, std::slice::from_ref(place))
    );
}

/// A replica's log as it stands on the disk; `None` if there is none.
pub fn read_replica(node: &Node, place: &Place) -> Option<Replica> {
    let folder = format!("{FOLDER}/{}-{}", place.0, place.1);
    let disk = node.machine.disk();
    let names = disk.names(&folder).ok()?;
    let mut replica = Replica { bytes: Vec::new(), start: 0, end: 0, values: BTreeMap::new(), rest: None };
    for name in names.iter().filter(|name| name.ends_with(".log")) {
        let content = disk.content(format!("{folder}/{name}")).expect("it is listed");
        let mut batches = scan(&content);
        for batch in batches.by_ref() {
            if replica.bytes.is_empty() {
                replica.start = batch.header.base_offset.get();
            }
            replica.end = batch.header.next_offset().get();
            replica.bytes.extend_from_slice(batch.bytes);
        }
        // A write may be under way.
        let end = batches.finish();
        if !matches!(end, ScanEnd::Complete | ScanEnd::Zeros) {
            replica.rest = Some(format!("{name}: {end}"));
        }
    }
    let read = for_each_record(&replica.bytes, 64 << 20, |placed| {
        let value = placed.record.value.map_or_else(Bytes::new, Bytes::copy_from_slice);
        assert!(replica.values.insert(placed.offset.get(), value).is_none(), "an offset is there once");
    });
    read.expect("scanned batches are right");
    Some(replica)
}

/// DESIGN 13.2.
fn check_replicas(place: &Place, replicas: &[(i32, Replica)]) {
    let (first, model) = &replicas[0];
    for (broker, replica) in &replicas[1..] {
        if replica.bytes == model.bytes && replica.start == model.start {
            continue;
        }
        let differs = model.values.iter().find(|(offset, value)| replica.values.get(offset) != Some(value));
        let differs =
            differs.map(|(offset, value)| (*offset, name_of(value), replica.values.get(offset).map(|v| name_of(v))));
        panic!(
            "{place:?} differs on brokers {first} and {broker}; the first other record: {differs:?} (none: batches)"
        );
    }
}

/// DESIGN 13.1, 13.3, 13.4, 13.5.
fn check_records(place: &Place, history: &PartitionHistory, replica: &Replica) {
    for (offset, value) in &history.committed {
        let found = replica.values.get(offset);
        assert!(
            found == Some(value),
            "{place:?} at {offset} was committed as {} and is {:?} in the end",
            name_of(value),
            found.map(|found| name_of(found))
        );
    }
    let mut written: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for value in replica.values.values() {
        let (writer, number) = writer_and_number(value);
        written.entry(writer).or_default().push(number);
    }
    for (writer, (promise, sent)) in &history.writers {
        let numbers = written.remove(writer).unwrap_or_default();
        let mut sent_anew = history.sent_anew.get(writer).cloned().unwrap_or_default();
        let mut begins_anew = |number| match sent_anew.iter().position(|from| *from == number) {
            Some(at) => {
                sent_anew.swap_remove(at);
                true
            }
            None => false,
        };
        if let Some(pair) = numbers.windows(2).find(|pair| pair[0] >= pair[1] && !begins_anew(pair[1])) {
            panic!("{place:?}: {writer} wrote {} and then {}: doubled or out of order", pair[0], pair[1]);
        }
        if *promise == Some(Promise::All) {
            let expected: Vec<u64> = (0..*sent).collect();
            let missing = expected.iter().find(|number| numbers.binary_search(number).is_err());
            assert!(missing.is_none(), "{place:?}: {writer}:{missing:?} was acknowledged and is gone");
            assert_eq!(numbers.len(), expected.len(), "{place:?}: {writer} wrote nothing else");
        }
    }
    assert!(written.is_empty(), "{place:?} holds records that nobody wrote: {:?}", written.keys());
}

/// DESIGN 13.7. Every object that a broker put is what its manifest says, down to the checksum of each batch, and each slice has
/// one leader epoch (R5). Objects that the test damaged are left out, and whatever does not begin like an object of ours.
fn check_bucket(cluster: &Cluster) {
    for key in cluster.bucket.keys().iter().filter(|key| !cluster.damaged.contains(key)) {
        let Some(bytes) = cluster.bucket.object(key) else { continue };
        if matches!(read_prelude(&bytes), Err(ObjectError::Magic | ObjectError::Short { .. })) {
            continue;
        }
        let checked = open_whole(&bytes).and_then(|slices| {
            let bad = slices.iter().map(|slice| scan(&slice.bytes).finish()).find(|end| *end != ScanEnd::Complete);
            bad.map_or(Ok(slices.len()), |end| Err(end.to_string()))
        });
        let slices = checked.unwrap_or_else(|why| panic!("the object {} fails its check: {why}", key.as_str()));
        assert!(slices > 0, "the object {} holds nothing", key.as_str());
    }
}

fn open_whole(bytes: &Bytes) -> Result<Vec<SliceBytes>, String> {
    let length = u32::try_from(bytes.len()).map_err(|error| error.to_string())?;
    let (stream, sequence, prelude) = {
        let head = read_head(bytes).map_err(|error| error.to_string())?;
        (head.stream(), head.sequence(), head.prelude())
    };
    let object = ObjectReference {
        bucket: 0,
        broker: stream.broker,
        broker_epoch: stream.broker_epoch,
        sequence,
        object_length: length,
        manifest_length: prelude.manifest_length,
        manifest_crc32c: prelude.manifest_crc32c,
    };
    let whole = ReferencedObject { object, get_end: length, excluded: Vec::new() };
    open_object(&whole, bytes).map_err(|error| error.to_string())
}

/// DESIGN 13.9. Quiet: whatever was under way has ended.
fn check_ledger(cluster: &Cluster) {
    cluster.world.run_for(Duration::from_secs(3));
    let ledger = cluster.bucket.ledger();
    for verb in Verb::ALL {
        let answered = ledger.attempts(verb);
        let attempts = cluster.attempts(verb);
        assert!(
            attempts.answered <= answered && answered <= attempts.answered + attempts.unanswered,
            "the ledger says {answered} of {}, brokers {attempts:?}",
            verb.name()
        );
    }
}
