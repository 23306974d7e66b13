//! Skeleton.
use std::marker::PhantomData;
pub struct Sender<T>(PhantomData<T>);
pub struct Receiver<T>(PhantomData<T>);
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrySendError<T> {
    #[error("the mailbox is full")]
    Full(T),
    #[error("the receiver of the mailbox is gone")]
    Closed(T),
}
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the receiver of the mailbox is gone")]
pub struct Closed<T>(pub T);
pub fn mailbox<T: Send>(_bound: usize) -> (Sender<T>, Receiver<T>) {
    todo!()
}
impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        todo!()
    }
}
impl<T: Send> Sender<T> {
    pub fn try_send(&self, _value: T) -> Result<(), TrySendError<T>> {
        todo!()
    }
    pub async fn send(&self, _value: T) -> Result<(), Closed<T>> {
        todo!()
    }
    pub fn len(&self) -> usize {
        todo!()
    }
    pub fn is_empty(&self) -> bool {
        todo!()
    }
}
impl<T: Send> Receiver<T> {
    pub async fn recv(&mut self) -> Option<T> {
        todo!()
    }
    /// Appends at least one and at most `max` values; 0: closed and empty.
    pub async fn recv_many(&mut self, _into: &mut Vec<T>, _max: usize) -> usize {
        todo!()
    }
    pub fn try_recv(&mut self) -> Option<T> {
        todo!()
    }
}
