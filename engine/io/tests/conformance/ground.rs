//! Where a claim runs: a driver's spawner, a folder for files and an address for listeners.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use sakia_io::{ShardSpec, Spawner, Threads};

#[derive(Clone)]
pub struct Ground {
    /// For further shards on the same machine.
    pub spawner: Arc<dyn Spawner>,
    /// Empty.
    pub folder: PathBuf,
    /// Of this machine, with port 0.
    pub address: SocketAddr,
}

/// A real claim ends within this time, or hangs.
const LIMIT: Duration = Duration::from_secs(60);

pub fn on_uring<F>(claim: fn(Ground) -> F)
where
    F: Future<Output = ()> + 'static,
{
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("conformance-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let spawner: Arc<dyn Spawner> = Arc::new(Threads);
    let ground = Ground { spawner, folder: folder.clone(), address: "127.0.0.1:0".parse().unwrap() };
    let (ended, end) = mpsc::channel();
    let spec = ShardSpec { name: "claim".into(), cpu: None };
    let main_ground = ground.clone();
    let main = move || -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            claim(main_ground).await;
            ended.send(()).unwrap();
        })
    };
    let shard = ground.spawner.start(spec, Box::new(main)).unwrap();
    end.recv_timeout(LIMIT).expect("the claim ends in time");
    shard.join();
    std::fs::remove_dir_all(&folder).unwrap();
}

pub fn on_simulated<F>(claim: fn(Ground) -> F)
where
    F: Future<Output = ()> + 'static,
{
    let _ = claim;
}
