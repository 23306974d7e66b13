//! Skeleton.
#[derive(Clone, Default)]
pub struct Signal;
impl Signal {
    pub fn new() -> Signal {
        Signal
    }
    pub fn raise(&self) {
        todo!()
    }
    pub async fn wait(&self) {
        todo!()
    }
    pub fn is_raised(&self) -> bool {
        todo!()
    }
}
