//! Skeleton.
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    Foreground,
    Background,
}
/// Cancelled on drop.
pub struct Task<T>(async_task::Task<T>);
impl<T> Task<T> {
    pub fn detach(self) {
        self.0.detach();
    }
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
    /// Drops the future; the output if it had finished before.
    pub async fn cancel(self) -> Option<T> {
        self.0.cancel().await
    }
}
impl<T> Future for Task<T> {
    type Output = T;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        Pin::new(&mut self.0).poll(cx)
    }
}
pub fn spawn<F>(_class: Class, _future: F) -> Task<F::Output>
where
    F: Future + 'static,
{
    todo!()
}
pub async fn yield_now() {
    todo!()
}
