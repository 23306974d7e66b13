//! Requests over a real socket on an io_uring shard.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Duration;

use sakia_io::{ShardSpec, Signal, Spawner, Threads};
use sakia_metrics::Description;

use super::*;
use crate::settings::Role;

fn page() -> StatusPage {
    let id = sakia_protocol::ids::BrokerId::new(7);
    StatusPage {
        process: Process { id, role: Role::Broker, rack: None, object_path: page::ObjectPath::Off },
        cluster_id: "some-cluster".to_owned(),
        metadata_index: None,
        brokers: Vec::new(),
        partitions: Vec::new(),
        partitions_left_out: 0,
    }
}

/// A site on a shard of its own, with a counter per label so that its scrape has a certain size.
struct Server {
    address: SocketAddr,
    stop: Signal,
    shard: Option<sakia_io::ShardHandle>,
}

impl Server {
    fn start(series: usize) -> Self {
        let stop = Signal::new();
        let (told, address) = mpsc::channel();
        let ended = stop.clone();
        let main = move || -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(async move {
                let registry = Registry::new();
                let family = registry.counters(Description::new("sakia_test_total", "Test.").labels(&["label"]));
                for number in 0..series {
                    family.with(&[&format!("{number:060}")]).increment();
                }
                let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
                told.send(listener.local_addr()).expect("the test waits");
                serve_on(listener, registry, Rc::new(page));
                ended.wait().await;
            })
        };
        let spec = ShardSpec { name: "http".to_owned(), cpu: None };
        let shard = Threads.start(spec, Box::new(main)).expect("a shard");
        let address = address.recv_timeout(Duration::from_secs(10)).expect("the shard starts");
        Self { address, stop, shard: Some(shard) }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a valid timeout");
        stream
    }

    /// Sends `request`, closes the sending side, reads everything.
    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered and closed");
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.raise();
        self.shard.take().expect("dropped once").join();
    }
}

const CLOSE: &str = "Host: x\r\nConnection: close\r\n\r\n";

#[test]
fn each_address_gives_what_it_says() {
    let server = Server::start(1);
    let metrics = server.ask(&format!("GET /metrics HTTP/1.1\r\n{CLOSE}"));
    assert!(metrics.starts_with("HTTP/1.1 200") && metrics.contains("version=0.0.4"), "{metrics}");
    assert!(metrics.contains("sakia_test_total{label="), "{metrics}");
    let open = server.ask(&format!("GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n{CLOSE}"));
    assert!(open.contains("application/openmetrics-text") && open.trim_end().ends_with("# EOF"), "{open}");
    let page = server.ask(&format!("GET /?x=1 HTTP/1.1\r\n{CLOSE}"));
    assert!(page.contains("text/html") && page.contains("some-cluster"), "{page}");
    assert!(server.ask(&format!("GET /favicon.ico HTTP/1.1\r\n{CLOSE}")).starts_with("HTTP/1.1 404"));
    let post = server.ask(&format!("POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n{CLOSE}"));
    assert!(post.starts_with("HTTP/1.1 405") && post.contains("allow: GET, HEAD"), "{post}");
}

#[test]
fn head_gives_the_length_and_no_body() {
    let server = Server::start(1);
    let whole = server.ask(&format!("GET /metrics HTTP/1.1\r\n{CLOSE}"));
    let (_, body) = whole.split_once("\r\n\r\n").expect("a body");
    let head = server.ask(&format!("HEAD /metrics HTTP/1.1\r\n{CLOSE}"));
    assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
    assert!(head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn a_scrape_of_several_sends_comes_whole() {
    let server = Server::start(5000);
    let answer = server.ask(&format!("GET /metrics HTTP/1.1\r\n{CLOSE}"));
    assert!(answer.len() > 3 * (64 << 10), "{} bytes", answer.len());
    assert_eq!(answer.lines().filter(|line| line.starts_with("sakia_test_total{")).count(), 5000);
}

#[test]
fn one_connection_serves_many_requests() {
    let server = Server::start(1);
    let mut answers = server.ask(&format!("GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /metrics HTTP/1.1\r\n{CLOSE}"));
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 2, "{answers}");
    answers.clear();
}

#[test]
fn what_is_not_http_is_refused_and_others_go_on() {
    let server = Server::start(1);
    let refused = server.ask("\u{0}\u{1}\u{2}\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n{CLOSE}", "x".repeat(2 * HEAD_BYTES_MAX));
    let mut stream = server.connect();
    // The server may close before all of it was taken.
    let _ = stream.write_all(long.as_bytes());
    let mut first = [0; 12];
    if stream.read_exact(&mut first).is_ok() {
        assert_eq!(&first, b"HTTP/1.1 431");
    }
    assert!(server.ask(&format!("GET / HTTP/1.1\r\n{CLOSE}")).starts_with("HTTP/1.1 200"));
}

#[test]
fn connections_above_the_bound_are_closed_and_places_come_back() {
    let server = Server::start(1);
    let mut held: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| server.connect()).collect();
    for stream in &mut held {
        stream.write_all(b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        let mut first = [0; 12];
        stream.read_exact(&mut first).expect("each has a place");
        assert_eq!(&first, b"HTTP/1.1 404");
    }
    let mut one_more = server.connect();
    let mut nothing = [0; 1];
    assert!(matches!(one_more.read(&mut nothing), Ok(0) | Err(_)));
    drop(held);
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        let mut stream = server.connect();
        let mut answer = String::new();
        let asked = stream.write_all(format!("GET / HTTP/1.1\r\n{CLOSE}").as_bytes());
        if asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "no place came back");
    }
}
