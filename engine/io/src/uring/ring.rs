//! The ring itself: every pointer that the kernel gets, and every system call that the standard library does not have.
//!
//! Invariant: a job and the memory it points to stay in `jobs` from `start` until the kernel's completion; a ring that is
//! dropped before leaks them. All pointers go to heap memory, so a job may move within `jobs`.
//! Invariant: the descriptor of a job is open until its completion, because the job holds its handle (or is the close).
#![expect(unsafe_code, reason = "the kernel reads and writes memory by address")]

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use io_uring::types::{CancelBuilder, Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

use crate::driver::{Handle, InFlight, OpId};
use crate::limits::{LISTEN_BACKLOG, RING_COMPLETIONS, RING_ENTRIES, SEND_PARTS_MAX};
use crate::memory::{BLOCK, BlockLease, ReadBuffer};

/// Completions with this bit belong to the ring, the others carry an `OpId`.
const OWN: u64 = 1 << 63;
const EVENT_READ: u64 = OWN | 1 << 32;
/// What another shard's message leaves here.
const WOKEN: u64 = OWN | 2 << 32;
/// Completions nobody looks at.
const IGNORED: u64 = OWN | 3 << 32;
/// A message that could not be sent; the low half says to whom.
const WAKE_FAILED: u64 = OWN | 4 << 32;

/// One operation in the kernel, with the memory and the handle it needs.
pub(super) enum Job {
    Read { fd: RawFd, file: Handle, buffer: ReadBuffer, position: u64 },
    Write { fd: RawFd, file: Handle, source: Source, position: u64, in_flight: InFlight },
    Sync { fd: RawFd, _held: Handle },
    Allocate { fd: RawFd, _held: Handle, len: u64 },
    Close { fd: RawFd },
    Accept { fd: RawFd, _held: Handle, address: Box<RawAddress> },
    Connect { socket: OwnedFd, address: Box<RawAddress>, peer: SocketAddr },
    Recv { fd: RawFd, _held: Handle, buffer: BytesMut },
    Send { fd: RawFd, stream: Handle, rest: Rest, in_flight: InFlight },
}

/// What a write has still to do.
pub(super) struct Source {
    blocks: BlockLease,
    /// A copy of the last block, for devices that check what they read.
    bounce: Option<ReadBuffer>,
    written: usize,
    vectors: Box<[libc::iovec; 2]>,
}

impl Source {
    pub(super) fn new(blocks: BlockLease, bounce: Option<ReadBuffer>) -> Source {
        let empty = || libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Source { blocks, bounce, written: 0, vectors: Box::new([empty(), empty()]) }
    }

    fn len(&self) -> usize {
        self.blocks.len() + self.bounce.as_ref().map_or(0, ReadBuffer::filled)
    }

    /// Counts whole blocks; whether the write is complete.
    pub(super) fn advance(&mut self, count: usize) -> bool {
        self.written += count - count % BLOCK;
        assert!(self.written <= self.len(), "the device wrote at most what it was given");
        self.written == self.len()
    }

    /// The parts that remain, and how many of the two vectors are used.
    fn vectors(&mut self) -> (*const libc::iovec, u32) {
        let in_blocks = self.blocks.len() - self.written.min(self.blocks.len());
        let mut used = 0;
        if in_blocks > 0 {
            let start = self.blocks.address().wrapping_add(self.written);
            self.vectors[0] = libc::iovec { iov_base: start.cast_mut().cast(), iov_len: in_blocks };
            used = 1;
        }
        if let Some(bounce) = &self.bounce {
            let done = self.written.saturating_sub(self.blocks.len());
            let start = bounce.address().wrapping_add(done);
            self.vectors[used] = libc::iovec { iov_base: start.cast_mut().cast(), iov_len: bounce.filled() - done };
            used += 1;
        }
        (self.vectors.as_ptr(), if used == 2 { 2 } else { 1 })
    }
}

/// What a send has still to do: the parts from the first unfinished one on.
pub(super) struct Rest {
    parts: VecDeque<Bytes>,
    vectors: Vec<libc::iovec>,
    header: Box<libc::msghdr>,
}

impl Rest {
    pub(super) fn new(parts: Vec<Bytes>) -> Rest {
        // Safety: a message header of zeros is an empty one.
        let header = unsafe { std::mem::zeroed() };
        Rest { parts: parts.into(), vectors: Vec::new(), header: Box::new(header) }
    }

    /// Takes off what was sent; whether that was all.
    pub(super) fn advance(&mut self, mut count: usize) -> bool {
        while let Some(first) = self.parts.front_mut() {
            if count < first.len() {
                bytes::Buf::advance(first, count);
                return false;
            }
            count -= first.len();
            self.parts.pop_front();
        }
        assert_eq!(count, 0, "the socket took at most what it was given");
        true
    }

    fn entry(&mut self, fd: Fd) -> squeue::Entry {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        if self.parts.len() == 1 {
            let only = &self.parts[0];
            let len = u32::try_from(only.len()).unwrap_or(u32::MAX);
            return opcode::Send::new(fd, only.as_ptr(), len).flags(flags).build();
        }
        self.vectors.clear();
        let vector = |part: &Bytes| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
        self.vectors.extend(self.parts.iter().take(SEND_PARTS_MAX).map(vector));
        self.header.msg_iov = self.vectors.as_mut_ptr();
        self.header.msg_iovlen = self.vectors.len();
        opcode::SendMsg::new(fd, &raw const *self.header).flags(flags.cast_unsigned()).build()
    }
}

/// A socket address as the kernel writes and reads it.
pub(super) struct RawAddress {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl RawAddress {
    pub(super) fn empty() -> Box<RawAddress> {
        // Safety: an address of zeros is one without a family.
        let storage = unsafe { std::mem::zeroed() };
        Box::new(RawAddress { storage, len: socklen(size_of::<libc::sockaddr_storage>()) })
    }

    pub(super) fn new(address: SocketAddr) -> Box<RawAddress> {
        let mut raw = RawAddress::empty();
        let storage = &raw mut raw.storage;
        match address {
            SocketAddr::V4(v4) => {
                let value = libc::sockaddr_in {
                    sin_family: family(libc::AF_INET),
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                // Safety: a storage is large and aligned enough for each family's address.
                unsafe { storage.cast::<libc::sockaddr_in>().write(value) };
                raw.len = socklen(size_of::<libc::sockaddr_in>());
            }
            SocketAddr::V6(v6) => {
                let value = libc::sockaddr_in6 {
                    sin6_family: family(libc::AF_INET6),
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // Safety: as above.
                unsafe { storage.cast::<libc::sockaddr_in6>().write(value) };
                raw.len = socklen(size_of::<libc::sockaddr_in6>());
            }
        }
        raw
    }

    pub(super) fn to_address(&self) -> io::Result<SocketAddr> {
        let storage = &raw const self.storage;
        match libc::c_int::from(self.storage.ss_family) {
            libc::AF_INET => {
                // Safety: the family says which address the storage holds.
                let value = unsafe { storage.cast::<libc::sockaddr_in>().read() };
                let ip = Ipv4Addr::from(u32::from_be(value.sin_addr.s_addr));
                Ok(SocketAddr::new(IpAddr::V4(ip), u16::from_be(value.sin_port)))
            }
            libc::AF_INET6 => {
                // Safety: as above.
                let value = unsafe { storage.cast::<libc::sockaddr_in6>().read() };
                let ip = Ipv6Addr::from(value.sin6_addr.s6_addr);
                Ok(SocketAddr::new(IpAddr::V6(ip), u16::from_be(value.sin6_port)))
            }
            other => Err(io::Error::other(format!("socket address of family {other}"))),
        }
    }
}

fn socklen(len: usize) -> libc::socklen_t {
    libc::socklen_t::try_from(len).expect("an address has a few bytes")
}

fn family(family: libc::c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(family).expect("families are small numbers")
}

/// What came out of the ring.
pub(super) enum Event {
    /// The kernel is done with a job: its result, negative for an error number.
    Done(OpId, Job, i32),
    /// The message to the shard with this number could not be sent.
    WakeFailed(usize),
}

pub(super) struct Ring {
    ring: IoUring,
    jobs: Vec<Option<(OpId, Job)>>,
    in_kernel: usize,
    /// Entries for which the submission ring had no room, in order.
    backlog: VecDeque<squeue::Entry>,
    /// Written by other threads to wake this one.
    event: Arc<OwnedFd>,
    event_count: Box<u64>,
    event_armed: bool,
    event_wanted: bool,
    completed: Vec<(u64, i32)>,
}

impl Ring {
    /// On the thread that uses it.
    pub(super) fn new() -> io::Result<Ring> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(RING_COMPLETIONS)
            .build(RING_ENTRIES)?;
        // Safety: takes no memory; the result is checked.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        let mut ring = Ring {
            ring,
            jobs: Vec::new(),
            in_kernel: 0,
            backlog: VecDeque::new(),
            event: Arc::new(owned(event)?),
            event_count: Box::new(0),
            event_armed: false,
            event_wanted: true,
            completed: Vec::new(),
        };
        ring.arm_event();
        Ok(ring)
    }

    pub(super) fn fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    pub(super) fn event(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.event)
    }

    pub(super) fn in_kernel(&self) -> usize {
        self.in_kernel
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_kernel == 0 && !self.event_armed
    }

    /// Gives a job to the kernel, for the first time or for what remains of it.
    pub(super) fn start(&mut self, id: OpId, mut job: Job) {
        let entry = entry_of(&mut job).user_data(id.to_u64());
        let slot = id.slot();
        if slot >= self.jobs.len() {
            self.jobs.resize_with(slot + 1, || None);
        }
        let before = self.jobs[slot].replace((id, job));
        assert!(before.is_none(), "one job in flight for one operation");
        self.in_kernel += 1;
        self.queue(entry);
    }

    /// Asks the kernel to end a job early; its completion comes in any case.
    pub(super) fn cancel(&mut self, id: OpId) -> bool {
        let known = matches!(self.jobs.get(id.slot()), Some(Some((other, _))) if *other == id);
        if known {
            self.queue_cancel(id.to_u64());
        }
        known
    }

    pub(super) fn cancel_jobs(&mut self) {
        let ids: Vec<u64> = self.jobs.iter().flatten().map(|(id, _)| id.to_u64()).collect();
        ids.into_iter().for_each(|id| self.queue_cancel(id));
    }

    /// Other threads wake this ring no more.
    pub(super) fn cancel_event(&mut self) {
        self.event_wanted = false;
        if self.event_armed {
            self.queue_cancel(EVENT_READ);
        }
    }

    fn queue_cancel(&mut self, user_data: u64) {
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::user_data(user_data)).build();
        self.queue(cancel.flags(squeue::Flags::SKIP_SUCCESS).user_data(IGNORED));
    }

    /// Sends a message to another ring. A failure comes as `Event::WakeFailed(number)`.
    pub(super) fn wake(&mut self, ring: RawFd, number: u32) {
        let message = opcode::MsgRingData::new(Fd(ring), 0, WOKEN, None).build();
        self.queue(message.flags(squeue::Flags::SKIP_SUCCESS).user_data(WAKE_FAILED | u64::from(number)));
    }

    fn arm_event(&mut self) {
        let read = opcode::Read::new(Fd(self.event.as_raw_fd()), (&raw mut *self.event_count).cast(), 8).build();
        self.queue(read.user_data(EVENT_READ));
        self.event_armed = true;
    }

    fn queue(&mut self, entry: squeue::Entry) {
        self.backlog.push_back(entry);
        self.fill_submission();
    }

    fn fill_submission(&mut self) {
        let mut submission = self.ring.submission();
        while let Some(entry) = self.backlog.front() {
            // Safety: every entry comes from `entry_of` (its memory is in `jobs`), or points to `event_count`, which lives
            // as long as this ring or is leaked with it, or points nowhere.
            if unsafe { submission.push(entry) }.is_err() {
                break;
            }
            self.backlog.pop_front();
        }
    }

    /// Submits what is queued; waits for a completion for at most `wait` (`None`: without end) when `may_wait`.
    pub(super) fn enter(&mut self, wait: RingWait) {
        while !self.backlog.is_empty() {
            if self.ring.submit().is_err() {
                // The completion ring is full (EBUSY): the caller empties it and comes again.
                return;
            }
            self.fill_submission();
        }
        let result = match wait {
            RingWait::No => {
                let submission = self.ring.submission();
                let idle = submission.is_empty() && !submission.taskrun() && !submission.cq_overflow();
                drop(submission);
                if idle { Ok(0) } else { self.ring.submit() }
            }
            RingWait::Forever => self.ring.submit_and_wait(1),
            RingWait::AtMost(duration) => {
                let limit = Timespec::from(duration);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&limit))
            }
        };
        if let Err(error) = result {
            // ETIME: the time is up. EINTR: a signal. EBUSY, EAGAIN: the caller takes completions and comes again.
            let expected = [libc::ETIME, libc::EINTR, libc::EBUSY, libc::EAGAIN];
            assert!(error.raw_os_error().is_some_and(|code| expected.contains(&code)), "io_uring_enter: {error}");
        }
    }

    /// Takes all completions that are there.
    pub(super) fn take(&mut self, events: &mut Vec<Event>) {
        let mut completed = std::mem::take(&mut self.completed);
        completed.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result())));
        for (user_data, result) in completed.drain(..) {
            if user_data & OWN == 0 {
                let id = OpId::from_u64(user_data);
                let (known, job) = self.jobs[id.slot()].take().expect("a completion belongs to a job in flight");
                assert_eq!(known, id, "a completion belongs to the job in its slot");
                self.in_kernel -= 1;
                events.push(Event::Done(id, job, result));
                continue;
            }
            match user_data & !0xffff_ffff {
                EVENT_READ => {
                    self.event_armed = false;
                    if self.event_wanted {
                        self.arm_event();
                    }
                }
                WAKE_FAILED => {
                    let number = usize::try_from(user_data & 0xffff_ffff).expect("32 bits fit a usize");
                    events.push(Event::WakeFailed(number));
                }
                _ => {}
            }
        }
        self.completed = completed;
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !self.is_idle() {
            // The kernel may still write there.
            std::mem::forget(std::mem::take(&mut self.jobs));
            Box::leak(std::mem::take(&mut self.event_count));
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum RingWait {
    No,
    AtMost(std::time::Duration),
    Forever,
}

/// The kernel's description of a job. Pointers go to heap memory that the job owns.
fn entry_of(job: &mut Job) -> squeue::Entry {
    match job {
        Job::Read { fd, buffer, position, .. } => {
            let at = *position + u64::try_from(buffer.filled()).expect("a length fits 64 bits");
            let len = u32::try_from(buffer.capacity() - buffer.filled()).expect("a read is bounded by READ_BYTES_MAX");
            opcode::Read::new(Fd(*fd), buffer.spare(), len).offset(at).build()
        }
        Job::Write { fd, source, position, .. } => {
            let at = *position + u64::try_from(source.written).expect("a length fits 64 bits");
            let (vectors, count) = source.vectors();
            opcode::Writev::new(Fd(*fd), vectors, count).offset(at).build()
        }
        Job::Sync { fd, .. } => opcode::Fsync::new(Fd(*fd)).flags(FsyncFlags::DATASYNC).build(),
        Job::Allocate { fd, len, .. } => opcode::Fallocate::new(Fd(*fd), *len).mode(libc::FALLOC_FL_KEEP_SIZE).build(),
        Job::Close { fd } => opcode::Close::new(Fd(*fd)).build(),
        Job::Accept { fd, address, .. } => {
            let storage = (&raw mut address.storage).cast();
            opcode::Accept::new(Fd(*fd), storage, &raw mut address.len).flags(libc::SOCK_CLOEXEC).build()
        }
        Job::Connect { socket, address, .. } => {
            opcode::Connect::new(Fd(socket.as_raw_fd()), (&raw const address.storage).cast(), address.len).build()
        }
        Job::Recv { fd, buffer, .. } => {
            let spare = buffer.spare_capacity_mut();
            let len = u32::try_from(spare.len()).unwrap_or(u32::MAX);
            opcode::Recv::new(Fd(*fd), spare.as_mut_ptr().cast(), len).build()
        }
        Job::Send { fd, rest, .. } => rest.entry(Fd(*fd)),
    }
}

/// Counts bytes that a completed `Job::Read` put into its buffer.
pub(super) fn advance_read(buffer: &mut ReadBuffer, count: usize) {
    // Safety: the kernel reports that it wrote `count` bytes at `spare()`.
    unsafe { buffer.advance(count) };
}

/// Counts bytes that a completed `Job::Recv` put into its buffer.
pub(super) fn advance_recv(buffer: &mut BytesMut, count: usize) {
    // Safety: the kernel reports that it wrote `count` bytes at the start of the spare capacity.
    unsafe { buffer.advance_mut(count) };
}

/// Owns a descriptor that a system call of this file or a completion gave.
pub(super) fn owned(result: RawFd) -> io::Result<OwnedFd> {
    match result {
        ..0 => Err(io::Error::last_os_error()),
        // Safety: the kernel has just given it, and nobody else owns it.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

/// Looks at a descriptor as a file of the standard library, without owning it.
pub(super) fn with_file<R>(fd: BorrowedFd<'_>, look: impl FnOnce(&File) -> R) -> R {
    // Safety: borrowed for this call, and not closed at its end.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd.as_raw_fd()) });
    look(&file)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn socket(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // Safety: takes no memory; the result is checked.
    owned(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })
}

fn set_option(fd: &OwnedFd, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    let len = socklen(size_of::<libc::c_int>());
    // Safety: the value lives during the call and has the length given.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const on).cast(), len) })
}

pub(super) fn set_no_delay(fd: &OwnedFd) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY)
}

/// A socket to connect with `Job::Connect`.
pub(super) fn stream_socket(address: &SocketAddr) -> io::Result<OwnedFd> {
    let socket = socket(address)?;
    set_no_delay(&socket)?;
    Ok(socket)
}

/// A bound, listening socket and its address.
pub(super) fn listening_socket(address: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = socket(&address)?;
    set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR)?;
    set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEPORT)?;
    let raw = RawAddress::new(address);
    // Safety: the address lives during the call and has the length given.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const raw.storage).cast(), raw.len) })?;
    // Safety: takes no memory.
    check(unsafe { libc::listen(socket.as_raw_fd(), LISTEN_BACKLOG) })?;
    let mut bound = RawAddress::empty();
    let bound = &mut *bound;
    // Safety: storage and length live during the call; the length is that of the storage.
    check(unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut bound.storage).cast(), &raw mut bound.len) })?;
    let address = bound.to_address()?;
    Ok((socket, address))
}

/// Half-close.
pub(super) fn shutdown_writes(fd: RawFd) -> io::Result<()> {
    // Safety: takes no memory.
    check(unsafe { libc::shutdown(fd, libc::SHUT_WR) })
}

/// Binds the calling thread to one processor.
pub(crate) fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    let bits = 8 * size_of::<libc::cpu_set_t>();
    if cpu >= bits {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("processor {cpu} of at most {bits}")));
    }
    // Safety: a set of zeros is the empty set; the processor lies within it; the set lives during the call.
    check(unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Arena;

    fn remaining(source: &mut Source) -> Vec<(usize, usize)> {
        let count = usize::try_from(source.vectors().1).unwrap();
        source.vectors[..count].iter().map(|vector| (vector.iov_base.addr(), vector.iov_len)).collect()
    }

    #[test]
    fn a_write_with_a_copied_last_block_goes_on_where_it_was_cut() {
        let arena = Arena::new(1 << 20);
        let mut writer = arena.chunk(3 * BLOCK).unwrap();
        writer.append(&[1; 3 * BLOCK - 5]).unwrap();
        let mut blocks = writer.blocks(0..3 * BLOCK - 5);
        let start = blocks.address().addr();
        let bounce = blocks.take_last_block(&arena);
        let copy = bounce.address().addr();
        let mut source = Source::new(blocks, Some(bounce));
        assert_eq!(remaining(&mut source), [(start, 2 * BLOCK), (copy, BLOCK)]);
        assert!(!source.advance(BLOCK + 100));
        assert_eq!(remaining(&mut source), [(start + BLOCK, BLOCK), (copy, BLOCK)]);
        assert!(!source.advance(BLOCK));
        assert_eq!(remaining(&mut source), [(copy, BLOCK)]);
        assert!(source.advance(BLOCK));
    }

    #[test]
    fn a_single_block_is_written_from_its_copy() {
        let arena = Arena::new(1 << 20);
        let mut writer = arena.chunk(BLOCK).unwrap();
        writer.append(b"x").unwrap();
        let mut blocks = writer.blocks(0..1);
        let bounce = blocks.take_last_block(&arena);
        let copy = bounce.address().addr();
        let mut source = Source::new(blocks, Some(bounce));
        assert_eq!(remaining(&mut source), [(copy, BLOCK)]);
        assert!(source.advance(BLOCK));
    }

    #[test]
    fn a_send_goes_on_behind_what_was_sent() {
        let mut rest = Rest::new(vec![Bytes::from_static(b"abc"), Bytes::from_static(b"de"), Bytes::from_static(b"f")]);
        assert!(!rest.advance(4));
        assert_eq!(rest.parts.iter().map(|part| &part[..]).collect::<Vec<_>>(), [&b"e"[..], b"f"]);
        assert!(!rest.advance(1));
        assert!(rest.advance(1));
    }

    #[test]
    fn addresses_survive_the_way_to_the_kernel_and_back() {
        for text in ["10.1.2.3:9092", "[fe80::1]:65535", "[::]:0", "255.0.0.1:1"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(RawAddress::new(address).to_address().unwrap(), address);
        }
        assert!(RawAddress::empty().to_address().is_err());
    }
}
