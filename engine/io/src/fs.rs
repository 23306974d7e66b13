//! Skeleton.
use std::io;
use std::path::Path;
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    pub name: String,
    pub is_dir: bool,
    pub len: u64,
}
pub struct FolderLock;
pub async fn read_file(_path: &Path) -> io::Result<Vec<u8>> {
    todo!()
}
pub async fn replace_file(_path: &Path, _content: Vec<u8>) -> io::Result<()> {
    todo!()
}
pub async fn rename(_from: &Path, _to: &Path) -> io::Result<()> {
    todo!()
}
pub async fn remove_file(_path: &Path) -> io::Result<()> {
    todo!()
}
pub async fn remove_dir_all(_path: &Path) -> io::Result<()> {
    todo!()
}
pub async fn create_dir_all(_path: &Path) -> io::Result<()> {
    todo!()
}
pub async fn list_dir(_path: &Path) -> io::Result<Vec<DirEntry>> {
    todo!()
}
pub async fn sync_dir(_path: &Path) -> io::Result<()> {
    todo!()
}
pub async fn exists(_path: &Path) -> io::Result<bool> {
    todo!()
}
pub async fn lock(_folder: &Path) -> io::Result<FolderLock> {
    todo!()
}
