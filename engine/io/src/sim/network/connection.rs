//! One simulated connection: two ends, and a pipe towards each of them that keeps the order of its bytes.
//!
//! Pure.
//! ```text
//! send ─> [ travelling: (arrives at | held by a cut link, bytes | end | reset) ... ] ─> [ arrived bytes ] ─> recv
//!         └───────────── at most `WINDOW_BYTES` not yet read; a sender beyond waits ─────────────┘
//! ```
//! Bytes are copied when they are sent, as a kernel does: a slow reader keeps no memory of the sender's arena.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::moment::Moment;
use crate::sim::disk::image::os_error;
use crate::sim::network::{Site, Waiter};

/// Send buffer, receive buffer and what is on the way, together.
pub(crate) const WINDOW_BYTES: usize = 512 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Dialer,
    Acceptor,
}

impl Side {
    pub(crate) fn other(self) -> Side {
        match self {
            Side::Dialer => Side::Acceptor,
            Side::Acceptor => Side::Dialer,
        }
    }

    fn index(self) -> usize {
        match self {
            Side::Dialer => 0,
            Side::Acceptor => 1,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parcel {
    Bytes(Bytes),
    /// The sender sends no more.
    End,
    Reset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dial {
    /// The first packet is on its way, or held by a cut link.
    Knocking,
    /// The listener's machine has answered; the answer is on its way.
    Answering(Result<(), i32>),
    Answered(Result<(), i32>),
}

/// What one end reads from.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    /// In order; from the first held parcel on all are held.
    pub(crate) travelling: VecDeque<(Option<Moment>, Parcel)>,
    arrived: VecDeque<Bytes>,
    ended: bool,
    unread: usize,
    pub(crate) last_arrival: Moment,
}

#[derive(Debug)]
pub(crate) struct End {
    pub(crate) site: Site,
    pub(crate) address: SocketAddr,
    pub(crate) inbound: Pipe,
    /// The error number that every operation of this end gives from now on (received bytes come first).
    pub(crate) broken: Option<i32>,
    pub(crate) closed: bool,
    pub(crate) shut: bool,
    /// Since when what this end sends is held.
    pub(crate) held_since: Option<Moment>,
    pub(crate) readers: Vec<Waiter>,
    pub(crate) writers: Vec<Waiter>,
}

#[derive(Debug)]
pub(crate) struct Connection {
    ends: [End; 2],
    pub(crate) dial: Dial,
}

impl Connection {
    pub(crate) fn new(dialer: (Site, SocketAddr), acceptor: (Site, SocketAddr)) -> Connection {
        Connection { ends: [dialer, acceptor].map(|(site, address)| End::new(site, address)), dial: Dial::Knocking }
    }

    pub(crate) fn end(&self, side: Side) -> &End {
        &self.ends[side.index()]
    }

    pub(crate) fn end_mut(&mut self, side: Side) -> &mut End {
        &mut self.ends[side.index()]
    }

    /// How many more bytes this side may send before its peer reads.
    pub(crate) fn room(&self, side: Side) -> usize {
        WINDOW_BYTES.saturating_sub(self.end(side.other()).inbound.unread)
    }

    pub(crate) fn is_forgotten(&self) -> bool {
        self.ends.iter().all(|end| end.closed)
    }
}

impl End {
    fn new(site: Site, address: SocketAddr) -> End {
        End {
            site,
            address,
            inbound: Pipe::default(),
            broken: None,
            closed: false,
            shut: false,
            held_since: None,
            readers: Vec::new(),
            writers: Vec::new(),
        }
    }

    /// Fills the spare capacity; `None`: nothing has arrived yet.
    pub(crate) fn receive(&mut self, into: &mut BytesMut) -> Option<io::Result<usize>> {
        let mut received = 0;
        while into.capacity() > into.len()
            && let Some(front) = self.inbound.arrived.front_mut()
        {
            let piece = front.len().min(into.capacity() - into.len());
            into.put_slice(&front[..piece]);
            front.advance(piece);
            received += piece;
            if front.is_empty() {
                self.inbound.arrived.pop_front();
            }
        }
        self.inbound.unread -= received;
        match (received, self.broken, self.inbound.ended) {
            (0, Some(error), _) => Some(Err(os_error(error))),
            (0, None, true) => Some(Ok(0)),
            (0, None, false) => None,
            (received, ..) => Some(Ok(received)),
        }
    }

    pub(crate) fn has_unread(&self) -> bool {
        !self.inbound.arrived.is_empty()
    }
}

impl Pipe {
    pub(crate) fn enter(&mut self, at: Option<Moment>, parcel: Parcel) {
        if let Parcel::Bytes(bytes) = &parcel {
            self.unread += bytes.len();
        }
        if let Some(at) = at {
            assert!(at >= self.last_arrival, "bytes of one connection keep their order");
            self.last_arrival = at;
        }
        self.travelling.push_back((at, parcel));
    }

    /// The next parcel whose time has come.
    pub(crate) fn take_due(&mut self, now: Moment) -> Option<Parcel> {
        match self.travelling.front() {
            Some((Some(at), _)) if *at <= now => self.travelling.pop_front().map(|(_, parcel)| parcel),
            _ => None,
        }
    }

    pub(crate) fn arrive(&mut self, bytes: Bytes) {
        self.arrived.push_back(bytes);
    }

    pub(crate) fn arrive_end(&mut self) {
        self.ended = true;
    }

    /// Bytes that came to an end which was closed meanwhile.
    pub(crate) fn discard(&mut self, bytes: &Bytes) {
        self.unread -= bytes.len();
    }

    pub(crate) fn discard_arrived(&mut self) {
        self.unread -= self.arrived.drain(..).map(|bytes| bytes.len()).sum::<usize>();
    }

    /// What is under way will not arrive before the link is healed. Whether there was anything.
    pub(crate) fn hold(&mut self) -> bool {
        for (at, _) in &mut self.travelling {
            *at = None;
        }
        !self.travelling.is_empty()
    }

    /// The sender has given up: what the cut link held is lost.
    pub(crate) fn discard_held(&mut self) {
        while let Some((None, _)) = self.travelling.back() {
            if let Some((_, Parcel::Bytes(bytes))) = self.travelling.pop_back() {
                self.unread -= bytes.len();
            }
        }
    }
}
