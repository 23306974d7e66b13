//! An S3-compatible server for development and tests, embedded in `sakia dev`.
//!
//! Objects lie as files below a data folder and survive a restart; creation with `If-None-Match: *` is atomic; put and
//! get take as long as on a fast cloud store; a ledger counts every request answered, so that a broker's own counts
//! can be compared with it.
//!
//! Reading order: this page, [`http`](mod@http) (what happens to a request), [`ledger`], [`fault`], [`s3`] (operations), [`disk`]
//! (files), [`name`] (keys as file names).
//! Invariant: an object is seen whole or not at all, and one of several racing creators wins.

mod disk;
mod fault;
mod http;
mod ledger;
mod name;
mod s3;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;

use crate::disk::Disk;
use crate::http::Front;

/// How a bucket server is set up.
#[derive(Clone, Debug)]
pub struct BucketConfig {
    /// Folder of its objects; created if absent.
    pub data: PathBuf,
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Buckets that exist from the start.
    pub buckets: Vec<String>,
    /// Access key that requests must be signed with.
    pub access_key: String,
    /// Its secret.
    pub secret_key: String,
    /// Least time from a put to its answer.
    pub put_latency: Duration,
    /// Least time from any other request to its answer.
    pub get_latency: Duration,
}

impl BucketConfig {
    /// What `sakia dev` uses: port 9000 on the loopback address, bucket `sakia-wal`, keys `sakia` / `sakia-secret`,
    /// 5 ms for a put and 4 ms for a get.
    #[must_use]
    pub fn new(data: PathBuf) -> Self {
        Self {
            data,
            listen: SocketAddr::from(([127, 0, 0, 1], 9000)),
            buckets: vec!["sakia-wal".to_owned()],
            access_key: "sakia".to_owned(),
            secret_key: "sakia-secret".to_owned(),
            put_latency: Duration::from_millis(5),
            get_latency: Duration::from_millis(4),
        }
    }
}

/// Why a bucket server does not start.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// The address cannot be taken.
    #[error("bucket cannot listen on {address}: {error}; is another one running?")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
    /// The data folder cannot be used.
    #[error("bucket cannot use its data folder {folder}: {error}", folder = folder.display())]
    Data {
        /// Which.
        folder: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The runtime or its thread cannot be made.
    #[error("bucket cannot start its runtime: {0}")]
    Runtime(io::Error),
}

/// Serves until the process ends.
pub fn run(config: BucketConfig) -> Result<(), BucketError> {
    let bucket = Bound::open(config)?;
    tracing::info!(address = %bucket.address, "bucket listens");
    let (_never_stopped, stop) = oneshot::channel();
    bucket.serve(stop);
    Ok(())
}

/// Serves on a thread of its own until stopped or dropped.
pub fn start(config: BucketConfig) -> Result<RunningBucket, BucketError> {
    let bucket = Bound::open(config)?;
    let address = bucket.address;
    let (stop_sender, stop) = oneshot::channel();
    let thread = std::thread::Builder::new().name("bucket".to_owned()).spawn(move || bucket.serve(stop));
    let thread = thread.map_err(BucketError::Runtime)?;
    Ok(RunningBucket { address, stop: Some(stop_sender), thread: Some(thread) })
}

/// A bucket server on a thread.
#[derive(Debug)]
pub struct RunningBucket {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RunningBucket {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for RunningBucket {
    /// Closes all connections and waits for the thread.
    fn drop(&mut self) {
        // A receiver that is gone has stopped by itself.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Bound {
    listener: std::net::TcpListener,
    address: SocketAddr,
    runtime: tokio::runtime::Runtime,
    front: Arc<Front>,
}

impl Bound {
    fn open(config: BucketConfig) -> Result<Self, BucketError> {
        let at = config.listen;
        let listen = |error| BucketError::Listen { address: at, error };
        let listener = std::net::TcpListener::bind(at).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let disk = Disk::open(&config.data, &config.buckets);
        let disk = disk.map_err(|error| BucketError::Data { folder: config.data.clone(), error })?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(BucketError::Runtime)?;
        Ok(Self { listener, address, runtime, front: Arc::new(Front::new(&config, disk)) })
    }

    /// Returns when `stop` fires; open connections are cut.
    fn serve(self, stop: oneshot::Receiver<()>) {
        let Self { listener, runtime, front, .. } = self;
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("inside a runtime with I/O");
            tokio::spawn(accept(listener, front));
            // Also ends when the sender is dropped.
            let _ = stop.await;
        });
    }
}

async fn accept(listener: tokio::net::TcpListener, front: Arc<Front>) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "bucket cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Small answers must not wait for an acknowledgement.
        let _ = stream.set_nodelay(true);
        let front = Arc::clone(&front);
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| Front::answer(Arc::clone(&front), request));
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "bucket connection ended");
            }
        });
    }
}
