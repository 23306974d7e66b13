use super::*;
use crate::frozen::FrozenObject;
use crate::get::open_object;
use crate::reference::ReferencedObject;
use crate::store::probe::{ProbeError, probe};
use crate::store::retry::RetryPolicy;
use crate::store::settled::{Found, Settled, Unsettled, put_settled};
use crate::store::{CreateOnly, More};
use crate::testing::{joined, key, object, range};
use sakia_io::sim::World;

/// Runs `future` on one machine of a world with `seed`; the second value is how long it took.
fn run<T: 'static>(seed: u64, future: impl Future<Output = T> + 'static) -> (T, Duration) {
    let world = World::new(seed);
    let machine = world.machine("one");
    let value = world.block_on(&machine, Duration::from_secs(600), future).expect("it ends");
    (value, world.now().as_duration())
}

fn sample(sequence: u64) -> FrozenObject {
    object(sequence, vec![range(key(1, 0), 0..5, 100), range(key(2, 0), 7..8, 50)])
}

fn small(name: &str, create_only: CreateOnly) -> Put {
    Put { key: ObjectKey::new(name), parts: vec![Bytes::from_static(b"ab"), Bytes::from_static(b"cd")], create_only }
}

#[test]
fn an_object_is_put_read_listed_and_deleted() {
    let bucket = SimulatedBucket::new(1);
    let store = bucket.client("one");
    let ((), took) = run(1, async move {
        store.put(small("p/a", CreateOnly::Yes)).await.expect("created");
        assert_eq!(store.put(small("p/a", CreateOnly::Yes)).await, Err(StoreError::Exists));
        store.put(small("p/a", CreateOnly::No)).await.expect("replaced");
        let key = ObjectKey::new("p/a");
        assert_eq!(store.get(&key, 1..3).await, Ok(Bytes::from_static(b"bc")));
        let beyond = Err(StoreError::OutOfRange { asked: 5, length: Some(4) });
        assert_eq!(store.get(&key, 0..5).await, beyond);
        let page = store.list("p/", None).await.expect("listed");
        assert_eq!((page.objects.len(), page.objects[0].length, page.more), (1, 4, More::No));
        store.delete(vec![key.clone(), ObjectKey::new("p/none")]).await.expect("deleted");
        assert_eq!(store.get(&key, 0..1).await, Err(StoreError::Missing));
    });
    assert!(took > Duration::from_millis(15), "{took:?}");
}

#[test]
fn one_of_eight_racing_creators_wins_under_every_seed() {
    for seed in 0..20 {
        let bucket = SimulatedBucket::new(seed);
        let world = World::new(seed);
        let clients: Vec<_> = (0..8)
            .map(|number| {
                let store = bucket.client(&number.to_string());
                let machine = world.machine(&number.to_string());
                world.spawn_client(&machine, async move { store.put(small("race", CreateOnly::Yes)).await })
            })
            .collect();
        world.run_until(Duration::from_secs(10), |_| clients.iter().all(|client| client.is_done())).expect("it ends");
        let results = clients.iter().map(|client| client.take().expect("done"));
        assert_eq!(results.filter(Result::is_ok).count(), 1, "seed {seed}");
    }
}

#[test]
fn a_listing_goes_on_page_by_page() {
    let bucket = SimulatedBucket::new(1);
    let store = bucket.client("one");
    run(1, async move {
        for number in 0..1500 {
            bucket.overwrite(&ObjectKey::new(&format!("a/{number:05}")), Bytes::new());
        }
        bucket.overwrite(&ObjectKey::new("b/0"), Bytes::new());
        let first = store.list("a/", None).await.expect("listed");
        assert_eq!((first.objects.len(), first.more), (1000, More::Yes));
        let last = first.objects.last().map(|object| object.key.clone());
        let second = store.list("a/", last.as_ref()).await.expect("listed");
        assert_eq!((second.objects.len(), second.more), (500, More::No));
    });
}

#[test]
fn a_settled_put_stands_and_opens_again() {
    let bucket = SimulatedBucket::new(1);
    let store = bucket.client("one");
    let object = sample(1);
    let frozen = object.clone();
    let (settled, _) = run(1, async move { put_settled(&store, &frozen, RetryPolicy::default()).await });
    assert_eq!(settled, Ok(Settled::Created));
    let stored = bucket.object(object.key()).expect("it stands");
    let reference = object.reference();
    let referenced = ReferencedObject { object: reference, get_end: reference.object_length, excluded: Vec::new() };
    assert_eq!(open_object(&referenced, &stored).expect("valid").len(), 2);
}

#[test]
fn a_lost_reply_ends_as_our_own_object_and_conflicts_are_retried() {
    let bucket = SimulatedBucket::new(1);
    bucket.change_faults(|faults| faults.next_lost_put_replies = 1);
    let store = bucket.client("one");
    let object = sample(1);
    let frozen = object.clone();
    let (settled, _) = run(1, async move { put_settled(&store, &frozen, RetryPolicy::default()).await });
    assert_eq!(settled, Ok(Settled::FoundOwn));
    assert_eq!(bucket.keys(), [object.key().clone()]);

    let bucket = SimulatedBucket::new(1);
    bucket.change_faults(|faults| faults.next_conflicts = 2);
    let store = bucket.client("one");
    let (settled, _) = run(1, async move { put_settled(&store, &object, RetryPolicy::default()).await });
    assert_eq!(settled, Ok(Settled::Created));
    assert_eq!(bucket.ledger().of(Verb::Put, StatusClass::ClientError), 2);
}

#[test]
fn a_strangers_object_is_neither_replaced_nor_taken_for_ours() {
    let mine = sample(1);
    let same_name = {
        // Same sequence and slices, another object id: what a zombie of this broker would write.
        let mut identity = crate::testing::identity(1);
        identity.object_id = sakia_protocol::ids::Uuid::from_bytes([0xee; 16]);
        let plan = crate::testing::plan(vec![range(key(1, 0), 0..5, 100), range(key(2, 0), 7..8, 50)]);
        FrozenObject::new(&crate::testing::space(), identity, plan)
    };
    let strangers = [
        (joined(&same_name), Found::Object(same_name.object_id())),
        (Bytes::from_static(b"short"), Found::Foreign),
        (Bytes::from(vec![7; 5000]), Found::Foreign),
    ];
    for (bytes, found) in strangers {
        let bucket = SimulatedBucket::new(1);
        let (inner, mine) = (bucket.clone(), mine.clone());
        let (key, stranger) = (mine.key().clone(), bytes.clone());
        let store = bucket.client("one");
        let (settled, _) = run(1, async move {
            inner.overwrite(&key, stranger);
            put_settled(&store, &mine, RetryPolicy::default()).await
        });
        assert!(matches!(settled, Err(Unsettled::Fenced { found: f, .. }) if f == found), "{found:?}");
        assert_eq!(bucket.object(&bucket.keys()[0]), Some(bytes));
    }
}

#[test]
fn a_dead_bucket_ends_the_put_within_its_deadline() {
    let bucket = SimulatedBucket::new(1);
    bucket.change_faults(|faults| faults.reach = Reach::Down);
    let store = bucket.client("one");
    let (settled, took) = run(1, async move { put_settled(&store, &sample(1), RetryPolicy::default()).await });
    assert!(matches!(settled, Err(Unsettled::GaveUp { .. })), "{settled:?}");
    assert!(took < Duration::from_secs(8), "{took:?}");
    assert_eq!(bucket.ledger().attempts(Verb::Put), 0, "nothing was answered");
}

#[test]
fn a_client_that_is_cut_off_does_not_disturb_the_others() {
    let bucket = SimulatedBucket::new(1);
    bucket.change_faults(|faults| {
        faults.cut_clients.insert("one".to_owned());
    });
    let (one, two) = (bucket.client("one"), bucket.client("two"));
    run(1, async move {
        assert!(matches!(one.put(small("x", CreateOnly::No)).await, Err(StoreError::Unknown { .. })));
        two.put(small("x", CreateOnly::No)).await.expect("written");
        assert_eq!(two.counters().counts().of(Verb::Put, StatusClass::Success), 1);
        assert_eq!(one.counters().counts().of(Verb::Put, StatusClass::Unanswered), 1);
    });
}

#[test]
fn the_ledger_lies_between_what_was_answered_and_what_was_sent() {
    for seed in 0..20 {
        let bucket = SimulatedBucket::new(seed);
        bucket.change_faults(|faults| {
            faults.slow_downs_per_mille = 200;
            faults.lost_put_replies_per_mille = 200;
            faults.short_gets_per_mille = 200;
        });
        let store = bucket.client("one");
        let counters = store.counters();
        run(seed, async move {
            for sequence in 0..20 {
                let object = sample(sequence);
                let settled = put_settled(&store, &object, RetryPolicy { attempts_max: 100, ..patient() }).await;
                settled.expect("the bucket is only bad, not gone");
                for _ in 0..3 {
                    // Whether it comes is not asked here.
                    let _ = store.get(object.key(), 0..10).await;
                }
            }
        });
        let (sent, ledger) = (counters.counts(), bucket.ledger());
        for verb in Verb::ALL {
            assert!(sent.answered(verb) <= ledger.attempts(verb), "seed {seed} {verb:?}");
            assert!(ledger.attempts(verb) <= sent.attempts(verb), "seed {seed} {verb:?}");
        }
        assert_eq!(bucket.keys().len(), 20, "seed {seed}: every object once");
    }
}

fn patient() -> RetryPolicy {
    RetryPolicy { deadline: Duration::from_secs(500), ..RetryPolicy::default() }
}

#[test]
fn a_seed_replays_its_latencies() {
    let time = |seed| {
        let store = SimulatedBucket::new(seed).client("one");
        run(1, async move { put_settled(&store, &sample(1), RetryPolicy::default()).await }).1
    };
    assert_eq!(time(5), time(5));
    assert_ne!(time(5), time(6));
}

#[test]
fn a_hidden_object_is_missing_and_a_damaged_one_is_noticed() {
    let bucket = SimulatedBucket::new(1);
    let store = bucket.client("one");
    let object = sample(1);
    run(1, async move {
        put_settled(&store, &object, RetryPolicy::default()).await.expect("written");
        let reference = object.reference();
        let end = u64::from(reference.object_length);
        let mut bytes = bucket.object(object.key()).expect("it stands").to_vec();
        *bytes.last_mut().expect("not empty") ^= 1;
        bucket.overwrite(object.key(), bytes.into());
        let got = store.get(object.key(), 0..end).await.expect("read");
        let referenced = ReferencedObject { object: reference, get_end: reference.object_length, excluded: Vec::new() };
        assert!(open_object(&referenced, &got).is_err());
        let key = object.key().clone();
        bucket.change_faults(|faults| {
            faults.hidden.insert(key);
        });
        assert_eq!(store.get(object.key(), 0..end).await, Err(StoreError::Missing));
    });
}

#[test]
fn a_probe_measures_a_good_bucket_and_leaves_nothing_behind() {
    let bucket = SimulatedBucket::new(1);
    let store = bucket.client("one");
    let (trips, _) = run(1, async move { probe(&store, ObjectKey::new("p/probe")).await });
    let trips = trips.expect("a good bucket");
    assert!(trips.put >= Duration::from_millis(4) && trips.get >= Duration::from_millis(3), "{trips:?}");
    assert!(bucket.keys().is_empty());
}

#[test]
fn a_probe_finds_a_store_that_ignores_create_only() {
    let (error, _) = run(1, async {
        let store = Overwriting(SimulatedBucket::new(1).client("one"));
        probe(&store, ObjectKey::new("p/probe")).await
    });
    assert_eq!(error, Err(ProbeError::NotCreateOnly));
}

/// A store that replaces whatever it is told to create.
struct Overwriting(SimulatedStore);

impl ObjectStore for Overwriting {
    fn put(&self, put: Put) -> StoreFuture<()> {
        self.0.put(Put { create_only: CreateOnly::No, ..put })
    }
    fn get(&self, key: &ObjectKey, range: Range<u64>) -> StoreFuture<Bytes> {
        self.0.get(key, range)
    }
    fn delete(&self, keys: Vec<ObjectKey>) -> StoreFuture<()> {
        self.0.delete(keys)
    }
    fn list(&self, prefix: &str, after: Option<&ObjectKey>) -> StoreFuture<Listing> {
        self.0.list(prefix, after)
    }
    fn counters(&self) -> StoreCounters {
        self.0.counters()
    }
}
