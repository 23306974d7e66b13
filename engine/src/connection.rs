//! One connection: frames in, answers out, in order.
//!
//! Path: from the listener to a `Dispatch` (the API of a broker or of a controller).
//!
//! A request is *started* before the next one is read: what must happen in request order (handing batches to their
//! shards) happens there. Its answer is awaited by the writing task, so a later produce request is already under way
//! while an earlier one waits for its replicas. Answers leave in the order of the requests.
//!
//! Invariant: nothing is allocated for a frame before its length was checked; a bad frame closes only its connection.

use std::cell::Cell;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use sakia_io::{Class, Moment, Signal, Stream, now, spawn, timeout};
use sakia_protocol::api::ApiKey;
use sakia_protocol::codec::Reader;
use sakia_protocol::header::{LENGTH_BYTES, RequestHeader};
use tracing::warn;

use crate::limits::{
    BAD_CONNECTION_LINES_PER_SECOND, LAST_ANSWERS_WAIT, RECEIVE_BYTES_MAX, RECEIVE_BYTES_MIN, REQUESTS_IN_FLIGHT_MAX,
};
use crate::queue::Queue;
use crate::select::{Either, either};

/// A boxed future of this shard.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// One request as it came.
pub struct Request {
    /// Which request.
    pub api_key: ApiKey,
    /// In which version; not yet known to be one we serve.
    pub api_version: i16,
    /// Comes back in the answer.
    pub correlation_id: i32,
    /// Who the client says it is.
    pub client_id: Option<String>,
    /// The frame after its length: header and body.
    pub frame: Bytes,
    /// Where the body starts in `frame`.
    pub body_start: usize,
    /// The client's address.
    pub peer: SocketAddr,
    /// Number of this connection: grows with every connection of the broker.
    pub session: u64,
    /// Number of this request in its connection, from 1 on. Correlation ids are the client's and may begin anew.
    pub number: u64,
    /// Raised when a later request of the same connection has arrived.
    pub successor: Signal,
}

impl Request {
    /// The body.
    #[must_use]
    pub fn body(&self) -> Bytes {
        self.frame.slice(self.body_start..)
    }
}

/// What goes back.
pub enum Response {
    /// A whole frame (with its length), in pieces.
    Pieces(Vec<Bytes>),
    /// Nothing: the request asked for no answer.
    Silent,
    /// Nothing any more: the connection is closed, with this reason in the log.
    Close(String),
}

/// Something that answers requests.
pub trait Dispatch {
    /// Starts a request: does what must be done in request order, and gives the future of its answer.
    fn start(self: Rc<Self>, request: Request) -> LocalFuture<LocalFuture<Response>>;

    /// A request was answered, its answer sent: for whoever counts. `took` begins with its arrival.
    fn answered(&self, _request: ApiKey, _took: Duration) {}

    /// A connection is closed because of what it sent: for whoever counts.
    fn refused(&self) {}
}

/// A request that was started and not answered.
struct Started {
    request: ApiKey,
    arrived: Moment,
    answer: LocalFuture<Response>,
}

/// Bounds of one connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Largest frame.
    pub request_bytes_max: usize,
    /// Silence after which the connection is closed.
    pub idle_max: Duration,
}

/// Why a connection ends.
enum Ended {
    /// The peer closed it, or the system did: nothing to say.
    Gone,
    /// The peer sent something we refuse.
    Bad(String),
}

/// Serves a connection until it ends: the peer leaves, sends something we refuse, takes no answers, or is told to go.
pub async fn serve(
    stream: Stream,
    session: u64,
    dispatch: Rc<dyn Dispatch>,
    limits: ConnectionLimits,
    lines: Rc<LineLimit>,
) {
    let peer = stream.peer();
    let answers = Rc::new(Queue::<Started>::new(REQUESTS_IN_FLIGHT_MAX));
    let mut writer = spawn(Class::Foreground, write_answers(stream.clone(), answers.clone(), dispatch.clone()));
    let reader = read_requests(&stream, peer, session, &dispatch, limits, &answers);
    // Whichever side ends is the end of both: a peer that was told to go and stays would keep its connection otherwise.
    let refused = match either(reader, &mut writer).await {
        // The peer is gone: answers under way have no reader.
        Either::Left(Ended::Gone) => None,
        Either::Left(Ended::Bad(reason)) => {
            answers.close();
            let earlier = timeout(LAST_ANSWERS_WAIT, &mut writer).await;
            Some(earlier.ok().flatten().unwrap_or(reason))
        }
        Either::Right(reason) => reason,
    };
    drop(writer);
    if let Some(reason) = refused {
        dispatch.refused();
        lines.warn(peer, &reason);
    }
    let _ = stream.shutdown().await;
}

async fn read_requests(
    stream: &Stream,
    peer: SocketAddr,
    session: u64,
    dispatch: &Rc<dyn Dispatch>,
    limits: ConnectionLimits,
    answers: &Rc<Queue<Started>>,
) -> Ended {
    let mut frames = Frames { stream: stream.clone(), buffer: BytesMut::new(), read_bytes: RECEIVE_BYTES_MIN };
    let mut successor = Signal::new();
    for number in 1.. {
        let frame = match frames.next(limits).await {
            Ok(frame) => frame,
            Err(ended) => return ended,
        };
        successor.raise();
        successor = Signal::new();
        let arrived = now();
        let request = match parse(frame, peer, (session, number), successor.clone()) {
            Ok(request) => request,
            Err(reason) => return Ended::Bad(reason),
        };
        let key = request.api_key;
        let answer = dispatch.clone().start(request).await;
        let started = Started { request: key, arrived, answer };
        // A full queue is a peer that takes no answers; it may be as silent as one that sends nothing.
        match timeout(limits.idle_max, answers.push(started)).await {
            Ok(Ok(())) => {}
            _ => return Ended::Gone,
        }
    }
    Ended::Gone
}

fn parse(frame: Bytes, peer: SocketAddr, (session, number): (u64, u64), successor: Signal) -> Result<Request, String> {
    let mut reader = Reader::new(&frame);
    let header = RequestHeader::decode(&mut reader).map_err(|error| format!("bad request header: {error}"))?;
    Ok(Request {
        api_key: header.api_key,
        api_version: header.api_version,
        correlation_id: header.correlation_id,
        client_id: header.client_id.map(str::to_owned),
        body_start: reader.position(),
        peer,
        session,
        number,
        successor,
        frame,
    })
}

/// Sends answers in order; gives the reason when one of them closes the connection.
async fn write_answers(stream: Stream, answers: Rc<Queue<Started>>, dispatch: Rc<dyn Dispatch>) -> Option<String> {
    while let Some(Started { request, arrived, answer }) = answers.pop().await {
        match answer.await {
            Response::Pieces(pieces) => {
                if stream.send_all(pieces).await.is_err() {
                    break;
                }
            }
            Response::Silent => {}
            Response::Close(reason) => {
                answers.close();
                let _ = stream.shutdown().await;
                return Some(reason);
            }
        }
        dispatch.answered(request, now() - arrived);
    }
    answers.close();
    let _ = stream.shutdown().await;
    None
}

/// Splits the stream into frames.
struct Frames {
    stream: Stream,
    buffer: BytesMut,
    /// Size of the next read: grows while reads fill it.
    read_bytes: usize,
}

impl Frames {
    /// The next frame without its length. Cost: no copy unless a frame straddles two buffers, then its head once.
    async fn next(&mut self, limits: ConnectionLimits) -> Result<Bytes, Ended> {
        loop {
            if let Some(len) = self.frame_len(limits)? {
                let whole = LENGTH_BYTES + len;
                if self.buffer.len() >= whole {
                    self.buffer.advance(LENGTH_BYTES);
                    return Ok(split_frame(&mut self.buffer, len));
                }
                self.receive(whole - self.buffer.len(), limits).await?;
            } else {
                self.receive(LENGTH_BYTES - self.buffer.len(), limits).await?;
            }
        }
    }

    fn frame_len(&self, limits: ConnectionLimits) -> Result<Option<usize>, Ended> {
        let Some(head) = self.buffer.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let len = i32::from_be_bytes(*head);
        match usize::try_from(len) {
            Ok(len) if (8..=limits.request_bytes_max).contains(&len) => Ok(Some(len)),
            _ => Err(Ended::Bad(format!("{}; frame length {len}", foreign_protocol(head)))),
        }
    }

    async fn receive(&mut self, needed: usize, limits: ConnectionLimits) -> Result<(), Ended> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.reserve(needed.max(self.read_bytes));
        let room = buffer.capacity() - buffer.len();
        let Ok((result, buffer)) = timeout(limits.idle_max, self.stream.recv(buffer)).await else {
            return Err(Ended::Gone);
        };
        self.buffer = buffer;
        match result {
            Ok(0) | Err(_) => Err(Ended::Gone),
            Ok(count) => {
                let full = count >= room.min(self.read_bytes);
                self.read_bytes =
                    if full { (self.read_bytes * 2).min(RECEIVE_BYTES_MAX) } else { RECEIVE_BYTES_MIN.max(count) };
                Ok(())
            }
        }
    }
}

/// Takes the frame at the front of `buffer`. Memory that a large one needed goes with it: a connection that stays open
/// would receive into it ever after, and hold it while it is idle.
fn split_frame(buffer: &mut BytesMut, len: usize) -> Bytes {
    let frame = buffer.split_to(len).freeze();
    if len > RECEIVE_BYTES_MAX {
        *buffer = BytesMut::from(&buffer[..]);
    }
    frame
}

/// What the first bytes look like, when they are no Kafka frame.
fn foreign_protocol(head: &[u8; LENGTH_BYTES]) -> &'static str {
    match head {
        b"GET " | b"POST" | b"PUT " | b"HEAD" | b"OPTI" => "HTTP request on a Kafka listener",
        [0x16, 0x03, ..] => "TLS hello on a PLAINTEXT listener",
        _ => "not a Kafka request",
    }
}

/// At most some lines per second about bad connections; the rest is counted and told with the next line.
#[derive(Default)]
pub struct LineLimit {
    second: Cell<Option<Moment>>,
    lines: Cell<u32>,
    suppressed: Cell<u64>,
}

impl LineLimit {
    /// Logs that a connection was closed, unless too many were.
    pub fn warn(&self, peer: SocketAddr, reason: &str) {
        let now = now();
        let fresh = self.second.get().is_none_or(|begun| now - begun >= Duration::from_secs(1));
        if fresh {
            self.second.set(Some(now));
            self.lines.set(0);
        }
        if self.lines.get() >= BAD_CONNECTION_LINES_PER_SECOND {
            self.suppressed.set(self.suppressed.get() + 1);
            return;
        }
        self.lines.set(self.lines.get() + 1);
        let suppressed = self.suppressed.take();
        warn!(%peer, suppressed, "closed a connection: {reason}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room of a connection's buffer once its frame is answered and the next receive has been prepared.
    fn room_after(len: usize) -> usize {
        let mut buffer = BytesMut::with_capacity(len + 3);
        buffer.resize(len, 7);
        buffer.extend_from_slice(&[1, 2, 3]);
        let frame = split_frame(&mut buffer, len);
        assert!(frame.len() == len && frame.iter().all(|byte| *byte == 7), "the whole frame");
        drop(frame);
        buffer.reserve(RECEIVE_BYTES_MIN);
        assert_eq!(buffer[..], [1, 2, 3], "the next frame begins there");
        buffer.capacity()
    }

    #[test]
    fn memory_of_a_large_frame_does_not_stay_with_its_connection() {
        assert!(room_after(16 << 20) <= 2 * RECEIVE_BYTES_MIN, "{} bytes of room", room_after(16 << 20));
        assert!(room_after(RECEIVE_BYTES_MAX) >= RECEIVE_BYTES_MAX, "usual memory is received into again");
    }
}
