//! One machine's disk: a tree of names over file images, with what would survive a crash or a power loss.
//!
//! Pure. Two trees are kept: the one the running system sees, and the one on the platter. A change of names (create,
//! rename, remove) waits in a journal until the folder it touches is synced; a power loss keeps a prefix of the
//! waiting changes, as an ordered journal does. Syncing a file makes its bytes durable, not its name: whoever
//! creates a file must sync the folder too. A killed process loses neither: the page cache outlives it.
//! Failures are those of a real disk: a failed write may be partly there, a failed sync gives its bytes up (R6).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use crate::sim::random::Random;

pub(crate) mod image;

use image::{FileImage, SyncMark, os_error, parts_of_a_torn_write};

const ROOT: Node = Node(0);
/// After so many removals the files nobody can reach any more are freed.
const SWEEP_AFTER_REMOVALS: usize = 64;

/// A file or folder, as an inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node(u64);

type Names = BTreeMap<String, Node>;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) is_dir: bool,
    pub(crate) len: u64,
}

/// Whether opening a name that is not there makes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    Create,
    Refuse,
}

/// A change of names that its folders were not yet synced after.
#[derive(Debug)]
struct Change {
    removes: Option<(Node, String)>,
    sets: Option<(Node, String, Node)>,
}

/// Which operations fail from now on: those on paths that contain a text, the next `times` of them.
#[derive(Clone, Debug)]
pub struct Failing {
    pub path_contains: String,
    pub times: u64,
    /// What the caller sees, as an error number of the operating system; `libc::EIO` is a broken disk.
    pub error: i32,
}

impl Failing {
    /// Every operation on the disk fails with EIO.
    pub fn all() -> Failing {
        Failing { path_contains: String::new(), times: u64::MAX, error: libc::EIO }
    }

    /// The next operation fails with EIO.
    pub fn next() -> Failing {
        Failing { times: 1, ..Failing::all() }
    }

    #[must_use]
    pub fn on(self, path_contains: &str) -> Failing {
        Failing { path_contains: path_contains.to_owned(), ..self }
    }

    #[must_use]
    pub fn with(self, error: i32) -> Failing {
        Failing { error, ..self }
    }
}

#[derive(Debug)]
pub(crate) struct Disk {
    files: BTreeMap<Node, FileImage>,
    paths: BTreeMap<Node, String>,
    folders: BTreeMap<Node, Names>,
    durable_folders: BTreeMap<Node, Names>,
    journal: Vec<Change>,
    open: BTreeMap<Node, u64>,
    locked: BTreeSet<Node>,
    next_node: u64,
    removals: usize,
    pub(crate) failing_writes: Option<Failing>,
    pub(crate) failing_syncs: Option<Failing>,
    /// Added to every operation.
    pub(crate) slow_by: Duration,
}

impl Disk {
    pub(crate) fn new() -> Disk {
        Disk {
            files: BTreeMap::new(),
            paths: BTreeMap::from([(ROOT, "/".to_owned())]),
            folders: BTreeMap::from([(ROOT, Names::new())]),
            durable_folders: BTreeMap::from([(ROOT, Names::new())]),
            journal: Vec::new(),
            open: BTreeMap::new(),
            locked: BTreeSet::new(),
            next_node: 1,
            removals: 0,
            failing_writes: None,
            failing_syncs: None,
            slow_by: Duration::ZERO,
        }
    }

    // Open files. Each `open` of a file or folder needs one `close`; a crash closes all.

    pub(crate) fn open(&mut self, path: &Path, absent: Absent) -> io::Result<Node> {
        let node = match (self.find(path), absent) {
            (Err(error), Absent::Create) if error.raw_os_error() == Some(libc::ENOENT) => self.create(path)?,
            (found, _) => found?,
        };
        *self.open.entry(node).or_default() += 1;
        Ok(node)
    }

    pub(crate) fn close(&mut self, node: Node) {
        let uses = self.open.get_mut(&node).expect("only open files are closed");
        *uses -= 1;
        if *uses == 0 {
            self.open.remove(&node);
        }
    }

    pub(crate) fn is_folder(&self, node: Node) -> bool {
        self.folders.contains_key(&node)
    }

    pub(crate) fn len(&self, node: Node) -> u64 {
        self.files.get(&node).map_or(0, FileImage::len)
    }

    pub(crate) fn read(&self, node: Node, position: u64, into: &mut [u8]) -> io::Result<usize> {
        Ok(self.file(node)?.read(position, into))
    }

    /// A failing write is partly there: its error says nothing about which part.
    pub(crate) fn write(&mut self, node: Node, position: u64, bytes: &[u8], random: &mut Random) -> io::Result<()> {
        if let Some(error) = fail_now(&mut self.failing_writes, self.paths.get(&node)) {
            self.write_torn(node, position, bytes, random);
            return Err(error);
        }
        self.file_mut(node)?.write(position, bytes);
        Ok(())
    }

    /// Changes bytes that are there, whatever fails at the moment.
    pub(crate) fn overwrite(&mut self, node: Node, position: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.file_mut(node)?;
        assert!(position + image::wide(bytes.len()) <= file.len(), "only bytes that are there can be damaged");
        file.write(position, bytes);
        Ok(())
    }

    /// What a process left of a write when it died before its end.
    pub(crate) fn write_torn(&mut self, node: Node, position: u64, bytes: &[u8], random: &mut Random) {
        let parts = parts_of_a_torn_write(position, bytes.len(), random);
        if let Ok(file) = self.file_mut(node) {
            for part in parts {
                file.write(position + image::wide(part.start), &bytes[part]);
            }
        }
    }

    /// Space is not counted; it is missing when writes fail.
    pub(crate) fn reserve(&mut self, node: Node) -> io::Result<()> {
        fail_now(&mut self.failing_writes, self.paths.get(&node)).map_or(Ok(()), Err)
    }

    pub(crate) fn set_len(&mut self, node: Node, len: u64) -> io::Result<()> {
        if let Some(error) = fail_now(&mut self.failing_writes, self.paths.get(&node)) {
            return Err(error);
        }
        self.file_mut(node)?.set_len(len);
        Ok(())
    }

    /// Nothing to mark for a folder: its sync covers what was changed until it ends.
    pub(crate) fn begin_sync(&mut self, node: Node) -> Option<SyncMark> {
        self.files.get_mut(&node).map(FileImage::begin_sync)
    }

    pub(crate) fn end_sync(&mut self, node: Node, mark: Option<SyncMark>) -> io::Result<()> {
        let failed = fail_now(&mut self.failing_syncs, self.paths.get(&node));
        match (failed, self.files.get_mut(&node), mark) {
            (Some(error), file, mark) => {
                if let (Some(file), Some(mark)) = (file, mark) {
                    file.fail_sync(mark);
                }
                Err(error)
            }
            (None, Some(file), Some(mark)) => {
                file.end_sync(mark);
                Ok(())
            }
            (None, _, _) => {
                self.sync_folder(node);
                Ok(())
            }
        }
    }

    /// Whether the lock was free; a crash frees all locks.
    pub(crate) fn lock(&mut self, node: Node) -> bool {
        self.locked.insert(node)
    }

    pub(crate) fn unlock(&mut self, node: Node) {
        self.locked.remove(&node);
    }

    // Names.

    pub(crate) fn find(&self, path: &Path) -> io::Result<Node> {
        let mut node = ROOT;
        for name in components(path)? {
            let names = self.folders.get(&node).ok_or_else(|| os_error(libc::ENOTDIR))?;
            node = *names.get(name).ok_or_else(|| os_error(libc::ENOENT))?;
        }
        Ok(node)
    }

    pub(crate) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        let (folder, name) = self.folder_of(path)?;
        if self.folders[&folder].contains_key(&name) {
            return Err(os_error(libc::EEXIST));
        }
        let node = self.new_node(path);
        self.folders.insert(node, Names::new());
        self.durable_folders.insert(node, Names::new());
        self.change(Change { removes: None, sets: Some((folder, name, node)) });
        Ok(())
    }

    pub(crate) fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let mut ancestors: Vec<&Path> = path.ancestors().filter(|ancestor| !ancestor.as_os_str().is_empty()).collect();
        ancestors.reverse();
        for ancestor in ancestors {
            match self.find(ancestor) {
                Ok(node) if self.folders.contains_key(&node) => {}
                Ok(_) => return Err(os_error(libc::ENOTDIR)),
                Err(_) => self.create_dir(ancestor)?,
            }
        }
        Ok(())
    }

    /// Atomic; takes the place of a file of the new name.
    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.find(from)?;
        if to != from && to.starts_with(from) {
            return Err(os_error(libc::EINVAL));
        }
        let (from_folder, from_name) = self.folder_of(from)?;
        let (to_folder, to_name) = self.folder_of(to)?;
        if let Some(replaced) = self.folders[&to_folder].get(&to_name).copied() {
            if replaced == node {
                return Ok(());
            }
            match (self.is_folder(node), self.folders.get(&replaced)) {
                (true, None) => return Err(os_error(libc::ENOTDIR)),
                (false, Some(_)) => return Err(os_error(libc::EISDIR)),
                (true, Some(names)) if !names.is_empty() => return Err(os_error(libc::ENOTEMPTY)),
                _ => self.removals += 1,
            }
        }
        self.paths.insert(node, to.to_string_lossy().into_owned());
        self.change(Change { removes: Some((from_folder, from_name)), sets: Some((to_folder, to_name, node)) });
        Ok(())
    }

    pub(crate) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        if self.folders.contains_key(&self.find(path)?) {
            return Err(os_error(libc::EISDIR));
        }
        self.remove_name(path)
    }

    pub(crate) fn remove_dir_all(&mut self, path: &Path) -> io::Result<()> {
        self.removals_of(path)?.iter().try_for_each(|inside| self.remove_name(inside))
    }

    /// What a process left of a folder when it died while it removed it.
    pub(crate) fn remove_dir_torn(&mut self, path: &Path, random: &mut Random) {
        if let Ok(removals) = self.removals_of(path) {
            let done = random.index(removals.len() + 1);
            removals[..done]
                .iter()
                .try_for_each(|inside| self.remove_name(inside))
                .expect("these names were just listed");
        }
    }

    /// The folder and all names in it, each after what is in it.
    fn removals_of(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let names = self.folders.get(&self.find(path)?).ok_or_else(|| os_error(libc::ENOTDIR))?;
        let mut removals = Vec::new();
        for (name, node) in names {
            let inside = path.join(name);
            if self.is_folder(*node) {
                removals.append(&mut self.removals_of(&inside)?);
            } else {
                removals.push(inside);
            }
        }
        removals.push(path.to_owned());
        Ok(removals)
    }

    /// Sorted by name.
    pub(crate) fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let names = self.folders.get(&self.find(path)?).ok_or_else(|| os_error(libc::ENOTDIR))?;
        let entry = |(name, node): (&String, &Node)| Entry {
            name: name.clone(),
            is_dir: self.folders.contains_key(node),
            len: self.len(*node),
        };
        Ok(names.iter().map(entry).collect())
    }

    // The end of a process, and of the power.

    /// The process is gone: its files are closed, its locks free; bytes and names stay.
    pub(crate) fn kill(&mut self) {
        self.open.clear();
        self.locked.clear();
        self.sweep();
    }

    /// Unsynced names go back to a point in the journal, unsynced blocks to one of their images since their sync.
    pub(crate) fn lose_power(&mut self, random: &mut Random) {
        let kept = random.index(self.journal.len() + 1);
        for change in std::mem::take(&mut self.journal).into_iter().take(kept) {
            apply(&mut self.durable_folders, &change);
        }
        self.folders = self.durable_folders.clone();
        for file in self.files.values_mut() {
            file.lose_power(random);
        }
        self.kill();
    }

    fn create(&mut self, path: &Path) -> io::Result<Node> {
        let (folder, name) = self.folder_of(path)?;
        let node = self.new_node(path);
        self.files.insert(node, FileImage::new());
        self.change(Change { removes: None, sets: Some((folder, name, node)) });
        Ok(node)
    }

    fn new_node(&mut self, path: &Path) -> Node {
        let node = Node(self.next_node);
        self.next_node += 1;
        self.paths.insert(node, path.to_string_lossy().into_owned());
        node
    }

    fn remove_name(&mut self, path: &Path) -> io::Result<()> {
        let (folder, name) = self.folder_of(path)?;
        self.change(Change { removes: Some((folder, name)), sets: None });
        self.removals += 1;
        if self.removals >= SWEEP_AFTER_REMOVALS {
            self.sweep();
        }
        Ok(())
    }

    fn folder_of(&self, path: &Path) -> io::Result<(Node, String)> {
        let name = components(path)?.pop().ok_or_else(|| os_error(libc::EINVAL))?.to_owned();
        let folder = self.find(path.parent().unwrap_or(Path::new("/")))?;
        if self.folders.contains_key(&folder) { Ok((folder, name)) } else { Err(os_error(libc::ENOTDIR)) }
    }

    fn file(&self, node: Node) -> io::Result<&FileImage> {
        self.files.get(&node).ok_or_else(|| os_error(libc::EISDIR))
    }

    fn file_mut(&mut self, node: Node) -> io::Result<&mut FileImage> {
        self.files.get_mut(&node).ok_or_else(|| os_error(libc::EISDIR))
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.folders, &change);
        self.journal.push(change);
    }

    fn sync_folder(&mut self, folder: Node) {
        let touches = |change: &Change| {
            change.removes.as_ref().is_some_and(|(node, _)| *node == folder)
                || change.sets.as_ref().is_some_and(|(node, ..)| *node == folder)
        };
        let (synced, waiting) = std::mem::take(&mut self.journal).into_iter().partition(touches);
        self.journal = waiting;
        let synced: Vec<Change> = synced;
        for change in &synced {
            apply(&mut self.durable_folders, change);
        }
    }

    /// Frees what neither tree, nor the journal, nor an open file leads to.
    fn sweep(&mut self) {
        self.removals = 0;
        let mut reached: BTreeSet<Node> = self.open.keys().copied().chain([ROOT]).collect();
        let mut unvisited: Vec<Node> = reached.iter().copied().collect();
        unvisited.extend(self.journal.iter().filter_map(|change| change.sets.as_ref().map(|(.., node)| *node)));
        while let Some(node) = unvisited.pop() {
            reached.insert(node);
            for folders in [&self.folders, &self.durable_folders] {
                let names = folders.get(&node).into_iter().flatten();
                unvisited.extend(names.map(|(_, node)| *node).filter(|node| !reached.contains(node)));
            }
        }
        self.files.retain(|node, _| reached.contains(node));
        self.paths.retain(|node, _| reached.contains(node));
        self.folders.retain(|node, _| reached.contains(node));
        self.durable_folders.retain(|node, _| reached.contains(node));
    }
}

fn apply(folders: &mut BTreeMap<Node, Names>, change: &Change) {
    if let Some((folder, name)) = &change.removes
        && let Some(names) = folders.get_mut(folder)
    {
        names.remove(name);
    }
    if let Some((folder, name, node)) = &change.sets
        && let Some(names) = folders.get_mut(folder)
    {
        names.insert(name.clone(), *node);
    }
}

fn fail_now(failing: &mut Option<Failing>, path: Option<&String>) -> Option<io::Error> {
    let rule = failing.as_mut()?;
    if rule.times == 0 || !path.is_some_and(|path| path.contains(&rule.path_contains)) {
        return None;
    }
    rule.times -= 1;
    Some(os_error(rule.error))
}

fn components(path: &Path) -> io::Result<Vec<&str>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir => drop(names.pop()),
            Component::Normal(name) => names.push(name.to_str().ok_or_else(|| os_error(libc::EINVAL))?),
            Component::Prefix(_) => return Err(os_error(libc::EINVAL)),
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
