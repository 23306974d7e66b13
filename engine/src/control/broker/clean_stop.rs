//! The mark of a clean stop.

use std::io;
use std::path::Path;

use sakia_protocol::ids::BrokerEpoch;

use crate::log::checkpoint::CleanStop;

/// Says in the data folder that this broker epoch stopped cleanly (R3). Called last, on any shard, when every log of the
/// folder is closed; `broker_epoch` is what `run` gave.
///
/// # Errors
/// The disk failed; the next start is then taken for one after a crash.
pub async fn leave_clean_stop(folder: &Path, broker_epoch: Option<BrokerEpoch>) -> io::Result<()> {
    CleanStop { broker_epoch }.leave(folder).await
}
