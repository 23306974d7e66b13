//! Skeleton.
pub async fn blocking<R: Send + 'static>(_call: impl FnOnce() -> R + Send + 'static) -> R {
    todo!()
}
