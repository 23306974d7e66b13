//! Producers that know what they were told.
//!
//! `run` is idempotent, as a real client is: own producer id, sequence numbers, several batches in flight, each sent again
//! with the same number until it is acknowledged. `run_unacknowledged` sends with acks=0 and never twice.
//! A value is `writer:number filler`; numbers of a writer count from 0 without holes.
//!
//! Checked at once: with acks=all the first batch in flight is never out of order: everything before it was acknowledged, so
//! every leader must know it (DESIGN 13.1, 13.4).

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use sakia_io::sim::Random;
use sakia_io::{Class, Stream, now, sleep, spawn, timeout, wall_clock_ms};
use sakia_protocol::api::ApiKey;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::batch::{BatchBuilder, BatchProducer, Compression, NewRecord};
use sakia_protocol::header::{RequestHeader, encode_request};
use sakia_protocol::ids::{ProducerEpoch, ProducerId};
use sakia_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use tracing::{debug, info};

use crate::history::{History, Place, Promise, writer_and_number};
use crate::kafka::{Kafka, ProducedTo, Trouble};

/// What a producer does.
#[derive(Clone, Debug)]
pub struct Writing {
    pub place: Place,
    pub writer: String,
    pub promise: Promise,
    pub records: Range<u64>,
    pub value_bytes: Range<u64>,
    pub in_flight: usize,
    pub pause: Range<Duration>,
    /// Ends after so many records; else when the run is over.
    pub records_max: u64,
}

impl Writing {
    /// A steady writer of small batches.
    pub fn steady(place: &Place, writer: &str, promise: Promise) -> Self {
        Self {
            place: place.clone(),
            writer: writer.to_owned(),
            promise,
            records: 1..6,
            value_bytes: 10..300,
            in_flight: 1,
            pause: Duration::from_millis(2)..Duration::from_millis(20),
            records_max: u64::MAX,
        }
    }
}

struct Batch {
    sequence: i32,
    values: Vec<Bytes>,
}

struct Producer {
    kafka: Rc<Kafka>,
    history: Rc<History>,
    writing: Writing,
    random: Random,
    id: i64,
    epoch: i16,
    next_sequence: i32,
    /// The partition has a batch of this identity. Before that one batch is sent at a time: a broker takes any first number
    /// of a producer that it does not know, as Kafka does, so a second batch could overtake a first that was refused.
    is_known: bool,
    written: u64,
}

/// Writes until the run is over; then everything sent is acknowledged.
pub async fn run(kafka: Rc<Kafka>, history: Rc<History>, writing: Writing, random: Random) {
    let (id, epoch) = fresh_id(&kafka).await;
    let mut producer = Producer {
        kafka,
        history: history.clone(),
        writing,
        random,
        id,
        epoch,
        next_sequence: 0,
        is_known: false,
        written: 0,
    };
    while !history.is_over.get() && producer.written < producer.writing.records_max {
        let mut batches = producer.draw_batches();
        while !batches.is_empty() {
            batches = producer.send(batches).await;
        }
        let pause = producer.random.duration(&producer.writing.pause.clone());
        sleep(pause).await;
    }
}

async fn fresh_id(kafka: &Kafka) -> (i64, i16) {
    loop {
        match kafka.producer_id().await {
            Ok(found) => return found,
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

impl Producer {
    fn draw_batches(&mut self) -> Vec<Batch> {
        let count = self.random.within(1..u64::try_from(self.writing.in_flight).expect("a few") + 1);
        let batches = (0..count).map(|_| {
            let records = self.random.within(self.writing.records.clone());
            let values = (0..records).map(|_| {
                let len = usize::try_from(self.random.within(self.writing.value_bytes.clone())).expect("short");
                let number = self.written;
                self.written += 1;
                value(&self.writing.writer, number, len)
            });
            let values: Vec<Bytes> = values.collect();
            let sequence = self.next_sequence;
            self.next_sequence += i32::try_from(values.len()).expect("a few");
            Batch { sequence, values }
        });
        let batches = batches.collect();
        note_sent(&self.history, &self.writing.place, &self.writing.writer, Some(self.writing.promise), self.written);
        batches
    }

    /// Sends batches in order, all before the first answer. Gives those to be sent again, in order.
    async fn send(&mut self, batches: Vec<Batch>) -> Vec<Batch> {
        let (topic, partition) = self.writing.place.clone();
        let index = usize::try_from(partition).expect("not negative");
        let found = self.kafka.partition(&topic, index).await;
        let Some((id, leader)) = found.ok().and_then(|(id, view)| Some((id, view.leader?))) else {
            self.look_again().await;
            return batches;
        };
        let acks = match self.writing.promise {
            Promise::Leader => 1,
            Promise::All => -1,
        };
        let mut answers = Vec::new();
        let sent = if self.is_known { batches.len() } else { 1 };
        for batch in &batches[..sent] {
            let (kafka, topic, records) = (self.kafka.clone(), topic.clone(), self.encode(batch));
            answers.push(spawn(Class::Foreground, async move {
                kafka.produce(leader, ProducedTo { topic: &topic, id, partition, acks, records: &records }).await
            }));
        }
        let mut again = Vec::new();
        let mut reset = false;
        let mut batches = batches;
        let rest = batches.split_off(sent);
        for (batch, answer) in batches.into_iter().zip(answers) {
            let answer = answer.await;
            let writer = &self.writing.writer;
            let code = match &answer {
                Ok(row) => ErrorCode::from_wire(row.error_code),
                Err(_) => ErrorCode::NetworkException,
            };
            match code {
                ErrorCode::None => {
                    self.is_known = true;
                    let base = answer.expect("it has a code").base_offset;
                    debug!(writer, sequence = batch.sequence, base, "acknowledged");
                    self.history.acknowledged(&self.writing.place, base, &batch.values, self.writing.promise);
                    continue;
                }
                ErrorCode::OutOfOrderSequenceNumber | ErrorCode::UnknownProducerId if again.is_empty() => {
                    assert!(
                        self.writing.promise == Promise::Leader,
                        "{writer} is told {} for sequence {} by broker {leader} at {:?}: an acknowledged batch is gone",
                        code.name(),
                        batch.sequence,
                        now().as_duration()
                    );
                    reset = true;
                }
                ErrorCode::OutOfOrderSequenceNumber => {}
                code if is_retriable(code) => debug!(writer, sequence = batch.sequence, ?answer, "again"),
                code => panic!("{writer} is told {} for sequence {}: {answer:?}", code.name(), batch.sequence),
            }
            again.push(batch);
        }
        let failed = !again.is_empty();
        again.extend(rest);
        if reset {
            self.begin_anew(&mut again).await;
        }
        if failed {
            self.look_again().await;
        }
        again
    }

    /// With acks=1 a failover may lose what was acknowledged: a new identity, as Kafka's clients do.
    async fn begin_anew(&mut self, batches: &mut [Batch]) {
        let (writer, from) = writer_and_number(&batches[0].values[0]);
        info!(writer, from, "begins anew");
        let place = &self.writing.place;
        self.history.with(place, |partition| partition.sent_anew.entry(writer).or_default().push(from));
        (self.id, self.epoch) = fresh_id(&self.kafka).await;
        self.next_sequence = 0;
        self.is_known = false;
        for batch in batches {
            batch.sequence = self.next_sequence;
            self.next_sequence += i32::try_from(batch.values.len()).expect("a few");
        }
    }

    async fn look_again(&mut self) {
        let pause = self.random.duration(&(Duration::from_millis(10)..Duration::from_millis(60)));
        sleep(pause).await;
        let _ = self.kafka.refresh(&[&self.writing.place.0]).await;
    }

    fn encode(&self, batch: &Batch) -> Bytes {
        let producer = BatchProducer {
            id: ProducerId::new(self.id),
            epoch: ProducerEpoch::new(self.epoch),
            base_sequence: Some(batch.sequence),
        };
        encode(BatchBuilder::new(Compression::None).producer(producer), &batch.values)
    }
}

/// Errors after which a client asks for metadata and sends the same again.
fn is_retriable(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NetworkException
            | ErrorCode::NotLeaderOrFollower
            | ErrorCode::NotEnoughReplicas
            | ErrorCode::NotEnoughReplicasAfterAppend
            | ErrorCode::RequestTimedOut
            | ErrorCode::LeaderNotAvailable
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::KafkaStorageError
            | ErrorCode::ThrottlingQuotaExceeded
    )
}

/// A batch of these values.
pub fn encode(mut builder: BatchBuilder, values: &[Bytes]) -> Bytes {
    let timestamp_ms = wall_clock_ms();
    for value in values {
        builder.push(NewRecord { timestamp_ms, key: None, value: Some(value), headers: &[] });
    }
    builder.build().bytes().clone()
}

fn value(writer: &str, number: u64, len: usize) -> Bytes {
    let mut text = format!("{writer}:{number} ");
    while text.len() < len {
        text.push(char::from(
            b'a' + u8::try_from((number + u64::try_from(text.len()).expect("short")) % 26).expect("below 26"),
        ));
    }
    Bytes::from(text.into_bytes())
}

fn note_sent(history: &History, place: &Place, writer: &str, promise: Option<Promise>, sent: u64) {
    history.with(place, |partition| partition.writers.insert(writer.to_owned(), (promise, sent)));
}

/// Sends single records with acks=0, each once, over a connection of its own.
pub async fn run_unacknowledged(kafka: Rc<Kafka>, history: Rc<History>, place: Place, writer: String) {
    let mut stream: Option<Stream> = None;
    let mut number = 0;
    while !history.is_over.get() {
        sleep(Duration::from_millis(15)).await;
        if stream.is_none() {
            stream = connect(&kafka, &place).await.ok();
        }
        let Some(open) = &stream else { continue };
        let Some(topic) = kafka.topic(&place.0) else { continue };
        let records = encode(BatchBuilder::new(Compression::None), &[value(&writer, number, 40)]);
        number += 1;
        note_sent(&history, &place, &writer, None, number);
        let data = PartitionProduceData { index: place.1, records: Some(records) };
        let topic = TopicProduceData { name: String::new(), topic_id: topic.id, partition_data: vec![data] };
        let request = ProduceRequest { transactional_id: None, acks: 0, timeout_ms: 1000, topic_data: vec![topic] };
        let header = RequestHeader {
            api_key: ApiKey::Produce,
            api_version: 13,
            correlation_id: 0,
            client_id: Some("unacknowledged"),
        };
        let frame = encode_request(&header, &request).expect("it can be encoded");
        let sent = timeout(Duration::from_millis(500), open.send(frame)).await;
        if !matches!(sent, Ok(Ok(()))) {
            stream = None;
        }
    }
}

async fn connect(kafka: &Kafka, place: &Place) -> Result<Stream, Trouble> {
    kafka.refresh(&[&place.0]).await?;
    let index = usize::try_from(place.1).expect("not negative");
    let (_, view) = kafka.partition(&place.0, index).await?;
    let host = kafka.peer(view.leader.ok_or(Trouble::NoLeader)?)?.address().host.clone();
    let connecting = timeout(Duration::from_secs(1), Stream::connect(&host, 9092)).await;
    connecting.ok().and_then(Result::ok).ok_or(Trouble::NoLeader)
}
