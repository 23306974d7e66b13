//! A value with a last state, and whoever waits for it to change, on one shard.
//!
//! Path: the state machine and openraft set values; waiting brokers and openraft's tasks see the last one. tokio's own wakes
//! waiters in an order drawn from the process's chance, so a run would not replay from its seed.
//!
//! Invariant: waiters are woken in the order in which they began to wait.

use std::cell::{Cell, Ref, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

struct Shared<T> {
    value: RefCell<T>,
    version: Cell<u64>,
    senders: Cell<usize>,
    receivers: Cell<usize>,
    waiting: RefCell<Vec<(u64, Waker)>>,
    next_receiver: Cell<u64>,
}

/// Writing half. Clones write the same value.
pub(crate) struct Sender<T>(Rc<Shared<T>>);

/// Reading half: remembers what it has seen.
pub(crate) struct Receiver<T> {
    shared: Rc<Shared<T>>,
    seen: u64,
    number: u64,
}

/// Nobody is left who could change the value.
#[derive(Debug)]
pub(crate) struct Ended;

impl<T> Shared<T> {
    fn changed(&self) {
        self.version.set(self.version.get() + 1);
        self.wake();
    }

    fn wake(&self) {
        let waiting = self.waiting.take();
        for (_, waker) in waiting {
            waker.wake();
        }
    }
}

impl<T> Sender<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Rc::new(Shared {
            value: RefCell::new(value),
            version: Cell::new(0),
            senders: Cell::new(1),
            receivers: Cell::new(0),
            waiting: RefCell::default(),
            next_receiver: Cell::new(0),
        }))
    }

    /// A receiver that has seen the value as it is.
    pub(crate) fn subscribe(&self) -> Receiver<T> {
        Receiver::of(&self.0, self.0.version.get())
    }

    pub(crate) fn borrow(&self) -> Ref<'_, T> {
        self.0.value.borrow()
    }

    /// Sets the value, unless nobody listens: then it comes back.
    pub(crate) fn send(&self, value: T) -> Result<(), T> {
        if self.0.receivers.get() == 0 {
            return Err(value);
        }
        self.send_replace(value);
        Ok(())
    }

    /// Sets the value, whoever listens.
    pub(crate) fn send_replace(&self, value: T) {
        self.0.value.replace(value);
        self.0.changed();
    }

    /// Wakes those who wait if `modify` says that it changed something.
    pub(crate) fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        let modified = modify(&mut self.0.value.borrow_mut());
        if modified {
            self.0.changed();
        }
        modified
    }
}

impl<T> Receiver<T> {
    fn of(shared: &Rc<Shared<T>>, seen: u64) -> Self {
        shared.receivers.set(shared.receivers.get() + 1);
        let number = shared.next_receiver.get();
        shared.next_receiver.set(number + 1);
        Self { shared: shared.clone(), seen, number }
    }

    pub(crate) fn borrow(&self) -> Ref<'_, T> {
        self.shared.value.borrow()
    }

    pub(crate) fn borrow_and_update(&mut self) -> Ref<'_, T> {
        self.seen = self.shared.version.get();
        self.shared.value.borrow()
    }

    /// Waits for a value that was not seen; it counts as seen then.
    pub(crate) async fn changed(&mut self) -> Result<(), Ended> {
        poll_fn(|cx| {
            let version = self.shared.version.get();
            if version != self.seen {
                self.seen = version;
                return Poll::Ready(Ok(()));
            }
            if self.shared.senders.get() == 0 {
                return Poll::Ready(Err(Ended));
            }
            let mut waiting = self.shared.waiting.borrow_mut();
            match waiting.iter_mut().find(|(number, _)| *number == self.number) {
                Some((_, waker)) => waker.clone_from(cx.waker()),
                None => waiting.push((self.number, cx.waker().clone())),
            }
            Poll::Pending
        })
        .await
    }

    /// Waits until the value fits.
    pub(crate) async fn wait_for(&mut self, fits: impl Fn(&T) -> bool) -> Result<(), Ended> {
        loop {
            if fits(&self.borrow_and_update()) {
                return Ok(());
            }
            self.changed().await?;
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.set(self.0.senders.get() + 1);
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.senders.set(self.0.senders.get() - 1);
        if self.0.senders.get() == 0 {
            self.0.wake();
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self::of(&self.shared, self.seen)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.receivers.set(self.shared.receivers.get() - 1);
        self.shared.waiting.borrow_mut().retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sakia_io::sim::World;
    use sakia_io::{Class, spawn, yield_now};

    use super::*;

    #[test]
    fn waiters_are_woken_in_the_order_in_which_they_began_to_wait() {
        let world = World::new(1);
        let machine = world.machine("one");
        let order = world.block_on(&machine, Duration::from_secs(1), async {
            let sender = Sender::new(0);
            let order = Rc::new(RefCell::new(Vec::new()));
            let tasks: Vec<_> = (0..20)
                .map(|number| {
                    let (mut receiver, order) = (sender.subscribe(), order.clone());
                    spawn(Class::Foreground, async move {
                        receiver.wait_for(|value| *value == 2).await.expect("the sender is there");
                        order.borrow_mut().push(number);
                    })
                })
                .collect();
            for value in 1..3 {
                yield_now().await;
                sender.send_replace(value);
            }
            for task in tasks {
                task.await;
            }
            order.take()
        });
        assert_eq!(order.expect("it ends"), (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_value_that_was_seen_is_not_waited_for_again_and_the_last_sender_ends_the_wait() {
        let world = World::new(1);
        let machine = world.machine("one");
        let done = world.block_on(&machine, Duration::from_secs(1), async {
            let sender = Sender::new(0);
            assert_eq!(sender.send(1), Err(1), "nobody listens");
            let mut receiver = sender.subscribe();
            assert_eq!(sender.send(2), Ok(()));
            receiver.changed().await.expect("a new value");
            assert!(!sender.send_if_modified(|_| false));
            let waiting = spawn(Class::Foreground, async move { receiver.changed().await.is_err() });
            yield_now().await;
            drop(sender);
            waiting.await
        });
        assert!(done.expect("it ends"));
    }
}
