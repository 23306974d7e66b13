//! The same log on io_uring and a real folder, with direct and with buffered I/O.

use std::path::{Path, PathBuf};

use sakia_io::{Arena, ShardSpec, Spawner, Threads};

use super::harness::{
    append, batch, closed, crashed, key, open_in, outline, produced, read_all, small_segments, store,
};
use crate::log::{FileIo, Log, LogError, LogSettings, Opening};

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sakia-log-{}-{name}", std::process::id()));
        Self(path.join("orders-0"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().expect("it was joined"));
    }
}

async fn supports(folder: &Path, io: FileIo) -> bool {
    let settings = LogSettings { io, ..small_segments() };
    let log = Log::open(folder, "orders", key(), settings, Arena::new(1 << 20), closed()).await.unwrap();
    log.append_as_leader(&batch(1, 1, 0), sakia_protocol::ids::LeaderEpoch::ZERO, 0).unwrap();
    let works = !matches!(log.write_next().await, Err(LogError::Offline(_)));
    drop(log);
    sakia_io::fs::remove_dir_all(folder).await.unwrap();
    works
}

async fn exercise(folder: PathBuf, io: FileIo) {
    if !supports(&folder, io).await {
        println!("skipped: {} does not take {io:?} I/O", folder.display());
        return;
    }
    let settings = LogSettings { io, ..small_segments() };
    let log = open_in(&folder, settings, closed()).await;
    // Lengths around sectors and blocks: no padding counts as data.
    for len in [1, 511, 512, 513, 4095, 4096, 4097, 1, 9000] {
        append(&log, &batch(1, len, 5)).await;
    }
    for number in 0..20 {
        append(&log, &produced(1, 0, number * 3, 3)).await;
    }
    let all = read_all(&log).await;
    let end = log.stored();
    log.release_if_idle(std::time::Duration::ZERO);
    assert!(read_all(&log).await == all, "from disk as from memory");
    // As after a kill: nothing is closed, the log is opened again from the files. Only its background work must have ended, for a
    // killed process would not go on.
    log.flush().await.unwrap();
    let again = open_in(&folder, settings, crashed()).await;
    assert!(read_all(&again).await == all && again.stored() == end);
    drop(log);
    again.truncate(sakia_protocol::ids::Offset::new(7)).await.unwrap();
    append(&again, &batch(2, 5000, 9)).await;
    let outline_now = outline(&read_all(&again).await);
    assert_eq!(outline_now.last(), Some(&(7, 9, 0)));
    store(&again).await;
    again.close().await.unwrap();
    let last = open_in(&folder, settings, Opening { log_start: None, ..closed() }).await;
    assert_eq!(outline(&read_all(&last).await), outline_now);
    last.close().await.unwrap();
}

fn on_a_real_ring(name: &'static str, io: FileIo) {
    let folder = Folder::new(name);
    let path = folder.0.clone();
    let spec = ShardSpec { name: name.to_owned(), cpu: None };
    let shard = Threads.start(spec, Box::new(move || Box::pin(exercise(path, io)))).unwrap();
    shard.join();
}

#[test]
fn a_log_on_io_uring_with_direct_io_keeps_every_byte() {
    on_a_real_ring("direct", FileIo::Direct);
}

#[test]
fn a_log_on_io_uring_with_buffered_io_keeps_every_byte() {
    on_a_real_ring("buffered", FileIo::Buffered);
}
