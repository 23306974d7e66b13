//! Disk operations of a shard: what they do when their time has come, and what a crash leaves of those in flight.
//!
//! Invariant: an operation takes effect at its completion and not before; a crash may leave any part of a write,
//! and either side of a change of names.

use std::io;
use std::path::{Path, PathBuf};

use crate::driver::{FsAnswer, FsCall, Op, Outcome};
use crate::file::OpenOptions;
use crate::fs::DirEntry;
use crate::memory::{BLOCK, ReadBuffer};
use crate::sim::disk::image::os_error;
use crate::sim::disk::{Absent, Disk, Node};
use crate::sim::network::{Site, Waiter};
use crate::sim::random::Random;
use crate::sim::state::{Pending, Resource, State, Written, bytes_of};

/// The file whose lock stands for a folder's.
const LOCK_NAME: &str = ".lock";

impl State {
    pub(crate) fn begin_disk_operation(&mut self, waiter: Waiter, op: Op) {
        let times = &self.times;
        let latency = match &op {
            Op::Read { .. } | Op::Fs(FsCall::ReadFile(_)) => &times.disk_read,
            Op::Write { .. } => &times.disk_write,
            Op::Sync { .. } | Op::Fs(FsCall::SyncDir(_) | FsCall::ReplaceFile(..)) => &times.disk_sync,
            Op::Blocking(_) => &times.blocking,
            _ => &times.disk_names,
        }
        .clone();
        let mark = match &op {
            Op::Sync { file } => {
                let (node, _) = self.file(waiter.shard, file);
                self.disk(waiter.shard).begin_sync(node)
            }
            _ => None,
        };
        // A device may read the last block early or late while it grows: both must do.
        let written = match &op {
            Op::Write { blocks, .. } if self.random.chance(1, 2) => Some(Written(blocks.copy_now())),
            _ => None,
        };
        self.schedule(waiter, Pending::Disk { op, written, mark }, &latency);
    }

    pub(crate) fn end_disk_operation(&mut self, waiter: Waiter) {
        let Some(Pending::Disk { op, written, mark }) = self.take_pending(waiter) else { return };
        let shard = waiter.shard;
        let (kind, outcome) = match op {
            Op::Open { path, options } => ("open", Outcome::Opened(self.open(shard, &path, options))),
            Op::Size { file } => {
                let (node, _) = self.file(shard, &file);
                ("size", Outcome::Size(Ok(self.disk(shard).len(node))))
            }
            Op::Read { file, buffer, position } => {
                let (node, _) = self.file(shard, &file);
                ("read", Outcome::Read(read(self.disk(shard), node, position, buffer)))
            }
            Op::Write { file, blocks, position, in_flight } => {
                let bytes = bytes_of(written, &blocks);
                let (node, writable) = self.file(shard, &file);
                let done = writable.and_then(|()| self.write(shard, node, position, &bytes));
                drop(in_flight);
                ("write", Outcome::Done(done))
            }
            Op::Sync { file } => {
                let (node, _) = self.file(shard, &file);
                ("sync", Outcome::Done(self.disk(shard).end_sync(node, mark)))
            }
            Op::Truncate { file, len } => {
                let (node, writable) = self.file(shard, &file);
                ("truncate", Outcome::Done(writable.and_then(|()| self.disk(shard).set_len(node, len))))
            }
            Op::Allocate { file, .. } => {
                let (node, writable) = self.file(shard, &file);
                ("allocate", Outcome::Done(writable.and_then(|()| self.disk(shard).reserve(node))))
            }
            Op::Fs(call) => ("fs", Outcome::Fs(self.call(shard, call))),
            Op::Blocking(closure) => {
                self.shards[shard].closures.push((waiter.op, closure));
                return;
            }
            Op::Close { .. }
            | Op::Accept { .. }
            | Op::Connect { .. }
            | Op::Recv { .. }
            | Op::Send { .. }
            | Op::Shutdown { .. } => unreachable!("these do not wait for the disk"),
        };
        self.complete(waiter, kind, outcome);
    }

    /// What is left on disk of the operations of a process that died while they were in flight.
    pub(crate) fn abandon_disk_operation(&mut self, site: Site, shard: usize, pending: &mut Pending) {
        let Pending::Disk { op, written, .. } = pending else { return };
        match op {
            Op::Write { file, blocks, position, .. } => {
                let Resource::File { node, writable: true } = self.resource(shard, file) else { return };
                let bytes = bytes_of(written.take(), blocks);
                self.machines[site.0].disk.write_torn(node, *position, &bytes, &mut self.random);
            }
            Op::Truncate { file, len } if self.random.chance(1, 2) => {
                let Resource::File { node, writable: true } = self.resource(shard, file) else { return };
                drop(self.machines[site.0].disk.set_len(node, *len));
            }
            Op::Open { path, options } if options.create && self.random.chance(1, 2) => {
                let path = path.clone();
                drop(self.open(shard, &path, *options));
            }
            Op::Fs(FsCall::ReplaceFile(path, content)) => {
                let (path, content) = (path.clone(), std::mem::take(content));
                self.abandon_replace(site, shard, path, content);
            }
            Op::Fs(FsCall::RemoveDirAll(path)) => self.machines[site.0].disk.remove_dir_torn(path, &mut self.random),
            Op::Fs(_) if self.random.chance(1, 2) => {
                let Op::Fs(call) = std::mem::replace(op, Op::Close { number: 0 }) else { unreachable!("just matched") };
                drop(self.call(shard, call));
            }
            _ => {}
        }
    }

    /// Replacing is a write, a sync, a rename and a sync: the crash may lie between any two.
    fn abandon_replace(&mut self, site: Site, shard: usize, path: PathBuf, content: Vec<u8>) {
        match self.random.below(4) {
            0 => {}
            1 => {
                let disk = &mut self.machines[site.0].disk;
                if let Ok(node) = disk.open(&new_name(&path), Absent::Create) {
                    drop(disk.set_len(node, 0));
                    disk.write_torn(node, 0, &content, &mut self.random);
                }
            }
            2 => {
                let disk = &mut self.machines[site.0].disk;
                if write_whole(disk, &new_name(&path), &content, &mut self.random).is_ok() {
                    drop(disk.rename(&new_name(&path), &path));
                }
            }
            _ => drop(self.call(shard, FsCall::ReplaceFile(path, content))),
        }
    }

    fn open(&mut self, shard: usize, path: &Path, options: OpenOptions) -> io::Result<u64> {
        let disk = self.disk(shard);
        let node = disk.open(path, if options.create { Absent::Create } else { Absent::Refuse })?;
        if (options.write || options.create) && disk.is_folder(node) {
            disk.close(node);
            return Err(os_error(libc::EISDIR));
        }
        Ok(self.add_resource(shard, Resource::File { node, writable: options.write }))
    }

    fn write(&mut self, shard: usize, node: Node, position: u64, bytes: &[u8]) -> io::Result<()> {
        let site = self.shards[shard].site;
        self.machines[site.0].disk.write(node, position, bytes, &mut self.random)
    }

    /// The file, and whether it may be written.
    fn file(&self, shard: usize, handle: &crate::driver::Handle) -> (Node, io::Result<()>) {
        match self.resource(shard, handle) {
            Resource::File { node, writable: true } => (node, Ok(())),
            Resource::File { node, writable: false } => (node, Err(os_error(libc::EBADF))),
            Resource::Lock(_) | Resource::Listener(_) | Resource::Stream(_) => panic!("not a file"),
        }
    }

    fn call(&mut self, shard: usize, call: FsCall) -> io::Result<FsAnswer> {
        let site = self.shards[shard].site;
        let disk = &mut self.machines[site.0].disk;
        match call {
            FsCall::ReadFile(path) => return read_whole(disk, &path).map(FsAnswer::Content),
            FsCall::ReplaceFile(path, content) => {
                let new = new_name(&path);
                write_whole(disk, &new, &content, &mut self.random)?;
                disk.rename(&new, &path)?;
                sync_folder(disk, path.parent().unwrap_or(Path::new("/")))?;
            }
            FsCall::Rename { from, to } => disk.rename(&from, &to)?,
            FsCall::RemoveFile(path) => disk.remove_file(&path)?,
            FsCall::RemoveDirAll(path) => disk.remove_dir_all(&path)?,
            FsCall::CreateDirAll(path) => disk.create_dir_all(&path)?,
            FsCall::ListDir(path) => {
                let entries = disk.list(&path)?.into_iter();
                let entries = entries.map(|entry| DirEntry { name: entry.name, is_dir: entry.is_dir, len: entry.len });
                return Ok(FsAnswer::Entries(entries.collect()));
            }
            FsCall::SyncDir(path) => sync_folder(disk, &path)?,
            FsCall::Exists(path) => return Ok(FsAnswer::Exists(disk.find(&path).is_ok())),
            FsCall::Lock(path) => {
                let node = disk.open(&path.join(LOCK_NAME), Absent::Create)?;
                if !disk.lock(node) {
                    disk.close(node);
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                return Ok(FsAnswer::Locked(self.add_resource(shard, Resource::Lock(node))));
            }
        }
        Ok(FsAnswer::Done)
    }
}

fn read(disk: &Disk, node: Node, position: u64, mut buffer: ReadBuffer) -> io::Result<ReadBuffer> {
    let mut block = [0; BLOCK];
    let mut at = position;
    while buffer.filled() < buffer.capacity() {
        let wanted = BLOCK.min(buffer.capacity() - buffer.filled());
        let len = disk.read(node, at, &mut block[..wanted])?;
        buffer.put(&block[..len]);
        at += crate::sim::disk::image::wide(len);
        if len < wanted {
            break;
        }
    }
    Ok(buffer)
}

pub(crate) fn read_whole(disk: &mut Disk, path: &Path) -> io::Result<Vec<u8>> {
    let node = disk.find(path)?;
    let mut content = vec![0; usize::try_from(disk.len(node)).expect("a simulated file fits in memory")];
    disk.read(node, 0, &mut content)?;
    Ok(content)
}

fn write_whole(disk: &mut Disk, path: &Path, content: &[u8], random: &mut Random) -> io::Result<()> {
    let node = disk.open(path, Absent::Create)?;
    let written = disk.set_len(node, 0).and_then(|()| disk.write(node, 0, content, random)).and_then(|()| {
        let mark = disk.begin_sync(node);
        disk.end_sync(node, mark)
    });
    disk.close(node);
    written
}

fn sync_folder(disk: &mut Disk, path: &Path) -> io::Result<()> {
    let node = disk.find(path)?;
    let mark = disk.begin_sync(node);
    disk.end_sync(node, mark)
}

/// `<name>.new` beside the file.
fn new_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}
