//! Calls that block, away from the shard's thread.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::driver::{Op, Outcome};
use crate::oneshot::oneshot;
use crate::operation::begin;

/// Runs `call` on a helper thread (the simulator: at once, in place). A panic of `call` is a panic of the waiting task. When
/// dropped before its end, the call still runs to its end. The call makes no use of this crate: it is in no shard.
pub async fn blocking<R: Send + 'static>(call: impl FnOnce() -> R + Send + 'static) -> R {
    let (reply, answer) = oneshot();
    let job = move || {
        // Nobody may wait any more.
        let _unwanted = reply.send(catch_unwind(AssertUnwindSafe(call)));
    };
    match begin(Op::Blocking(Box::new(job))).await {
        Outcome::Done(Ok(())) => {}
        Outcome::Done(Err(error)) => panic!("a blocking call was not run: {error}"),
        _ => unreachable!("a blocking call gives Done"),
    }
    match answer.await.expect("the call has run when its operation is done") {
        Ok(result) => result,
        Err(panic) => resume_unwind(panic),
    }
}
