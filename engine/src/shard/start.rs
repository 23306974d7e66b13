//! How an owner shard begins and ends.
//!
//! Path: `broker` starts a thread with `run`; it opens the listener, serves connections and messages, and closes its
//! logs when it is stopped.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use sakia_controller::Image;
use sakia_io::{Arena, Class, Listener, Receiver, Reply, Sender, Signal, Stream, spawn};
use tracing::{error, warn};

use super::{Coordination, FolderState, Lending, Shard};
use crate::api::BrokerApi;
use crate::combiner::BucketState;
use crate::connection::{ConnectionLimits, LineLimit, serve};
use crate::counters::BrokerCounters;
use crate::fetcher::Fetchers;
use crate::limits::MESSAGES_PER_TURN;
use crate::messages::{Addresses, ShardCheckpoint, ShardId, ShardMessage};
use crate::outbox::Outbox;
use crate::placement::Placement;
use crate::replication::WalIndex;
use crate::replication::limits::WAL_INDEX_BYTES;
use crate::settings::Settings;

/// What a shard starts with.
pub struct ShardStart {
    /// Its number.
    pub id: ShardId,
    /// The process's settings.
    pub settings: Arc<Settings>,
    /// Messages in.
    pub inbox: Receiver<ShardMessage>,
    /// The other threads.
    pub addresses: Addresses,
    /// What is counted.
    pub counters: Arc<BrokerCounters>,
    /// The data folder.
    pub folder: FolderState,
    /// Where clients are served.
    pub listen: Vec<SocketAddr>,
    /// Asks for the checkpoint files to be written now.
    pub checkpoint: Sender<Reply<()>>,
    /// Index of the metadata that this shard has applied.
    pub applied: Arc<AtomicI64>,
    /// Raised when the log folder failed.
    pub failure: Signal,
    /// Whether the bucket can be read, as the combiner finds it.
    pub bucket: BucketState,
    /// Numbers of connections, over all shards: they grow, so that a replica's later session has the greater number.
    pub sessions: Arc<AtomicU64>,
    /// Open connections, over all shards.
    pub connections: Arc<AtomicUsize>,
}

/// Runs a shard until it is stopped.
pub async fn run(start: ShardStart) {
    let ShardStart { id, settings, mut inbox, addresses, counters, folder, applied, failure, .. } = start;
    let placement = Placement::new(addresses.shards.len());
    let shards = addresses.shards.len();
    let shard = Rc::new(Shard {
        id,
        arena: Arena::new(settings.tail_bytes / shards),
        outbox: Outbox::new(addresses.clone(), placement),
        addresses,
        placement,
        counters,
        index: RefCell::new(WalIndex::new(WAL_INDEX_BYTES / shards)),
        lending: Lending::default(),
        proposals: super::proposals::Proposals::default(),
        failure,
        bucket: start.bucket,
        checkpoint: start.checkpoint,
        fetchers: Fetchers::default(),
        coordination: Coordination::new(&settings),
        folder,
        image: RefCell::new(Image::default()),
        metadata_index: Cell::new(None),
        topic_settings: RefCell::default(),
        partitions: RefCell::new(BTreeMap::new()),
        pending: super::reconcile::Pending::default(),
        generation: Cell::new(0),
        handing_over: Cell::new(0),
        stopping: Cell::new(false),
        settings,
    });
    let reconciling = spawn(Class::Foreground, shard.clone().reconcile(applied));
    spawn(Class::Foreground, shard.outbox.clone().run()).detach();
    spawn(Class::Foreground, shard.clone().lend()).detach();
    spawn(Class::Foreground, shard.clone().propose()).detach();
    spawn(Class::Foreground, Coordination::keep_time(shard.clone())).detach();
    spawn(Class::Background, Coordination::keep_retention(shard.clone())).detach();
    spawn(Class::Background, shard.clone().look_after_replicas()).detach();
    spawn(Class::Background, shard.clone().look_after_logs()).detach();
    let door = Rc::new(Door {
        api: BrokerApi::new(shard.clone()),
        lines: Rc::new(LineLimit::default()),
        sessions: start.sessions,
        connections: start.connections,
    });
    for address in start.listen {
        match Listener::bind(address) {
            Ok(listener) => spawn(Class::Foreground, accept(shard.clone(), door.clone(), listener)).detach(),
            Err(why) => {
                error!(%address, "cannot listen: {why}");
                shard.failure.raise();
            }
        }
    }
    let mut messages = Vec::new();
    let ending = loop {
        if inbox.recv_many(&mut messages, MESSAGES_PER_TURN).await == 0 {
            break Ending::AtOnce;
        }
        if let Some(ending) = messages.drain(..).find_map(|message| shard.take(message)) {
            break ending;
        }
    };
    if let Ending::Clean(reply) = ending {
        shard.close(reconciling).await;
        let _ = reply.send(shard.checkpoint_state());
    }
}

/// How a shard ends.
pub(super) enum Ending {
    /// Every log is closed first.
    Clean(Reply<ShardCheckpoint>),
    /// As a crash would: the process cannot go on.
    AtOnce,
}

/// What every connection of a shard shares.
struct Door {
    api: Rc<BrokerApi>,
    lines: Rc<LineLimit>,
    sessions: Arc<AtomicU64>,
    connections: Arc<AtomicUsize>,
}

async fn accept(shard: Rc<Shard>, door: Rc<Door>, listener: Listener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => admit(&shard, &door, stream),
            Err(why) => warn!("a connection could not be accepted: {why}"),
        }
    }
}

/// Serves a connection, unless there are too many.
fn admit(shard: &Rc<Shard>, door: &Rc<Door>, stream: Stream) {
    let open = door.connections.fetch_add(1, Ordering::Relaxed);
    if open >= shard.settings.connections_max {
        door.connections.fetch_sub(1, Ordering::Relaxed);
        door.lines.warn(stream.peer(), "max.connections is reached");
        return;
    }
    shard.counters.connections.add(1);
    let session = door.sessions.fetch_add(1, Ordering::Relaxed);
    let limits =
        ConnectionLimits { request_bytes_max: shard.settings.request_bytes_max, idle_max: shard.settings.idle_max };
    let (shard, door) = (shard.clone(), door.clone());
    spawn(Class::Foreground, async move {
        serve(stream, session, door.api.clone(), limits, door.lines.clone()).await;
        door.connections.fetch_sub(1, Ordering::Relaxed);
        shard.counters.connections.add(-1);
    })
    .detach();
}
