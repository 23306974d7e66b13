//! Faults a test asks for: of the network, of one machine's disk, of one machine's clock.
//!
//! Each takes effect at once and lasts until it is healed. None of them draws from the world's chance by itself.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::sim::disk::{Absent, Disk, Failing};
use crate::sim::disk_operations::read_whole;
use crate::sim::network::Site;
use crate::sim::state::State;
use crate::sim::world::Machine;

/// Links between machines. A cut link holds bytes; a sender gives up after `NetworkTimes::give_up`.
pub struct NetworkControl {
    pub(crate) state: Rc<RefCell<State>>,
}

impl NetworkControl {
    /// Nothing passes between the two, in either direction.
    pub fn cut(&self, one: &Machine, other: &Machine) {
        self.cut_one_way(one, other);
        self.cut_one_way(other, one);
    }

    pub fn cut_one_way(&self, from: &Machine, to: &Machine) {
        let state = &mut *self.state.borrow_mut();
        state.network.cut(state.now, from.site(), to.site());
        state.serve_woken();
    }

    /// Cuts a machine off from all others that exist now.
    pub fn isolate(&self, machine: &Machine) {
        let state = &mut *self.state.borrow_mut();
        for other in (0..state.machines.len()).map(Site).filter(|other| *other != machine.site()) {
            state.network.cut(state.now, machine.site(), other);
            state.network.cut(state.now, other, machine.site());
        }
        state.serve_woken();
    }

    /// Both directions pass again; what was held goes on.
    pub fn heal(&self, one: &Machine, other: &Machine) {
        let state = &mut *self.state.borrow_mut();
        state.network.heal(state.now, one.site(), other.site());
        state.network.heal(state.now, other.site(), one.site());
        state.serve_woken();
    }

    /// Every link passes, as fast as the world's defaults.
    pub fn heal_all(&self) {
        let state = &mut *self.state.borrow_mut();
        state.network.heal_all(state.now);
        state.serve_woken();
    }

    /// One way between the two takes this long from now on, in both directions.
    pub fn delay(&self, one: &Machine, other: &Machine, latency: Range<Duration>) {
        let state = &mut *self.state.borrow_mut();
        state.network.set_latency(one.site(), other.site(), Some(latency.clone()));
        state.network.set_latency(other.site(), one.site(), Some(latency));
    }
}

/// One machine's disk. Paths are the machine's own: every machine may have its `/data`.
pub struct DiskControl {
    pub(crate) state: Rc<RefCell<State>>,
    pub(crate) site: Site,
}

impl DiskControl {
    /// Writes, cuts and replacements fail; a failed write may be partly there.
    pub fn fail_writes(&self, failing: Failing) {
        self.with(|disk| disk.failing_writes = Some(failing));
    }

    /// Syncs fail, and give up the bytes they were to make durable (R6).
    pub fn fail_syncs(&self, failing: Failing) {
        self.with(|disk| disk.failing_syncs = Some(failing));
    }

    /// Every operation takes this much longer.
    pub fn slow(&self, by: Duration) {
        self.with(|disk| disk.slow_by = by);
    }

    /// Neither fails nor is slow.
    pub fn heal(&self) {
        self.with(|disk| {
            disk.failing_writes = None;
            disk.failing_syncs = None;
            disk.slow_by = Duration::ZERO;
        });
    }

    /// The file as the machine sees it now.
    pub fn content(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        self.with(|disk| read_whole(disk, path.as_ref()))
    }

    /// Names in a folder, sorted.
    pub fn names(&self, path: impl AsRef<Path>) -> io::Result<Vec<String>> {
        self.with(|disk| Ok(disk.list(path.as_ref())?.into_iter().map(|entry| entry.name).collect()))
    }

    /// Puts these bytes into the file behind everyone's back, as bit rot does.
    pub fn damage(&self, path: impl AsRef<Path>, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|disk| {
            let node = disk.open(path.as_ref(), Absent::Refuse)?;
            let done = disk.overwrite(node, position, bytes);
            disk.close(node);
            done
        })
    }

    fn with<R>(&self, act: impl FnOnce(&mut Disk) -> R) -> R {
        act(&mut self.state.borrow_mut().machines[self.site.0].disk)
    }
}

/// One machine's wall clock; monotonic time is the same everywhere and cannot be set.
pub struct ClockControl {
    pub(crate) state: Rc<RefCell<State>>,
    pub(crate) site: Site,
}

impl ClockControl {
    /// Gains this many microseconds per second from now on (negative: loses).
    pub fn drift(&self, rate_ppm: i64) {
        let state = &mut *self.state.borrow_mut();
        state.machines[self.site.0].clock.drift(state.now, rate_ppm);
    }

    /// Forward (positive) or back (negative).
    pub fn jump_ms(&self, by_ms: i64) {
        let state = &mut *self.state.borrow_mut();
        state.machines[self.site.0].clock.jump_ms(state.now, by_ms);
    }
}
