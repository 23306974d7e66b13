//! The broker's S3 store against a server that answers wrongly, as stores and proxies in the field did.
//!
//! A stand-in takes one request per connection and writes canned bytes; what it was asked is kept.

use std::future::Future;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sakia_remote::key::ObjectKey;
use sakia_remote::store::s3::{S3Credentials, S3Settings, S3Store};
use sakia_remote::store::{CreateOnly, ObjectStore, Put, StatusClass, StoreError, Verb};
use sakia_remote::url::StorageUrl;

const BODY: &str = "0123456789";

struct StandIn {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl StandIn {
    /// Answers request number n with answer number n, then closes the connection; the last answer repeats.
    fn new(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let Ok(mut stream) = stream else { return };
                let Some(request) = read_request(&mut stream) else { continue };
                seen.lock().expect("not poisoned").push(request);
                let answer = answers.get(number).or(answers.last()).expect("an answer");
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { address, asked }
    }

    fn store(&self) -> S3Store {
        let url = format!("s3://bucket/p?endpoint=http://{}", self.address);
        let credentials = S3Credentials { access_key: "a".to_owned(), secret_key: "b".to_owned(), session_token: None };
        let mut settings = S3Settings::new(StorageUrl::parse(&url).expect("valid"), credentials);
        settings.attempt_timeout = Duration::from_secs(1);
        S3Store::open(&settings).expect("threads start")
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("not poisoned").clone()
    }
}

fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        let line = line.to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        head.push_str(&line);
    }
    reader.read_exact(&mut vec![0; length]).ok()?;
    Some(head)
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

fn error(status: &str, headers: &str, code: &str) -> String {
    answer(status, headers, &format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message></Error>"))
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// What a get of `2..6` gives for one canned answer.
fn get(canned: String) -> Result<Bytes, StoreError> {
    let stand_in = StandIn::new(vec![canned]);
    wait(stand_in.store().get(&ObjectKey::new("p/a"), 2..6))
}

fn put() -> Put {
    Put { key: ObjectKey::new("p/a"), parts: vec![Bytes::from_static(b"abc")], create_only: CreateOnly::Yes }
}

fn is_bad_reply(result: &Result<Bytes, StoreError>) -> bool {
    matches!(result, Err(StoreError::BadReply { .. }))
}

#[test]
fn the_asked_range_and_a_whole_object_both_give_the_asked_bytes() {
    assert_eq!(get(answer("206 P", "content-range: bytes 2-5/10\r\n", "2345")), Ok(Bytes::from_static(b"2345")));
    assert_eq!(get(answer("200 OK", "", BODY)), Ok(Bytes::from_static(b"2345")), "cut at the right place");
}

#[test]
fn another_range_or_fewer_bytes_are_refused() {
    let shifted = get(answer("206 P", "content-range: bytes 3-6/10\r\n", "3456"));
    assert!(is_bad_reply(&shifted), "{shifted:?}");
    let half = get(answer("206 P", "content-range: bytes 2-3/10\r\n", "23"));
    assert!(is_bad_reply(&half), "{half:?}");
    let lying = get(answer("206 P", "content-range: bytes 2-5/10\r\n", "23"));
    assert!(is_bad_reply(&lying), "{lying:?}");
    let empty = get(answer("206 P", "", ""));
    assert!(matches!(empty, Err(StoreError::OutOfRange { .. } | StoreError::BadReply { .. })), "{empty:?}");
}

#[test]
fn a_body_that_breaks_off_is_never_taken_as_whole() {
    let torn = "HTTP/1.1 206 P\r\ncontent-range: bytes 2-5/10\r\ncontent-length: 4\r\n\r\n23".to_owned();
    let result = get(torn);
    assert!(is_bad_reply(&result), "{result:?}");
    let chunked = "HTTP/1.1 206 P\r\ncontent-range: bytes 2-5/10\r\ntransfer-encoding: chunked\r\n\r\n2\r\n23\r\n";
    let result = get(chunked.to_owned());
    assert!(is_bad_reply(&result), "{result:?}");
}

#[test]
fn a_range_beyond_the_object_tells_its_length() {
    let result = get(error("416 R", "content-range: bytes */3\r\n", "InvalidRange"));
    assert_eq!(result, Err(StoreError::OutOfRange { asked: 6, length: Some(3) }));
    let result = get(answer("206 P", "content-range: bytes 2-3/4\r\n", "23"));
    assert_eq!(result, Err(StoreError::OutOfRange { asked: 6, length: Some(4) }));
}

#[test]
fn each_answer_to_a_put_is_told_apart() {
    let cases = [
        (error("409 C", "", "ConditionalRequestConflict"), "Conflict"),
        (error("412 P", "", "PreconditionFailed"), "Exists"),
        (error("400 B", "", "RequestTimeout"), "Retry"),
        (error("400 B", "", "ExpiredToken"), "Retry"),
        (error("403 F", "", "AccessDenied"), "Refused"),
        (error("503 S", "", "SlowDown"), "Retry"),
        (error("500 I", "", "InternalError"), "Unknown"),
        (error("501 N", "", "NotImplemented"), "Refused"),
        ("HTTP/1.1 garbage\r\n\r\n".to_owned(), "Unknown"),
        (String::new(), "Unknown"),
    ];
    for (canned, expected) in cases {
        let stand_in = StandIn::new(vec![canned.clone()]);
        let result = wait(stand_in.store().put(put())).expect_err("not a success");
        let name = format!("{result:?}");
        assert!(name.starts_with(expected), "{canned:?}: {name}");
    }
}

#[test]
fn one_call_is_one_attempt() {
    let stand_in = StandIn::new(vec![error("503 S", "connection: close\r\n", "SlowDown")]);
    let store = stand_in.store();
    for _ in 0..5 {
        assert!(matches!(wait(store.put(put())), Err(StoreError::Retry { .. })));
    }
    assert_eq!(stand_in.asked().len(), 5, "the client library does not retry by itself");
    assert_eq!(store.counters().counts().of(Verb::Put, StatusClass::ServerError), 5);
}

#[test]
fn a_create_is_conditional_unsigned_in_its_payload_and_without_a_trailing_checksum() {
    let stand_in = StandIn::new(vec![answer("200 OK", "etag: \"x\"\r\n", "")]);
    wait(stand_in.store().put(put())).expect("created");
    let asked = stand_in.asked().remove(0);
    assert!(asked.contains("if-none-match: *"), "{asked}");
    assert!(asked.contains("x-amz-content-sha256: unsigned-payload"), "{asked}");
    assert!(asked.contains("content-length: 3"), "{asked}");
    assert!(!asked.contains("aws-chunked") && !asked.contains("x-amz-trailer"), "{asked}");
}

#[test]
fn a_host_clock_that_is_wrong_is_corrected_after_one_refusal() {
    let skewed = error("403 F", "connection: close\r\ndate: Mon, 01 Jan 2035 10:00:00 GMT\r\n", "RequestTimeTooSkewed");
    let stand_in = StandIn::new(vec![skewed, answer("200 OK", "etag: \"x\"\r\n", "")]);
    let store = stand_in.store();
    assert!(matches!(wait(store.put(put())), Err(StoreError::Retry { .. })));
    wait(store.put(put())).expect("signed with the store's time");
    let asked = stand_in.asked();
    assert!(asked[1].contains("x-amz-date: 20350101t"), "{}", asked[1]);
}

#[test]
fn connections_closed_while_idle_do_not_delay_the_next_request() {
    // Every answer leaves the connection open by HTTP's rules, and the stand-in closes it all the same.
    let stand_in = StandIn::new(vec![answer("200 OK", "etag: \"x\"\r\n", "")]);
    let store = stand_in.store();
    for _ in 0..5 {
        let started = Instant::now();
        // A reset that crosses with the request is an unknown outcome, to be tried again at once.
        let result = wait(store.put(put()));
        assert!(matches!(result, Ok(()) | Err(StoreError::Unknown { .. })), "{result:?}");
        assert!(started.elapsed() < Duration::from_secs(1));
    }
}
