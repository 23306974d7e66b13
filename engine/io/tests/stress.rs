//! Many operations of all kinds at once on two shards of real threads, with futures dropped in flight and wake-ups from
//! plain threads. At the end nothing is lost: every echo came back, every message arrived in order, every block on disk is
//! the last one written, every chunk came back to its arena.
//!
//! `SAKIA_STRESS_OPS` says how many operations (1,000,000); the seed is printed, `SAKIA_STRESS_SEED` repeats its choices.
#![expect(clippy::unwrap_used, reason = "a test fails where something is not as it must be")]

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::mpsc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use sakia_io::{
    Arena, BLOCK, Class, File, Listener, OpenOptions, Receiver, Reply, Sender, ShardSpec, Spawner, Stream, Task,
    Threads, TrySendError, blocking, fs, mailbox, oneshot, sleep, spawn, timeout, yield_now,
};

/// A run that makes no progress is stopped after this time.
const STALL: Duration = Duration::from_secs(120);

type Question = (u64, Reply<u64>);
type Local<T> = Pin<Box<dyn Future<Output = T>>>;

#[derive(Clone)]
struct Random(Rc<Cell<u64>>);

impl Random {
    fn new(seed: u64) -> Random {
        Random(Rc::new(Cell::new(seed.wrapping_mul(2).wrapping_add(1))))
    }
    fn below(&self, bound: u64) -> u64 {
        self.0.set(self.0.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        (self.0.get() >> 33) % bound
    }
    fn index(&self, bound: usize) -> usize {
        usize::try_from(self.below(u64::try_from(bound).unwrap())).unwrap()
    }
}

/// How many operations of a kind are left.
#[derive(Clone)]
struct Work {
    left: Rc<Cell<u64>>,
    random: Random,
    progress: mpsc::Sender<()>,
}

impl Work {
    /// Takes up to `count` operations.
    fn take(&self, count: u64) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(count));
        if left / 1000 != self.left.get() / 1000 {
            self.progress.send(()).unwrap();
        }
        left > 0
    }
}

/// Polls a future a few times and drops it.
async fn drop_in_flight(future: impl Future, polls: u64) {
    let mut future = pin!(future);
    for _ in 0..polls {
        let pending = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await;
        if !pending {
            return;
        }
        yield_now().await;
    }
}

async fn serve_echo(stream: Stream) {
    loop {
        let (received, buffer) = stream.recv(BytesMut::with_capacity(8 << 10)).await;
        if !matches!(received, Ok(1..)) || stream.send(buffer.freeze()).await.is_err() {
            return;
        }
    }
}

async fn echoes(work: Work, port: u16) {
    while work.take(1) {
        let stream = Stream::connect("127.0.0.1", port).await.unwrap();
        for _ in 0..work.random.below(200) {
            if !work.take(4) {
                return;
            }
            let len = 1 + work.random.index(3000);
            let mark = u8::try_from(work.random.below(256)).unwrap();
            let bytes = Bytes::from(vec![mark; len]);
            stream.send_all(vec![bytes.slice(..len / 2), bytes.slice(len / 2..)]).await.unwrap();
            let mut back = BytesMut::with_capacity(len);
            while back.len() < len {
                let (received, more) = stream.recv(back).await;
                back = more;
                assert!(received.unwrap() > 0, "the echo is whole");
            }
            assert!(back == bytes, "the echo is the same");
        }
        // In the end a receive is dropped in flight, with the connection.
        work.take(1);
        drop_in_flight(stream.recv(BytesMut::with_capacity(100)), work.random.below(3)).await;
    }
}

/// One region of a file, written in place as a growing tail, read back, at times with dropped operations.
async fn blocks(work: Work, file: File, arena: Arena, region: u64) {
    const LEN: usize = 64 * BLOCK;
    let start = region * u64::try_from(LEN).unwrap();
    let mut expected: Vec<u8> = Vec::new();
    while work.take(1) {
        let Ok(mut writer) = arena.chunk(LEN) else {
            yield_now().await;
            continue;
        };
        expected.clear();
        let mut stored = 0;
        while writer.remaining() > 6000 && work.take(2) {
            let part = vec![u8::try_from(work.random.below(256)).unwrap(); 1 + work.random.index(6000)];
            let range = writer.append(&part).unwrap();
            expected.extend_from_slice(&part);
            let lent = writer.blocks(stored..range.end);
            let position = start + u64::try_from(lent.start()).unwrap();
            if work.random.below(8) == 0 {
                drop_in_flight(file.write_range(lent, position), work.random.below(4)).await;
                // The write may still be in flight: its blocks are free when its memory is.
                while writer.is_shared() {
                    yield_now().await;
                }
                continue;
            }
            file.write_range(lent, position).await.unwrap();
            stored = range.end;
        }
        work.take(1);
        drop_in_flight(file.read(start, 1 + work.random.index(stored.max(1))), work.random.below(3)).await;
        let read = file.read(start, stored).await.unwrap();
        assert!(read == expected[..stored], "region {region} holds what was stored last");
        let lease = writer.lease(0..expected.len());
        if work.random.below(10) == 0 {
            let elsewhere = blocking(move || lease.iter().map(|byte| u64::from(*byte)).sum::<u64>()).await;
            assert_eq!(elsewhere, expected.iter().map(|byte| u64::from(*byte)).sum::<u64>());
            work.take(1);
        }
        if work.random.below(20) == 0 {
            file.sync().await.unwrap();
        }
    }
}

async fn questions(work: Work, other: Sender<Question>) {
    while work.take(2) {
        let (reply, answer) = oneshot();
        let value = work.random.below(1 << 40);
        match work.random.below(10) {
            // An answer that nobody waits for.
            0 => {
                other.send((value, reply)).await.unwrap();
                drop_in_flight(answer, work.random.below(3)).await;
            }
            // A question that may never be sent.
            1 => drop_in_flight(other.send((value, reply)), work.random.below(3)).await,
            _ => {
                other.send((value, reply)).await.unwrap();
                assert_eq!(answer.await, Some(value ^ 0x55));
            }
        }
    }
}

async fn sleepers(work: Work) {
    while work.take(1) {
        let nap = Duration::from_micros(work.random.below(300));
        match work.random.below(4) {
            0 => drop_in_flight(sleep(nap), 1).await,
            1 => {
                let inner = Duration::from_micros(work.random.below(300));
                let _either = timeout(nap, sleep(inner)).await;
            }
            _ => sleep(nap).await,
        }
    }
}

async fn names(work: Work, folder: PathBuf) {
    while work.take(4) {
        let path = folder.join("checkpoint");
        let content = vec![7; work.random.index(5000)];
        fs::replace_file(&path, content.clone()).await.unwrap();
        drop_in_flight(fs::read_file(&path), work.random.below(2)).await;
        assert_eq!(fs::read_file(&path).await.unwrap(), content);
        // Opened by nobody: closed all the same.
        drop_in_flight(File::open(&path, OpenOptions::default()), work.random.below(2)).await;
        sleep(Duration::from_millis(1)).await;
    }
}

/// Numbered messages of plain threads: all of them, in order.
async fn foreign(mut receiver: Receiver<(usize, u64)>, expected: Vec<u64>) {
    let mut next = vec![0; expected.len()];
    let mut batch = Vec::new();
    while receiver.recv_many(&mut batch, 16).await > 0 {
        for (thread, value) in batch.drain(..) {
            assert_eq!(value, next[thread], "message of thread {thread}");
            next[thread] += 1;
        }
    }
    assert_eq!(next, expected, "every message of every thread arrived");
}

async fn answer_questions(mut questions: Receiver<Question>) {
    while let Some((value, reply)) = questions.recv().await {
        let _unwanted = reply.send(value ^ 0x55);
    }
}

struct Part {
    work_ops: u64,
    seed: u64,
    folder: PathBuf,
    questions: Receiver<Question>,
    other: Sender<Question>,
    foreign: Receiver<(usize, u64)>,
    foreign_expected: Vec<u64>,
    progress: mpsc::Sender<()>,
}

async fn shard_main(part: Part) {
    let Part { work_ops, seed, folder, questions: asked, other, foreign: messages, foreign_expected, progress } = part;
    let random = Random::new(seed);
    // Each kind has its share, in thousandths, and all are done at the same time.
    let share = |thousandths: u64| Work {
        left: Rc::new(Cell::new(work_ops * thousandths / 1000)),
        random: random.clone(),
        progress: progress.clone(),
    };
    let (echo_work, block_work, sleep_work, question_work) = (share(400), share(150), share(50), share(395));
    let arena = Arena::new(4 << 20);
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = listener.local_addr().port();
    let accepting = spawn(Class::Foreground, async move {
        loop {
            // Dropped in flight again and again, it loses no connection.
            if let Ok(accepted) = timeout(Duration::from_micros(200), listener.accept()).await {
                spawn(Class::Foreground, serve_echo(accepted.unwrap().0)).detach();
            }
        }
    });
    let answering = spawn(Class::Foreground, answer_questions(asked));
    let direct = OpenOptions { create: true, direct: true, write: true };
    let file = File::open(&folder.join("regions"), direct).await.unwrap();
    let tasks: RefCell<Vec<Task<()>>> =
        RefCell::new(vec![spawn(Class::Foreground, foreign(messages, foreign_expected))]);
    let start = |class, future: Local<()>| tasks.borrow_mut().push(spawn(class, future));
    for number in 0..8 {
        start(Class::Foreground, Box::pin(echoes(echo_work.clone(), port)));
        start(Class::Foreground, Box::pin(blocks(block_work.clone(), file.clone(), arena.clone(), number)));
        start(Class::Background, Box::pin(sleepers(sleep_work.clone())));
        start(Class::Foreground, Box::pin(questions(question_work.clone(), other.clone())));
    }
    start(Class::Background, Box::pin(names(share(5), folder)));
    for task in tasks.take() {
        task.await;
    }
    drop(other);
    // The other shard goes on asking until it is done.
    answering.await;
    accepting.cancel().await;
    file.close().await.unwrap();
    while arena.in_use() > 0 {
        yield_now().await;
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn start_shard(name: &str, part: Part) -> sakia_io::ShardHandle {
    let main = move || -> Local<()> { Box::pin(shard_main(part)) };
    Threads.start(ShardSpec { name: name.into(), cpu: None }, Box::new(main)).unwrap()
}

#[test]
fn nothing_is_lost_under_mixed_load() {
    let ops = setting("SAKIA_STRESS_OPS", 1_000_000);
    let seed = setting("SAKIA_STRESS_SEED", u64::from(std::process::id()));
    println!("seed {seed}, {ops} operations");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("stress-{}", std::process::id()));
    let foreign_each = ops / 20;
    let (progress, progressed) = mpsc::channel();
    let (ask_a, asked_a) = mailbox(32);
    let (ask_b, asked_b) = mailbox(32);
    let mut threads = Vec::new();
    let mut shards = Vec::new();
    for (name, asked, other) in [("a", asked_a, ask_b), ("b", asked_b, ask_a)] {
        let (sender, receiver) = mailbox(64);
        threads.extend((0..2).map(|thread| plain_thread(thread, sender.clone(), foreign_each)));
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let part = Part {
            work_ops: ops / 2,
            seed,
            folder,
            questions: asked,
            other,
            foreign: receiver,
            foreign_expected: vec![foreign_each; 2],
            progress: progress.clone(),
        };
        shards.push(start_shard(name, part));
    }
    drop(progress);
    let begun = Instant::now();
    // Ends when both shards have dropped their side.
    loop {
        match progressed.recv_timeout(STALL) {
            Ok(()) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("nothing was done for {STALL:?}"),
        }
    }
    shards.into_iter().for_each(sakia_io::ShardHandle::join);
    threads.into_iter().for_each(|thread: std::thread::JoinHandle<()>| thread.join().unwrap());
    std::fs::remove_dir_all(&folder).unwrap();
    println!("{ops} operations in {:?}", begun.elapsed());
}

fn plain_thread(thread: usize, sender: Sender<(usize, u64)>, count: u64) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut gap = 1_u64;
        for value in 0..count {
            let mut message = (thread, value);
            while let Err(error) = sender.try_send(message) {
                let TrySendError::Full(back) = error else { panic!("the shard receives to the end") };
                message = back;
                std::thread::yield_now();
            }
            gap = gap.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if gap >> 60 == 0 {
                // Long enough for the shard to fall asleep at times.
                std::thread::park_timeout(Duration::from_micros(gap >> 48 & 0xff));
            }
        }
    })
}
