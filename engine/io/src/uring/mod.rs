//! The production driver: one io_uring per shard, a few helper threads per process.
//!
//! Reading order: `ring` (what the kernel gets, all unsafe code), this file (operations to jobs, results to outcomes),
//! `helpers` (threads for calls that block), `names` (the calls on names themselves).
//!
//! Path: from `executor` to the kernel and back.
//! Invariant: an operation is in exactly one place until its completion: `ready`, the ring, or with the helpers.

mod helpers;
mod names;
mod ring;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::driver::{Completion, Driver, Handle, Op, OpId, Outcome, RemoteWake, Wait, cancelled};
use crate::memory::{Arena, BLOCK};
use crate::moment::Moment;

use helpers::{Finished, Helped, Inbox, Wanted};
pub(crate) use ring::pin_to_cpu;
use ring::{Event, Job, RawAddress, Rest, Ring, RingWait, Source};

/// The clock of all shards of the process.
static START: OnceLock<Instant> = OnceLock::new();

pub(crate) struct Uring {
    ring: Ring,
    /// By descriptor, which is also the number of the handle.
    open: Vec<Option<Open>>,
    ready: Vec<Completion>,
    /// Connects under way, from the first question for the name on.
    connecting: BTreeMap<OpId, Connecting>,
    /// Operations given up by their future, not completed yet.
    given_up: BTreeSet<OpId>,
    /// The shard has ended: all are given up.
    stopping: bool,
    inbox: Arc<Inbox>,
    /// Shards this one has woken; a message that fails names its place here.
    known: Vec<Arc<dyn RemoteWake>>,
    events: Vec<Event>,
    random: RandomBytes,
    bounces: Arena,
}

struct Open {
    fd: OwnedFd,
    /// The device checks what it reads, so that a block may not change meanwhile.
    stable_writes: bool,
}

struct Connecting {
    rest: std::vec::IntoIter<SocketAddr>,
    last: io::Error,
}

impl Uring {
    /// On the thread that uses it. Errors: io_uring refused (see `preflight`), no descriptors left.
    pub(crate) fn new() -> io::Result<Uring> {
        START.get_or_init(Instant::now);
        let ring = Ring::new()?;
        let inbox = Inbox::new(ring.event());
        Ok(Uring {
            ring,
            open: Vec::new(),
            ready: Vec::new(),
            connecting: BTreeMap::new(),
            given_up: BTreeSet::new(),
            stopping: false,
            inbox,
            known: Vec::new(),
            events: Vec::new(),
            random: RandomBytes::new()?,
            bounces: Arena::new(0),
        })
    }

    fn keep(&mut self, fd: OwnedFd, stable_writes: bool) -> u64 {
        let number = slot(fd.as_raw_fd());
        if number >= self.open.len() {
            self.open.resize_with(number + 1, || None);
        }
        assert!(self.open[number].is_none(), "an open descriptor is given once");
        self.open[number] = Some(Open { fd, stable_writes });
        u64::try_from(number).expect("a descriptor fits 64 bits")
    }

    fn opened(&self, handle: &Handle) -> &Open {
        let number = usize::try_from(handle.number()).expect("a descriptor fits a usize");
        self.open[number].as_ref().expect("a handle is closed after its last use")
    }

    fn fd(&self, handle: &Handle) -> RawFd {
        self.opened(handle).fd.as_raw_fd()
    }

    fn finish(&mut self, id: OpId, outcome: Outcome) {
        self.given_up.remove(&id);
        self.ready.push(Completion { id, outcome });
    }

    fn help(&mut self, id: OpId, call: impl FnOnce() -> Helped + Send + 'static) {
        helpers::give(&self.inbox, id, Wanted::ToTheEnd, call);
    }

    fn is_given_up(&self, id: OpId) -> bool {
        self.stopping || self.given_up.contains(&id)
    }

    fn push_file_op(&mut self, id: OpId, op: Op) {
        match op {
            Op::Size { file } => {
                let size = ring::with_file(self.opened(&file).fd.as_fd(), |file| file.metadata().map(|m| m.len()));
                self.finish(id, Outcome::Size(size));
            }
            Op::Read { file, buffer, position } => {
                let fd = self.fd(&file);
                self.ring.start(id, Job::Read { fd, file, buffer, position });
            }
            Op::Write { file, mut blocks, position, in_flight } => {
                let Open { fd, stable_writes } = self.opened(&file);
                let bounce = stable_writes.then(|| blocks.take_last_block(&self.bounces));
                let source = Source::new(blocks, bounce);
                self.ring.start(id, Job::Write { fd: fd.as_raw_fd(), file, source, position, in_flight });
            }
            Op::Sync { file } => self.ring.start(id, Job::Sync { fd: self.fd(&file), _held: file }),
            Op::Allocate { file, len } => self.ring.start(id, Job::Allocate { fd: self.fd(&file), _held: file, len }),
            Op::Truncate { file, len } => match self.opened(&file).fd.try_clone() {
                Ok(fd) => self.help(id, move || Helped::Done(std::fs::File::from(fd).set_len(len))),
                Err(error) => self.finish(id, Outcome::Done(Err(error))),
            },
            _ => unreachable!("only operations on open files come here"),
        }
    }

    fn push_stream_op(&mut self, id: OpId, op: Op) {
        match op {
            Op::Accept { listener } => {
                let fd = self.fd(&listener);
                self.ring.start(id, Job::Accept { fd, _held: listener, address: RawAddress::empty() });
            }
            Op::Connect { host, port } => {
                let last = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
                let known = host.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, port)).ok();
                let rest = known.into_iter().collect::<Vec<_>>().into_iter();
                self.connecting.insert(id, Connecting { rest, last });
                match known {
                    Some(_) => self.connect_next(id),
                    None => self.help(id, move || Helped::Resolved(helpers::resolve(&host, port))),
                }
            }
            Op::Recv { stream, buffer } => {
                let fd = self.fd(&stream);
                self.ring.start(id, Job::Recv { fd, _held: stream, buffer });
            }
            Op::Send { stream, parts, in_flight } => {
                let fd = self.fd(&stream);
                self.ring.start(id, Job::Send { fd, stream, rest: Rest::new(parts), in_flight });
            }
            Op::Shutdown { stream } => {
                let result = ring::shutdown_writes(self.fd(&stream));
                self.finish(id, Outcome::Done(result));
            }
            _ => unreachable!("only operations on streams come here"),
        }
    }

    fn close(&mut self, id: OpId, number: u64) {
        let number = usize::try_from(number).expect("a descriptor fits a usize");
        let open = self.open[number].take().expect("a handle is closed once");
        self.ring.start(id, Job::Close { fd: open.fd.into_raw_fd() });
    }

    /// Tries the next address, until one answers or none is left.
    fn connect_next(&mut self, id: OpId) {
        loop {
            let is_given_up = self.is_given_up(id);
            let connecting = self.connecting.get_mut(&id).expect("a connect is listed until its outcome");
            let next = if is_given_up { None } else { connecting.rest.next() };
            let Some(peer) = next else {
                let connecting = self.connecting.remove(&id).expect("it was found above");
                self.finish(id, Outcome::Connected(Err(connecting.last)));
                return;
            };
            match ring::stream_socket(&peer) {
                Ok(socket) => {
                    self.ring.start(id, Job::Connect { socket, address: RawAddress::new(peer), peer });
                    return;
                }
                Err(error) => connecting.last = error,
            }
        }
    }

    /// The kernel is done with a job: it is continued or its operation has an outcome.
    fn job_done(&mut self, id: OpId, job: Job, result: i32) {
        let result = match usize::try_from(result) {
            Ok(count) => Ok(count),
            Err(_) if is_passing(result) && !self.is_given_up(id) => return self.ring.start(id, job),
            Err(_) if result == -libc::ECANCELED || result == -libc::EINTR => Err(cancelled()),
            Err(_) => Err(io::Error::from_raw_os_error(-result)),
        };
        match job {
            Job::Read { fd, file, buffer, position } => self.read_done(id, (fd, file, buffer, position), result),
            Job::Write { fd, file, source, position, in_flight } => {
                let mut source = source;
                match result.and_then(|count| progress(count, BLOCK).map(|()| source.advance(count))) {
                    Ok(false) if self.is_given_up(id) => self.finish(id, Outcome::Done(Err(cancelled()))),
                    Ok(false) => self.ring.start(id, Job::Write { fd, file, source, position, in_flight }),
                    other => self.finish(id, Outcome::Done(other.map(drop))),
                }
            }
            Job::Send { fd, stream, mut rest, in_flight } => {
                match result.and_then(|count| progress(count, 1).map(|()| rest.advance(count))) {
                    Ok(false) if self.is_given_up(id) => self.finish(id, Outcome::Done(Err(cancelled()))),
                    Ok(false) => self.ring.start(id, Job::Send { fd, stream, rest, in_flight }),
                    other => self.finish(id, Outcome::Done(other.map(drop))),
                }
            }
            Job::Sync { .. } | Job::Allocate { .. } | Job::Close { .. } => {
                self.finish(id, Outcome::Done(result.map(drop)));
            }
            Job::Accept { address, .. } => self.accept_done(id, &address, result),
            Job::Connect { socket, peer, .. } => self.connect_done(id, socket, peer, result),
            Job::Recv { mut buffer, .. } => {
                if let Ok(count) = result {
                    ring::advance_recv(&mut buffer, count);
                }
                self.finish(id, Outcome::Received(result, buffer));
            }
        }
    }

    fn read_done(
        &mut self,
        id: OpId,
        (fd, file, mut buffer, position): (RawFd, Handle, crate::memory::ReadBuffer, u64),
        result: io::Result<usize>,
    ) {
        let outcome = match result {
            Err(error) => Err(error),
            Ok(count) => {
                ring::advance_read(&mut buffer, count);
                let is_end = count == 0 || !count.is_multiple_of(BLOCK);
                if is_end || buffer.filled() == buffer.capacity() {
                    Ok(buffer)
                } else if self.is_given_up(id) {
                    Err(cancelled())
                } else {
                    return self.ring.start(id, Job::Read { fd, file, buffer, position });
                }
            }
        };
        self.finish(id, Outcome::Read(outcome));
    }

    fn accept_done(&mut self, id: OpId, address: &RawAddress, result: io::Result<usize>) {
        let accepted = result.and_then(|fd| {
            let fd = ring::owned(RawFd::try_from(fd).expect("a descriptor has 31 bits"))?;
            // A connection that is broken already says nothing about the listener.
            let peer = ring::set_no_delay(&fd).and_then(|()| address.to_address());
            let peer = peer.map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error))?;
            Ok((self.keep(fd, false), peer))
        });
        self.finish(id, Outcome::Accepted(accepted));
    }

    fn connect_done(&mut self, id: OpId, socket: OwnedFd, peer: SocketAddr, result: io::Result<usize>) {
        match result {
            Ok(_) => {
                self.connecting.remove(&id);
                let number = self.keep(socket, false);
                self.finish(id, Outcome::Connected(Ok((number, peer))));
            }
            Err(error) => {
                self.connecting.get_mut(&id).expect("a connect is listed until its outcome").last = error;
                self.connect_next(id);
            }
        }
    }

    /// A helper thread is done.
    fn helped(&mut self, finished: Finished) {
        let Finished { id, result, .. } = finished;
        let outcome = match result {
            Helped::Done(result) => Outcome::Done(result),
            Helped::Opened(Ok(opened)) => Outcome::Opened(Ok(self.keep(opened.fd, opened.stable_writes))),
            Helped::Opened(Err(error)) => Outcome::Opened(Err(error)),
            Helped::Names(answer) => Outcome::Fs(answer),
            Helped::Locked(Ok(fd)) => Outcome::Fs(Ok(crate::driver::FsAnswer::Locked(self.keep(fd, false)))),
            Helped::Locked(Err(error)) => Outcome::Fs(Err(error)),
            Helped::Resolved(addresses) => {
                let connecting = self.connecting.get_mut(&id).expect("a connect is listed until its outcome");
                match addresses {
                    Ok(addresses) => connecting.rest = addresses.into_iter(),
                    Err(error) => connecting.last = error,
                }
                return self.connect_next(id);
            }
        };
        self.finish(id, outcome);
    }

    fn take_helped(&mut self) {
        for finished in self.inbox.take() {
            self.helped(finished);
        }
    }

    fn take_events(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        self.ring.take(&mut events);
        for event in events.drain(..) {
            match event {
                Event::Done(id, job, result) => self.job_done(id, job, result),
                // Its ring is gone, or full: the slower way.
                Event::WakeFailed(number) => self.known[number].wake(),
            }
        }
        self.events = events;
    }

    fn ring_wait(&self, wait: Wait) -> RingWait {
        if !self.ready.is_empty() {
            return RingWait::No;
        }
        match wait {
            Wait::No => RingWait::No,
            Wait::Forever => RingWait::Forever,
            Wait::Until(moment) => {
                let rest = moment - self.now();
                if rest.is_zero() { RingWait::No } else { RingWait::AtMost(rest) }
            }
        }
    }
}

/// Errors after which the same job is simply tried again.
fn is_passing(result: i32) -> bool {
    result == -libc::EINTR || result == -libc::EAGAIN
}

fn progress(count: usize, least: usize) -> io::Result<()> {
    if count >= least { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

fn slot(fd: RawFd) -> usize {
    usize::try_from(fd).expect("an open descriptor is not negative")
}

impl Driver for Uring {
    fn push(&mut self, id: OpId, op: Op) {
        match op {
            Op::Open { path, options } => self.help(id, move || Helped::Opened(names::open(&path, options))),
            Op::Close { number } => self.close(id, number),
            Op::Fs(call) => self.help(id, move || names::call(call)),
            Op::Blocking(call) => {
                let run = move || {
                    call();
                    Helped::Done(Ok(()))
                };
                helpers::give(&self.inbox, id, Wanted::WhileTheShardLives, run);
            }
            Op::Size { .. } | Op::Read { .. } | Op::Write { .. } => self.push_file_op(id, op),
            Op::Sync { .. } | Op::Truncate { .. } | Op::Allocate { .. } => self.push_file_op(id, op),
            Op::Accept { .. } | Op::Connect { .. } | Op::Recv { .. } => self.push_stream_op(id, op),
            Op::Send { .. } | Op::Shutdown { .. } => self.push_stream_op(id, op),
        }
    }

    fn cancel(&mut self, id: OpId) {
        if self.ring.cancel(id) || self.connecting.contains_key(&id) {
            self.given_up.insert(id);
        }
    }

    fn turn(&mut self, wait: Wait, completions: &mut Vec<Completion>) {
        self.take_helped();
        self.ring.enter(self.ring_wait(wait));
        self.take_events();
        self.take_helped();
        completions.append(&mut self.ready);
    }

    fn listen(&mut self, address: SocketAddr) -> io::Result<(u64, SocketAddr)> {
        let (socket, address) = ring::listening_socket(address)?;
        Ok((self.keep(socket, false), address))
    }

    fn now(&self) -> Moment {
        Moment::from_duration(START.get_or_init(Instant::now).elapsed())
    }

    fn wall_clock_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn fill_random(&mut self, bytes: &mut [u8]) {
        self.random.fill(bytes);
    }

    fn remote_wake(&self) -> Arc<dyn RemoteWake> {
        Arc::new(RingWake { event: self.ring.event(), ring: self.ring.fd() })
    }

    fn wake_shard(&mut self, other: &Arc<dyn RemoteWake>) {
        let Some(ring) = other.ring() else { return other.wake() };
        let known = self.known.iter().position(|known| Arc::ptr_eq(known, other));
        let number = known.unwrap_or_else(|| {
            self.known.push(Arc::clone(other));
            self.known.len() - 1
        });
        self.ring.wake(ring, u32::try_from(number).expect("a process has few shards"));
    }

    fn stop(&mut self) {
        self.stopping = true;
        self.ring.cancel_jobs();
        while self.ring.in_kernel() > 0 || self.inbox.wanted_in_flight() > 0 {
            // Its event tells of the end of a call on names.
            self.ring.enter(RingWait::Forever);
            self.take_events();
            self.take_helped();
        }
        self.ring.cancel_event();
        while !self.ring.is_idle() {
            self.ring.enter(RingWait::Forever);
            self.take_events();
        }
        self.ready.clear();
        self.open.clear();
    }
}

/// Wakes one shard: by a message from ring to ring, or by its event from any thread.
struct RingWake {
    event: Arc<OwnedFd>,
    ring: RawFd,
}

impl RemoteWake for RingWake {
    fn wake(&self) {
        helpers::raise(&self.event);
    }

    fn ring(&self) -> Option<i32> {
        Some(self.ring)
    }
}

/// Random bytes of the system, taken in pieces.
struct RandomBytes {
    source: std::fs::File,
    bytes: [u8; 512],
    used: usize,
}

impl RandomBytes {
    fn new() -> io::Result<RandomBytes> {
        Ok(RandomBytes { source: std::fs::File::open("/dev/urandom")?, bytes: [0; 512], used: 512 })
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            if self.used == self.bytes.len() {
                self.source.read_exact(&mut self.bytes).expect("the system's random bytes do not end");
                self.used = 0;
            }
            *byte = std::mem::take(&mut self.bytes[self.used]);
            self.used += 1;
        }
    }
}
