//! Objects as files, and an index of them in memory.
//!
//! Path: an S3 operation → here → file system. New bytes go to `tmp/`, then one lock covers the check for an existing
//! name, the rename and the index: one of several racing creators wins, and a reader never sees half an object.
//! Nothing is synced: objects survive the process, not a power loss.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::SystemTime;

use crate::name::{Part, part_of, path_of};

/// What the index knows of an object.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) length: u64,
    pub(crate) modified: SystemTime,
}

impl Entry {
    /// Changes whenever the object does.
    pub(crate) fn tag(&self) -> String {
        let nanos = self.modified.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        format!("{nanos:x}-{:x}", self.length)
    }
}

/// Why a write did not happen.
#[derive(Debug)]
pub(crate) enum WriteError {
    NoBucket,
    KeyTooLong,
    Exists,
    Disk(io::Error),
}

/// Whether a name must be free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Create {
    Only,
    OrReplace,
}

type Index = BTreeMap<String, BTreeMap<String, Entry>>;

pub(crate) struct Disk {
    buckets: PathBuf,
    temporary: PathBuf,
    next_temporary: AtomicU64,
    index: Mutex<Index>,
}

impl Disk {
    /// Reads the index from the files below `data`.
    pub(crate) fn open(data: &Path, buckets: &[String]) -> io::Result<Self> {
        let disk = Self {
            buckets: data.join("buckets"),
            temporary: data.join("tmp"),
            next_temporary: AtomicU64::new(0),
            index: Mutex::default(),
        };
        // Whatever was being written when the process ended was never an object.
        if disk.temporary.exists() {
            fs::remove_dir_all(&disk.temporary)?;
        }
        fs::create_dir_all(&disk.temporary)?;
        for bucket in buckets {
            fs::create_dir_all(disk.buckets.join(bucket))?;
        }
        let mut index = Index::new();
        for folder in fs::read_dir(&disk.buckets)? {
            let folder = folder?;
            let Ok(bucket) = folder.file_name().into_string() else { continue };
            let mut objects = BTreeMap::new();
            read_folder(&folder.path(), "", &mut objects)?;
            index.insert(bucket, objects);
        }
        *disk.lock() = index;
        Ok(disk)
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().expect("no holder of this lock panics")
    }

    pub(crate) fn bucket_names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    pub(crate) fn has_bucket(&self, bucket: &str) -> bool {
        self.lock().contains_key(bucket)
    }

    /// `bucket` must be a valid bucket name.
    pub(crate) fn create_bucket(&self, bucket: &str) -> io::Result<()> {
        let mut index = self.lock();
        fs::create_dir_all(self.buckets.join(bucket))?;
        index.entry(bucket.to_owned()).or_default();
        Ok(())
    }

    /// A file to write an object's bytes to; removed again unless it is [`Self::publish`]ed.
    pub(crate) fn begin(&self) -> io::Result<NewObject> {
        let number = self.next_temporary.fetch_add(1, Ordering::Relaxed);
        let path = self.temporary.join(number.to_string());
        Ok(NewObject { file: File::create(&path)?, path, length: 0 })
    }

    /// Gives the bytes their name, at one moment.
    pub(crate) fn publish(
        &self,
        bucket: &str,
        key: &str,
        object: &NewObject,
        create: Create,
    ) -> Result<Entry, WriteError> {
        let path = path_of(key).ok_or(WriteError::KeyTooLong)?;
        let path = self.buckets.join(bucket).join(path);
        let mut index = self.lock();
        let objects = index.get_mut(bucket).ok_or(WriteError::NoBucket)?;
        if create == Create::Only && objects.contains_key(key) {
            return Err(WriteError::Exists);
        }
        let entry = rename(object, &path).map_err(WriteError::Disk)?;
        objects.insert(key.to_owned(), entry.clone());
        Ok(entry)
    }

    pub(crate) fn entry(&self, bucket: &str, key: &str) -> Option<Entry> {
        self.lock().get(bucket)?.get(key).cloned()
    }

    /// Opens an object; a later replacement or deletion does not change what is read from it.
    pub(crate) fn open_object(&self, bucket: &str, key: &str) -> io::Result<Option<(File, Entry)>> {
        let mut index = self.lock();
        let Some(objects) = index.get_mut(bucket) else { return Ok(None) };
        let (Some(entry), Some(path)) = (objects.get(key).cloned(), path_of(key)) else { return Ok(None) };
        match File::open(self.buckets.join(bucket).join(path)) {
            Ok(file) => Ok(Some((file, entry))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Somebody took the file away: the object is gone.
                objects.remove(key);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes an object if it is there.
    pub(crate) fn delete(&self, bucket: &str, key: &str) -> io::Result<()> {
        let mut index = self.lock();
        let Some(objects) = index.get_mut(bucket) else { return Ok(()) };
        let (Some(_), Some(path)) = (objects.remove(key), path_of(key)) else { return Ok(()) };
        let root = self.buckets.join(bucket);
        let path = root.join(path);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Folders that are empty now go too; the first that is not ends it.
        let parents = path.ancestors().skip(1).take_while(|parent| *parent != root);
        for parent in parents {
            if fs::remove_dir(parent).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Names with `prefix` after `after`, at most `bound`, in order.
    pub(crate) fn list(
        &self,
        bucket: &str,
        prefix: &str,
        after: Option<&str>,
        bound: usize,
    ) -> Option<Vec<(String, Entry)>> {
        let index = self.lock();
        let objects = index.get(bucket)?;
        let from = after.filter(|after| *after >= prefix);
        let from = from.map_or(Included(prefix), Excluded);
        let matching =
            objects.range::<str, _>((from, Unbounded)).take_while(|(key, _)| key.starts_with(prefix)).take(bound);
        Some(matching.map(|(key, entry)| (key.clone(), entry.clone())).collect())
    }
}

/// Bytes on their way to becoming an object.
pub(crate) struct NewObject {
    file: File,
    path: PathBuf,
    length: u64,
}

impl NewObject {
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.length += u64::try_from(bytes.len()).expect("usize fits u64");
        Ok(())
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }
}

impl Drop for NewObject {
    fn drop(&mut self) {
        // Gone already if it was published.
        let _ = fs::remove_file(&self.path);
    }
}

fn rename(object: &NewObject, path: &Path) -> io::Result<Entry> {
    let parent = path.parent().expect("an object's path has a folder");
    fs::create_dir_all(parent)?;
    fs::rename(&object.path, path)?;
    let metadata = object.file.metadata()?;
    assert_eq!(metadata.len(), object.length, "the file holds what was written");
    Ok(Entry { length: object.length, modified: metadata.modified()? })
}

fn read_folder(folder: &Path, prefix: &str, objects: &mut BTreeMap<String, Entry>) -> io::Result<()> {
    for child in fs::read_dir(folder)? {
        let child = child?;
        let name = child.file_name();
        match name.to_str().and_then(part_of) {
            Some(Part::Folder(part)) => read_folder(&child.path(), &format!("{prefix}{part}/"), objects)?,
            Some(Part::Object(part)) => {
                let metadata = child.metadata()?;
                let entry = Entry { length: metadata.len(), modified: metadata.modified()? };
                objects.insert(format!("{prefix}{part}"), entry);
            }
            None => tracing::warn!(name = ?name, "bucket leaves a file alone that it did not write"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("sakia-bucket-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        fn open(&self) -> Disk {
            Disk::open(&self.0, &["test".to_owned()]).expect("a writable folder")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn put(disk: &Disk, key: &str, bytes: &[u8], create: Create) -> Result<Entry, WriteError> {
        let mut object = disk.begin().expect("a writable folder");
        object.write(bytes).expect("a writable folder");
        disk.publish("test", key, &object, create)
    }

    #[test]
    fn one_of_eight_racing_creators_wins() {
        let folder = Folder::new("race");
        let disk = folder.open();
        for round in 0..50 {
            let key = format!("a/{round}");
            let wins = AtomicU64::new(0);
            let start = std::sync::Barrier::new(8);
            std::thread::scope(|scope| {
                for creator in 0..8u8 {
                    let (disk, key, wins, start) = (&disk, &key, &wins, &start);
                    scope.spawn(move || {
                        start.wait();
                        match put(disk, key, &[creator; 100], Create::Only) {
                            Ok(_) => wins.fetch_add(1, Ordering::Relaxed),
                            Err(WriteError::Exists) => 0,
                            Err(error) => panic!("{error:?}"),
                        };
                    });
                }
            });
            assert_eq!(wins.into_inner(), 1, "round {round}");
        }
    }

    #[test]
    fn objects_survive_a_restart_and_unfinished_ones_do_not() {
        let folder = Folder::new("restart");
        let disk = folder.open();
        put(&disk, "p/wal/1", b"one", Create::Only).expect("written");
        put(&disk, "p", b"beside the folder p", Create::Only).expect("written");
        let mut unfinished = disk.begin().expect("a writable folder");
        unfinished.write(b"half").expect("a writable folder");
        std::mem::forget(unfinished);
        drop(disk);
        let disk = folder.open();
        let names: Vec<_> = disk.list("test", "", None, 10).expect("bucket").into_iter().map(|(key, _)| key).collect();
        assert_eq!(names, ["p", "p/wal/1"]);
        assert_eq!(disk.entry("test", "p/wal/1").expect("there").length, 3);
        assert_eq!(fs::read_dir(folder.0.join("tmp")).expect("there").count(), 0);
        assert!(matches!(put(&disk, "p", b"x", Create::Only), Err(WriteError::Exists)));
    }

    #[test]
    fn listing_goes_on_after_a_name() {
        let folder = Folder::new("list");
        let disk = folder.open();
        for key in ["a/1", "a/2", "a/3", "b/1"] {
            put(&disk, key, b"x", Create::Only).expect("written");
        }
        let list = |after, bound| -> Vec<String> {
            disk.list("test", "a/", after, bound).expect("bucket").into_iter().map(|(key, _)| key).collect()
        };
        assert_eq!(list(None, 2), ["a/1", "a/2"]);
        assert_eq!(list(Some("a/2"), 2), ["a/3"]);
        assert_eq!(list(Some("b"), 2), Vec::<String>::new());
        assert_eq!(list(Some("0"), 9).len(), 3);
        assert!(disk.list("other", "", None, 1).is_none());
    }

    #[test]
    fn an_object_whose_file_was_taken_away_is_missing() {
        let folder = Folder::new("taken");
        let disk = folder.open();
        for key in ["a/1", "a/2"] {
            put(&disk, key, b"x", Create::Only).expect("written");
            fs::remove_file(folder.0.join("buckets/test/a").join(format!("={}", &key[2..]))).expect("there");
        }
        assert!(disk.open_object("test", "a/1").expect("no failure of the disk").is_none());
        assert!(disk.entry("test", "a/1").is_none());
        disk.delete("test", "a/2").expect("nothing to do");
        assert!(disk.entry("test", "a/2").is_none());
    }

    #[test]
    fn deletion_leaves_no_empty_folders_and_an_open_object_readable() {
        let folder = Folder::new("delete");
        let disk = folder.open();
        put(&disk, "a/b/c", b"bytes", Create::Only).expect("written");
        let (mut file, _) = disk.open_object("test", "a/b/c").expect("readable").expect("there");
        disk.delete("test", "a/b/c").expect("deleted");
        disk.delete("test", "a/b/c").expect("nothing to do");
        assert_eq!(fs::read_dir(folder.0.join("buckets/test")).expect("there").count(), 0);
        let mut bytes = String::new();
        io::Read::read_to_string(&mut file, &mut bytes).expect("readable");
        assert_eq!(bytes, "bytes");
    }
}
