//! Claims on tasks, time and chance.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sakia_io::{
    Class, Moment, ShardSpec, Signal, blocking, fill_random, in_shard, now, oneshot, random_u64, sleep, sleep_until,
    spawn, timeout, wall_clock_ms, yield_now,
};

use crate::ground::Ground;

pub async fn tasks_run_in_the_order_they_were_spawned(_ground: Ground) {
    let order = Rc::new(RefCell::new(Vec::new()));
    let tasks: Vec<_> = (0..10)
        .map(|number| {
            let order = Rc::clone(&order);
            spawn(Class::Foreground, async move {
                order.borrow_mut().push(number);
                yield_now().await;
                order.borrow_mut().push(number + 10);
                number
            })
        })
        .collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await);
    }
    assert_eq!(results, (0..10).collect::<Vec<_>>());
    assert_eq!(*order.borrow(), (0..20).collect::<Vec<_>>());
}

pub async fn background_tasks_get_their_share(_ground: Ground) {
    let background = Rc::new(Cell::new(0_u32));
    let counter = Rc::clone(&background);
    let busy = spawn(Class::Background, async move {
        loop {
            counter.set(counter.get() + 1);
            yield_now().await;
        }
    });
    for _ in 0..800 {
        yield_now().await;
    }
    let share = background.get();
    assert!((50..=200).contains(&share), "{share} background runs beside 800 of the foreground");
    drop(busy);
}

pub async fn a_dropped_task_is_cancelled(_ground: Ground) {
    let kept = Rc::new(());
    let held = Rc::clone(&kept);
    let task = spawn(Class::Foreground, async move {
        sleep(Duration::from_secs(3600)).await;
        drop(held);
    });
    yield_now().await;
    drop(task);
    yield_now().await;
    assert_eq!(Rc::strong_count(&kept), 1, "its future is dropped");
    let never = spawn(Class::Foreground, sleep(Duration::from_secs(3600)));
    assert_eq!(never.cancel().await, None);
    let done = spawn(Class::Foreground, async { 7 });
    yield_now().await;
    assert!(done.is_finished());
    assert_eq!(done.cancel().await, Some(7));
}

pub async fn a_detached_task_runs_on(_ground: Ground) {
    assert!(in_shard());
    let signal = Signal::new();
    let raised = signal.clone();
    spawn(Class::Background, async move {
        sleep(Duration::from_millis(2)).await;
        raised.raise();
    })
    .detach();
    signal.wait().await;
}

pub async fn sleeps_end_in_order_of_their_deadlines(_ground: Ground) {
    let begun = now();
    let order = Rc::new(RefCell::new(Vec::new()));
    let tasks: Vec<_> = [30, 10, 20, 0]
        .map(|millis| {
            let order = Rc::clone(&order);
            spawn(Class::Foreground, async move {
                sleep_until(begun + Duration::from_millis(millis)).await;
                assert!(now() - begun >= Duration::from_millis(millis), "not before its time");
                order.borrow_mut().push(millis);
            })
        })
        .into();
    for task in tasks {
        task.await;
    }
    assert_eq!(*order.borrow(), [0, 10, 20, 30]);
    sleep_until(Moment::START).await;
    assert!(wall_clock_ms() > 1_000_000_000_000);
}

pub async fn a_dropped_sleep_leaves_no_timer(_ground: Ground) {
    for _ in 0..1000 {
        let mut long = Box::pin(sleep(Duration::from_secs(3600)));
        assert!(timeout(Duration::ZERO, &mut long).await.is_err());
        drop(long);
    }
    let begun = now();
    sleep(Duration::from_millis(1)).await;
    assert!(now() - begun < Duration::from_secs(30));
}

pub async fn a_timeout_cancels_and_a_ready_future_wins(_ground: Ground) {
    let kept = Rc::new(());
    let held = Rc::clone(&kept);
    let late = timeout(Duration::from_millis(3), async move {
        sleep(Duration::from_secs(3600)).await;
        drop(held);
    });
    assert!(late.await.is_err());
    assert_eq!(Rc::strong_count(&kept), 1);
    assert_eq!(timeout(Duration::ZERO, async { 5 }).await, Ok(5));
    assert_eq!(timeout(Duration::from_secs(3600), async { 6 }).await, Ok(6));
}

pub async fn time_goes_on_beside_a_busy_task(_ground: Ground) {
    let busy = spawn(Class::Foreground, async {
        loop {
            yield_now().await;
            // The simulator's clock stands still while tasks are ready.
            sleep(Duration::from_nanos(1)).await;
        }
    });
    let begun = now();
    sleep(Duration::from_millis(10)).await;
    assert!(now() - begun < Duration::from_secs(10));
    drop(busy);
}

pub async fn blocking_calls_return_their_result(_ground: Ground) {
    let tasks: Vec<_> = (0..20_u64).map(|number| spawn(Class::Foreground, blocking(move || number * number))).collect();
    let mut sum = 0;
    for task in tasks {
        sum += task.await;
    }
    assert_eq!(sum, 2470);
    let ran = Arc::new(AtomicU64::new(0));
    let runs = Arc::clone(&ran);
    let dropped = spawn(Class::Foreground, blocking(move || runs.fetch_add(1, Ordering::SeqCst)));
    yield_now().await;
    drop(dropped);
    while ran.load(Ordering::SeqCst) == 0 {
        sleep(Duration::from_millis(1)).await;
    }
}

pub async fn random_bytes_differ(_ground: Ground) {
    let mut bytes = [0; 2000];
    fill_random(&mut bytes);
    assert!(bytes.chunks(50).all(|part| part.iter().any(|byte| *byte != part[0])));
    assert_ne!(random_u64(), random_u64());
}

pub async fn tasks_are_dropped_when_their_shard_ends(ground: Ground) {
    struct SaysGoodbye(Option<sakia_io::Reply<&'static str>>);
    impl Drop for SaysGoodbye {
        fn drop(&mut self) {
            assert!(in_shard(), "a future is dropped on its shard");
            self.0.take().unwrap().send("goodbye").unwrap();
        }
    }
    let (reply, answer) = oneshot();
    let spec = ShardSpec { name: "short".into(), cpu: None };
    let main = move || -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            let guard = SaysGoodbye(Some(reply));
            spawn(Class::Foreground, async move {
                let _guard = guard;
                sleep(Duration::from_secs(3600)).await;
            })
            .detach();
            yield_now().await;
        })
    };
    let _shard = ground.spawner.start(spec, Box::new(main)).unwrap();
    assert_eq!(answer.await, Some("goodbye"));
}
