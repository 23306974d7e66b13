//! Network operations of a shard: they wait for the network, are tried again when it names them, and end at once when
//! they are cancelled.
//!
//! Invariant: an operation that waits is known to the network as a waiter; one that ended is not pending any more, and
//! a waiter without a pending operation is ignored.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::driver::{Handle, OpId, Outcome, cancelled};
use crate::sim::disk::image::os_error;
use crate::sim::network::{Port, Site, Waiter};
use crate::sim::state::{MachineState, Pending, Resource, State};

impl State {
    /// What waits for the network ends at once; disk operations go on, as those of a device do.
    pub(crate) fn cancel(&mut self, shard: usize, id: OpId) {
        let waiter = Waiter { shard, op: id };
        match self.take_pending(waiter) {
            None => {}
            Some(pending @ Pending::Disk { .. }) => self.put_pending(waiter, pending),
            Some(Pending::Dial { port }) => {
                self.network.close(self.now, port);
                self.complete(waiter, "connect", Outcome::Connected(Err(cancelled())));
            }
            Some(Pending::Accept { .. }) => self.complete(waiter, "accept", Outcome::Accepted(Err(cancelled()))),
            Some(Pending::Receive { buffer, .. }) => {
                self.complete(waiter, "recv", Outcome::Received(Err(cancelled()), buffer));
            }
            Some(Pending::Send { .. }) => self.complete(waiter, "send", Outcome::Done(Err(cancelled()))),
        }
        self.serve_woken();
    }

    pub(crate) fn listen(&mut self, shard: usize, address: SocketAddr) -> io::Result<(u64, SocketAddr)> {
        let state = &self.shards[shard];
        let machine = &self.machines[state.site.0];
        let own = address.ip().is_unspecified() || address.ip().is_loopback() || address.ip() == machine.address;
        if !state.alive || !own {
            return Err(os_error(libc::EADDRNOTAVAIL));
        }
        let (id, address) = self.network.listen(state.site, address);
        Ok((self.add_resource(shard, Resource::Listener(id)), address))
    }

    pub(crate) fn dial(&mut self, waiter: Waiter, host: &str, port: u16) {
        let from = self.shards[waiter.shard].site;
        let own_address = self.machines[from.0].address;
        let Some(to) = self.resolve(from, host) else {
            let error = io::Error::new(io::ErrorKind::NotFound, format!("no machine is called {host}"));
            return self.complete(waiter, "connect", Outcome::Connected(Err(error)));
        };
        let address = SocketAddr::new(self.machines[to.0].address, port);
        let port = self.network.dial(self.now, (from, own_address), (to, address), waiter);
        self.put_pending(waiter, Pending::Dial { port });
    }

    fn resolve(&self, from: Site, host: &str) -> Option<Site> {
        if host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified()) {
            return Some(from);
        }
        let is_meant = |machine: &MachineState| machine.name == host || machine.address.to_string() == host;
        self.machines.iter().position(is_meant).map(Site)
    }

    /// Goes on with an operation on the network; it waits again if it is not done.
    pub(crate) fn try_network(&mut self, waiter: Waiter, pending: Pending) {
        match pending {
            Pending::Dial { port } => match self.network.dialed(port) {
                None => self.put_pending(waiter, Pending::Dial { port }),
                Some(Ok(peer)) => {
                    let number = self.add_resource(waiter.shard, Resource::Stream(port));
                    self.complete(waiter, "connect", Outcome::Connected(Ok((number, peer))));
                }
                Some(Err(error)) => {
                    self.network.close(self.now, port);
                    self.complete(waiter, "connect", Outcome::Connected(Err(error)));
                }
            },
            Pending::Accept { listener } => {
                let Resource::Listener(id) = self.resource(waiter.shard, &listener) else {
                    panic!("only listeners accept");
                };
                match self.network.accept(id, waiter) {
                    None => self.put_pending(waiter, Pending::Accept { listener }),
                    Some((port, peer)) => {
                        let number = self.add_resource(waiter.shard, Resource::Stream(port));
                        self.complete(waiter, "accept", Outcome::Accepted(Ok((number, peer))));
                    }
                }
            }
            Pending::Receive { stream, mut buffer } => {
                match self.network.receive(self.stream(waiter.shard, &stream), &mut buffer, waiter) {
                    None => self.put_pending(waiter, Pending::Receive { stream, buffer }),
                    Some(received) => self.complete(waiter, "recv", Outcome::Received(received, buffer)),
                }
            }
            Pending::Send { stream, mut parts, in_flight } => {
                match self.network.send(self.now, self.stream(waiter.shard, &stream), &mut parts, waiter) {
                    None => self.put_pending(waiter, Pending::Send { stream, parts, in_flight }),
                    Some(done) => self.complete(waiter, "send", Outcome::Done(done)),
                }
            }
            pending @ Pending::Disk { .. } => self.put_pending(waiter, pending),
        }
    }

    pub(crate) fn stream(&self, shard: usize, handle: &Handle) -> Port {
        let Resource::Stream(port) = self.resource(shard, handle) else { panic!("only streams carry bytes") };
        port
    }
}
