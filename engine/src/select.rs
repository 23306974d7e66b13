//! Waits for the first of two futures. Both are polled in order, so the outcome is the same under a seed.
//!
//! The other future is dropped: use it only with futures that lose nothing when dropped.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Which one was first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Either<L, R> {
    /// The first argument.
    Left(L),
    /// The second argument.
    Right(R),
}

/// The first of two futures to be ready; the left one if both are.
pub async fn either<L: Future, R: Future>(left: L, right: R) -> Either<L::Output, R::Output> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(|cx| {
        if let Poll::Ready(output) = left.as_mut().poll(cx) {
            return Poll::Ready(Either::Left(output));
        }
        right.as_mut().poll(cx).map(Either::Right)
    })
    .await
}
