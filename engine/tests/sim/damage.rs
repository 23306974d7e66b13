//! Damaged bytes, from both sides: batches that a client sends, objects that lie in the bucket (DESIGN 13.7).
//!
//! None of them may reach a log, another object, or a consumer; `checks` and `history` see to it, here they are offered.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sakia_io::sim::Random;
use sakia_io::sleep;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::batch::{BatchBuilder, Compression, LENGTH_END};
use sakia_remote::ObjectKey;

use crate::history::{History, Place};
use crate::kafka::{Kafka, ProducedTo};
use crate::producer::encode;
use crate::steered::{Load, Required, Steered};

/// How often something is damaged.
const EVERY: Duration = Duration::from_millis(20);

#[test]
fn batches_that_were_damaged_on_their_way_are_refused() {
    let refused = Rc::new(Cell::new(0));
    let sent = refused.clone();
    Steered::new(2, Required::Two).run_beside(21, move |run| {
        let hosts = run.cluster.hosts();
        for place in run.places.clone() {
            let (kafka, history, refused) = (Kafka::new("damaging", &hosts), run.history.clone(), sent.clone());
            let random = run.cluster.world.random();
            run.cluster.spawn_awaited(&run.history, send_damaged(kafka, history, place, random, refused));
        }
    });
    assert!(refused.get() > 100, "only {} damaged batches were refused", refused.get());
}

/// Sends batches of which one bit was turned behind the length field, and hears that they are damaged.
async fn send_damaged(
    kafka: Rc<Kafka>,
    history: Rc<History>,
    place: Place,
    mut random: Random,
    refused: Rc<Cell<u64>>,
) {
    while !history.is_over.get() {
        sleep(EVERY).await;
        let Ok((id, view)) = kafka.partition(&place.0, usize::try_from(place.1).expect("not negative")).await else {
            continue;
        };
        let Some(leader) = view.leader else { continue };
        let good = encode(BatchBuilder::new(Compression::None), &[Bytes::from_static(b"damaged:0 bytes")]);
        // Partition leader epoch and magic lie before the checksum's range: the leader sets the one and reads the other.
        let at = LENGTH_END + 5 + random.index(good.len() - LENGTH_END - 5);
        let records = turned(&good, at, &mut random);
        let produced = ProducedTo { topic: &place.0, id, partition: place.1, acks: -1, records: &records };
        let Ok(row) = kafka.produce(leader, produced).await else { continue };
        let code = ErrorCode::from_wire(row.error_code);
        assert_eq!(code, ErrorCode::CorruptMessage, "byte {at} of {} was changed", good.len());
        refused.set(refused.get() + 1);
    }
}

fn turned(bytes: &Bytes, at: usize, random: &mut Random) -> Bytes {
    let mut turned = BytesMut::from(&bytes[..]);
    turned[at] ^= 1 << random.below(8);
    turned.freeze()
}

#[test]
fn objects_that_were_damaged_in_the_bucket_are_replaced_by_bytes() {
    let mut fallbacks = 0;
    let mut damaged = 0;
    Steered::new(2, Required::Two).load(Load { writers: 2, ..Load::default() }).run_beside(22, |run| {
        let mut random = run.cluster.world.random();
        for _ in 0..200 {
            run.cluster.world.run_for(EVERY);
            let keys = run.cluster.bucket.keys();
            let newest = keys.iter().filter(|key| !run.cluster.damaged.contains(*key)).max_by_key(|key| number_of(key));
            let Some(key) = newest.cloned() else { continue };
            let Some(bytes) = run.cluster.bucket.object(&key) else { continue };
            let at = random.index(bytes.len());
            run.cluster.damaged.insert(key.clone());
            let (bucket, bytes) = (run.cluster.bucket.clone(), turned(&bytes, at, &mut random));
            let written = run.cluster.world.block_on(&run.cluster.outside, EVERY, async move {
                bucket.overwrite(&key, bytes);
            });
            written.expect("it takes no time");
        }
        damaged = run.cluster.damaged.len();
        fallbacks = run.cluster.metric("sakia_wal_fallbacks_total", "object_unreadable");
    });
    assert!(damaged > 100, "only {damaged} objects were damaged");
    assert!(fallbacks > 0, "no follower met a damaged object");
}

/// Number of an object in its stream.
fn number_of(key: &ObjectKey) -> u64 {
    key.as_str().rsplit('/').next().and_then(|number| number.parse().ok()).expect("names of objects end with a number")
}
