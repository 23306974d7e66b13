//! Claims about the simulated world: time, seeds, shards, mailboxes, clocks, panics.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sakia_io::sim::{Crash, Machine, WALL_CLOCK_START_MS, World};
use sakia_io::{
    Arena, BLOCK, Class, File, Listener, OpenOptions, ShardSpec, Stream, blocking, fs, mailbox, now, oneshot,
    random_u64, sleep, spawn, wall_clock_ms, yield_now,
};

const MINUTE: Duration = Duration::from_secs(60);

fn start(machine: &Machine, name: &str, main: impl AsyncFnOnce() + Send + 'static) {
    let spec = ShardSpec { name: name.to_owned(), cpu: None };
    machine.spawner().start(spec, Box::new(move || Box::pin(async move { main().await }))).unwrap();
}

fn anywhere(port: u16) -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], port))
}

async fn echo_server(port: u16) {
    let listener = Listener::bind(anywhere(port)).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        spawn(Class::Foreground, async move {
            loop {
                let (received, buffer) = stream.recv(BytesMut::with_capacity(4096)).await;
                if !received.is_ok_and(|len| len > 0) || stream.send(buffer.freeze()).await.is_err() {
                    return;
                }
            }
        })
        .detach();
    }
}

async fn exchange(stream: &Stream, bytes: &[u8]) -> std::io::Result<()> {
    stream.send(Bytes::copy_from_slice(bytes)).await?;
    let mut buffer = BytesMut::new();
    while buffer.len() < bytes.len() {
        buffer.reserve(4096);
        let (received, filled) = stream.recv(buffer).await;
        buffer = filled;
        if received? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    assert_eq!(buffer, bytes);
    Ok(())
}

/// Three brokers that write, sync and answer; clients that talk to all of them; one crash.
fn busy_run(seed: u64) -> (u64, u64) {
    let world = World::new(seed);
    let brokers: Vec<Machine> = (0..3).map(|index| world.machine(&format!("broker-{index}"))).collect();
    let answered = Rc::new(Cell::new(0));
    for broker in &brokers {
        for port in [1000, 1001] {
            start(broker, "shard", async move || echo_server(port).await);
        }
        start(broker, "writer", async || {
            fs::create_dir_all("/data".as_ref()).await.unwrap();
            let options = OpenOptions { create: true, write: true, direct: true };
            let file = File::open("/data/log".as_ref(), options).await.unwrap();
            let arena = Arena::new(1 << 20);
            for position in (0..).step_by(BLOCK) {
                let mut chunk = arena.chunk(BLOCK).unwrap();
                let range = chunk.append(&random_u64().to_le_bytes()).unwrap();
                file.write_range(chunk.blocks(range), position).await.unwrap();
                file.sync().await.unwrap();
                sleep(Duration::from_millis(5)).await;
            }
        });
    }
    let client = world.machine("client");
    for index in 0..12_u16 {
        let answered = Rc::clone(&answered);
        let running = world.spawn_client(&client, async move {
            loop {
                sleep(Duration::from_millis(1)).await;
                let host = format!("broker-{}", index % 3);
                let Ok(stream) = Stream::connect(&host, 1000 + index % 2).await else { continue };
                while exchange(&stream, &[7; 300]).await.is_ok() {
                    answered.set(answered.get() + 1);
                    sleep(Duration::from_millis(2)).await;
                }
            }
        });
        assert!(!running.is_done());
    }
    world.run_for(Duration::from_secs(2));
    brokers[1].crash(Crash::Kill);
    world.run_for(Duration::from_secs(1));
    assert!(answered.get() > 5000, "{} answers", answered.get());
    (world.trace_hash(), world.operations())
}

#[test]
fn same_seed_gives_the_same_history_and_another_seed_another_one() {
    let first = busy_run(1);
    assert_eq!(first, busy_run(1));
    assert_ne!(first.0, busy_run(2).0);
}

#[test]
fn virtual_time_jumps_over_idle_hours_and_timers_fire_in_order() {
    let world = World::new(3);
    let machine = world.machine("one");
    let elapsed = world
        .block_on(&machine, MINUTE * 600, async {
            let begun = now();
            sleep(MINUTE * 300).await;
            now() - begun
        })
        .unwrap();
    assert!(elapsed >= MINUTE * 300 && elapsed < MINUTE * 300 + Duration::from_millis(1));
    assert!(world.now().as_duration() >= elapsed);
}

#[test]
fn a_loop_that_only_yields_does_not_stop_the_clock() {
    let world = World::new(4);
    let (busy, other) = (world.machine("busy"), world.machine("other"));
    start(&busy, "spinning", async || {
        loop {
            yield_now().await;
        }
    });
    world.block_on(&other, Duration::from_millis(60), async { sleep(Duration::from_millis(50)).await }).unwrap();
}

#[test]
fn several_shards_of_one_world_exchange_messages_by_mailbox_and_answer_once() {
    for seed in 0..10 {
        let world = World::new(seed);
        let machine = world.machine("broker");
        let (to_adder, mut requests) = mailbox::<(u64, sakia_io::Reply<u64>)>(4);
        let total = Arc::new(AtomicU64::new(0));
        start(&machine, "adder", async move || {
            while let Some((number, reply)) = requests.recv().await {
                sleep(Duration::from_micros(random_u64() % 50)).await;
                reply.send(number + 1).unwrap();
            }
        });
        for shard in 0..4 {
            let (to_adder, total) = (to_adder.clone(), Arc::clone(&total));
            start(&machine, "asker", async move || {
                for number in 0..100 {
                    let (reply, answer) = oneshot();
                    to_adder.send((number * shard, reply)).await.unwrap();
                    let answer = answer.await.expect("the adder lives as long as it is asked");
                    assert_eq!(answer, number * shard + 1);
                    total.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        drop(to_adder);
        world.run_until(MINUTE, |_| machine.running_shards() == 0).unwrap();
        assert_eq!(total.load(Ordering::Relaxed), 400);
    }
}

#[test]
fn a_clock_jump_moves_the_wall_clock_of_one_machine_and_no_monotonic_clock() {
    let world = World::new(5);
    let (jumping, steady) = (world.machine("jumping"), world.machine("steady"));
    world.run_for(Duration::from_secs(1));
    jumping.clock().jump_ms(-5000);
    jumping.clock().drift(1000);
    world.run_for(Duration::from_secs(10));
    let read = |machine: &Machine| world.block_on(machine, MINUTE, async { (wall_clock_ms(), now()) }).unwrap();
    let (jumped, steady) = (read(&jumping), read(&steady));
    assert_eq!(jumped.0, WALL_CLOCK_START_MS + 11_000 - 5000 + 10);
    assert_eq!(steady.0, WALL_CLOCK_START_MS + 11_000);
    assert!(steady.1 - jumped.1 < Duration::from_millis(1));
}

#[test]
fn a_panic_of_any_task_fails_the_run() {
    let world = World::new(6);
    let machine = world.machine("one");
    start(&machine, "shard", async || {
        spawn(Class::Background, async { panic!("this is a claim about panics") }).await;
    });
    let run = std::panic::AssertUnwindSafe(|| world.run_for(MINUTE));
    assert!(std::panic::catch_unwind(run).is_err());
}

#[test]
fn a_run_that_cannot_go_on_says_so_with_its_seed() {
    let world = World::new(77);
    let stalled = world.run_until(MINUTE, |_| false).unwrap_err();
    assert_eq!((stalled.seed, stalled.cause), (77, "nothing will ever happen again"));
    let machine = world.machine("one");
    let out_of_time = world.block_on(&machine, MINUTE, async { sleep(MINUTE * 2).await }).unwrap_err();
    assert_eq!(out_of_time.cause, "out of time");
}

struct CountsDrops(Arc<AtomicUsize>);

impl Drop for CountsDrops {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_dropped_world_drops_every_task_wherever_it_waits() {
    let drops = Arc::new(AtomicUsize::new(0));
    let world = World::new(8);
    let machine = world.machine("one");
    let (sender, mut receiver) = mailbox::<u64>(1);
    let token = || CountsDrops(Arc::clone(&drops));
    let tokens = [token(), token(), token(), token()];
    start(&machine, "shard", async move || {
        let [sleeping, receiving, accepting, waiting] = tokens;
        spawn(Class::Foreground, async move {
            sleep(MINUTE * 60).await;
            drop(sleeping);
        })
        .detach();
        spawn(Class::Foreground, async move {
            receiver.recv().await;
            drop(receiving);
        })
        .detach();
        spawn(Class::Foreground, async move {
            let listener = Listener::bind(anywhere(1)).unwrap();
            let accepted = listener.accept().await;
            drop((accepted, accepting));
        })
        .detach();
        let stream = Stream::connect("nowhere", 1).await;
        assert!(stream.is_err());
        std::future::pending::<()>().await;
        drop(waiting);
    });
    world.run_for(MINUTE);
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    let kept = machine.clone();
    drop(world);
    assert_eq!(drops.load(Ordering::Relaxed), 4);
    assert_eq!(kept.running_shards(), 0);
    assert!(sender.try_send(1).is_err());
}

#[test]
fn a_crashed_machine_refuses_shards_until_it_is_up_and_a_started_shard_may_crash_its_own_machine() {
    let world = World::new(9);
    let machine = world.machine("one");
    let crashing = machine.clone();
    let client = world.spawn_client(&machine, async move {
        crashing.crash(Crash::Kill);
        sleep(Duration::from_secs(1)).await;
    });
    world.run_for(MINUTE);
    assert!(!client.is_done() && !machine.is_up() && machine.running_shards() == 0);
    let spec = ShardSpec { name: "late".to_owned(), cpu: None };
    assert!(machine.spawner().start(spec, Box::new(|| Box::pin(async {}))).is_err());
    machine.up();
    world.block_on(&machine, MINUTE, async {}).unwrap();
}

#[test]
fn a_blocking_call_takes_virtual_time_and_gives_its_result() {
    let world = World::new(10);
    let machine = world.machine("one");
    let (result, took) = world
        .block_on(&machine, MINUTE, async {
            let begun = now();
            (blocking(|| 6 * 7).await, now() - begun)
        })
        .unwrap();
    assert_eq!(result, 42);
    assert!(took > Duration::ZERO);
}

#[test]
fn chance_inside_a_world_comes_from_its_seed() {
    let draw = |seed| {
        let world = World::new(seed);
        let machine = world.machine("one");
        (world.block_on(&machine, MINUTE, async { random_u64() }).unwrap(), world.random().next_u64())
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}
