//! Skeleton.
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
pub struct Reply<T>(PhantomData<T>);
pub struct Answer<T>(PhantomData<T>);
pub fn oneshot<T: Send>() -> (Reply<T>, Answer<T>) {
    todo!()
}
impl<T: Send> Reply<T> {
    pub fn send(self, _value: T) -> Result<(), T> {
        todo!()
    }
}
impl<T: Send> Future for Answer<T> {
    type Output = Option<T>;
    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<T>> {
        todo!()
    }
}
