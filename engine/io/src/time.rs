//! Skeleton.
use crate::moment::Moment;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
pub struct Sleep;
impl Future for Sleep {
    type Output = ();
    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<()> {
        todo!()
    }
}
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the time was up")]
pub struct Elapsed;
pub fn sleep(_d: Duration) -> Sleep {
    todo!()
}
pub fn sleep_until(_m: Moment) -> Sleep {
    todo!()
}
pub async fn timeout<F: Future>(_d: Duration, _f: F) -> Result<F::Output, Elapsed> {
    todo!()
}
pub fn now() -> Moment {
    todo!()
}
pub fn wall_clock_ms() -> i64 {
    todo!()
}
pub fn random_u64() -> u64 {
    todo!()
}
pub fn fill_random(_bytes: &mut [u8]) {
    todo!()
}
pub fn in_shard() -> bool {
    todo!()
}
