//! Counts of answered requests, by verb and status class, as a store would bill them.
//!
//! Bytes are those of object bodies: of puts that were answered with success, and of successful gets. The control
//! pages (`/_…`) are not counted.

use std::sync::atomic::{AtomicU64, Ordering};

use hyper::{Method, Uri};
use serde_json::{Map, Value, json};

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Put,
    Get,
    Head,
    Delete,
    List,
    Other,
}

const VERBS: [(Verb, &str); 6] = [
    (Verb::Put, "put"),
    (Verb::Get, "get"),
    (Verb::Head, "head"),
    (Verb::Delete, "delete"),
    (Verb::List, "list"),
    (Verb::Other, "other"),
];
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl Verb {
    /// From method and path-style address.
    pub(crate) fn of(method: &Method, uri: &Uri) -> Self {
        let names_object = uri.path().trim_start_matches('/').split_once('/').is_some_and(|(_, key)| !key.is_empty());
        let deletes =
            uri.query().is_some_and(|query| query.split('&').any(|part| matches!(part, "delete" | "delete=")));
        match (method, names_object) {
            (&Method::PUT, true) => Self::Put,
            (&Method::GET, true) => Self::Get,
            (&Method::GET, false) => Self::List,
            (&Method::HEAD, _) => Self::Head,
            (&Method::DELETE, _) => Self::Delete,
            (&Method::POST, false) if deletes => Self::Delete,
            _ => Self::Other,
        }
    }

    fn index(self) -> usize {
        VERBS.iter().position(|(verb, _)| *verb == self).expect("every verb is listed")
    }
}

#[derive(Default)]
pub(crate) struct Ledger {
    counts: [[AtomicU64; 5]; 6],
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

impl Ledger {
    pub(crate) fn answered(&self, verb: Verb, status: u16) {
        let class = usize::from(status / 100).clamp(1, CLASSES.len()) - 1;
        self.counts[verb.index()][class].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn bytes_in(&self, bytes: u64) {
        self.bytes_in.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn bytes_out(&self, bytes: u64) {
        self.bytes_out.fetch_add(bytes, Ordering::Relaxed);
    }

    /// `{"put": {"2xx": 3}, "get": {…}, …, "bytes_in": 1200, "bytes_out": 800}`; classes that never came are left out.
    pub(crate) fn to_json(&self) -> Value {
        let mut page = Map::new();
        for (verb, name) in VERBS {
            let mut classes = Map::new();
            for (class, count) in CLASSES.iter().zip(&self.counts[verb.index()]) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    classes.insert((*class).to_owned(), json!(count));
                }
            }
            page.insert(name.to_owned(), Value::Object(classes));
        }
        page.insert("bytes_in".to_owned(), json!(self.bytes_in.load(Ordering::Relaxed)));
        page.insert("bytes_out".to_owned(), json!(self.bytes_out.load(Ordering::Relaxed)));
        Value::Object(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verb(method: Method, uri: &'static str) -> Verb {
        Verb::of(&method, &Uri::from_static(uri))
    }

    #[test]
    fn requests_are_sorted_by_what_they_are_billed_as() {
        assert_eq!(verb(Method::PUT, "/b/k/x?x-id=PutObject"), Verb::Put);
        assert_eq!(verb(Method::PUT, "/b"), Verb::Other);
        assert_eq!(verb(Method::GET, "/b/k"), Verb::Get);
        assert_eq!(verb(Method::GET, "/b/?list-type=2&prefix=x%2F"), Verb::List);
        assert_eq!(verb(Method::POST, "/b/?delete"), Verb::Delete);
        assert_eq!(verb(Method::POST, "/b?delete="), Verb::Delete);
        assert_eq!(verb(Method::HEAD, "/b/k"), Verb::Head);
    }

    #[test]
    fn the_page_shows_counts_by_class() {
        let ledger = Ledger::default();
        ledger.answered(Verb::Put, 200);
        ledger.answered(Verb::Put, 412);
        ledger.bytes_in(5);
        let page = ledger.to_json();
        assert_eq!(page["put"], json!({"2xx": 1, "4xx": 1}));
        assert_eq!((&page["get"], &page["bytes_in"]), (&json!({}), &json!(5)));
    }
}
