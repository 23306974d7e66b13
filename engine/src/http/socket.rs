//! A stream of the executor as hyper wants it: poll-shaped reads and writes over completion-shaped ones.
//!
//! An operation owns its memory while it is in flight, so bytes pass through a buffer of the socket in each direction.
//! Invariant: at most one receive and one send are in flight; an error ends the connection.
//! Cost: one copy per direction. Pages and scrapes are small and rare.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};
use sakia_io::{Sleep, Stream, sleep};

/// Bytes of one receive.
const RECEIVE_BYTES: usize = 8 << 10;

/// Bytes of one send; hyper is told to wait with the rest.
const SEND_BYTES_MAX: usize = 64 << 10;

type InFlight<T> = Pin<Box<dyn Future<Output = T>>>;

pub(super) struct Socket {
    stream: Stream,
    received: BytesMut,
    receiving: Option<InFlight<(io::Result<usize>, BytesMut)>>,
    sending: Option<InFlight<io::Result<()>>>,
    closing: Option<InFlight<io::Result<()>>>,
    stalled_after: Duration,
    /// Moves on whenever a send is done: a request must be complete and an answer must flow before it.
    deadline: Pin<Box<Sleep>>,
}

impl Socket {
    pub(super) fn new(stream: Stream, stalled_after: Duration) -> Self {
        Self {
            stream,
            received: BytesMut::new(),
            receiving: None,
            sending: None,
            closing: None,
            stalled_after,
            deadline: Box::pin(sleep(stalled_after)),
        }
    }

    fn wait<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        ready!(self.deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer stalled")))
    }

    /// Ready when no send is in flight.
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(sending) = &mut self.sending else { return Poll::Ready(Ok(())) };
        let Poll::Ready(result) = sending.as_mut().poll(cx) else { return self.wait(cx) };
        self.sending = None;
        self.deadline = Box::pin(sleep(self.stalled_after));
        Poll::Ready(result)
    }
}

impl Read for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.received.is_empty() {
            let stream = &this.stream;
            let receiving = this.receiving.get_or_insert_with(|| {
                let stream = stream.clone();
                Box::pin(async move { stream.recv(BytesMut::with_capacity(RECEIVE_BYTES)).await })
            });
            let Poll::Ready((result, buffer)) = receiving.as_mut().poll(cx) else { return this.wait(cx) };
            this.receiving = None;
            result?;
            this.received = buffer;
        }
        let len = this.received.len().min(into.remaining());
        into.put_slice(&this.received[..len]);
        this.received.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl Write for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_sent(cx))?;
        let len = bytes.len().min(SEND_BYTES_MAX);
        let piece = Bytes::copy_from_slice(&bytes[..len]);
        let stream = this.stream.clone();
        this.sending = Some(Box::pin(async move { stream.send(piece).await }));
        // Begins the send; its end is seen by the next write or flush.
        match this.poll_sent(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(len)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_sent(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_sent(cx))?;
        let stream = &this.stream;
        let closing = this.closing.get_or_insert_with(|| {
            let stream = stream.clone();
            Box::pin(async move { stream.shutdown().await })
        });
        closing.as_mut().poll(cx)
    }
}
