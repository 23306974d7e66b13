//! Claims about owner shards, told what to do by messages as in a process: roles that change in the middle of something,
//! topics that come again under an old name, what the controller says of an ISR.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use sakia_controller::event::{PartitionChanged, TopicCreated, TopicDeleted};
use sakia_controller::image::{
    BrokerImage, IsrMember, LeaderRecovery, Listener, PartitionImage, SecurityProtocol, Standing, TopicImage,
};
use sakia_controller::{Event, Image};
use sakia_io::sim::{Machine, World};
use sakia_io::{Class, Receiver, Reply, ShardSpec, Signal, Stream, mailbox, oneshot, sleep, timeout};
use sakia_metrics::Registry;
use sakia_protocol::api::ApiKey;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::batch::{BatchBuilder, CheckedBatch, Compression, NewRecord, StampedTime};
use sakia_protocol::codec::{Reader as WireReader, decode_exact};
use sakia_protocol::header::{RequestHeader, encode_response};
use sakia_protocol::ids::{
    BrokerEpoch, BrokerId, LeaderEpoch, MetadataIndex, Offset, PartitionEpoch, PartitionIndex, PartitionKey, Uuid,
};
use sakia_protocol::messages::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, FetchableTopicResponse, PartitionData,
};
use sakia_protocol::messages::list_offsets::{
    ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use sakia_protocol::messages::metadata::MetadataRequest;

use super::{FolderState, ShardStart, run};
use crate::combiner::BucketState;
use crate::counters::BrokerCounters;
use crate::log::checkpoint::decode_topic_id;
use crate::log::folder::PartitionFolder;
use crate::log::{AtLeastOne, Opening};
use crate::messages::{
    Acks, Addresses, ControlMessage, FetchOrder, FetcherMessage, Followed, IsrProposal, LastRead, PartitionRead,
    ProduceBatch, ProduceOrder, Produced, ReadResult, Reader, Refusal, ReplicaReader, Replicated, ReplicatedBytes,
    ShardId, ShardMessage,
};
use crate::placement::Placement;
use crate::rpc::{Peer, PeerAddress};
use crate::settings::Settings;

const LIMIT: Duration = Duration::from_secs(120);
const ME: BrokerId = BrokerId::new(1);
/// Its fetcher lives on shard 0 of two.
const OTHER: BrokerId = BrokerId::new(2);
const TOPIC: &str = "orders";
const PORT: u16 = 9092;

/// Shards of one broker; those that are not real are played by the test.
#[derive(Clone)]
struct Broker {
    addresses: Addresses,
    failure: Signal,
}

struct Rig {
    world: World,
    machine: Machine,
    broker: Broker,
    /// Of the shards that the test plays.
    played: Vec<Receiver<ShardMessage>>,
    /// Index that each real shard has applied.
    applied: Vec<Arc<AtomicI64>>,
    control: Option<Receiver<ControlMessage>>,
    registry: Registry,
}

impl Rig {
    /// A broker of two shards, of which the last `real` are real.
    fn new(real: usize, folder: FolderState) -> Self {
        let world = World::new(7);
        let machine = world.machine("broker");
        world.machine("other");
        let (senders, mut inboxes): (Vec<_>, Vec<_>) = (0..2).map(|_| mailbox(1024)).unzip();
        let (control, control_inbox) = mailbox(64);
        let addresses = Addresses { shards: senders.into(), combiner: None, control };
        let (checkpoint, mut checkpoints) = mailbox::<Reply<()>>(16);
        let failure = Signal::new();
        let settings = Arc::new(settings());
        let registry = Registry::new();
        let counters = Arc::new(BrokerCounters::new(&registry));
        let applied: Vec<_> = (0..real).map(|_| Arc::new(AtomicI64::new(-1))).collect();
        let played_count = inboxes.len() - real;
        for (number, inbox) in inboxes.split_off(played_count).into_iter().enumerate() {
            let start = ShardStart {
                id: ShardId::new(played_count + number),
                settings: settings.clone(),
                inbox,
                addresses: addresses.clone(),
                counters: counters.clone(),
                folder: FolderState { path: PathBuf::from("/data"), ..folder.clone() },
                listen: vec![SocketAddr::from(([0, 0, 0, 0], PORT))],
                checkpoint: checkpoint.clone(),
                applied: applied[number].clone(),
                failure: failure.clone(),
                bucket: BucketState::default(),
                sessions: Arc::new(AtomicU64::new(1)),
                connections: Arc::new(AtomicUsize::new(0)),
            };
            let spec = ShardSpec { name: format!("shard-{number}"), cpu: None };
            machine.spawner().start(spec, Box::new(move || Box::pin(run(start)))).unwrap();
        }
        world.spawn_client(&machine, async move {
            sakia_io::fs::create_dir_all("/data".as_ref()).await.unwrap();
            while let Some(reply) = checkpoints.recv().await {
                let _ = reply.send(());
            }
        });
        world.run_for(Duration::from_millis(50));
        let broker = Broker { addresses, failure };
        Self { world, machine, broker, played: inboxes, applied, control: Some(control_inbox), registry }
    }

    fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.world.block_on(&self.machine, LIMIT, future).unwrap()
    }
}

fn settings() -> Settings {
    let texts = [
        ("process.roles", "broker"),
        ("node.id", "1"),
        ("shards", "2"),
        ("log.dirs", "/data"),
        ("listeners", "PLAINTEXT://:9092"),
        ("advertised.listeners", "PLAINTEXT://broker:9092"),
        ("controller.quorum.voters", "9@control:9093"),
        ("min.insync.replicas", "1"),
    ];
    let texts: BTreeMap<String, String> = texts.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Settings::from_properties(&texts).unwrap().0
}

fn at(offset: i64) -> Offset {
    Offset::new(offset)
}

fn epoch(number: i32) -> LeaderEpoch {
    LeaderEpoch::new(number)
}

/// A key of a topic whose first partition lies on this shard. Keys of other numbers differ.
fn key_on(shard: usize, number: u8) -> PartitionKey {
    let keys = (0..=u8::MAX).map(|filler| {
        let mut id = [filler; 16];
        id[0] = number;
        PartitionKey { topic_id: Uuid::from_bytes(id), partition: PartitionIndex::new(0) }
    });
    keys.into_iter().find(|key| Placement::new(2).owner(key) == ShardId::new(shard)).unwrap()
}

fn record(leader: BrokerId, leader_epoch: i32, partition_epoch: i32, isr: &[BrokerId]) -> PartitionImage {
    let member = |broker: &BrokerId| IsrMember { broker: *broker, broker_epoch: BrokerEpoch::new(1) };
    PartitionImage {
        replicas: vec![ME, OTHER],
        isr: isr.iter().map(member).collect(),
        elr: Vec::new(),
        last_known_leader: None,
        leader: Some(leader),
        leader_epoch: epoch(leader_epoch),
        partition_epoch: PartitionEpoch::new(partition_epoch),
        recovery: LeaderRecovery::Recovered,
    }
}

fn topic(key: PartitionKey, partition: PartitionImage) -> Event {
    topic_of(key.topic_id, vec![partition])
}

fn topic_of(id: Uuid, partitions: Vec<PartitionImage>) -> Event {
    let topic = TopicImage { id, name: TOPIC.to_owned(), configs: BTreeMap::default(), partitions };
    Event::from(TopicCreated { topic: Arc::new(topic) })
}

/// A cluster of both brokers, active, and what the events bring.
fn image(events: &[Event]) -> Arc<Image> {
    let mut image = Image::default();
    for (broker, host) in [(ME, "broker"), (OTHER, "other")] {
        let listener = Listener {
            name: "PLAINTEXT".to_owned(),
            host: host.to_owned(),
            port: PORT,
            protocol: SecurityProtocol::Plaintext,
        };
        let registered = BrokerImage {
            epoch: BrokerEpoch::new(1),
            incarnation: Uuid::ZERO,
            boot_id: Uuid::ZERO,
            log_folders: Vec::new(),
            rack: None,
            listeners: vec![listener],
            features: BTreeMap::new(),
            standing: Standing::Active,
        };
        image.brokers.insert(broker, registered);
    }
    for event in events {
        image.apply(MetadataIndex::new(2), event);
    }
    Arc::new(image)
}

fn batch(records: i64) -> CheckedBatch {
    let mut batch = BatchBuilder::new(Compression::None);
    for number in 0..records {
        batch.push(NewRecord { timestamp_ms: number, value: Some(b"value"), ..NewRecord::default() });
    }
    batch.build()
}

/// One batch as a leader sends it.
fn replicated(records: i64, base: i64, leader_epoch: i32) -> Bytes {
    batch(records).place(at(base), epoch(leader_epoch), StampedTime::FromRecords).to_bytes()
}

impl Broker {
    async fn tell(&self, shard: usize, message: ShardMessage) {
        assert!(self.addresses.shards[shard].send(message).await.is_ok(), "the shard runs");
    }

    async fn image(&self, shards: &[usize], events: &[Event]) {
        let image = image(events);
        for shard in shards {
            self.tell(*shard, ShardMessage::Image { index: MetadataIndex::new(2), image: image.clone() }).await;
        }
    }

    async fn delta(&self, shard: usize, index: i64, events: Vec<Event>) {
        self.tell(shard, ShardMessage::Delta { index: MetadataIndex::new(index), events: events.into() }).await;
    }

    /// Produces one batch, as soon as the partition is led.
    async fn produce(&self, key: PartitionKey, records: i64, acks: Acks) -> Result<Produced, Refusal> {
        let shard = Placement::new(2).owner(&key).index();
        loop {
            let (reply, answer) = oneshot();
            let batches = vec![ProduceBatch { row: 0, key, batch: batch(records) }];
            let order = ProduceOrder { batches, acks, timeout: Duration::from_millis(500), reply };
            self.tell(shard, ShardMessage::Produce(order)).await;
            let outcome = answer.await.expect("the shard runs").remove(0).outcome;
            match outcome {
                Err(refusal) if refusal.code == ErrorCode::NotLeaderOrFollower => {
                    sleep(Duration::from_millis(5)).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn fetch(&self, key: PartitionKey, offset: i64, reader: Reader) -> ReadResult {
        let shard = Placement::new(2).owner(&key).index();
        let (reply, answer) = oneshot();
        let read = PartitionRead {
            row: 0,
            key,
            offset,
            current_leader_epoch: match &reader {
                Reader::Consumer { .. } => None,
                Reader::Replica(_) => Some(epoch(1)),
            },
            last_fetched_epoch: None,
            log_start: Some(at(0)),
            bytes_max: 1 << 20,
            bytes_until: None,
        };
        let order = FetchOrder {
            reads: vec![read],
            bytes_max: 1 << 20,
            first: AtLeastOne::Yes,
            reader,
            last: LastRead::Yes,
            waiter: None,
            reply,
        };
        self.tell(shard, ShardMessage::Fetch(order)).await;
        answer.await.expect("the shard runs").remove(0)
    }

    /// Hands on what the leader of a followed partition sent.
    async fn replicate(&self, followed: &Followed, what: ReplicatedBytes) {
        let Followed { key, generation, leader_epoch, .. } = *followed;
        let rows = vec![Replicated { key, generation, leader_epoch, what }];
        self.tell(followed.shard.index(), ShardMessage::Replicated(rows)).await;
    }
}

/// The next word to the fetcher of a partition that is followed.
async fn follows(fetchers: &mut Receiver<ShardMessage>) -> Followed {
    loop {
        let message = fetchers.recv().await.expect("the shard runs");
        if let ShardMessage::Fetcher { message: FetcherMessage::Follow(followed), .. } = message {
            return followed;
        }
    }
}

fn consumer() -> Reader {
    Reader::Consumer { rack: None }
}

fn replica(session_epoch: u64) -> Reader {
    Reader::Replica(ReplicaReader {
        broker: OTHER,
        broker_epoch: Some(BrokerEpoch::new(1)),
        session: 1,
        session_epoch,
        wants_references: false,
    })
}

#[test]
fn a_leadership_that_comes_in_the_middle_of_a_cut_begins_behind_it() {
    let mut rig = Rig::new(1, FolderState::default());
    let (broker, mut fetchers) = (rig.broker.clone(), rig.played.remove(0));
    let disk = rig.machine.disk();
    let key = key_on(1, 1);
    rig.run(async move {
        broker.image(&[1], &[topic(key, record(OTHER, 0, 0, &[ME, OTHER]))]).await;
        let followed = follows(&mut fetchers).await;
        let records = [replicated(5, 0, 0), replicated(5, 5, 0)].concat();
        // Everything was committed once; the next leader was elected uncleanly and has only half of it.
        let row =
            ReplicatedBytes::Row { records: records.into(), high_watermark: Some(at(10)), log_start: Some(at(0)) };
        broker.replicate(&followed, row).await;
        let followed = loop {
            let followed = follows(&mut fetchers).await;
            if followed.stored == at(10) {
                break followed;
            }
        };
        assert_eq!(broker.fetch(key, 0, consumer()).await.high_watermark, Some(at(10)));
        disk.slow(Duration::from_millis(100));
        broker.replicate(&followed, ReplicatedBytes::Diverging { epoch: epoch(0), end: at(5) }).await;
        let leads = PartitionChanged { key, partition: record(ME, 1, 1, &[ME, OTHER]) };
        broker.delta(1, 3, vec![Event::from(leads)]).await;
        disk.slow(Duration::ZERO);
        let produced = broker.produce(key, 3, Acks::Leader).await.expect("it is stored");
        assert_eq!(produced.base, at(5));
        let unanswered = broker.produce(key, 1, Acks::All).await.expect_err("the other replica has nothing of it");
        assert_eq!(unanswered.code, ErrorCode::RequestTimedOut);
        assert_eq!(broker.fetch(key, 5, consumer()).await.records.len(), 0, "nothing of it is committed");
    });
}

#[test]
fn a_replica_whose_log_is_damaged_below_a_cut_begins_anew_once_it_may_not_be_elected() {
    let mut rig = Rig::new(1, FolderState::default());
    let (broker, mut fetchers) = (rig.broker.clone(), rig.played.remove(0));
    let disk = rig.machine.disk();
    let key = key_on(1, 1);
    rig.run(async move {
        broker.image(&[1], &[topic(key, record(OTHER, 0, 0, &[ME, OTHER]))]).await;
        let mut followed = follows(&mut fetchers).await;
        for base in [0, 5] {
            let records = replicated(5, base, 0);
            let row = ReplicatedBytes::Row { records, high_watermark: Some(at(5)), log_start: Some(at(0)) };
            broker.replicate(&followed, row).await;
            while followed.stored < at(base + 5) {
                followed = follows(&mut fetchers).await;
            }
        }
        // The length of the first batch.
        disk.damage("/data/orders-0/00000000000000000000.log", 8, &[0xff; 4]).unwrap();
        broker.replicate(&followed, ReplicatedBytes::Diverging { epoch: epoch(0), end: at(5) }).await;
        let silence = timeout(Duration::from_secs(70), follows(&mut fetchers)).await;
        assert!(silence.is_err(), "it is in sync and may be elected: an empty log must not lead");
        let eligible = PartitionImage { elr: vec![ME], ..record(OTHER, 0, 1, &[OTHER]) };
        broker.delta(1, 3, vec![Event::from(PartitionChanged { key, partition: eligible })]).await;
        let silence = timeout(Duration::from_secs(5), follows(&mut fetchers)).await;
        assert!(silence.is_err(), "nor while it is eligible although it is not in sync");
        let left = PartitionChanged { key, partition: record(OTHER, 0, 2, &[OTHER]) };
        broker.delta(1, 4, vec![Event::from(left)]).await;
        let followed = follows(&mut fetchers).await;
        assert_eq!((followed.stored, followed.last_epoch), (at(0), None));
        let row =
            ReplicatedBytes::Row { records: replicated(5, 0, 0), high_watermark: Some(at(5)), log_start: Some(at(0)) };
        broker.replicate(&followed, row).await;
        assert_eq!(follows(&mut fetchers).await.stored, at(5), "it is a replica again");
    });
    assert!(!rig.broker.failure.is_raised());
}

/// How long a shard needs to open so many logs of one topic on a slow disk.
fn opening_takes(partitions: usize) -> Duration {
    let rig = Rig::new(2, FolderState::default());
    let (broker, applied) = (rig.broker.clone(), rig.applied[1].clone());
    rig.machine.disk().slow(Duration::from_millis(20));
    // All on one shard, by picking topics: each has one partition.
    let keys = (1..=u8::try_from(partitions).unwrap()).map(|number| key_on(1, number));
    let created = keys.map(|key| {
        let name = format!("topic-{}", key.topic_id.as_bytes()[0]);
        let partitions = vec![record(ME, 1, 0, &[ME])];
        let topic = TopicImage { id: key.topic_id, name, configs: BTreeMap::default(), partitions };
        Event::from(TopicCreated { topic: Arc::new(topic) })
    });
    let created: Vec<Event> = created.collect();
    let began = rig.world.now();
    rig.run(async move { broker.image(&[1], &created).await });
    rig.world.run_until(LIMIT, |_| applied.load(Ordering::Acquire) >= 0).unwrap();
    let took = rig.world.now() - began;
    assert_eq!(rig.machine.disk().names("/data").unwrap().len(), partitions);
    took
}

#[test]
fn logs_are_opened_several_at_a_time() {
    let (one, many) = (opening_takes(1), opening_takes(32));
    assert!(one > Duration::from_millis(100), "the disk is slow: {one:?}");
    assert!(many < one * 6, "32 logs, 8 at a time: {many:?}, one takes {one:?}");
}

#[test]
fn a_log_that_could_not_be_opened_is_tried_again_and_others_are_served_meanwhile() {
    let rig = Rig::new(2, FolderState::default());
    let (broker, applied) = (rig.broker.clone(), rig.applied[1].clone());
    let disk = rig.machine.disk();
    let (bad, good) = (key_on(1, 1), key_on(1, 2));
    let named = |key: PartitionKey, name: &str| {
        let partitions = vec![record(ME, 1, 0, &[ME])];
        let topic = TopicImage { id: key.topic_id, name: name.to_owned(), configs: BTreeMap::default(), partitions };
        Event::from(TopicCreated { topic: Arc::new(topic) })
    };
    // Too many open files.
    disk.fail_writes(sakia_io::sim::Failing::all().on("/bad-0").with(24));
    rig.run(async move {
        broker.image(&[1], &[named(bad, "bad"), named(good, "good")]).await;
        broker.produce(good, 2, Acks::All).await.expect("it is committed");
        sleep(Duration::from_secs(3)).await;
        assert!(applied.load(Ordering::Acquire) >= 0, "one bad log does not keep the broker out of service");
        let (reply, state) = oneshot();
        broker.tell(1, ShardMessage::Checkpoint { reply }).await;
        assert!(!state.await.unwrap().is_complete, "what the files say of the bad one stays");
        disk.heal();
        broker.produce(bad, 2, Acks::All).await.expect("it is committed");
        let (reply, state) = oneshot();
        broker.tell(1, ShardMessage::Checkpoint { reply }).await;
        assert!(state.await.unwrap().is_complete);
    });
    assert!(!rig.broker.failure.is_raised(), "the folder works");
}

#[test]
fn a_folder_that_cannot_be_written_when_a_log_is_opened_ends_the_process() {
    let rig = Rig::new(2, FolderState::default());
    let broker = rig.broker.clone();
    let key = key_on(1, 1);
    rig.machine.disk().fail_writes(sakia_io::sim::Failing::all());
    rig.run(async move {
        broker.image(&[0, 1], &[topic(key, record(ME, 1, 0, &[ME]))]).await;
        broker.failure.wait().await;
    });
}

/// Serves one connection of a follower as a leader whose logs lie elsewhere, and is slow to say where: counts how often it is
/// asked.
async fn lead_elsewhere(stream: Stream, asked: Rc<Cell<usize>>) {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(1 << 16);
        let (received, filled) = stream.recv(std::mem::take(&mut buffer)).await;
        buffer = filled;
        if matches!(received, Ok(0) | Err(_)) {
            return;
        }
        while let Some(len) = buffer.first_chunk::<4>().map(|head| i32::from_be_bytes(*head).try_into().unwrap()) {
            let len: usize = len;
            if buffer.len() < 4 + len {
                break;
            }
            buffer.advance(4);
            let frame = buffer.split_to(len).freeze();
            let mut reader = WireReader::new(&frame);
            let header = RequestHeader::decode(&mut reader).unwrap();
            let body = frame.slice(reader.position()..);
            let answer = match header.api_key {
                ApiKey::Fetch => {
                    let request: FetchRequest = decode_exact(&body, header.api_version).unwrap();
                    let answer = all_out_of_range(&request);
                    encode_response(ApiKey::Fetch, header.api_version, header.correlation_id, &answer)
                }
                _ => {
                    let request: ListOffsetsRequest = decode_exact(&body, header.api_version).unwrap();
                    asked.set(asked.get() + 1);
                    sleep(Duration::from_millis(500)).await;
                    let answer = begin_and_end_at_7(&request);
                    encode_response(ApiKey::ListOffsets, header.api_version, header.correlation_id, &answer)
                }
            };
            stream.send(answer.unwrap()).await.unwrap();
        }
    }
}

fn all_out_of_range(request: &FetchRequest) -> FetchResponse {
    let row = |row: &FetchPartition| PartitionData {
        partition_index: row.partition,
        // Those that have begun where the leader does have nothing to wait for.
        error_code: if row.fetch_offset == 7 { 0 } else { ErrorCode::OffsetOutOfRange.code() },
        high_watermark: 7,
        ..PartitionData::default()
    };
    let topic = |topic: &FetchTopic| FetchableTopicResponse {
        topic_id: topic.topic_id,
        partitions: topic.partitions.iter().map(row).collect(),
        ..FetchableTopicResponse::default()
    };
    FetchResponse { responses: request.topics.iter().map(topic).collect(), ..FetchResponse::default() }
}

fn begin_and_end_at_7(request: &ListOffsetsRequest) -> ListOffsetsResponse {
    let topics = request.topics.iter().map(|topic| ListOffsetsTopicResponse {
        name: topic.name.clone(),
        partitions: topic
            .partitions
            .iter()
            .map(|row| ListOffsetsPartitionResponse {
                partition_index: row.partition_index,
                offset: 7,
                ..ListOffsetsPartitionResponse::default()
            })
            .collect(),
    });
    ListOffsetsResponse { topics: topics.collect(), ..ListOffsetsResponse::default() }
}

#[test]
fn followers_out_of_range_ask_together_where_the_leaders_logs_begin() {
    let rig = Rig::new(2, FolderState::default());
    let (broker, asked) = (rig.broker.clone(), Rc::new(Cell::new(0)));
    let other = rig.world.machine("other");
    let serving = asked.clone();
    rig.world.spawn_client(&other, async move {
        let listener = sakia_io::Listener::bind(SocketAddr::from(([0, 0, 0, 0], PORT))).unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            sakia_io::spawn(Class::Foreground, lead_elsewhere(stream, serving.clone())).detach();
        }
    });
    let id = Uuid::from_bytes([3; 16]);
    let followed = (0..40).map(|_| record(OTHER, 1, 0, &[OTHER])).collect();
    rig.run(async move { broker.image(&[0, 1], &[topic_of(id, followed)]).await });
    rig.world.run_for(Duration::from_secs(5));
    let disk = rig.machine.disk();
    let began_anew = (0..40).filter(|number| {
        let names = disk.names(format!("/data/orders-{number}")).unwrap();
        names.iter().any(|name| name == "00000000000000000007.log")
    });
    assert_eq!(began_anew.count(), 40, "every log begins where the leader's does");
    // Two for each partition would be eighty.
    let asked = asked.get();
    assert!(asked <= 20, "{asked} requests for 40 partitions");
}

#[test]
fn a_leader_is_asked_only_from_the_end_of_what_was_appended_before_it_led() {
    let mut rig = Rig::new(1, FolderState::default());
    let (broker, mut fetchers) = (rig.broker.clone(), rig.played.remove(0));
    let disk = rig.machine.disk();
    let key = key_on(1, 1);
    rig.run(async move {
        broker.image(&[1], &[topic(key, record(ME, 1, 0, &[ME]))]).await;
        broker.produce(key, 4, Acks::Leader).await.expect("it is stored");
        disk.slow(Duration::from_millis(100));
        broker.produce(key, 3, Acks::None).await.expect("it is appended");
        let follows_now = PartitionChanged { key, partition: record(OTHER, 2, 1, &[ME, OTHER]) };
        broker.delta(1, 3, vec![Event::from(follows_now)]).await;
        let followed = follows(&mut fetchers).await;
        assert_eq!((followed.stored, followed.last_epoch), (at(7), Some(epoch(1))));
    });
}

/// A topic is deleted and created again in one step; its new partition lies on `next` shard.
fn recreate(next: usize, number: u8) {
    let rig = Rig::new(2, FolderState::default());
    let broker = rig.broker.clone();
    let (old, new) = (key_on(0, 5), key_on(next, number));
    rig.run(async move {
        broker.image(&[0, 1], &[topic(old, record(ME, 1, 0, &[ME]))]).await;
        broker.produce(old, 4, Acks::All).await.expect("it is committed");
        let deleted = Event::from(TopicDeleted { topic_id: old.topic_id, name: TOPIC.to_owned() });
        let events = [deleted, topic(new, record(ME, 1, 0, &[ME]))];
        // The new owner hears of it first.
        for shard in [1, 0] {
            broker.delta(shard, 3, events.to_vec()).await;
            sleep(Duration::from_millis(30)).await;
        }
        for base in [0, 2] {
            let produced = broker.produce(new, 2, Acks::All).await.expect("it is committed");
            assert_eq!(produced.base, at(base));
        }
        let read = broker.fetch(new, 0, consumer()).await;
        assert_eq!((read.error, read.high_watermark), (ErrorCode::None, Some(at(4))));
    });
    rig.world.run_for(Duration::from_secs(3));
    let disk = rig.machine.disk();
    assert_eq!(disk.names("/data").unwrap(), ["orders-0"]);
    let whose = decode_topic_id(&disk.content("/data/orders-0/partition.metadata").unwrap()).unwrap();
    assert_eq!(whose, new.topic_id);
    assert!(!rig.broker.failure.is_raised());
}

#[test]
fn a_topic_created_again_at_once_begins_empty_whichever_shard_owns_it() {
    // On the same shard before and behind the old one in the order of keys, and on another shard.
    for (next, number) in [(0, 1), (0, 9), (1, 1), (1, 9)] {
        recreate(next, number);
    }
}

#[test]
fn what_the_folder_said_of_an_earlier_topic_is_not_believed_of_a_new_one() {
    let opening = Opening { log_start: Some(at(500)), recovery_point: Some(at(600)), ..Opening::default() };
    let folder = PartitionFolder { topic: TOPIC.to_owned(), partition: PartitionIndex::new(0) };
    let partitions = Arc::new([(folder, (opening, Some(at(600))))].into());
    let rig = Rig::new(2, FolderState { partitions, ..FolderState::default() });
    let broker = rig.broker.clone();
    let key = key_on(1, 1);
    rig.run(async move {
        broker.image(&[0, 1], &[topic(key, record(ME, 1, 0, &[ME]))]).await;
        assert_eq!(broker.produce(key, 2, Acks::All).await.expect("it is committed").base, at(0));
    });
}

#[test]
fn a_broker_about_to_stop_appends_nothing_more_and_says_so_when_its_followers_have_everything() {
    let rig = Rig::new(2, FolderState::default());
    let broker = rig.broker.clone();
    let key = key_on(1, 1);
    rig.run(async move {
        broker.image(&[0, 1], &[topic(key, record(ME, 1, 0, &[ME, OTHER]))]).await;
        broker.produce(key, 3, Acks::Leader).await.expect("it is stored");
        let (reply, mut handed_over) = oneshot();
        broker.tell(1, ShardMessage::HandOver { reply }).await;
        let (reply, answer) = oneshot();
        let batches = vec![ProduceBatch { row: 0, key, batch: batch(1) }];
        let order = ProduceOrder { batches, acks: Acks::Leader, timeout: Duration::from_secs(1), reply };
        broker.tell(1, ShardMessage::Produce(order)).await;
        let refused = answer.await.expect("the shard runs").remove(0).outcome.expect_err("nothing more is appended");
        assert_eq!((refused.code, refused.leader), (ErrorCode::NotLeaderOrFollower, None));
        broker.fetch(key, 0, replica(1)).await;
        assert!(timeout(Duration::from_secs(1), &mut handed_over).await.is_err(), "the follower has nothing yet");
        broker.fetch(key, 3, replica(2)).await;
        handed_over.await.expect("the follower has it all");
        let (reply, nothing_led) = oneshot();
        broker.tell(0, ShardMessage::HandOver { reply }).await;
        nothing_led.await.expect("at once");
    });
}

/// Waits for a proposal of the ISR.
async fn proposal(control: &mut Receiver<ControlMessage>) -> (IsrProposal, Reply<Vec<(PartitionKey, ErrorCode)>>) {
    loop {
        let message = control.recv().await.expect("the shard runs");
        if let ControlMessage::AlterPartition { mut proposals, reply } = message {
            return (proposals.remove(0), reply);
        }
    }
}

#[test]
fn a_refused_isr_is_given_up_and_a_lost_one_is_sent_again() {
    let mut rig = Rig::new(2, FolderState::default());
    let broker = rig.broker.clone();
    let mut control = rig.control.take().unwrap();
    let key = key_on(1, 1);
    rig.run(async move {
        broker.image(&[0, 1], &[topic(key, record(ME, 1, 4, &[ME]))]).await;
        broker.produce(key, 2, Acks::Leader).await.expect("it is stored");
        // Caught up, so it is to join.
        for session_epoch in 1..=2 {
            broker.fetch(key, 0, replica(session_epoch)).await;
        }
        broker.fetch(key, 2, replica(3)).await;
        let (refused, reply) = proposal(&mut control).await;
        assert_eq!(refused.partition_epoch, PartitionEpoch::new(4));
        assert_eq!(refused.isr.len(), 2);
        reply.send(vec![(key, ErrorCode::IneligibleReplica)]).unwrap();
        sleep(Duration::from_millis(10)).await;
        broker.fetch(key, 2, replica(4)).await;
        let (again, reply) = proposal(&mut control).await;
        assert_eq!(again.isr, refused.isr, "nothing was pending, so the follower is proposed anew");
        reply.send(vec![(key, ErrorCode::NetworkException)]).unwrap();
        let (lost, reply) = proposal(&mut control).await;
        assert_eq!(lost.isr, again.isr, "by itself, since nobody knows what became of it");
        reply.send(vec![(key, ErrorCode::None)]).unwrap();
        let silence = timeout(Duration::from_secs(1), proposal(&mut control)).await;
        assert!(silence.is_err(), "what was taken waits for its event");
    });
}

#[test]
fn a_failed_disk_raises_the_failure_and_halt_ends_the_shards_at_once() {
    let rig = Rig::new(2, FolderState::default());
    let broker = rig.broker.clone();
    let key = key_on(1, 1);
    let disk = rig.machine.disk();
    rig.run(async move {
        broker.image(&[0, 1], &[topic(key, record(ME, 1, 0, &[ME]))]).await;
        broker.produce(key, 2, Acks::All).await.expect("it is committed");
        disk.fail_writes(sakia_io::sim::Failing::all());
        let (reply, answer) = oneshot();
        let batches = vec![ProduceBatch { row: 0, key, batch: batch(1) }];
        let order = ProduceOrder { batches, acks: Acks::Leader, timeout: Duration::from_secs(1), reply };
        broker.tell(1, ShardMessage::Produce(order)).await;
        broker.failure.wait().await;
        let outcome = answer.await.expect("the shard runs").remove(0).outcome;
        assert!(outcome.is_err(), "what was not stored is not acknowledged");
        for shard in [0, 1] {
            broker.tell(shard, ShardMessage::Halt).await;
        }
    });
    rig.world.run_for(Duration::from_millis(100));
    assert_eq!(rig.machine.running_shards(), 0);
}

fn client() -> Peer {
    let (host, client_id) = ("broker".to_owned(), "client".to_owned());
    Peer::new(PeerAddress { host, port: PORT, client_id, answer_bytes_max: 1 << 20 }, Class::Foreground)
}

/// What a client gets of these partitions, each from the offset, when it takes one byte: bytes of records by row.
async fn one_byte_of(peer: &Peer, topic_id: Uuid, wanted: &[(i32, i64)]) -> Vec<usize> {
    let partitions = wanted.iter().map(|(partition, fetch_offset)| FetchPartition {
        partition: *partition,
        fetch_offset: *fetch_offset,
        partition_max_bytes: 1,
        ..FetchPartition::default()
    });
    let topics = vec![FetchTopic { topic_id, partitions: partitions.collect(), ..FetchTopic::default() }];
    let request = FetchRequest { max_wait_ms: 20, min_bytes: 1, max_bytes: 1, topics, ..FetchRequest::default() };
    let answer = peer.call(&request, 13, Duration::from_secs(5)).await.unwrap();
    let rows = answer.responses.into_iter().flat_map(|topic| topic.partitions);
    rows.map(|row| row.records.map_or(0, |records| records.len())).collect()
}

#[test]
fn of_all_shards_only_the_first_partition_with_records_exceeds_the_bounds_of_a_fetch() {
    let rig = Rig::new(2, FolderState::default());
    let broker = rig.broker.clone();
    // Two partitions of one topic, one on each shard.
    let places = |id: Uuid| {
        [0, 1].map(|number| {
            Placement::new(2).owner(&PartitionKey { topic_id: id, partition: PartitionIndex::new(number) })
        })
    };
    let ids = (0..=u8::MAX).map(|filler| Uuid::from_bytes([filler; 16]));
    let id = ids.into_iter().find(|id| places(*id)[0] != places(*id)[1]).unwrap();
    rig.run(async move {
        let led = || record(ME, 1, 0, &[ME]);
        broker.image(&[0, 1], &[topic_of(id, vec![led(), led()])]).await;
        for number in [0, 1] {
            let key = PartitionKey { topic_id: id, partition: PartitionIndex::new(number) };
            broker.produce(key, 4, Acks::All).await.expect("it is committed");
        }
        let peer = client();
        for (first, second) in [(0, 1), (1, 0)] {
            let rows = one_byte_of(&peer, id, &[(first, 0), (second, 0)]).await;
            assert!(rows[0] > 0 && rows[1] == 0, "the first gives its batch whole, the other nothing: {rows:?}");
            let rows = one_byte_of(&peer, id, &[(first, 4), (second, 0)]).await;
            assert!(rows[0] == 0 && rows[1] > 0, "the first has nothing, so the other is the first: {rows:?}");
        }
    });
}

#[test]
fn requests_are_counted_and_timed_by_api() {
    let rig = Rig::new(2, FolderState::default());
    rig.run(async {
        let peer = client();
        for _ in 0..3 {
            peer.call(&MetadataRequest::default(), 12, Duration::from_secs(5)).await.unwrap();
        }
        let stream = sakia_io::Stream::connect("broker", PORT).await.unwrap();
        stream.send(Bytes::from_static(b"GET / HTTP/1.1\r\n")).await.unwrap();
        let (received, _) = stream.recv(bytes::BytesMut::with_capacity(64)).await;
        assert_eq!(received.unwrap(), 0, "the connection is closed");
    });
    rig.world.run_for(Duration::from_millis(10));
    let mut page = String::new();
    rig.registry.render(&mut page);
    for line in [
        "kafka_network_requestmetrics_requests_total{request=\"Metadata\"} 3",
        "kafka_network_requestmetrics_totaltime_seconds_count{request=\"Metadata\"} 3",
        "sakia_bad_connections_total 1",
    ] {
        let shown = page.lines().any(|shown| shown == line);
        let like = page.lines().filter(|shown| shown.contains("requestmetrics_requests_total{"));
        assert!(shown, "{line}: {:?}", like.collect::<Vec<_>>());
    }
}
