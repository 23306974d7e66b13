//! Skeleton.
use std::path::PathBuf;
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {}
pub fn preflight(_data_folders: &[PathBuf]) -> Result<(), PreflightError> {
    todo!()
}
