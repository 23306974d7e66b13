//! Claims on TCP.

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sakia_io::{Class, Listener, Stream, sleep, spawn, timeout, yield_now};

use crate::ground::Ground;

async fn receive_exactly(stream: &Stream, len: usize) -> BytesMut {
    let mut buffer = BytesMut::with_capacity(len);
    while buffer.len() < len {
        let (received, more) = stream.recv(buffer).await;
        buffer = more;
        assert!(received.unwrap() > 0, "the peer goes on");
    }
    buffer
}

async fn receive_to_end(stream: &Stream) -> BytesMut {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(16 << 10);
        let (received, more) = stream.recv(buffer).await;
        buffer = more;
        if received.unwrap() == 0 {
            return buffer;
        }
    }
}

async fn echo(stream: Stream) {
    loop {
        let (received, buffer) = stream.recv(BytesMut::with_capacity(64 << 10)).await;
        match received {
            Ok(0) | Err(_) => return,
            Ok(_) => stream.send(buffer.freeze()).await.unwrap(),
        }
    }
}

/// A listener, and a connection to it from both sides.
async fn pair(ground: &Ground) -> (Listener, Stream, Stream) {
    let listener = Listener::bind(ground.address).unwrap();
    let address = listener.local_addr();
    let connect =
        spawn(
            Class::Foreground,
            async move { Stream::connect(&address.ip().to_string(), address.port()).await.unwrap() },
        );
    let (server, _) = listener.accept().await.unwrap();
    (listener, connect.await, server)
}

fn bytes_of(len: usize, seed: usize) -> Bytes {
    (0..len).map(|at| u8::try_from((at * 31 + at / 251 + seed) % 256).unwrap()).collect::<Vec<_>>().into()
}

pub async fn an_echo_returns_every_byte(ground: Ground) {
    let (listener, client, server) = pair(&ground).await;
    assert_ne!(listener.local_addr().port(), 0);
    assert_eq!(client.peer(), listener.local_addr());
    spawn(Class::Foreground, echo(server)).detach();
    let sent = bytes_of(3_000_000, 1);
    let writer = client.clone();
    let to_send = sent.clone();
    let sending = spawn(Class::Foreground, async move {
        for part in 0..30 {
            writer.send(to_send.slice(part * 100_000..(part + 1) * 100_000)).await.unwrap();
        }
    });
    assert!(receive_exactly(&client, sent.len()).await == sent);
    sending.await;
}

pub async fn many_connections_echo_at_once(ground: Ground) {
    let listener = Listener::bind(ground.address).unwrap();
    let address = listener.local_addr();
    let accepting = spawn(Class::Foreground, async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            spawn(Class::Foreground, echo(stream)).detach();
        }
    });
    let mut clients = Vec::new();
    for number in 0..64 {
        clients.push(spawn(Class::Foreground, async move {
            let stream = Stream::connect(&address.ip().to_string(), address.port()).await.unwrap();
            for round in 0..20 {
                let bytes = bytes_of(100 + number * 17, round);
                stream.send(bytes.clone()).await.unwrap();
                assert!(receive_exactly(&stream, bytes.len()).await == bytes);
            }
        }));
    }
    for client in clients {
        client.await;
    }
    accepting.cancel().await;
}

pub async fn a_name_is_resolved(ground: Ground) {
    let listener = Listener::bind(ground.address).unwrap();
    let port = listener.local_addr().port();
    let connecting = spawn(Class::Foreground, Stream::connect(ground.host, port));
    let (server, _) = listener.accept().await.unwrap();
    let client = connecting.await.unwrap();
    client.send(Bytes::from_static(b"by name")).await.unwrap();
    assert!(receive_exactly(&server, 7).await == b"by name"[..]);
    // Given up while the name is asked for.
    assert!(timeout(Duration::ZERO, Stream::connect(ground.host, port)).await.is_err());
}

pub async fn two_listeners_share_an_address(ground: Ground) {
    let first = Listener::bind(ground.address).unwrap();
    let address = first.local_addr();
    let second = Listener::bind(address).unwrap();
    let accepted = Rc::new(Cell::new(0));
    let accepting: Vec<_> = [first, second]
        .map(|listener| {
            let accepted = Rc::clone(&accepted);
            spawn(Class::Foreground, async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    accepted.set(accepted.get() + 1);
                    spawn(Class::Foreground, echo(stream)).detach();
                }
            })
        })
        .into();
    for round in 0..40 {
        let stream = Stream::connect(&address.ip().to_string(), address.port()).await.unwrap();
        let bytes = bytes_of(50, round);
        stream.send(bytes.clone()).await.unwrap();
        assert!(receive_exactly(&stream, 50).await == bytes);
    }
    assert_eq!(accepted.get(), 40);
    drop(accepting);
}

pub async fn a_half_closed_stream_still_receives(ground: Ground) {
    let (_listener, client, server) = pair(&ground).await;
    client.send(Bytes::from_static(b"question")).await.unwrap();
    client.shutdown().await.unwrap();
    assert!(receive_to_end(&server).await == b"question"[..]);
    server.send(Bytes::from_static(b"answer")).await.unwrap();
    drop(server);
    assert!(receive_to_end(&client).await == b"answer"[..]);
    assert!(client.send(Bytes::from_static(b"x")).await.is_err(), "a closed side sends nothing");
}

pub async fn parts_are_sent_in_order_and_whole(ground: Ground) {
    let (_listener, client, server) = pair(&ground).await;
    let parts: Vec<Bytes> = (0..3000).map(|part| bytes_of([0, 1, 700, 3000][part % 4], part)).collect();
    let expected = parts.concat();
    let sending = spawn(Class::Foreground, async move {
        client.send_all(parts).await.unwrap();
        client.send_all(vec![Bytes::new()]).await.unwrap();
        client.send(Bytes::from_static(b"end")).await.unwrap();
    });
    let mut received = receive_to_end(&server).await;
    sending.await;
    assert_eq!(received.split_off(expected.len()), b"end"[..]);
    assert!(received == expected[..]);
}

pub async fn a_dropped_stream_is_closed_for_its_peer(ground: Ground) {
    let (_listener, client, server) = pair(&ground).await;
    let clone = client.clone();
    drop(client);
    clone.send(Bytes::from_static(b"still open")).await.unwrap();
    drop(clone);
    assert!(receive_to_end(&server).await == b"still open"[..]);
}

pub async fn a_connect_to_nobody_is_refused(ground: Ground) {
    let listener = Listener::bind(ground.address).unwrap();
    let address = listener.local_addr();
    drop(listener);
    // The close of the listener is under way; until its end a connection may still come about, or be reset.
    loop {
        match Stream::connect(&address.ip().to_string(), address.port()).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => break,
            Ok(_) | Err(_) => yield_now().await,
        }
    }
    assert!(Stream::connect("no-such-name.invalid", 1).await.is_err());
}

pub async fn a_dropped_receive_ends_and_frees_its_stream(ground: Ground) {
    let (_listener, client, server) = pair(&ground).await;
    let reader = client.clone();
    let reading = spawn(Class::Foreground, async move {
        let _never = reader.recv(BytesMut::with_capacity(100)).await;
        unreachable!("the peer sends nothing");
    });
    yield_now().await;
    drop(reading);
    drop(client);
    // The receive in flight held the connection open; its end closes it.
    assert!(receive_to_end(&server).await.is_empty());
}

pub async fn a_dropped_accept_loses_no_connection(ground: Ground) {
    let listener = Listener::bind(ground.address).unwrap();
    let address = listener.local_addr();
    for round in 0..20_u8 {
        assert!(timeout(Duration::from_micros(100), listener.accept()).await.is_err());
        let client = spawn(Class::Foreground, async move {
            let stream = Stream::connect(&address.ip().to_string(), address.port()).await.unwrap();
            stream.send(Bytes::from(vec![round])).await.unwrap();
            receive_to_end(&stream).await
        });
        // Sometimes the connection comes while nobody waits.
        sleep(Duration::from_millis(u64::from(round % 3))).await;
        let (server, _) = listener.accept().await.unwrap();
        assert!(receive_exactly(&server, 1).await == [round][..]);
        drop(server);
        assert!(client.await.is_empty());
    }
}

pub async fn a_receive_can_time_out(ground: Ground) {
    let (_listener, client, server) = pair(&ground).await;
    let received = timeout(Duration::from_millis(5), server.recv(BytesMut::with_capacity(10))).await;
    assert!(received.is_err());
    // What comes after the cancellation goes to the next receive.
    client.send(Bytes::from_static(b"late")).await.unwrap();
    assert!(receive_exactly(&server, 4).await == b"late"[..]);
}

pub async fn a_second_send_is_refused_while_one_is_in_flight(ground: Ground) {
    let (_listener, client, server) = pair(&ground).await;
    let large = bytes_of(32 << 20, 3);
    let mut first = pin!(client.send(large.clone()));
    let begun = std::future::poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending())).await;
    assert!(begun, "nobody receives yet");
    let second = client.send(Bytes::from_static(b"x")).await.unwrap_err();
    assert_eq!(second.kind(), io::ErrorKind::ResourceBusy);
    let receiving = spawn(Class::Foreground, async move { receive_exactly(&server, 32 << 20).await });
    first.await.unwrap();
    assert!(receiving.await == large);
    client.send(Bytes::from_static(b"x")).await.unwrap();
}
