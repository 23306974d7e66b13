//! Calls on names of the file system, as they run on a helper thread.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::driver::{FsAnswer, FsCall};
use crate::file::OpenOptions;
use crate::fs::DirEntry;

use super::helpers::{Helped, OpenedFile};

pub(super) fn open(path: &Path, options: OpenOptions) -> io::Result<OpenedFile> {
    let mut how = fs::OpenOptions::new();
    how.read(true).write(options.write || options.create).create(options.create);
    if options.direct {
        how.custom_flags(libc::O_DIRECT);
    }
    let file = how.open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let stable_writes = options.direct && needs_stable_writes(metadata.dev());
    Ok(OpenedFile { fd: OwnedFd::from(file), stable_writes })
}

/// Whether the device of a file system checks the bytes of a write while it reads them. Unknown devices (network, overlay)
/// do as far as we know.
fn needs_stable_writes(device: u64) -> bool {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let block = format!("/sys/dev/block/{major}:{minor}");
    let asked = ["queue/stable_writes", "../queue/stable_writes"];
    let answer = asked.iter().find_map(|name| fs::read_to_string(Path::new(&block).join(name)).ok());
    answer.is_none_or(|text| text.trim() != "0")
}

pub(super) fn call(call: FsCall) -> Helped {
    let done = |result: io::Result<()>| Helped::Names(result.map(|()| FsAnswer::Done));
    match call {
        FsCall::ReadFile(path) => Helped::Names(fs::read(path).map(FsAnswer::Content)),
        FsCall::ReplaceFile(path, content) => done(replace_file(&path, &content)),
        FsCall::Rename { from, to } => done(fs::rename(from, to)),
        FsCall::RemoveFile(path) => done(fs::remove_file(path)),
        FsCall::RemoveDirAll(path) => done(fs::remove_dir_all(path)),
        FsCall::CreateDirAll(path) => done(fs::create_dir_all(path)),
        FsCall::ListDir(path) => Helped::Names(list_dir(&path).map(FsAnswer::Entries)),
        FsCall::SyncDir(path) => done(sync_dir(&path)),
        FsCall::Exists(path) => Helped::Names(fs::exists(path).map(FsAnswer::Exists)),
        FsCall::Lock(folder) => Helped::Locked(lock(&folder)),
    }
}

fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let mut file = File::create(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary, path)?;
    sync_dir(path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))
}

fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn list_dir(path: &Path) -> io::Result<Vec<DirEntry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name().into_string();
        let name = name.map_err(|name| io::Error::new(io::ErrorKind::InvalidData, format!("{name:?} is not UTF-8")))?;
        match entry.metadata() {
            Ok(metadata) => {
                let is_dir = metadata.is_dir();
                entries.push(DirEntry { name, is_dir, len: if is_dir { 0 } else { metadata.len() } });
            }
            // Removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

fn lock(folder: &Path) -> io::Result<OwnedFd> {
    let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(folder.join(".lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(OwnedFd::from(file)),
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
