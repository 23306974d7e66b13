//! Skeleton.
pub(crate) struct Core;
impl Core {
    pub(crate) fn close_later(&self, _number: u64) {
        todo!()
    }
}
