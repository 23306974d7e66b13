//! Everything of a world except its shards: time, machines, operations in flight, what completed for whom.
//!
//! Path: from a shard's `Simulated` driver (`begin`), over the agenda or the network, to `completed`, which the driver
//! hands to its shard in the next turn. The shards themselves are kept by the world, which never holds the state
//! borrowed while a shard runs. Invariant: an operation of a dead shard has no effect and no completion.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::driver::{Completion, Handle, InFlight, Op, OpId, Outcome};
use crate::memory::BlockLease;
use crate::moment::Moment;
use crate::sim::agenda::Agenda;
use crate::sim::clock::WallClock;
use crate::sim::disk::image::SyncMark;
use crate::sim::disk::{Disk, Node};
use crate::sim::network::{ListenerId, Network, NetworkTimes, Port, Site, Waiter};
use crate::sim::random::Random;
use crate::sim::trace::Trace;

/// How long things take in a world. Each operation draws from its range.
#[derive(Clone, Debug)]
pub struct Times {
    pub disk_read: Range<Duration>,
    pub disk_write: Range<Duration>,
    pub disk_sync: Range<Duration>,
    /// Opening, renaming, listing and the like.
    pub disk_names: Range<Duration>,
    /// A closure given to `blocking`.
    pub blocking: Range<Duration>,
    /// One step of a shard. Other shards run meanwhile.
    pub step: Range<Duration>,
    pub network: NetworkTimes,
}

impl Default for Times {
    fn default() -> Times {
        let micros = |range: Range<u64>| Duration::from_micros(range.start)..Duration::from_micros(range.end);
        Times {
            disk_read: micros(20..200),
            disk_write: micros(20..200),
            disk_sync: micros(100..1000),
            disk_names: micros(20..100),
            blocking: micros(20..200),
            step: micros(1..10),
            network: NetworkTimes::default(),
        }
    }
}

pub(crate) struct MachineState {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    pub(crate) disk: Disk,
    pub(crate) clock: WallClock,
    pub(crate) up: Arc<AtomicBool>,
}

/// What a handle's number stands for in its shard.
#[derive(Clone, Copy)]
pub(crate) enum Resource {
    File { node: Node, writable: bool },
    Lock(Node),
    Listener(ListenerId),
    Stream(Port),
}

pub(crate) enum Pending {
    /// Waits for its time on the agenda, then takes effect.
    Disk {
        op: Op,
        written: Option<Written>,
        mark: Option<SyncMark>,
    },
    Dial {
        port: Port,
    },
    Accept {
        listener: Handle,
    },
    Receive {
        stream: Handle,
        buffer: BytesMut,
    },
    Send {
        stream: Handle,
        parts: VecDeque<Bytes>,
        in_flight: InFlight,
    },
}

/// The bytes a device takes: as they were when the write was pushed, for some writes; else as they are at its end.
pub(crate) struct Written(pub(crate) Vec<u8>);

pub(crate) struct ShardState {
    pub(crate) site: Site,
    pub(crate) alive: bool,
    /// Index: the handle's number.
    pub(crate) resources: Vec<Option<Resource>>,
    free_numbers: Vec<usize>,
    /// Index: the operation's slot.
    pub(crate) pending: Vec<Option<(OpId, Pending)>>,
    pub(crate) completed: Vec<Completion>,
    /// Closures whose time has come; the driver runs them outside of any borrow.
    pub(crate) closures: Vec<(OpId, Box<dyn FnOnce() + Send>)>,
}

pub(crate) struct State {
    pub(crate) now: Moment,
    pub(crate) random: Random,
    pub(crate) times: Times,
    pub(crate) machines: Vec<MachineState>,
    pub(crate) shards: Vec<ShardState>,
    pub(crate) network: Network,
    pub(crate) trace: Trace,
    agenda: Agenda<Waiter>,
    woken: Vec<Waiter>,
}

impl State {
    pub(crate) fn new(random: &mut Random) -> State {
        State {
            now: Moment::START,
            random: random.fork(),
            times: Times::default(),
            machines: Vec::new(),
            shards: Vec::new(),
            network: Network::new(random.fork()),
            trace: Trace::new(),
            agenda: Agenda::new(),
            woken: Vec::new(),
        }
    }

    pub(crate) fn machine_named(&mut self, name: &str) -> Site {
        if let Some(found) = self.machines.iter().position(|machine| machine.name == name) {
            return Site(found);
        }
        let number = u8::try_from(self.machines.len() + 1).expect("a world has at most 255 machines");
        self.machines.push(MachineState {
            name: name.to_owned(),
            address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)),
            disk: Disk::new(),
            clock: WallClock::new(),
            up: Arc::new(AtomicBool::new(true)),
        });
        Site(self.machines.len() - 1)
    }

    pub(crate) fn new_shard(&mut self, site: Site) -> usize {
        self.shards.push(ShardState {
            site,
            alive: true,
            resources: Vec::new(),
            free_numbers: Vec::new(),
            pending: Vec::new(),
            completed: Vec::new(),
            closures: Vec::new(),
        });
        self.shards.len() - 1
    }

    pub(crate) fn has_completions(&self, shard: usize) -> bool {
        let shard = &self.shards[shard];
        !shard.completed.is_empty() || !shard.closures.is_empty()
    }

    // Time.

    pub(crate) fn next_at(&self) -> Option<Moment> {
        [self.agenda.next_at(), self.network.next_at()].into_iter().flatten().min()
    }

    /// Lets everything happen whose time has come.
    pub(crate) fn advance(&mut self) {
        while self.next_at().is_some_and(|next| next <= self.now) {
            while let Some(waiter) = self.agenda.take_due(self.now) {
                self.end_disk_operation(waiter);
            }
            self.network.advance(self.now);
            self.serve_woken();
        }
    }

    /// Tries the operations again that the network named, until it names no more.
    pub(crate) fn serve_woken(&mut self) {
        loop {
            let mut woken = std::mem::take(&mut self.woken);
            self.network.take_woken(&mut woken);
            if woken.is_empty() {
                self.woken = woken;
                return;
            }
            for waiter in woken.drain(..) {
                if let Some(pending) = self.take_pending(waiter) {
                    self.try_network(waiter, pending);
                }
            }
            self.woken = woken;
        }
    }

    // Operations.

    pub(crate) fn begin(&mut self, shard: usize, id: OpId, op: Op) {
        if !self.shards[shard].alive {
            return;
        }
        let waiter = Waiter { shard, op: id };
        match op {
            Op::Close { number } => {
                self.close(shard, number);
                self.complete(waiter, "close", Outcome::Done(Ok(())));
            }
            Op::Accept { listener } => self.try_network(waiter, Pending::Accept { listener }),
            Op::Connect { host, port } => self.dial(waiter, &host, port),
            Op::Recv { stream, buffer } => self.try_network(waiter, Pending::Receive { stream, buffer }),
            Op::Send { stream, parts, in_flight } => {
                self.try_network(waiter, Pending::Send { stream, parts: parts.into(), in_flight });
            }
            Op::Shutdown { stream } => {
                let done = self.network.shutdown(self.now, self.stream(shard, &stream));
                self.complete(waiter, "shutdown", Outcome::Done(done));
            }
            op => self.begin_disk_operation(waiter, op),
        }
        self.serve_woken();
    }

    pub(crate) fn complete(&mut self, waiter: Waiter, kind: &'static str, outcome: Outcome) {
        let shard = &mut self.shards[waiter.shard];
        if shard.alive {
            self.trace.operation(self.now, waiter.shard, kind, outcome_word(&outcome));
            shard.completed.push(Completion { id: waiter.op, outcome });
        }
    }

    pub(crate) fn schedule(&mut self, waiter: Waiter, pending: Pending, latency: &Range<Duration>) {
        let latency = self.random.duration(latency) + self.disk(waiter.shard).slow_by;
        self.agenda.enter(self.now + latency, waiter);
        self.put_pending(waiter, pending);
    }

    pub(crate) fn put_pending(&mut self, waiter: Waiter, pending: Pending) {
        let list = &mut self.shards[waiter.shard].pending;
        let slot = waiter.op.slot();
        if list.len() <= slot {
            list.resize_with(slot + 1, || None);
        }
        assert!(list[slot].is_none(), "no two operations in flight share a slot");
        list[slot] = Some((waiter.op, pending));
    }

    /// `None`: it completed or was cancelled meanwhile, or its shard died.
    pub(crate) fn take_pending(&mut self, waiter: Waiter) -> Option<Pending> {
        let entry = self.shards[waiter.shard].pending.get_mut(waiter.op.slot())?;
        match entry {
            Some((id, _)) if *id == waiter.op => entry.take().map(|(_, pending)| pending),
            _ => None,
        }
    }

    // Handles.

    pub(crate) fn add_resource(&mut self, shard: usize, resource: Resource) -> u64 {
        let shard = &mut self.shards[shard];
        let number = shard.free_numbers.pop().unwrap_or_else(|| {
            shard.resources.push(None);
            shard.resources.len() - 1
        });
        shard.resources[number] = Some(resource);
        u64::try_from(number).expect("usize fits 64 bits")
    }

    pub(crate) fn resource(&self, shard: usize, handle: &Handle) -> Resource {
        let number = usize::try_from(handle.number()).expect("made from a usize");
        self.shards[shard].resources[number].expect("a handle is open as long as it is held")
    }

    pub(crate) fn disk(&mut self, shard: usize) -> &mut Disk {
        let site = self.shards[shard].site;
        &mut self.machines[site.0].disk
    }

    fn close(&mut self, shard: usize, number: u64) {
        let number = usize::try_from(number).expect("made from a usize");
        let resource = self.shards[shard].resources[number].take().expect("a handle is closed once");
        self.shards[shard].free_numbers.push(number);
        match resource {
            Resource::File { node, .. } => self.disk(shard).close(node),
            Resource::Lock(node) => {
                self.disk(shard).unlock(node);
                self.disk(shard).close(node);
            }
            Resource::Listener(id) => self.network.close_listener(self.now, id),
            Resource::Stream(port) => self.network.close(self.now, port),
        }
    }

    // The end of a shard.

    /// An orderly end: disk operations in flight take effect, files and connections are closed. What is given back
    /// is to be dropped after the state is free again.
    #[must_use]
    pub(crate) fn end_shard(&mut self, shard: usize) -> Vec<Option<(OpId, Pending)>> {
        if !self.shards[shard].alive {
            return Vec::new();
        }
        let pending = std::mem::take(&mut self.shards[shard].pending);
        let mut kept = Vec::new();
        for (id, pending) in pending.into_iter().flatten() {
            match pending {
                Pending::Disk { op: op @ Op::Blocking(_), .. } => {
                    kept.push(Some((id, Pending::Disk { op, written: None, mark: None })));
                }
                disk @ Pending::Disk { .. } => {
                    let waiter = Waiter { shard, op: id };
                    self.put_pending(waiter, disk);
                    self.end_disk_operation(waiter);
                }
                Pending::Dial { port } => self.network.close(self.now, port),
                waiting => kept.push(Some((id, waiting))),
            }
        }
        for number in 0..self.shards[shard].resources.len() {
            if self.shards[shard].resources[number].is_some() {
                self.close(shard, u64::try_from(number).expect("usize fits 64 bits"));
            }
        }
        let ended = &mut self.shards[shard];
        ended.alive = false;
        ended.resources.clear();
        ended.completed.clear();
        self.serve_woken();
        kept
    }

    /// All shards of the machine are dead from now on. What is given back is to be dropped after the state is free.
    #[must_use]
    pub(crate) fn crash(&mut self, site: Site, power_lost: bool) -> Vec<Option<(OpId, Pending)>> {
        let mut abandoned = Vec::new();
        for shard in self.live_shards(site) {
            let mut pending = std::mem::take(&mut self.shards[shard].pending);
            for (_, operation) in pending.iter_mut().flatten() {
                self.abandon_disk_operation(site, shard, operation);
            }
            abandoned.append(&mut pending);
            let dead = &mut self.shards[shard];
            dead.alive = false;
            dead.resources.clear();
            dead.completed.clear();
            let closures = std::mem::take(&mut dead.closures);
            let closures = closures.into_iter().map(|(id, closure)| {
                Some((id, Pending::Disk { op: Op::Blocking(closure), written: None, mark: None }))
            });
            abandoned.extend(closures);
        }
        let machine = &mut self.machines[site.0];
        machine.up.store(false, Ordering::Relaxed);
        if power_lost {
            machine.disk.lose_power(&mut self.random);
            self.network.power_off(self.now, site);
        } else {
            machine.disk.kill();
            self.network.kill(self.now, site);
        }
        self.serve_woken();
        abandoned
    }

    pub(crate) fn power_on(&mut self, site: Site) {
        self.machines[site.0].up.store(true, Ordering::Relaxed);
        self.network.power_on(self.now, site);
        self.serve_woken();
    }

    pub(crate) fn live_shards(&self, site: Site) -> Vec<usize> {
        let of_machine = |shard: &usize| self.shards[*shard].site == site && self.shards[*shard].alive;
        (0..self.shards.len()).filter(of_machine).collect()
    }
}

/// The part of an outcome that goes into the trace.
fn outcome_word(outcome: &Outcome) -> u64 {
    fn of<T>(result: &io::Result<T>, word: impl Fn(&T) -> u64) -> u64 {
        match result {
            Ok(value) => word(value),
            Err(error) => u64::MAX - u64::from(error.raw_os_error().unwrap_or(0).unsigned_abs()),
        }
    }
    let wide = |len: usize| u64::try_from(len).expect("usize fits 64 bits");
    match outcome {
        Outcome::Done(done) => of(done, |()| 0),
        Outcome::Opened(number) | Outcome::Size(number) => of(number, |number| *number),
        Outcome::Read(buffer) => of(buffer, |buffer| wide(buffer.filled())),
        Outcome::Fs(answer) => of(answer, |_| 1),
        Outcome::Accepted(accepted) | Outcome::Connected(accepted) => of(accepted, |(number, _)| *number),
        Outcome::Received(len, _) => of(len, |len| wide(*len)),
    }
}

/// The bytes of a write: those caught when it was pushed, or those there now.
pub(crate) fn bytes_of(written: Option<Written>, blocks: &BlockLease) -> Vec<u8> {
    written.map_or_else(|| blocks.copy_now(), |written| written.0)
}
