//! Links that are cut or silent, and machines that go: what is held, what goes on, who gives up.
//!
//! Pure. A link is open when it is not cut and both machines have power. `held_since` of an end says that what it
//! sends, or its first packet, waits for the link; the time itself tells an old `GiveUp` from the one that counts.

use std::ops::Range;
use std::time::Duration;

use crate::moment::Moment;
use crate::sim::network::connection::{Dial, Parcel, Side};
use crate::sim::network::{Event, Link, Network, Port, Site};

impl Network {
    /// The process is gone, its kernel is not: some connections end, some are reset (also those not yet accepted).
    pub(crate) fn kill(&mut self, now: Moment, site: Site) {
        self.listeners.retain(|_, listener| listener.site != site);
        for port in self.open_ends(site) {
            if self.random.chance(1, 2) { self.reset(now, port) } else { self.close(now, port) }
        }
    }

    /// What it had not yet sent is lost. Peers hear nothing before they give up, or the machine is back.
    pub(crate) fn power_off(&mut self, now: Moment, site: Site) {
        self.without_power.insert(site);
        self.hold_all(now);
        self.listeners.retain(|_, listener| listener.site != site);
        for port in self.open_ends(site) {
            let peer = Port { side: port.side.other(), ..port };
            if self.forget(port) {
                let end = self.connections.get_mut(&port.connection).expect("kept").end_mut(peer.side);
                end.inbound.discard_held();
                if end.held_since.is_none() {
                    self.hold(now, peer);
                }
            }
        }
    }

    /// It knows nothing of its connections and resets them, as peers find out when they probe.
    pub(crate) fn power_on(&mut self, now: Moment, site: Site) {
        self.without_power.remove(&site);
        self.release_all(now);
        for port in self.all_ends() {
            let connection = &self.connections[&port.connection];
            let (end, peer) = (connection.end(port.side), connection.end(port.side.other()));
            if end.site == site && end.closed && !peer.closed {
                self.post(now, port, Parcel::Reset);
            }
        }
    }

    pub(crate) fn cut(&mut self, now: Moment, from: Site, to: Site) {
        self.links.entry((from, to)).or_default().cut = true;
        self.hold_all(now);
    }

    pub(crate) fn heal(&mut self, now: Moment, from: Site, to: Site) {
        self.links.entry((from, to)).or_default().cut = false;
        self.release_all(now);
    }

    pub(crate) fn heal_all(&mut self, now: Moment) {
        for link in self.links.values_mut() {
            *link = Link::default();
        }
        self.release_all(now);
    }

    /// `None`: as fast as the world's defaults.
    pub(crate) fn set_latency(&mut self, from: Site, to: Site, latency: Option<Range<Duration>>) {
        self.links.entry((from, to)).or_default().latency = latency;
    }

    /// From now on the end waits for a link; it gives up some time later.
    pub(super) fn hold(&mut self, now: Moment, port: Port) {
        let at = now + self.random.duration(&self.times.give_up);
        let connection = self.connections.get_mut(&port.connection).expect("seen by the caller");
        connection.end_mut(port.side).held_since = Some(now);
        self.agenda.enter(at, Event::GiveUp(port, now));
    }

    pub(super) fn give_up(&mut self, now: Moment, port: Port, since: Moment) {
        let Some(connection) = self.connections.get_mut(&port.connection) else { return };
        let end = connection.end_mut(port.side);
        if end.held_since != Some(since) || end.closed {
            return;
        }
        end.broken.get_or_insert(libc::ETIMEDOUT);
        self.woken.append(&mut end.readers);
        self.woken.append(&mut end.writers);
        connection.end_mut(port.side.other()).inbound.discard_held();
        if connection.dial != Dial::Knocking {
            self.post(now, port, Parcel::Reset);
        }
    }

    /// Holds what is under way over links that are not open any more.
    fn hold_all(&mut self, now: Moment) {
        for port in self.all_ends() {
            let (from, to) = self.sites(port);
            if self.is_open(from, to) {
                continue;
            }
            let connection = self.connections.get_mut(&port.connection).expect("listed");
            let held = connection.end_mut(port.side.other()).inbound.hold();
            if held && connection.end(port.side).held_since.is_none() {
                self.hold(now, port);
            }
        }
    }

    /// Sends on what was held over links that are open again.
    fn release_all(&mut self, now: Moment) {
        for port in self.all_ends() {
            let (from, to) = self.sites(port);
            let connection = &self.connections[&port.connection];
            if connection.end(port.side).held_since.is_none() || !self.is_open(from, to) {
                continue;
            }
            if connection.dial == Dial::Knocking {
                self.knock(now, port.connection);
                continue;
            }
            self.connections.get_mut(&port.connection).expect("listed").end_mut(port.side).held_since = None;
            self.release(now, port, (from, to));
        }
    }

    fn release(&mut self, now: Moment, from: Port, (site, peer_site): (Site, Site)) {
        let to = Port { side: from.side.other(), ..from };
        let count = self.connections[&from.connection].end(to.side).inbound.travelling.len();
        for index in 0..count {
            let latency = self.latency(site, peer_site);
            let pipe = &mut self.connections.get_mut(&from.connection).expect("listed").end_mut(to.side).inbound;
            let entry = &mut pipe.travelling[index].0;
            if entry.is_none() {
                let at = (now + latency).max(pipe.last_arrival);
                *entry = Some(at);
                pipe.last_arrival = at;
                self.agenda.enter(at, Event::Arrive(to));
            }
        }
    }

    pub(super) fn is_open(&self, from: Site, to: Site) -> bool {
        !self.without_power.contains(&from)
            && !self.without_power.contains(&to)
            && !self.links.get(&(from, to)).is_some_and(|link| link.cut)
    }

    pub(super) fn latency(&mut self, from: Site, to: Site) -> Duration {
        let link = self.links.get(&(from, to)).and_then(|link| link.latency.as_ref());
        let default = if from == to { &self.times.loopback } else { &self.times.latency };
        self.random.duration(link.unwrap_or(default))
    }

    fn open_ends(&self, site: Site) -> Vec<Port> {
        let is_open = |port: &Port| {
            let connection = &self.connections[&port.connection];
            let end = connection.end(port.side);
            let answered = matches!(connection.dial, Dial::Answering(Ok(())) | Dial::Answered(Ok(())));
            end.site == site && !end.closed && (answered || port.side == Side::Dialer)
        };
        self.all_ends().into_iter().filter(is_open).collect()
    }

    fn all_ends(&self) -> Vec<Port> {
        let sides = [Side::Dialer, Side::Acceptor];
        self.connections
            .keys()
            .flat_map(|connection| sides.map(|side| Port { connection: *connection, side }))
            .collect()
    }

    fn sites(&self, port: Port) -> (Site, Site) {
        let connection = &self.connections[&port.connection];
        (connection.end(port.side).site, connection.end(port.side.other()).site)
    }
}
