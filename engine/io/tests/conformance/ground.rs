//! Where a claim runs: a driver's spawner, a folder for files and an address for listeners.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use sakia_io::sim::World;
use sakia_io::{ShardSpec, Spawner, Threads};

#[derive(Clone)]
pub struct Ground {
    /// For further shards on the same machine.
    pub spawner: Arc<dyn Spawner>,
    /// Empty.
    pub folder: PathBuf,
    /// Of this machine, with port 0.
    pub address: SocketAddr,
    /// A name of that address.
    pub host: &'static str,
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
    let ground = Ground { spawner, folder: folder.clone(), address: "127.0.0.1:0".parse().unwrap(), host: "localhost" };
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
    for seed in 1..=5 {
        let world = World::new(seed);
        let machine = world.machine("ground");
        let address = SocketAddr::new(machine.address(), 0);
        let ground = Ground { spawner: machine.spawner(), folder: PathBuf::from("/claim"), address, host: "ground" };
        let ended = Arc::new(AtomicBool::new(false));
        let (main_ground, main_ended) = (ground.clone(), Arc::clone(&ended));
        let main = move || -> Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(async move {
                sakia_io::fs::create_dir_all(&main_ground.folder).await.unwrap();
                claim(main_ground).await;
                main_ended.store(true, Ordering::SeqCst);
            })
        };
        let spec = ShardSpec { name: "claim".into(), cpu: None };
        let _shard = ground.spawner.start(spec, Box::new(main)).unwrap();
        let result = world.run_until(LIMIT, |_| ended.load(Ordering::SeqCst));
        assert!(result.is_ok(), "the claim ends in time under seed {seed}: {result:?}");
    }
}
