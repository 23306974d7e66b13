//! TCP: listeners and streams, with buffers that the operation owns while it is in flight.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use crate::driver::{Handle, InFlight, Op, Outcome};
use crate::executor::current;
use crate::limits::ACCEPT_PAUSE;
use crate::operation::{Operation, begin};
use crate::time::sleep;

/// A listener of this shard. Several shards (and processes) may bind one address; the system spreads connections over them.
pub struct Listener {
    handle: Handle,
    address: SocketAddr,
    /// An accept outlives the future that began it, so that a dropped future loses no connection.
    accepting: RefCell<Option<Operation>>,
}

impl Listener {
    pub fn bind(address: SocketAddr) -> io::Result<Listener> {
        let core = current();
        let (number, address) = core.driver(|driver| driver.listen(address))?;
        Ok(Listener { handle: Handle::new(number, &core), address, accepting: RefCell::new(None) })
    }

    /// With the port that was chosen when 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The next connection. When dropped before its end, no connection is lost. One task at a time waits. While the process has
    /// no file descriptor left it pauses and goes on. Errors are those of the listener itself.
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        loop {
            match self.accept_once().await {
                Ok((number, peer)) => return Ok((Stream::new(number, peer), peer)),
                Err(error) if is_out_of_files(&error) => {
                    tracing::warn!(address = %self.address, %error, "no connection can be accepted for now");
                    sleep(ACCEPT_PAUSE).await;
                }
                Err(error) if is_of_the_connection(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn accept_once(&self) -> io::Result<(u64, SocketAddr)> {
        let outcome = poll_fn(|cx| {
            let mut accepting = self.accepting.borrow_mut();
            let accept = accepting.get_or_insert_with(|| begin(Op::Accept { listener: self.handle.clone() }));
            let outcome = Pin::new(accept).poll(cx);
            if outcome.is_ready() {
                *accepting = None;
            }
            outcome
        })
        .await;
        match outcome {
            Outcome::Accepted(accepted) => accepted,
            _ => unreachable!("an accept gives Accepted"),
        }
    }
}

fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// The connection was broken, or refused by a packet filter, before it was accepted.
fn is_of_the_connection(error: &io::Error) -> bool {
    use libc::{EHOSTDOWN, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENONET, ENOPROTOOPT, EOPNOTSUPP, EPERM, EPROTO};
    let codes = [EHOSTDOWN, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENONET, ENOPROTOOPT, EOPNOTSUPP, EPERM, EPROTO];
    error.kind() == io::ErrorKind::ConnectionAborted || error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// A connection of this shard. Clones are the same connection: one task reads, another writes. It is closed when the last
/// clone and all operations are gone.
#[derive(Clone, Debug)]
pub struct Stream {
    handle: Handle,
    peer: SocketAddr,
    sends: Rc<RefCell<Vec<Range<u64>>>>,
}

impl Stream {
    fn new(number: u64, peer: SocketAddr) -> Stream {
        Stream { handle: Handle::new(number, &current()), peer, sends: Rc::new(RefCell::new(Vec::new())) }
    }

    /// `host` is a name or an address. All addresses of a name are tried in turn.
    pub async fn connect(host: &str, port: u16) -> io::Result<Stream> {
        match begin(Op::Connect { host: host.to_owned(), port }).await {
            Outcome::Connected(connected) => connected.map(|(number, peer)| Stream::new(number, peer)),
            _ => unreachable!("a connect gives Connected"),
        }
    }

    /// Appends what has come to `buffer`, within its spare capacity: reserve first (asserted). `Ok(0)`: the peer has closed its
    /// side. When dropped before its end, the buffer and what was received into it are lost: close the connection then.
    pub async fn recv(&self, buffer: BytesMut) -> (io::Result<usize>, BytesMut) {
        assert!(buffer.capacity() > buffer.len(), "a receive needs room in its buffer");
        match begin(Op::Recv { stream: self.handle.clone(), buffer }).await {
            Outcome::Received(result, buffer) => (result, buffer),
            _ => unreachable!("a receive gives Received"),
        }
    }

    /// All of it or an error.
    pub async fn send(&self, bytes: Bytes) -> io::Result<()> {
        self.send_all(vec![bytes]).await
    }

    /// All parts in order, or an error. One send at a time; when one is dropped before its end, any prefix may be sent and
    /// further sends fail while it is in flight: close the connection then.
    pub async fn send_all(&self, mut parts: Vec<Bytes>) -> io::Result<()> {
        parts.retain(|part| !part.is_empty());
        if parts.is_empty() {
            return Ok(());
        }
        if !self.sends.borrow().is_empty() {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another send is in flight on this connection"));
        }
        self.sends.borrow_mut().push(0..1);
        let in_flight = InFlight { ranges: Rc::clone(&self.sends), range: 0..1 };
        match begin(Op::Send { stream: self.handle.clone(), parts, in_flight }).await {
            Outcome::Done(result) => result,
            _ => unreachable!("a send gives Done"),
        }
    }

    /// Says to the peer that nothing more comes. Receiving goes on.
    pub async fn shutdown(&self) -> io::Result<()> {
        match begin(Op::Shutdown { stream: self.handle.clone() }).await {
            Outcome::Done(result) => result,
            _ => unreachable!("a shutdown gives Done"),
        }
    }

    pub fn peer(&self) -> SocketAddr {
        self.peer
    }
}
