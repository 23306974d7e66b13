//! Skeleton.
use crate::memory::BlockLease;
use bytes::Bytes;
use std::io;
use std::marker::PhantomData;
use std::path::Path;
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenOptions {
    pub create: bool,
    pub direct: bool,
    pub write: bool,
}
#[derive(Clone)]
pub struct File(PhantomData<*const ()>);
impl File {
    pub async fn open(_path: &Path, _options: OpenOptions) -> io::Result<File> {
        todo!()
    }
    pub async fn size(&self) -> io::Result<u64> {
        todo!()
    }
    pub async fn write_range(&self, _blocks: BlockLease, _position: u64) -> io::Result<()> {
        todo!()
    }
    pub async fn read(&self, _position: u64, _len: usize) -> io::Result<Bytes> {
        todo!()
    }
    pub async fn sync(&self) -> io::Result<()> {
        todo!()
    }
    pub async fn truncate(&self, _len: u64) -> io::Result<()> {
        todo!()
    }
    pub async fn allocate(&self, _len: u64) -> io::Result<()> {
        todo!()
    }
    pub async fn close(self) -> io::Result<()> {
        todo!()
    }
}
