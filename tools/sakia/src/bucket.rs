//! `sakia bucket`: the embedded S3-compatible server as a process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use clap::Args;
use sakia_bucket::BucketConfig;

use crate::failure::Failure;
use crate::server::start_lines;
use crate::stop::{self, Input};

/// Arguments of `sakia bucket`.
#[derive(Args)]
pub(crate) struct BucketArguments {
    /// Folder of its objects
    #[arg(long)]
    data: PathBuf,
    /// Port on 127.0.0.1
    #[arg(long, default_value_t = 9000)]
    port: u16,
    /// Least milliseconds of a PUT
    #[arg(long, default_value_t = 5, value_name = "MS")]
    put_latency: u64,
    /// Least milliseconds of any other request
    #[arg(long, default_value_t = 4, value_name = "MS")]
    get_latency: u64,
    /// What the end of standard input means
    #[arg(long, hide = true, value_enum, default_value_t = Input::Ignored)]
    input: Input,
}

/// Serves until a signal, or the end of a watched standard input. Objects are whole or absent at any moment, so there
/// is nothing to wait for at the end.
pub(crate) fn run(arguments: &BucketArguments) -> Result<(), Failure> {
    start_lines();
    let config = BucketConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], arguments.port)),
        put_latency: Duration::from_millis(arguments.put_latency),
        get_latency: Duration::from_millis(arguments.get_latency),
        ..BucketConfig::new(arguments.data.clone())
    };
    let (heard, stop) = mpsc::channel();
    stop::on_signal(heard.clone(), || ()).map_err(Failure::failed)?;
    stop::on_input_end(arguments.input, heard, ()).map_err(Failure::failed)?;
    let bucket = sakia_bucket::start(config).map_err(Failure::refused)?;
    tracing::info!(address = %bucket.address(), data = %arguments.data.display(), "bucket listens");
    // An error means that all senders are gone, which is a reason to stop as well.
    let _ = stop.recv();
    drop(bucket);
    Ok(())
}
