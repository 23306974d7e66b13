//! Names in the file system: small files replaced as a whole, folders listed and synced, locks.
//!
//! Cost: each call goes to a helper thread. None of them is on the path of a batch.

use std::io;
use std::path::Path;

use crate::driver::{FsAnswer, FsCall, Handle, Op, Outcome};
use crate::executor::current;
use crate::operation::begin;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    pub name: String,
    pub is_dir: bool,
    /// Bytes of a file, 0 for a folder.
    pub len: u64,
}

/// A folder belongs to this process until it is dropped.
pub struct FolderLock {
    _handle: Handle,
}

async fn call(call: FsCall) -> io::Result<FsAnswer> {
    match begin(Op::Fs(call)).await {
        Outcome::Fs(answer) => answer,
        _ => unreachable!("a call on names gives Fs"),
    }
}

async fn done(wanted: FsCall) -> io::Result<()> {
    match call(wanted).await? {
        FsAnswer::Done => Ok(()),
        other => unreachable!("this call answers Done, not {other:?}"),
    }
}

pub async fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    match call(FsCall::ReadFile(path.to_owned())).await? {
        FsAnswer::Content(content) => Ok(content),
        other => unreachable!("a read answers Content, not {other:?}"),
    }
}

/// All or nothing, and durable when it returns: writes `<name>.new`, syncs it, renames it, syncs the folder.
pub async fn replace_file(path: &Path, content: Vec<u8>) -> io::Result<()> {
    done(FsCall::ReplaceFile(path.to_owned(), content)).await
}

/// Replaces `to`. Durable after `sync_dir` of both folders.
pub async fn rename(from: &Path, to: &Path) -> io::Result<()> {
    done(FsCall::Rename { from: from.to_owned(), to: to.to_owned() }).await
}

pub async fn remove_file(path: &Path) -> io::Result<()> {
    done(FsCall::RemoveFile(path.to_owned())).await
}

pub async fn remove_dir_all(path: &Path) -> io::Result<()> {
    done(FsCall::RemoveDirAll(path.to_owned())).await
}

pub async fn create_dir_all(path: &Path) -> io::Result<()> {
    done(FsCall::CreateDirAll(path.to_owned())).await
}

/// Sorted by name. Names that are not UTF-8 are an error.
pub async fn list_dir(path: &Path) -> io::Result<Vec<DirEntry>> {
    match call(FsCall::ListDir(path.to_owned())).await? {
        FsAnswer::Entries(entries) => Ok(entries),
        other => unreachable!("a list answers Entries, not {other:?}"),
    }
}

/// The names in the folder are on stable storage when it returns.
pub async fn sync_dir(path: &Path) -> io::Result<()> {
    done(FsCall::SyncDir(path.to_owned())).await
}

pub async fn exists(path: &Path) -> io::Result<bool> {
    match call(FsCall::Exists(path.to_owned())).await? {
        FsAnswer::Exists(exists) => Ok(exists),
        other => unreachable!("a question answers Exists, not {other:?}"),
    }
}

/// Takes the folder (its file `.lock`) for this process. Error kind `WouldBlock` when another one has it.
pub async fn lock(folder: &Path) -> io::Result<FolderLock> {
    match call(FsCall::Lock(folder.to_owned())).await? {
        FsAnswer::Locked(number) => Ok(FolderLock { _handle: Handle::new(number, &current()) }),
        other => unreachable!("a lock answers Locked, not {other:?}"),
    }
}
