//! The network between simulated machines: links that may be slow or cut, connections, listeners.
//!
//! Pure. It keeps its own agenda: the world asks `next_at`, moves the clock, calls `advance`, and repeats the
//! operations named by `take_woken`. A cut link holds what is sent over it (TCP repeats); a sender whose bytes were
//! held too long gives up: its end breaks, the bytes are lost, the peer sees a reset once the link is healed.
//! A killed machine's kernel closes its connections; a machine without power is silent, as if all its links were cut.
//! Invariant: bytes of one connection arrive in the order they were sent, each once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};

use crate::driver::OpId;
use crate::moment::Moment;
use crate::sim::agenda::Agenda;
use crate::sim::disk::image::os_error;
use crate::sim::random::Random;

pub(crate) mod connection;
mod links;

use connection::{Connection, Dial, Parcel, Side};

/// Established connections that wait for `accept` at one listener; further ones knock again a second later.
const BACKLOG: usize = 1024;
const KNOCK_AGAIN: Duration = Duration::from_secs(1);
const FIRST_EPHEMERAL_PORT: u16 = 32_768;

/// A machine, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Site(pub(crate) usize);

/// An operation of a shard that waits for the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) shard: usize,
    pub(crate) op: OpId,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    connection: u64,
    side: Side,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListenerId(u64);

struct Listener {
    site: Site,
    port: u16,
    backlog: VecDeque<u64>,
    waiters: Vec<Waiter>,
}

#[derive(Default)]
struct Link {
    cut: bool,
    latency: Option<Range<Duration>>,
}

enum Event {
    Arrive(Port),
    Knock(u64),
    Answer(u64),
    /// What the end sent is held since then, or it waits for a silent peer.
    GiveUp(Port, Moment),
}

/// How long things take where a link says nothing else.
#[derive(Clone, Debug)]
pub struct NetworkTimes {
    /// One way between two machines.
    pub latency: Range<Duration>,
    /// One way within a machine.
    pub loopback: Range<Duration>,
    /// How long a sender repeats what a cut link holds, and how long a connection to a silent machine lives.
    pub give_up: Range<Duration>,
}

impl Default for NetworkTimes {
    fn default() -> NetworkTimes {
        NetworkTimes {
            latency: Duration::from_micros(50)..Duration::from_micros(500),
            loopback: Duration::from_micros(10)..Duration::from_micros(40),
            give_up: Duration::from_secs(5)..Duration::from_secs(60),
        }
    }
}

pub(crate) struct Network {
    pub(crate) times: NetworkTimes,
    random: Random,
    agenda: Agenda<Event>,
    links: BTreeMap<(Site, Site), Link>,
    without_power: BTreeSet<Site>,
    connections: BTreeMap<u64, Connection>,
    listeners: BTreeMap<ListenerId, Listener>,
    next_number: u64,
    next_port: u16,
    woken: Vec<Waiter>,
}

impl Network {
    pub(crate) fn new(random: Random) -> Network {
        Network {
            times: NetworkTimes::default(),
            random,
            agenda: Agenda::new(),
            links: BTreeMap::new(),
            without_power: BTreeSet::new(),
            connections: BTreeMap::new(),
            listeners: BTreeMap::new(),
            next_number: 0,
            next_port: FIRST_EPHEMERAL_PORT,
            woken: Vec::new(),
        }
    }

    // Listening and dialling.

    /// Several listeners may share a port, as with SO_REUSEPORT; each connection goes to one of them by chance.
    pub(crate) fn listen(&mut self, site: Site, address: SocketAddr) -> (ListenerId, SocketAddr) {
        let port = if address.port() == 0 { self.ephemeral_port() } else { address.port() };
        let id = ListenerId(self.number());
        self.listeners.insert(id, Listener { site, port, backlog: VecDeque::new(), waiters: Vec::new() });
        (id, SocketAddr::new(address.ip(), port))
    }

    pub(crate) fn accept(&mut self, listener: ListenerId, waiter: Waiter) -> Option<(Port, SocketAddr)> {
        let listener = self.listeners.get_mut(&listener).expect("a listener lives as long as its handle");
        let Some(connection) = listener.backlog.pop_front() else {
            listener.waiters.push(waiter);
            return None;
        };
        let peer = self.connections[&connection].end(Side::Dialer).address;
        Some((Port { connection, side: Side::Acceptor }, peer))
    }

    /// The waiter is woken when `dialed` has an answer.
    pub(crate) fn dial(&mut self, now: Moment, from: (Site, IpAddr), to: (Site, SocketAddr), waiter: Waiter) -> Port {
        let number = self.number();
        let address = SocketAddr::new(from.1, self.ephemeral_port());
        let mut connection = Connection::new((from.0, address), to);
        connection.end_mut(Side::Dialer).readers.push(waiter);
        self.connections.insert(number, connection);
        let port = Port { connection: number, side: Side::Dialer };
        self.knock(now, number);
        port
    }

    /// `None`: no answer yet, the waiter of `dial` stays.
    pub(crate) fn dialed(&self, port: Port) -> Option<io::Result<SocketAddr>> {
        let connection = &self.connections[&port.connection];
        match (connection.dial, connection.end(Side::Dialer).broken) {
            (Dial::Answered(Err(error)), _) | (_, Some(error)) => Some(Err(os_error(error))),
            (Dial::Answered(Ok(())), None) => Some(Ok(connection.end(Side::Acceptor).address)),
            (Dial::Knocking | Dial::Answering(_), None) => None,
        }
    }

    pub(crate) fn close_listener(&mut self, now: Moment, id: ListenerId) {
        let listener = self.listeners.remove(&id).expect("a listener is closed once");
        for connection in listener.backlog {
            self.reset(now, Port { connection, side: Side::Acceptor });
        }
    }

    // Streams.

    /// Takes from the front of `parts` what fits; `None`: not all did, the waiter is woken when there is room.
    pub(crate) fn send(
        &mut self,
        now: Moment,
        port: Port,
        parts: &mut VecDeque<Bytes>,
        waiter: Waiter,
    ) -> Option<io::Result<()>> {
        let connection = self.connections.get_mut(&port.connection).expect("open");
        let room = connection.room(port.side);
        let end = connection.end_mut(port.side);
        if let Some(error) = end.broken {
            return Some(Err(os_error(error)));
        }
        if end.shut {
            return Some(Err(os_error(libc::EPIPE)));
        }
        let bytes = take_prefix(parts, room);
        if !parts.is_empty() {
            end.writers.push(waiter);
        }
        if !bytes.is_empty() {
            self.send_in_pieces(now, port, bytes);
        }
        parts.is_empty().then_some(Ok(()))
    }

    /// `None`: nothing has arrived yet, the waiter is woken when something does. `Ok(0)`: the peer sends no more.
    pub(crate) fn receive(&mut self, port: Port, into: &mut BytesMut, waiter: Waiter) -> Option<io::Result<usize>> {
        let connection = self.connections.get_mut(&port.connection).expect("open");
        let end = connection.end_mut(port.side);
        let received = end.receive(into);
        match received {
            None => end.readers.push(waiter),
            Some(Ok(1..)) => self.woken.append(&mut connection.end_mut(port.side.other()).writers),
            Some(_) => {}
        }
        received
    }

    pub(crate) fn shutdown(&mut self, now: Moment, port: Port) -> io::Result<()> {
        let end = self.connections.get_mut(&port.connection).expect("open").end_mut(port.side);
        if let Some(error) = end.broken {
            return Err(os_error(error));
        }
        if !std::mem::replace(&mut end.shut, true) {
            self.post(now, port, Parcel::End);
        }
        Ok(())
    }

    /// As a kernel closes: unread bytes become a reset, otherwise the peer reads what was sent and then the end.
    pub(crate) fn close(&mut self, now: Moment, port: Port) {
        let Some(connection) = self.connections.get(&port.connection) else { return };
        if connection.end(port.side).has_unread() {
            self.reset(now, port);
        } else if self.forget(port) {
            let end = self.connections.get_mut(&port.connection).expect("kept").end_mut(port.side);
            if !std::mem::replace(&mut end.shut, true) {
                self.post(now, port, Parcel::End);
            }
        }
    }

    // Time.

    pub(crate) fn next_at(&self) -> Option<Moment> {
        self.agenda.next_at()
    }

    pub(crate) fn advance(&mut self, now: Moment) {
        while let Some(event) = self.agenda.take_due(now) {
            match event {
                Event::Arrive(port) => self.arrive(now, port),
                Event::Knock(number) => self.open_door(now, number),
                Event::Answer(number) => self.answer(number),
                Event::GiveUp(port, since) => self.give_up(now, port, since),
            }
        }
    }

    /// Operations that may go on; each must be tried again, and waits again if it cannot.
    pub(crate) fn take_woken(&mut self, into: &mut Vec<Waiter>) {
        into.append(&mut self.woken);
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn ephemeral_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = port.checked_add(1).unwrap_or(FIRST_EPHEMERAL_PORT);
        port
    }

    fn knock(&mut self, now: Moment, number: u64) {
        let connection = &self.connections[&number];
        let (from, to) = (connection.end(Side::Dialer).site, connection.end(Side::Acceptor).site);
        if self.is_open(from, to) && self.is_open(to, from) {
            let at = now + self.latency(from, to);
            self.connections.get_mut(&number).expect("just seen").end_mut(Side::Dialer).held_since = None;
            self.agenda.enter(at, Event::Knock(number));
        } else if connection.end(Side::Dialer).held_since.is_none() {
            self.hold(now, Port { connection: number, side: Side::Dialer });
        }
    }

    fn open_door(&mut self, now: Moment, number: u64) {
        let Some(connection) = self.connections.get(&number) else { return };
        let door = connection.end(Side::Acceptor);
        let (site, port, from) = (door.site, door.address.port(), connection.end(Side::Dialer).site);
        if connection.dial != Dial::Knocking || connection.end(Side::Dialer).closed {
            return;
        }
        if !self.is_open(from, site) || !self.is_open(site, from) {
            return self.knock(now, number);
        }
        let doors: Vec<ListenerId> = self
            .listeners
            .iter()
            .filter(|(_, listener)| listener.site == site && listener.port == port)
            .map(|(id, _)| *id)
            .collect();
        let answer = if doors.is_empty() {
            Err(libc::ECONNREFUSED)
        } else {
            let door = *self.random.pick(&doors);
            let listener = self.listeners.get_mut(&door).expect("just found");
            if listener.backlog.len() == BACKLOG {
                return self.agenda.enter(now + KNOCK_AGAIN, Event::Knock(number));
            }
            listener.backlog.push_back(number);
            self.woken.append(&mut listener.waiters);
            Ok(())
        };
        let at = now + self.latency(site, from);
        let connection = self.connections.get_mut(&number).expect("just seen");
        connection.dial = Dial::Answering(answer);
        connection.end_mut(Side::Dialer).inbound.last_arrival = at;
        self.agenda.enter(at, Event::Answer(number));
    }

    fn answer(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if let Dial::Answering(answer) = connection.dial {
            connection.dial = Dial::Answered(answer);
            self.woken.append(&mut connection.end_mut(Side::Dialer).readers);
        }
    }

    /// Now and then one send arrives in two pieces: nobody may take a packet for a frame.
    fn send_in_pieces(&mut self, now: Moment, port: Port, mut bytes: Bytes) {
        if bytes.len() > 1 && self.random.chance(1, 4) {
            let head = bytes.split_to(1 + self.random.index(bytes.len() - 1));
            self.post(now, port, Parcel::Bytes(head));
        }
        self.post(now, port, Parcel::Bytes(bytes));
    }

    /// Sends a parcel from this end to its peer, or holds it if the link is cut.
    fn post(&mut self, now: Moment, from: Port, parcel: Parcel) {
        let connection = &self.connections[&from.connection];
        let to = Port { side: from.side.other(), ..from };
        let (site, peer_site) = (connection.end(from.side).site, connection.end(to.side).site);
        let behind_held = connection.end(from.side).held_since.is_some();
        let at = (self.is_open(site, peer_site) && !behind_held).then(|| now + self.latency(site, peer_site));
        let peer = self.connections.get_mut(&from.connection).expect("just seen").end_mut(to.side);
        let at = at.map(|at| at.max(peer.inbound.last_arrival));
        peer.inbound.enter(at, parcel);
        match at {
            Some(at) => self.agenda.enter(at, Event::Arrive(to)),
            None if !behind_held => self.hold(now, from),
            None => {}
        }
    }

    fn arrive(&mut self, now: Moment, port: Port) {
        let Some(connection) = self.connections.get_mut(&port.connection) else { return };
        let end = connection.end_mut(port.side);
        let mut refused = false;
        while let Some(parcel) = end.inbound.take_due(now) {
            match parcel {
                Parcel::Bytes(bytes) if end.closed => {
                    end.inbound.discard(&bytes);
                    refused = true;
                }
                Parcel::Bytes(bytes) => end.inbound.arrive(bytes),
                Parcel::End => end.inbound.arrive_end(),
                Parcel::Reset => {
                    end.broken.get_or_insert(libc::ECONNRESET);
                    self.woken.append(&mut end.writers);
                }
            }
        }
        self.woken.append(&mut end.readers);
        if refused {
            self.post(now, port, Parcel::Reset);
        }
    }

    /// Closes this end and breaks the other as soon as the news arrives.
    fn reset(&mut self, now: Moment, port: Port) {
        if self.forget(port) {
            self.post(now, port, Parcel::Reset);
        }
    }

    /// Marks the end closed; drops the connection if both are, or if it was never answered. Whether the peer remains.
    fn forget(&mut self, port: Port) -> bool {
        let Some(connection) = self.connections.get_mut(&port.connection) else { return false };
        let unanswered = port.side == Side::Dialer && matches!(connection.dial, Dial::Knocking)
            || matches!(connection.dial, Dial::Answering(Err(_)) | Dial::Answered(Err(_)));
        let end = connection.end_mut(port.side);
        end.closed = true;
        end.inbound.discard_arrived();
        end.readers.clear();
        end.writers.clear();
        if unanswered || connection.is_forgotten() {
            self.connections.remove(&port.connection);
            return false;
        }
        self.woken.append(&mut connection.end_mut(port.side.other()).writers);
        true
    }
}

/// Copies at most `room` bytes off the front of `parts`.
fn take_prefix(parts: &mut VecDeque<Bytes>, room: usize) -> Bytes {
    let len = room.min(parts.iter().map(Bytes::len).sum());
    let mut copied = BytesMut::with_capacity(len);
    while let Some(front) = parts.front_mut() {
        let piece = front.len().min(len - copied.len());
        copied.extend_from_slice(&front[..piece]);
        front.advance(piece);
        if !front.is_empty() {
            break;
        }
        parts.pop_front();
    }
    copied.freeze()
}

#[cfg(test)]
mod tests;
