//! The combiner shard: the only part of a broker that talks to the bucket.
//!
//! Path: ready ranges lent by owner shards → `put` (pack, freeze, PUT, publish) → `Published` to the shards; and for
//! followers: wanted objects → `get` (one GET per object) → slices to the owner shards. `sweep` deletes by age.
//!
//! One per broker and not per shard: PUTs are billed per request.
//! Invariant: every range that was lent comes back, as `Published` or as `Returned`, and nothing is sent before the
//! broker is registered: object names hold the broker epoch. A stream that is over stays so until the next registration.

mod announce;
mod bucket_state;
mod get;
mod put;
mod quiet;
mod sweep;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use sakia_io::{Class, Receiver, Sender, now, spawn};
use sakia_protocol::ids::{BrokerEpoch, MetadataIndex, Uuid};
use sakia_remote::ObjectStore;
use sakia_remote::garbage::Garbage;
use sakia_remote::key::{KeySpace, StreamId};
use sakia_remote::pack::{PackSettings, Packer};
use tracing::{info, warn};

use crate::counters::BrokerCounters;
use crate::limits::MESSAGES_PER_TURN;
use crate::messages::{CombinerMessage, ControlMessage, ShardMessage};
use crate::replication::Breaker;
use crate::settings::Settings;
use crate::wake::Wake;

use announce::Announcements;
pub use bucket_state::BucketState;
use quiet::{Matter, Quiet};

/// The only bucket of a cluster so far.
const BUCKET: u8 = 0;

/// What the combiner shard starts with.
pub struct CombinerStart {
    /// The process's settings.
    pub settings: Arc<Settings>,
    /// Messages in.
    pub inbox: Receiver<CombinerMessage>,
    /// Owner shards, by number.
    pub shards: Arc<[Sender<ShardMessage>]>,
    /// Told when a stream is over.
    pub control: Sender<ControlMessage>,
    /// What is counted.
    pub counters: Arc<BrokerCounters>,
    /// Index of the controller log that this broker has applied.
    pub metadata_index: Arc<AtomicI64>,
    /// Prefix of all names in the bucket.
    pub prefix: String,
    /// Told whether the bucket can be read.
    pub bucket: BucketState,
}

/// The stream of objects of one registration.
struct OpenStream {
    stream: StreamId,
    next_sequence: u64,
    garbage: Garbage,
    announcements: Announcements,
}

struct Combiner {
    settings: Arc<Settings>,
    store: Rc<dyn ObjectStore>,
    shards: Arc<[Sender<ShardMessage>]>,
    control: Sender<ControlMessage>,
    counters: Arc<BrokerCounters>,
    metadata_index: Arc<AtomicI64>,
    prefix: String,
    packer: RefCell<Packer>,
    /// Where objects are read and written; stays when the own stream is over. `None` before the first registration.
    space: RefCell<Option<KeySpace>>,
    open: RefCell<Option<OpenStream>>,
    breaker: RefCell<Breaker>,
    bucket: BucketState,
    quiet: Quiet,
    puts_in_flight: Cell<usize>,
    stopping: Cell<bool>,
    wake: Wake,
}

/// Runs the combiner until it is stopped.
pub async fn run(mut start: CombinerStart, store: Rc<dyn ObjectStore>) {
    let wal = &start.settings.wal;
    let pack = PackSettings {
        upload_bytes: wal.upload_bytes,
        interval: wal.interval,
        queue_bytes_max: wal.queue_bytes.max(PackSettings::default().object_bytes_max),
        ..PackSettings::default()
    };
    let combiner = Rc::new(Combiner {
        packer: RefCell::new(Packer::new(pack)),
        store,
        shards: start.shards,
        control: start.control,
        counters: start.counters,
        metadata_index: start.metadata_index,
        prefix: start.prefix,
        space: RefCell::new(None),
        open: RefCell::new(None),
        breaker: RefCell::new(Breaker::default()),
        bucket: start.bucket,
        quiet: Quiet::default(),
        puts_in_flight: Cell::new(0),
        stopping: Cell::new(false),
        wake: Wake::default(),
        settings: start.settings,
    });
    let packing = spawn(Class::Foreground, combiner.clone().pack());
    let sweeping = spawn(Class::Background, combiner.clone().sweep());
    let mut messages = Vec::new();
    let stopped = loop {
        if start.inbox.recv_many(&mut messages, MESSAGES_PER_TURN).await == 0 {
            break None;
        }
        if let Some(reply) = messages.drain(..).find_map(|message| combiner.take(message)) {
            break Some(reply);
        }
    };
    combiner.stopping.set(true);
    combiner.wake.wake();
    packing.await;
    drop(sweeping);
    if let Some(reply) = stopped {
        let _ = reply.send(());
    }
}

impl Combiner {
    /// Takes one message; gives the reply of a stop.
    fn take(self: &Rc<Self>, message: CombinerMessage) -> Option<sakia_io::Reply<()>> {
        match message {
            CombinerMessage::Ready(ranges) => self.offer(ranges),
            CombinerMessage::Get(objects) => self.get(objects),
            CombinerMessage::Registered { broker_epoch, incarnation } => self.begin_stream(broker_epoch, incarnation),
            CombinerMessage::Stop { reply } => return Some(reply),
        }
        None
    }

    fn begin_stream(&self, broker_epoch: BrokerEpoch, incarnation: Uuid) {
        let stream = StreamId { broker: self.settings.node_id, broker_epoch };
        let space = KeySpace::new(&self.prefix, &incarnation.to_string());
        info!(prefix = space.stream_prefix(stream), "object stream begins");
        let garbage = Garbage::new(space.clone(), stream, self.settings.wal.retention);
        *self.space.borrow_mut() = Some(space);
        *self.open.borrow_mut() =
            Some(OpenStream { stream, next_sequence: 0, garbage, announcements: Announcements::default() });
        self.wake.wake();
    }

    /// R13: somebody else writes under this registration's names. Nothing more is uploaded under it; only a new registration
    /// brings a stream that is ours alone. Objects of other streams are read as before.
    fn end_stream(&self, stream: StreamId) {
        if self.open.borrow_mut().take_if(|open| open.stream == stream).is_none() {
            // Another object of the stream met the same, or a later registration has begun the next.
            return;
        }
        let control = self.control.clone();
        let message = ControlMessage::StreamOver { broker_epoch: stream.broker_epoch };
        spawn(Class::Foreground, async move {
            // Without a control shard the process ends.
            let _ = control.send(message).await;
        })
        .detach();
    }

    /// The bucket answered as it should.
    fn bucket_works(&self) {
        let mut breaker = self.breaker.borrow_mut();
        if breaker.is_open() {
            info!("the bucket works again");
        }
        breaker.succeeded();
        self.bucket.works();
    }

    /// The bucket, or the way to it, failed.
    fn bucket_fails(&self) {
        let mut breaker = self.breaker.borrow_mut();
        let was_open = breaker.is_open();
        breaker.failed(now().as_duration());
        if breaker.is_open() && !was_open {
            warn!("the bucket does not work: replication goes on by record bytes until it does");
        }
        if let Some(until) = breaker.open_until() {
            self.bucket.fails_until(until);
        }
    }

    fn applied(&self) -> MetadataIndex {
        MetadataIndex::new(self.metadata_index.load(Ordering::Acquire).max(0))
    }

    /// The bucket's name space as this broker knows it; `None` before it is registered.
    fn space(&self) -> Option<KeySpace> {
        self.space.borrow().clone()
    }
}
