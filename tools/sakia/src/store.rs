//! The bucket of a process: from `remote.wal.storage.url` and `AWS_…` variables to a store.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use sakia_io::{ShardSpec, Spawner, Threads};
use sakia_metrics::{Counter, Description, Registry};
use sakia_remote::store::s3::{S3Credentials, S3Settings, S3Store};
use sakia_remote::store::{StatusClass, StoreCounters, StoreCounts, Verb};
use sakia_remote::url::StorageUrl;

use crate::failure::Failure;

/// How often the store's counts are shown. The store counts by itself; the page follows it by this much.
const SHOWN_EVERY: Duration = Duration::from_millis(200);

/// A store, and where its objects lie.
pub(crate) struct Opened {
    pub(crate) store: S3Store,
    pub(crate) prefix: String,
}

/// Opens the bucket with the keys of the environment. Nothing is sent yet.
pub(crate) fn open(url: &str, threads: usize) -> Result<Opened, Failure> {
    let credentials = S3Credentials::from_environment(|name| std::env::var(name).ok()).ok_or_else(|| {
        Failure::refused("the bucket needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment")
    })?;
    open_as(url, threads, credentials)
}

/// Opens the bucket with these keys.
pub(crate) fn open_as(url: &str, threads: usize, credentials: S3Credentials) -> Result<Opened, Failure> {
    let url = StorageUrl::parse(url).map_err(Failure::refused)?;
    let prefix = url.prefix.clone();
    let mut settings = S3Settings::new(url, credentials);
    settings.threads = threads;
    Ok(Opened { store: S3Store::open(&settings).map_err(Failure::failed)?, prefix })
}

/// Runs a future on a shard of its own and gives its result.
pub(crate) fn on_a_shard<T, F>(make: impl FnOnce() -> F + Send + 'static) -> Result<T, Failure>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let (told, result) = mpsc::channel();
    let spec = ShardSpec { name: "tool".to_owned(), cpu: None };
    let main = Box::new(move || {
        let future = make();
        let ended: std::pin::Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
            told.send(future.await).expect("the caller waits");
        });
        ended
    });
    Threads.start(spec, main).map_err(Failure::failed)?.join();
    result.recv().map_err(|_| Failure::failed("the shard ended without a result"))
}

/// Shows the store's counts among the metrics, from now on.
pub(crate) fn show_counts(counters: StoreCounters, registry: &Registry) -> std::io::Result<()> {
    let shown = ShownCounts::new(registry);
    thread::Builder::new().name("store-counts".to_owned()).spawn(move || {
        loop {
            shown.follow(counters.counts());
            thread::sleep(SHOWN_EVERY);
        }
    })?;
    Ok(())
}

struct ShownCounts {
    attempts: Vec<(Verb, StatusClass, Counter)>,
    sent_bytes: Counter,
    received_bytes: Counter,
    before: RefCell<StoreCounts>,
}

/// Requests of one verb, by class of the answer.
const fn requests(verb: Verb) -> Description {
    let (name, help) = match verb {
        Verb::Put => ("kafka_server_remote_wal_put_requests_total", "PUTs sent to the bucket, each attempt counted."),
        Verb::Get => ("kafka_server_remote_wal_get_requests_total", "GETs sent to the bucket, each attempt counted."),
        Verb::Head => ("sakia_wal_head_requests_total", "HEADs sent to the bucket, each attempt counted."),
        Verb::Delete => ("sakia_wal_delete_requests_total", "Deletes sent to the bucket, each attempt counted."),
        Verb::List => ("sakia_wal_list_requests_total", "Lists sent to the bucket, each attempt counted."),
    };
    Description::new(name, help).labels(&["status"])
}

impl ShownCounts {
    fn new(registry: &Registry) -> Self {
        let attempts = Verb::ALL.into_iter().flat_map(|verb| {
            let family = registry.counters(requests(verb));
            StatusClass::ALL.map(|class| (verb, class, family.with(&[class.name()])))
        });
        let bytes = |name, help| registry.counters(Description::new(name, help)).with(&[]);
        Self {
            attempts: attempts.collect(),
            sent_bytes: bytes("sakia_wal_store_sent_bytes_total", "Bytes of object bodies sent to the bucket."),
            received_bytes: bytes(
                "sakia_wal_store_received_bytes_total",
                "Bytes of object bodies read from the bucket.",
            ),
            before: RefCell::new(StoreCounts::default()),
        }
    }

    fn follow(&self, counts: StoreCounts) {
        let new = counts.since(&self.before.replace(counts));
        for (verb, class, counter) in &self.attempts {
            counter.add(new.of(*verb, *class));
        }
        self.sent_bytes.add(new.sent_bytes);
        self.received_bytes.add(new.received_bytes);
    }
}

/// A store as the shard that uses it holds it.
pub(crate) fn shared(store: S3Store) -> Rc<dyn sakia_remote::ObjectStore> {
    Rc::new(store)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_counts_follow_the_store() {
        let registry = Registry::new();
        let shown = ShownCounts::new(&registry);
        let counters = StoreCounters::default();
        counters.attempt(Verb::Put, StatusClass::Success);
        shown.follow(counters.counts());
        counters.attempt(Verb::Put, StatusClass::Success);
        counters.attempt(Verb::Get, StatusClass::ServerError);
        counters.sent(7);
        shown.follow(counters.counts());
        let mut text = String::new();
        registry.render(&mut text);
        for line in [
            "kafka_server_remote_wal_put_requests_total{status=\"2xx\"} 2",
            "kafka_server_remote_wal_get_requests_total{status=\"5xx\"} 1",
            "sakia_wal_store_sent_bytes_total 7",
        ] {
            assert!(text.contains(line), "{line} is missing in {text}");
        }
    }
}
