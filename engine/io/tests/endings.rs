//! Shards that end amid everything: operations in the kernel, calls with the helpers, wake-ups of other threads and shards on
//! their way. Nothing hangs, and no file descriptor stays open.
#![expect(clippy::unwrap_used, reason = "a test fails where something is not as it must be")]

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sakia_io::{
    Arena, BLOCK, Class, File, Listener, OpenOptions, Receiver, Sender, ShardHandle, ShardSpec, Spawner, Stream,
    Threads, TrySendError, blocking, fs, mailbox, sleep, spawn, yield_now,
};

const ROUNDS: u32 = 60;

fn start<F: Future<Output = ()> + 'static>(main: impl FnOnce() -> F + Send + 'static) -> ShardHandle {
    let main = move || -> Pin<Box<dyn Future<Output = ()>>> { Box::pin(main()) };
    Threads.start(ShardSpec { name: "ending".into(), cpu: None }, Box::new(main)).unwrap()
}

fn detach(future: impl Future<Output = ()> + 'static) {
    spawn(Class::Foreground, future).detach();
}

async fn connections(large: &Bytes) {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = listener.local_addr().port();
    detach(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            detach(async move {
                let _ended = stream.recv(BytesMut::with_capacity(10)).await;
                std::future::pending::<()>().await;
            });
        }
    });
    for _ in 0..8 {
        let large = large.clone();
        detach(async move {
            // "localhost" goes to the helpers.
            let stream = Stream::connect("localhost", port).await.unwrap();
            let sender = stream.clone();
            // More than anybody receives.
            detach(async move { drop(sender.send(large).await) });
            let _never = stream.recv(BytesMut::with_capacity(1 << 16)).await;
        });
    }
}

async fn disk(folder: &Path) {
    let arena = Arena::new(8 << 20);
    let options = OpenOptions { create: true, direct: true, write: true };
    for number in 0..8 {
        let (path, arena) = (folder.join(format!("file-{number}")), arena.clone());
        detach(async move {
            let file = File::open(&path, options).await.unwrap();
            let mut writer = arena.chunk(64 * BLOCK).unwrap();
            writer.append(&[5; 64 * BLOCK]).unwrap();
            loop {
                file.write_range(writer.blocks(0..64 * BLOCK), 0).await.unwrap();
                file.sync().await.unwrap();
                file.read(0, 100_000).await.unwrap();
                fs::exists(&path).await.unwrap();
            }
        });
    }
}

async fn talk(own: Receiver<u32>, other: Sender<u32>) {
    let mut own = own;
    detach(async move {
        while let Some(value) = own.recv().await {
            // The other shard may have ended.
            let _gone = other.send(value).await;
        }
    });
}

async fn ending((folder, round, large): (PathBuf, u32, Bytes), own: Receiver<u32>, other: Sender<u32>) {
    connections(&large).await;
    disk(&folder).await;
    talk(own, other).await;
    for _ in 0..100 {
        detach(sleep(Duration::from_secs(3600)));
        detach(async { blocking(|| ()).await });
    }
    for _ in 0..round * 7 % 50 {
        yield_now().await;
    }
    sleep(Duration::from_micros(u64::from(round * 331 % 9000))).await;
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn shards_that_end_amid_everything_leave_nothing_open() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("endings-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("a")).unwrap();
    std::fs::create_dir_all(folder.join("b")).unwrap();
    let large = Bytes::from(vec![1; 32 << 20]);
    let mut descriptors = None;
    for round in 0..ROUNDS {
        let (to_a, of_a) = mailbox(8);
        let (to_b, of_b) = mailbox(8);
        let sender = to_a.clone();
        let foreign = std::thread::spawn(move || {
            let mut value = 0;
            while !matches!(sender.try_send(value), Err(TrySendError::Closed(_))) {
                value += 1;
            }
        });
        let in_a = (folder.join("a"), round, large.clone());
        let in_b = (folder.join("b"), round + 3, large.clone());
        let a = start(move || ending(in_a, of_a, to_b));
        let b = start(move || ending(in_b, of_b, to_a));
        a.join();
        b.join();
        foreign.join().unwrap();
        match descriptors {
            None => descriptors = Some(open_descriptors()),
            Some(before) => assert!(open_descriptors() <= before, "round {round}: {} of {before}", open_descriptors()),
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
