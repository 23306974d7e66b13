//! Requests of ours to one Kafka-framed peer: a controller, or another broker.
//!
//! Path: from the control shard, or a replica's fetcher, to the `connection` of the peer. A `Peer` connects when it is
//! first asked, keeps one connection with several requests in flight, matches answers by correlation id, and connects
//! again, after a growing pause, when the connection broke. Reading order: this file, then `link` (one connection).
//!
//! The other side answers the requests of one connection in order: what waits long gets a `Peer` of its own.
//! Invariant: every request ends within its limit; one that was sent and not answered by then costs the connection,
//! since no later answer can overtake it.

mod link;

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use sakia_io::{
    Class, Moment, Receiver, Reply, Sender, Stream, mailbox, now, oneshot, random_u64, sleep_until, spawn, timeout,
};
use sakia_protocol::api::Request;
use sakia_protocol::codec::{Reader, WireError, decode_exact};
use sakia_protocol::header::{LENGTH_BYTES, RequestHeader, decode_response_header, encode_request};

use link::Link;

/// Requests of one peer that are sent and not answered. At the bound further ones wait, within their limits.
pub const IN_FLIGHT_MAX: usize = 64;

/// Requests that wait to be sent. At the bound callers wait, within their limits.
const WAITING_MAX: usize = 64;

/// How long one attempt to connect may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Pause after the first attempt that failed; doubled by each further one.
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// Longest pause between attempts.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Where a peer is, and how it is spoken to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerAddress {
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Who we say we are.
    pub client_id: String,
    /// Largest answer; a longer one breaks the connection before memory is taken for it.
    pub answer_bytes_max: usize,
}

/// Why a request has no answer, ordered by what the caller does next.
#[derive(Debug, thiserror::Error)]
pub enum RpcError {
    /// No connection: the request was not sent. Ask again, or elsewhere.
    #[error("{host}:{port} cannot be reached: {reason}")]
    Unreachable { host: String, port: u16, reason: String },
    /// The connection broke: the peer may have acted on the request.
    #[error("the connection to {host}:{port} broke")]
    Disconnected { host: String, port: u16 },
    /// No answer within the limit: the peer may have acted on the request, or still will.
    #[error("no answer from {host}:{port} within {limit:?}")]
    TimedOut { host: String, port: u16, limit: Duration },
    /// The request cannot be written, or the answer not be read.
    #[error("{host}:{port}: {source}")]
    Malformed { host: String, port: u16, source: WireError },
}

/// One peer. Dropped, it ends its connection after what is waiting was sent.
pub struct Peer {
    address: PeerAddress,
    next_correlation_id: Cell<i32>,
    jobs: Sender<Job>,
}

/// A request on its way.
struct Job {
    correlation_id: i32,
    /// The whole frame.
    parts: Vec<Bytes>,
    deadline: Moment,
    /// The frame of the answer with its length.
    reply: Reply<Result<BytesMut, Broken>>,
}

/// How a request failed.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Broken {
    /// It was not sent.
    Unreachable(String),
    /// It was sent, or part of it.
    Disconnected,
}

impl Peer {
    /// A peer that is connected to when it is first asked. Its tasks run on this shard, in this class.
    #[must_use]
    pub fn new(address: PeerAddress, class: Class) -> Self {
        let (jobs, receiver) = mailbox(WAITING_MAX);
        spawn(class, send_jobs(receiver, address.clone(), class)).detach();
        Self { address, next_correlation_id: Cell::new(0), jobs }
    }

    /// Where the peer is.
    #[must_use]
    pub fn address(&self) -> &PeerAddress {
        &self.address
    }

    /// Asks in this version and waits for the answer, at most `limit`. Dropped midway, the request may be sent or not.
    ///
    /// # Errors
    /// See `RpcError`.
    pub async fn call<R: Request>(&self, request: &R, version: i16, limit: Duration) -> Result<R::Response, RpcError> {
        let correlation_id = self.draw_correlation_id();
        let client_id = Some(self.address.client_id.as_str());
        let header = RequestHeader { api_key: R::KEY, api_version: version, correlation_id, client_id };
        let frame = encode_request(&header, request).map_err(|error| self.malformed(error))?;
        let answer = self.exchange(correlation_id, vec![frame], limit).await?.freeze().slice(LENGTH_BYTES..);
        let mut reader = Reader::new(&answer);
        decode_response_header(&mut reader, R::KEY, version).map_err(|error| self.malformed(error))?;
        let body = answer.slice(reader.position()..);
        decode_exact(&body, version).map_err(|error| self.malformed(error))
    }

    /// Sends somebody else's request as it was received (header and body, without the length) under a correlation id of
    /// this connection; gives the whole frame of the answer, with its length and the original correlation id.
    /// Cost: neither request nor answer is copied.
    ///
    /// # Errors
    /// See `RpcError`.
    pub async fn forward(&self, request: Bytes, limit: Duration) -> Result<Bytes, RpcError> {
        let original = request.get(4..8).ok_or_else(|| self.malformed(WireError::Short))?;
        let original = Bytes::copy_from_slice(original);
        let correlation_id = self.draw_correlation_id();
        let len = i32::try_from(request.len()).map_err(|_| self.malformed(WireError::TooLarge(request.len())))?;
        let mut head = BytesMut::with_capacity(LENGTH_BYTES + 8);
        head.put_i32(len);
        head.put_slice(&request.slice(..4));
        head.put_i32(correlation_id);
        let mut answer = self.exchange(correlation_id, vec![head.freeze(), request.slice(8..)], limit).await?;
        answer[LENGTH_BYTES..LENGTH_BYTES + 4].copy_from_slice(&original);
        Ok(answer.freeze())
    }

    async fn exchange(&self, correlation_id: i32, parts: Vec<Bytes>, limit: Duration) -> Result<BytesMut, RpcError> {
        let (reply, answer) = oneshot();
        let job = Job { correlation_id, parts, deadline: now() + limit, reply };
        let asked = async {
            self.jobs.send(job).await.ok()?;
            answer.await
        };
        let PeerAddress { host, port, .. } = self.address.clone();
        match timeout(limit, asked).await {
            Ok(Some(Ok(answer))) => Ok(answer),
            Ok(Some(Err(Broken::Unreachable(reason)))) => Err(RpcError::Unreachable { host, port, reason }),
            Ok(Some(Err(Broken::Disconnected))) => Err(RpcError::Disconnected { host, port }),
            Ok(None) | Err(_) => Err(RpcError::TimedOut { host, port, limit }),
        }
    }

    /// Numbers of one peer's requests do not repeat before 2^31 of them.
    fn draw_correlation_id(&self) -> i32 {
        let id = self.next_correlation_id.get();
        self.next_correlation_id.set(id.checked_add(1).unwrap_or(0));
        id
    }

    fn malformed(&self, source: WireError) -> RpcError {
        RpcError::Malformed { host: self.address.host.clone(), port: self.address.port, source }
    }
}

/// Pauses between attempts to connect: doubled each time, half of it by chance.
struct Pauses {
    next: Duration,
    not_before: Option<Moment>,
}

impl Pauses {
    fn new() -> Self {
        Self { next: PAUSE_MIN, not_before: None }
    }

    fn failed(&mut self) {
        let half = self.next / 2;
        let micros = u64::try_from(half.as_micros()).expect("a pause is short").max(1);
        self.not_before = Some(now() + half + Duration::from_micros(random_u64() % micros));
        self.next = (self.next * 2).min(PAUSE_MAX);
    }

    fn connected(&mut self) {
        *self = Self::new();
    }
}

/// Sends jobs in order, over one connection after the other, until the peer is dropped.
async fn send_jobs(mut jobs: Receiver<Job>, address: PeerAddress, class: Class) {
    let mut link: Option<Link> = None;
    let mut pauses = Pauses::new();
    while let Some(job) = jobs.recv().await {
        if job.reply.is_abandoned() || now() >= job.deadline {
            continue;
        }
        if link.as_ref().is_none_or(Link::is_closed) {
            link = None;
            match connect(&address, &mut pauses, job.deadline, class).await {
                Ok(connected) => link = Some(connected),
                Err(reason) => {
                    let _ = job.reply.send(Err(Broken::Unreachable(reason)));
                    continue;
                }
            }
        }
        link.as_ref().expect("connected above").send(job).await;
    }
    if let Some(link) = link {
        link.drain().await;
    }
}

async fn connect(address: &PeerAddress, pauses: &mut Pauses, deadline: Moment, class: Class) -> Result<Link, String> {
    if let Some(moment) = pauses.not_before {
        if moment >= deadline {
            sleep_until(deadline).await;
            return Err("it could not be reached a moment ago".to_owned());
        }
        sleep_until(moment).await;
    }
    let left = deadline.as_duration().saturating_sub(now().as_duration());
    let connecting = timeout(left.min(CONNECT_MAX), Stream::connect(&address.host, address.port)).await;
    let reason = match connecting {
        Ok(Ok(stream)) => {
            pauses.connected();
            return Ok(Link::new(stream, address.answer_bytes_max, class));
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "connecting took too long".to_owned(),
    };
    pauses.failed();
    Err(reason)
}
