//! `Simulated`: one shard's driver into the state that all shards of a world share.
//!
//! Thin: everything happens in `state`. Invariant: closures of `blocking` and the drop of abandoned operations run
//! while the state is not borrowed, because they may wake tasks of other shards.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use crate::driver::{Completion, Driver, Op, OpId, Outcome, RemoteWake, Wait};
use crate::moment::Moment;
use crate::sim::network::Waiter;
use crate::sim::state::State;

pub(crate) struct Simulated {
    state: Rc<RefCell<State>>,
    shard: usize,
}

impl Simulated {
    pub(crate) fn new(state: Rc<RefCell<State>>, shard: usize) -> Simulated {
        Simulated { state, shard }
    }
}

impl Driver for Simulated {
    fn push(&mut self, id: OpId, op: Op) {
        self.state.borrow_mut().begin(self.shard, id, op);
    }

    fn cancel(&mut self, id: OpId) {
        self.state.borrow_mut().cancel(self.shard, id);
    }

    fn turn(&mut self, wait: Wait, completions: &mut Vec<Completion>) {
        assert!(wait == Wait::No, "only the world moves a simulated clock");
        let closures = {
            let mut state = self.state.borrow_mut();
            let shard = &mut state.shards[self.shard];
            completions.append(&mut shard.completed);
            std::mem::take(&mut shard.closures)
        };
        for (id, closure) in closures {
            closure();
            let mut state = self.state.borrow_mut();
            state.complete(Waiter { shard: self.shard, op: id }, "blocking", Outcome::Done(Ok(())));
            completions.append(&mut state.shards[self.shard].completed);
        }
    }

    fn listen(&mut self, address: SocketAddr) -> io::Result<(u64, SocketAddr)> {
        self.state.borrow_mut().listen(self.shard, address)
    }

    fn now(&self) -> Moment {
        self.state.borrow().now
    }

    fn wall_clock_ms(&self) -> i64 {
        let state = self.state.borrow();
        let site = state.shards[self.shard].site;
        state.machines[site.0].clock.read_ms(state.now)
    }

    fn fill_random(&mut self, bytes: &mut [u8]) {
        self.state.borrow_mut().random.fill(bytes);
    }

    fn remote_wake(&self) -> Arc<dyn RemoteWake> {
        Arc::new(NoWake)
    }

    fn stop(&mut self) {
        let abandoned = self.state.borrow_mut().end_shard(self.shard);
        drop(abandoned);
    }
}

/// The world asks each shard whether it is ready.
struct NoWake;

impl RemoteWake for NoWake {
    fn wake(&self) {}
}
