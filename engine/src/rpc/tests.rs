//! Claims about requests to one peer, in the simulated world.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use sakia_io::sim::{Machine, World};
use sakia_io::{Class, Listener, Stream, sleep, spawn};
use sakia_protocol::api::ApiKey;
use sakia_protocol::codec::{Reader, decode_exact};
use sakia_protocol::header::encode_response;
use sakia_protocol::messages::allocate_producer_ids::{AllocateProducerIdsRequest, AllocateProducerIdsResponse};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const PORT: u16 = 9093;

fn peer_of(machine: &Machine) -> PeerAddress {
    PeerAddress { host: machine.name(), port: PORT, client_id: "test".to_owned(), answer_bytes_max: 1 << 20 }
}

fn request(broker_id: i32) -> AllocateProducerIdsRequest {
    AllocateProducerIdsRequest { broker_id, broker_epoch: 5 }
}

async fn call(peer: &Peer, broker_id: i32) -> Result<i64, RpcError> {
    peer.call(&request(broker_id), 0, SECOND).await.map(|answer| answer.producer_id_start)
}

/// One request as the server reads it.
#[derive(Clone, Copy)]
struct Asked {
    correlation_id: i32,
    broker_id: i32,
}

/// The next request of a stream; `None` at its end.
async fn next(stream: &Stream, buffer: &mut BytesMut) -> Option<Asked> {
    loop {
        if let Some(head) = buffer.first_chunk::<4>() {
            let len = usize::try_from(i32::from_be_bytes(*head)).unwrap();
            if buffer.len() >= 4 + len {
                buffer.advance(4);
                let frame = buffer.split_to(len).freeze();
                let mut reader = Reader::new(&frame);
                let header = RequestHeader::decode(&mut reader).unwrap();
                assert_eq!((header.api_key, header.client_id), (ApiKey::AllocateProducerIds, Some("test")));
                let body: AllocateProducerIdsRequest = decode_exact(&frame.slice(reader.position()..), 0).unwrap();
                return Some(Asked { correlation_id: header.correlation_id, broker_id: body.broker_id });
            }
        }
        buffer.reserve(4096);
        let (received, filled) = stream.recv(std::mem::take(buffer)).await;
        *buffer = filled;
        if matches!(received, Ok(0) | Err(_)) {
            return None;
        }
    }
}

/// Ten times the broker id that was sent.
fn answer(asked: Asked) -> Bytes {
    let body = AllocateProducerIdsResponse {
        producer_id_start: i64::from(asked.broker_id) * 10,
        ..AllocateProducerIdsResponse::default()
    };
    encode_response(ApiKey::AllocateProducerIds, 0, asked.correlation_id, &body).unwrap()
}

async fn listen() -> Listener {
    Listener::bind(SocketAddr::from(([0, 0, 0, 0], PORT))).unwrap()
}

#[test]
fn answers_are_matched_whatever_their_order_and_more_than_the_bound_wait() {
    let world = World::new(1);
    let (server, client) = (world.machine("server"), world.machine("client"));
    let count = i32::try_from(IN_FLIGHT_MAX).unwrap() * 3;
    let serving = world.spawn_client(&server, async move {
        let (stream, _) = listen().await.accept().await.unwrap();
        let (mut buffer, mut held) = (BytesMut::new(), Vec::new());
        let mut most = 0;
        for _ in 0..count {
            held.push(next(&stream, &mut buffer).await.unwrap());
            most = most.max(held.len());
            // Answers go out backwards once nothing more comes.
            if held.len() == IN_FLIGHT_MAX {
                sleep(Duration::from_millis(50)).await;
                for asked in held.drain(..).rev() {
                    stream.send(answer(asked)).await.unwrap();
                }
            }
        }
        most
    });
    let address = peer_of(&server);
    let found = world.block_on(&client, MINUTE, async move {
        let peer = Rc::new(Peer::new(address, Class::Foreground));
        let tasks: Vec<_> = (0..count)
            .map(|id| {
                let peer = peer.clone();
                spawn(Class::Foreground, async move { call(&peer, id).await.unwrap() })
            })
            .collect();
        let mut found = Vec::new();
        for task in tasks {
            found.push(task.await);
        }
        found
    });
    let expected: Vec<i64> = (0..i64::from(count)).map(|id| id * 10).collect();
    assert_eq!(found.unwrap(), expected);
    assert_eq!(serving.take(), Some(IN_FLIGHT_MAX));
}

#[test]
fn a_request_without_an_answer_ends_in_time_and_the_next_one_gets_a_new_connection() {
    let world = World::new(2);
    let (server, client) = (world.machine("server"), world.machine("client"));
    let connections = Rc::new(Cell::new(0));
    let accepted = connections.clone();
    let serving = world.spawn_client(&server, async move {
        let listener = listen().await;
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            accepted.set(accepted.get() + 1);
            let silent = accepted.get() == 1;
            spawn(Class::Foreground, async move {
                let mut buffer = BytesMut::new();
                while let Some(asked) = next(&stream, &mut buffer).await {
                    if !silent {
                        stream.send(answer(asked)).await.unwrap();
                    }
                }
            })
            .detach();
        }
    });
    let address = peer_of(&server);
    let asking = async move {
        let peer = Peer::new(address, Class::Foreground);
        let began = now();
        let first = call(&peer, 1).await;
        let waited = now() - began;
        (first, waited, call(&peer, 2).await)
    };
    let (first, waited, second) = world.block_on(&client, MINUTE, asking).unwrap();
    assert!(matches!(first, Err(RpcError::TimedOut { .. })), "{first:?}");
    assert!(waited >= SECOND && waited < SECOND * 2, "{waited:?}");
    assert_eq!(second.unwrap(), 20);
    assert_eq!(connections.get(), 2);
    drop(serving);
}

#[test]
fn a_peer_that_is_away_is_reached_when_it_comes() {
    let world = World::new(3);
    let (server, client) = (world.machine("server"), world.machine("client"));
    let address = peer_of(&server);
    let log = Rc::new(RefCell::new(Vec::new()));
    let failures = log.clone();
    let asking = world.spawn_client(&client, async move {
        let peer = Peer::new(address, Class::Foreground);
        loop {
            match call(&peer, 7).await {
                Ok(id) => return id,
                Err(error) => failures.borrow_mut().push(error),
            }
        }
    });
    world.run_for(SECOND * 5);
    let tries = log.borrow().len();
    assert!((3..60).contains(&tries), "pauses grow and have a bound: {tries} tries in 5 s");
    assert!(log.borrow().iter().all(|error| matches!(error, RpcError::Unreachable { .. })), "{:?}", log.borrow());
    let serving = world.spawn_client(&server, async move {
        let (stream, _) = listen().await.accept().await.unwrap();
        let asked = next(&stream, &mut BytesMut::new()).await.unwrap();
        stream.send(answer(asked)).await.unwrap();
        sleep(SECOND).await;
    });
    world.run_until(SECOND * 3, |_| asking.is_done()).unwrap();
    assert_eq!(asking.take(), Some(70));
    drop(serving);
}

#[test]
fn a_broken_connection_fails_what_was_sent_and_nothing_else() {
    let world = World::new(4);
    let (server, client) = (world.machine("server"), world.machine("client"));
    let serving = world.spawn_client(&server, async move {
        let listener = listen().await;
        let (stream, _) = listener.accept().await.unwrap();
        next(&stream, &mut BytesMut::new()).await.unwrap();
        // The length of an answer that nobody can hold.
        stream.send(Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0])).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let asked = next(&stream, &mut BytesMut::new()).await.unwrap();
        stream.send(answer(asked)).await.unwrap();
        sleep(SECOND).await;
    });
    let address = peer_of(&server);
    let asking = async move {
        let peer = Peer::new(address, Class::Foreground);
        (call(&peer, 1).await, call(&peer, 2).await)
    };
    let (first, second) = world.block_on(&client, MINUTE, asking).unwrap();
    assert!(matches!(first, Err(RpcError::Disconnected { .. })), "{first:?}");
    assert_eq!(second.unwrap(), 20);
    drop(serving);
}

#[test]
fn a_forwarded_request_comes_back_with_its_own_correlation_id() {
    let world = World::new(5);
    let (server, client) = (world.machine("server"), world.machine("client"));
    let serving = world.spawn_client(&server, async move {
        let (stream, _) = listen().await.accept().await.unwrap();
        let mut buffer = BytesMut::new();
        let mut ids = Vec::new();
        while let Some(asked) = next(&stream, &mut buffer).await {
            ids.push(asked.correlation_id);
            stream.send(answer(asked)).await.unwrap();
        }
        ids
    });
    let address = peer_of(&server);
    let asking = async move {
        let peer = Peer::new(address, Class::Foreground);
        let mut answers = Vec::new();
        for broker_id in [3, 4] {
            let header = RequestHeader {
                api_key: ApiKey::AllocateProducerIds,
                api_version: 0,
                correlation_id: 77,
                client_id: Some("test"),
            };
            let frame = encode_request(&header, &request(broker_id)).unwrap();
            answers.push(peer.forward(frame.slice(LENGTH_BYTES..), SECOND).await.unwrap());
        }
        answers
    };
    let answers = world.block_on(&client, MINUTE, asking).unwrap();
    for (frame, broker_id) in answers.iter().zip([3, 4]) {
        assert_eq!(*frame, answer(Asked { correlation_id: 77, broker_id }));
    }
    world.run_until(MINUTE, |_| serving.is_done()).unwrap();
    assert_eq!(serving.take(), Some(vec![0, 1]), "no two requests of a connection share an id");
}
