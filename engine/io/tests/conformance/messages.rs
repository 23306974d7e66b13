//! Claims on mailboxes, one-shot replies and signals, within a shard, between shards and from plain threads.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use sakia_io::{
    Class, Closed, Reply, ShardSpec, Signal, TrySendError, mailbox, oneshot, sleep, spawn, timeout, yield_now,
};

use crate::ground::Ground;

/// Lets all ready tasks of the shard run.
async fn settle() {
    for _ in 0..10 {
        yield_now().await;
    }
}

pub async fn a_full_mailbox_refuses_and_makes_senders_wait(_ground: Ground) {
    let (sender, mut receiver) = mailbox(2);
    sender.try_send(0).unwrap();
    sender.try_send(1).unwrap();
    assert_eq!(sender.try_send(9), Err(TrySendError::Full(9)));
    assert_eq!(sender.len(), 2);
    let sent = Rc::new(Cell::new(0));
    let tasks: Vec<_> = (2..6)
        .map(|value| {
            let (sender, sent) = (sender.clone(), Rc::clone(&sent));
            spawn(Class::Foreground, async move {
                sender.send(value).await.unwrap();
                sent.set(sent.get() + 1);
            })
        })
        .collect();
    settle().await;
    assert_eq!(sent.get(), 0, "they wait");
    assert_eq!(receiver.recv().await, Some(0));
    settle().await;
    assert_eq!(sent.get(), 1, "room for one");
    assert_eq!(receiver.try_recv(), Some(1));
    assert_eq!(receiver.try_recv(), Some(2));
    settle().await;
    for expected in 3..6 {
        assert_eq!(receiver.recv().await, Some(expected));
    }
    for task in tasks {
        task.await;
    }
    assert_eq!(receiver.try_recv(), None);
}

pub async fn a_dropped_send_passes_its_turn_on(_ground: Ground) {
    let (sender, mut receiver) = mailbox(1);
    sender.try_send(0).unwrap();
    let mut tasks: Vec<_> = (1..4)
        .map(|value| {
            let sender = sender.clone();
            spawn(Class::Foreground, async move { sender.send(value).await })
        })
        .collect();
    yield_now().await;
    assert_eq!(receiver.recv().await, Some(0));
    // The first one is woken and dropped before it runs.
    drop(tasks.remove(0));
    assert_eq!(timeout(Duration::from_secs(10), receiver.recv()).await, Ok(Some(2)));
    assert_eq!(timeout(Duration::from_secs(10), receiver.recv()).await, Ok(Some(3)));
}

pub async fn a_mailbox_ends_after_its_last_sender(_ground: Ground) {
    let (sender, mut receiver) = mailbox(8);
    let other = sender.clone();
    other.try_send('a').unwrap();
    drop(sender);
    assert_eq!(receiver.recv().await, Some('a'));
    assert!(timeout(Duration::from_millis(1), receiver.recv()).await.is_err(), "one sender is left");
    let ending = spawn(Class::Foreground, async move {
        sleep(Duration::from_millis(1)).await;
        drop(other);
    });
    assert_eq!(receiver.recv().await, None);
    assert_eq!(receiver.recv_many(&mut Vec::new(), 5).await, 0);
    ending.await;
}

pub async fn a_closed_mailbox_gives_values_back(_ground: Ground) {
    let (sender, receiver) = mailbox(1);
    sender.try_send(String::from("lost")).unwrap();
    let waiting = {
        let sender = sender.clone();
        spawn(Class::Foreground, async move { sender.send(String::from("b")).await })
    };
    yield_now().await;
    drop(receiver);
    assert_eq!(waiting.await, Err(Closed(String::from("b"))));
    assert_eq!(sender.try_send(String::from("c")), Err(TrySendError::Closed(String::from("c"))));
}

pub async fn many_values_come_in_order_at_once(_ground: Ground) {
    let (sender, mut receiver) = mailbox(100);
    let sending = spawn(Class::Foreground, async move {
        for value in 0..1000_u32 {
            sender.send(value).await.unwrap();
        }
    });
    let mut values = Vec::new();
    while receiver.recv_many(&mut values, 64).await > 0 {}
    assert_eq!(values, (0..1000).collect::<Vec<_>>());
    sending.await;
}

pub async fn a_oneshot_gives_its_value_or_none(_ground: Ground) {
    let (reply, answer) = oneshot();
    reply.send(5).unwrap();
    assert_eq!(answer.await, Some(5));
    let (reply, answer) = oneshot::<u8>();
    let dropping = spawn(Class::Foreground, async move { drop(reply) });
    assert_eq!(answer.await, None);
    dropping.await;
    let (reply, answer) = oneshot();
    drop(answer);
    assert_eq!(reply.send(6), Err(6));
}

pub async fn a_signal_is_latched(_ground: Ground) {
    let signal = Signal::new();
    signal.raise();
    signal.raise();
    assert!(signal.is_raised());
    signal.wait().await;
    assert!(!signal.is_raised());
    assert!(timeout(Duration::from_millis(1), signal.wait()).await.is_err());
    let raising = {
        let signal = signal.clone();
        spawn(Class::Foreground, async move { signal.raise() })
    };
    signal.wait().await;
    raising.await;
}

pub async fn shards_talk_by_mailbox_and_oneshot(ground: Ground) {
    let (sender, mut receiver) = mailbox::<(u64, Reply<u64>)>(4);
    let spec = ShardSpec { name: "other".into(), cpu: None };
    let main = move || -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            while let Some((value, reply)) = receiver.recv().await {
                reply.send(value * 2).unwrap();
            }
        })
    };
    let _shard = ground.spawner.start(spec, Box::new(main)).unwrap();
    let tasks: Vec<_> = (0..16_u64)
        .map(|task| {
            let sender = sender.clone();
            spawn(Class::Foreground, async move {
                for round in 0..200 {
                    let (reply, answer) = oneshot();
                    sender.send((task * 1000 + round, reply)).await.unwrap();
                    assert_eq!(answer.await, Some((task * 1000 + round) * 2));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
}

pub async fn plain_threads_wake_a_shard(_ground: Ground) {
    let (sender, mut receiver) = mailbox::<u64>(16);
    let threads: Vec<_> = (0..3_u64)
        .map(|thread| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for value in 0..5000 {
                    let mut message = thread * 1_000_000 + value;
                    while let Err(TrySendError::Full(back)) = sender.try_send(message) {
                        message = back;
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();
    drop(sender);
    let mut next = [0; 3];
    while let Some(message) = receiver.recv().await {
        let thread = usize::try_from(message / 1_000_000).unwrap();
        assert_eq!(message % 1_000_000, next[thread], "in the order of their sending");
        next[thread] += 1;
    }
    assert_eq!(next, [5000; 3]);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
