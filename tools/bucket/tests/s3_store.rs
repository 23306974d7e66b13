//! The broker's S3 store against the embedded bucket, over real sockets.
//!
//! Every test starts its own server on a free port with its own data folder. The store's futures need no shard, so a
//! small tokio runtime drives them.

use std::future::Future;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sakia_bucket::{BucketConfig, RunningBucket, start};
use sakia_remote::key::ObjectKey;
use sakia_remote::store::s3::{S3Credentials, S3Settings, S3Store};
use sakia_remote::store::{CreateOnly, More, ObjectStore, Put, StatusClass, StoreError, Verb};
use sakia_remote::url::StorageUrl;
use serde_json::{Value, json};

static NEXT_FOLDER: AtomicU32 = AtomicU32::new(0);

struct Server {
    folder: PathBuf,
    bucket: Option<RunningBucket>,
}

impl Server {
    fn new() -> Self {
        let number = NEXT_FOLDER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("sakia-s3-store-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let mut server = Self { folder, bucket: None };
        server.restart();
        server
    }

    fn restart(&mut self) {
        self.bucket = None;
        let mut config = BucketConfig::new(self.folder.clone());
        config.listen = ([127, 0, 0, 1], 0).into();
        self.bucket = Some(start(config).expect("a free port and a writable folder"));
    }

    fn address(&self) -> String {
        self.bucket.as_ref().expect("running").address().to_string()
    }

    fn settings(&self) -> S3Settings {
        let url = format!("s3://sakia-wal/p?endpoint=http://{}", self.address());
        let credentials = S3Credentials {
            access_key: "sakia".to_owned(),
            secret_key: "sakia-secret".to_owned(),
            session_token: None,
        };
        let mut settings = S3Settings::new(StorageUrl::parse(&url).expect("valid"), credentials);
        settings.attempt_timeout = Duration::from_secs(2);
        settings
    }

    fn store(&self) -> S3Store {
        S3Store::open(&self.settings()).expect("threads start")
    }

    fn control(&self, request: &str) -> Value {
        let mut stream = TcpStream::connect(self.address()).expect("listening");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).expect("json")
    }

    fn ledger(&self) -> Value {
        self.control("GET /_ledger HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    }

    fn fault(&self, mode: &str) {
        let body = json!({ "mode": mode }).to_string();
        let head = format!("POST /_fault HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}", body.len());
        assert_eq!(self.control(&format!("{head}\r\n\r\n{body}"))["mode"], mode);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.bucket = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(name)
}

fn put(name: &str, parts: &[Bytes], create_only: CreateOnly) -> Put {
    Put { key: key(name), parts: parts.to_vec(), create_only }
}

fn parts() -> Vec<Bytes> {
    (0..5u8).map(|number| Bytes::from(vec![number; 100_000 + usize::from(number)])).collect()
}

#[test]
fn separate_parts_become_one_object_and_ranges_of_it_come_back() {
    let server = Server::new();
    let store = server.store();
    let (parts, whole) = (parts(), Bytes::from(parts().concat()));
    wait(async {
        store.put(put("p/a", &parts, CreateOnly::Yes)).await.expect("created");
        let length = u64::try_from(whole.len()).expect("fits");
        assert_eq!(store.get(&key("p/a"), 0..length).await.expect("read"), whole);
        assert_eq!(store.get(&key("p/a"), 99_990..200_020).await.expect("read"), whole.slice(99_990..200_020));
        let beyond = Err(StoreError::OutOfRange { asked: length + 1, length: Some(length) });
        assert_eq!(store.get(&key("p/a"), 10..length + 1).await, beyond, "a clamped range");
        let behind = Err(StoreError::OutOfRange { asked: length + 9, length: Some(length) });
        assert_eq!(store.get(&key("p/a"), length + 5..length + 9).await, behind, "an unsatisfiable range");
        assert_eq!(store.get(&key("p/none"), 0..1).await, Err(StoreError::Missing));
        assert_eq!(store.put(put("p/a", &parts, CreateOnly::Yes)).await, Err(StoreError::Exists));
        store.put(put("p/a", &parts[..1], CreateOnly::No)).await.expect("replaced");
        assert_eq!(store.get(&key("p/a"), 0..100_000).await.expect("read"), parts[0]);
    });
}

#[test]
fn one_of_eight_racing_creators_wins() {
    let server = Server::new();
    let stores: Vec<_> = (0..8).map(|_| server.store()).collect();
    wait(async {
        for round in 0..10 {
            let name = format!("p/race/{round}");
            let body = [Bytes::from(vec![1; 50_000])];
            let mut attempts: Vec<_> =
                stores.iter().map(|store| store.put(put(&name, &body, CreateOnly::Yes))).collect();
            let mut wins = 0;
            // All are under way before the first is waited for.
            let mut results: Vec<Option<Result<(), StoreError>>> = vec![None; attempts.len()];
            std::future::poll_fn(|context| {
                for (attempt, result) in attempts.iter_mut().zip(&mut results) {
                    if result.is_none()
                        && let std::task::Poll::Ready(value) = attempt.as_mut().poll(context)
                    {
                        *result = Some(value);
                    }
                }
                if results.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
            for result in results.into_iter().flatten() {
                match result {
                    Ok(()) => wins += 1,
                    Err(error) => assert_eq!(error, StoreError::Exists),
                }
            }
            assert_eq!(wins, 1, "round {round}");
        }
    });
}

#[test]
fn objects_survive_a_restart_of_the_server() {
    let mut server = Server::new();
    let store = server.store();
    wait(store.put(put("p/a/b", &parts(), CreateOnly::Yes))).expect("created");
    server.restart();
    let store = server.store();
    wait(async {
        assert_eq!(store.get(&key("p/a/b"), 0..100_000).await.expect("read"), parts()[0]);
        assert_eq!(store.put(put("p/a/b", &parts(), CreateOnly::Yes)).await, Err(StoreError::Exists));
    });
}

#[test]
fn listing_pages_and_deleting_many_leave_the_rest() {
    let server = Server::new();
    let store = server.store();
    wait(async {
        for number in 0..5 {
            store.put(put(&format!("p/l/{number}"), &parts()[..1], CreateOnly::Yes)).await.expect("created");
        }
        let page = store.list("p/l/", None).await.expect("listed");
        assert_eq!((page.objects.len(), page.more), (5, More::No));
        assert_eq!(page.objects[0].length, 100_000);
        assert!(page.objects[0].modified_ms > 1_600_000_000_000);
        let rest = store.list("p/l/", Some(&key("p/l/2"))).await.expect("listed");
        let names: Vec<_> = rest.objects.iter().map(|object| object.key.as_str()).collect();
        assert_eq!(names, ["p/l/3", "p/l/4"]);
        let keys = vec![key("p/l/0"), key("p/l/3"), key("p/l/never")];
        store.delete(keys).await.expect("deleted");
        assert_eq!(store.list("p/l/", None).await.expect("listed").objects.len(), 3);
    });
}

#[test]
fn the_ledger_equals_the_stores_own_count_to_the_request() {
    let server = Server::new();
    let store = server.store();
    wait(async {
        for number in 0..7 {
            let name = format!("p/{}", number % 5);
            // Two of them exist already.
            let _ = store.put(put(&name, &parts(), CreateOnly::Yes)).await;
            store.get(&key(&name), 0..1000).await.expect("read");
        }
        assert_eq!(store.get(&key("p/none"), 0..1).await, Err(StoreError::Missing));
        store.list("p/", None).await.expect("listed");
        store.delete(vec![key("p/1"), key("p/2")]).await.expect("deleted");
        server.fault("error503");
        assert!(matches!(store.get(&key("p/3"), 0..1).await, Err(StoreError::Retry { .. })));
        server.fault("none");
    });
    let (counts, ledger) = (store.counters().counts(), server.ledger());
    for verb in Verb::ALL {
        for class in StatusClass::ALL {
            let billed = ledger[verb.name()][class.name()].as_u64().unwrap_or(0);
            assert_eq!(billed, counts.of(verb, class), "{verb:?} {class:?} {ledger}");
        }
    }
    assert_eq!(counts.of(Verb::Put, StatusClass::ClientError), 2);
    assert_eq!(ledger["bytes_out"], json!(7000));
    assert_eq!(counts.received_bytes, 7000);
    assert_eq!(ledger["bytes_in"], json!(5 * 500_010), "bytes of refused puts are not kept");
    assert_eq!(counts.sent_bytes, 7 * 500_010);
}

#[test]
fn a_server_that_hangs_ends_the_attempt_at_its_limit_and_is_used_again_after() {
    let server = Server::new();
    let store = server.store();
    wait(async {
        store.put(put("p/a", &parts(), CreateOnly::Yes)).await.expect("created");
        server.fault("hang");
        let started = Instant::now();
        let hung = store.put(put("p/b", &parts(), CreateOnly::Yes)).await;
        assert!(matches!(hung, Err(StoreError::Unknown { .. })), "{hung:?}");
        assert!(started.elapsed() < Duration::from_secs(4));
        let hung = store.get(&key("p/a"), 0..5).await;
        assert!(matches!(hung, Err(StoreError::Unknown { .. })), "{hung:?}");
        for verb in [Verb::Put, Verb::Get] {
            assert_eq!(store.counters().counts().of(verb, StatusClass::Unanswered), 1, "{verb:?}");
        }
        server.fault("none");
        assert_eq!(store.get(&key("p/a"), 0..5).await.expect("read"), Bytes::from_static(&[0; 5]));
        // The aborted put did not happen, or did: never something else under its name.
        let again = store.put(put("p/b", &parts(), CreateOnly::Yes)).await;
        assert!(matches!(again, Ok(()) | Err(StoreError::Exists)), "{again:?}");
    });
}

#[test]
fn a_put_whose_reply_is_lost_has_happened() {
    let server = Server::new();
    let store = server.store();
    wait(async {
        server.fault("lose-put-reply");
        let lost = store.put(put("p/a", &parts(), CreateOnly::Yes)).await;
        assert!(matches!(lost, Err(StoreError::Unknown { .. })), "{lost:?}");
        server.fault("none");
        assert_eq!(store.put(put("p/a", &parts(), CreateOnly::Yes)).await, Err(StoreError::Exists));
    });
}

#[test]
fn one_bit_of_every_third_body_is_spoilt_while_the_fault_is_on() {
    let server = Server::new();
    let store = server.store();
    wait(async {
        store.put(put("p/a", &parts(), CreateOnly::Yes)).await.expect("created");
        let right = store.get(&key("p/a"), 0..1000).await.expect("read");
        server.fault("spoil-get");
        let mut places = std::collections::BTreeSet::new();
        for read in 1..=30 {
            let bytes = store.get(&key("p/a"), 0..1000).await.expect("read");
            let flipped: Vec<(usize, u32)> = right
                .iter()
                .zip(&bytes)
                .map(|(one, other)| (one ^ other).count_ones())
                .enumerate()
                .filter(|(_, bits)| *bits > 0)
                .collect();
            assert_eq!(bytes.len(), right.len());
            if read % 3 == 0 {
                assert!(matches!(flipped[..], [(_, 1)]), "read {read}: {flipped:?}");
                places.insert(flipped[0].0);
            } else {
                assert_eq!(flipped, [], "read {read}");
            }
        }
        assert_eq!(places.len(), 10, "ten different places: {places:?}");
        server.fault("none");
        for _ in 0..3 {
            assert_eq!(store.get(&key("p/a"), 0..1000).await.expect("read"), right);
        }
    });
}

#[test]
fn a_wrong_secret_and_a_wrong_bucket_are_refused_and_not_missing() {
    let server = Server::new();
    let mut settings = server.settings();
    settings.credentials.secret_key = "wrong".to_owned();
    let store = S3Store::open(&settings).expect("threads start");
    let refused = wait(store.get(&key("p/a"), 0..1));
    assert!(
        matches!(&refused, Err(StoreError::Refused { why }) if why.contains("SignatureDoesNotMatch")),
        "{refused:?}"
    );
    let mut settings = server.settings();
    settings.url.bucket = "another-bucket".to_owned();
    let store = S3Store::open(&settings).expect("threads start");
    let refused = wait(store.get(&key("p/a"), 0..1));
    assert!(matches!(&refused, Err(StoreError::Refused { why }) if why.contains("NoSuchBucket")), "{refused:?}");
}

#[test]
fn a_server_that_is_gone_is_an_unknown_outcome_and_not_a_crash() {
    let mut server = Server::new();
    let store = server.store();
    wait(store.put(put("p/a", &parts(), CreateOnly::Yes))).expect("created");
    server.bucket = None;
    let gone = wait(store.get(&key("p/a"), 0..1));
    assert!(matches!(gone, Err(StoreError::Unknown { .. })), "{gone:?}");
    assert_eq!(store.counters().counts().of(Verb::Get, StatusClass::Unanswered), 1);
}

#[test]
fn put_and_get_take_at_least_the_latency_that_was_set() {
    let server = Server::new();
    let store = server.store();
    wait(async {
        store.put(put("p/a", &parts(), CreateOnly::Yes)).await.expect("warm");
        let started = Instant::now();
        store.put(put("p/b", &parts(), CreateOnly::Yes)).await.expect("created");
        assert!(started.elapsed() >= Duration::from_millis(5));
        let started = Instant::now();
        store.get(&key("p/b"), 0..10).await.expect("read");
        assert!(started.elapsed() >= Duration::from_millis(4));
    });
}
