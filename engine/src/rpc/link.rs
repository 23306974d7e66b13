//! One connection to a peer: what was sent and not answered, and the task that reads answers.
//!
//! Invariant: every request that was handed to a link gets an answer or `Disconnected`; a closed link stays closed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use sakia_io::{Class, Moment, Reply, Stream, Task, now, sleep_until, spawn, timeout};
use sakia_protocol::header::LENGTH_BYTES;

use super::{Broken, IN_FLIGHT_MAX, Job};
use crate::select::either;
use crate::wake::Wake;

/// First receive; grows while receives fill it.
const RECEIVE_BYTES_MIN: usize = 4 << 10;

/// Largest receive.
const RECEIVE_BYTES_MAX: usize = 1 << 20;

/// How long a peer that was dropped waits for what it had sent.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// A connection. Dropped, it is closed and its reading ends.
pub(super) struct Link {
    shared: Rc<Shared>,
    _reading: Task<()>,
}

struct Shared {
    stream: Stream,
    answer_bytes_max: usize,
    sent: RefCell<BTreeMap<i32, Sent>>,
    closed: Cell<bool>,
    /// An answer came, or the link closed.
    room: Wake,
    /// Something was sent.
    watch: Wake,
}

struct Sent {
    deadline: Moment,
    reply: Reply<Result<BytesMut, Broken>>,
}

impl Link {
    pub(super) fn new(stream: Stream, answer_bytes_max: usize, class: Class) -> Self {
        let shared = Rc::new(Shared {
            stream,
            answer_bytes_max,
            sent: RefCell::new(BTreeMap::new()),
            closed: Cell::new(false),
            room: Wake::default(),
            watch: Wake::default(),
        });
        let reading = spawn(class, shared.clone().run());
        Self { shared, _reading: reading }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.shared.closed.get()
    }

    /// Sends a request once there is room for it.
    pub(super) async fn send(&self, job: Job) {
        let shared = &self.shared;
        while shared.sent.borrow().len() >= IN_FLIGHT_MAX && !shared.closed.get() {
            shared.room.wait().await;
        }
        if shared.closed.get() {
            let _ = job.reply.send(Err(Broken::Unreachable("the connection broke before it was sent".to_owned())));
            return;
        }
        let Job { correlation_id, parts, deadline, reply } = job;
        let earlier = shared.sent.borrow_mut().insert(correlation_id, Sent { deadline, reply });
        assert!(earlier.is_none(), "correlation id {correlation_id} is in flight already");
        shared.watch.wake();
        let left = deadline.as_duration().saturating_sub(now().as_duration());
        // A send that was cut short leaves the stream in the middle of a frame.
        if !matches!(timeout(left, shared.stream.send_all(parts)).await, Ok(Ok(()))) {
            shared.close();
        }
    }

    /// Waits until everything sent is answered, but not long.
    pub(super) async fn drain(&self) {
        let answered = async {
            while !self.shared.sent.borrow().is_empty() && !self.is_closed() {
                self.shared.room.wait().await;
            }
        };
        let _ = timeout(DRAIN_MAX, answered).await;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Shared {
    /// Reads answers until the connection breaks or an answer is overdue.
    async fn run(self: Rc<Self>) {
        either(self.read_answers(), self.watch_deadlines()).await;
        self.close();
        // The system ends the connection with its last handle; this says so to the peer at once.
        let _ = self.stream.shutdown().await;
    }

    async fn read_answers(&self) {
        let mut buffer = BytesMut::new();
        let mut receive_bytes = RECEIVE_BYTES_MIN;
        loop {
            let needed = match self.frame_len(&buffer) {
                Err(Closed) => return,
                Ok(Some(len)) if buffer.len() >= len => {
                    let frame = buffer.split_to(len);
                    if self.answer(frame).is_err() {
                        return;
                    }
                    continue;
                }
                Ok(Some(len)) => len - buffer.len(),
                Ok(None) => LENGTH_BYTES,
            };
            buffer.reserve(needed.max(receive_bytes));
            let (received, filled) = self.stream.recv(buffer).await;
            buffer = filled;
            match received {
                Ok(0) | Err(_) => return,
                Ok(count) if count >= receive_bytes => receive_bytes = (receive_bytes * 2).min(RECEIVE_BYTES_MAX),
                Ok(_) => receive_bytes = RECEIVE_BYTES_MIN,
            }
        }
    }

    /// Length of the first frame with its length field, once that is there.
    fn frame_len(&self, buffer: &BytesMut) -> Result<Option<usize>, Closed> {
        let Some(head) = buffer.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        match usize::try_from(i32::from_be_bytes(*head)) {
            Ok(len) if (4..=self.answer_bytes_max).contains(&len) => Ok(Some(LENGTH_BYTES + len)),
            _ => {
                tracing::warn!(peer = %self.stream.peer(), "an answer's length is out of bounds");
                Err(Closed)
            }
        }
    }

    fn answer(&self, frame: BytesMut) -> Result<(), Closed> {
        let head = frame.get(LENGTH_BYTES..LENGTH_BYTES + 4).and_then(|bytes| bytes.try_into().ok());
        let correlation_id = i32::from_be_bytes(head.expect("a frame has at least its correlation id"));
        let Some(sent) = self.sent.borrow_mut().remove(&correlation_id) else {
            if self.closed.get() {
                return Err(Closed);
            }
            tracing::warn!(peer = %self.stream.peer(), correlation_id, "an answer to nothing that was asked");
            return Err(Closed);
        };
        // The caller may have gone.
        let _ = sent.reply.send(Ok(frame));
        self.room.wake();
        Ok(())
    }

    /// Returns when a request was not answered in time, or the link is closed.
    async fn watch_deadlines(&self) {
        while !self.closed.get() {
            let earliest = self.sent.borrow().values().map(|sent| sent.deadline).min();
            match earliest {
                None => self.watch.wait().await,
                Some(deadline) if deadline <= now() => return,
                Some(deadline) => {
                    either(sleep_until(deadline), self.watch.wait()).await;
                }
            }
        }
    }

    fn close(&self) {
        self.closed.set(true);
        let sent = self.sent.take();
        for (_, sent) in sent {
            let _ = sent.reply.send(Err(Broken::Disconnected));
        }
        self.room.wake();
        self.watch.wake();
    }
}

/// The connection cannot be used further.
struct Closed;
