//! From a record's send to its arrival at a consumer at the leader: one producer and one consumer of our own over plain
//! sockets, paced so that every record stands alone.
//!
//! Two threads, two connections. A record is sent when its time has come and the one before it is acknowledged; each
//! latency counts from the moment of its own send.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use sakia_protocol::batch::{BatchBuilder, Compression, NewRecord, headers};
use sakia_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use sakia_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};

use crate::failure::Failure;
use crate::wire::{Client, Leader};

const FETCH_WAIT_MS: i32 = 500;
const FETCH_BYTES_MAX: i32 = 1 << 20;
/// A record that is not there by then is lost.
const ARRIVES_WITHIN: Duration = Duration::from_secs(30);

/// One run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Sent before those that count.
    pub(crate) warm_up: usize,
    /// Records that count.
    pub(crate) records: usize,
    pub(crate) record_bytes: usize,
    /// From one send to the next.
    pub(crate) every: Duration,
    /// 1 or -1, as on the wire.
    pub(crate) acks: i16,
}

/// Latencies of the records that count, in the order in which they were sent.
#[derive(Debug)]
pub(crate) struct Latencies {
    /// To the producer's answer.
    pub(crate) acknowledged: Vec<Duration>,
    /// To the consumer.
    pub(crate) consumed: Vec<Duration>,
}

/// Runs to the end; the topic must be empty.
pub(crate) fn run(leader: Leader, topic: &str, pace: Pace) -> Result<Latencies, Failure> {
    let total = pace.warm_up + pace.records;
    let mut consumer = Client::connect(leader.address)?;
    let consumed_topic = topic.to_owned();
    let arrivals = thread::spawn(move || consume(&mut consumer, &consumed_topic, total));
    let mut producer = Client::connect(leader.address)?;
    let sent = produce(&mut producer, topic, pace, total)?;
    let arrived = arrivals.join().map_err(|_| Failure::new("the consumer's thread panicked"))??;
    let counted = || sent.iter().zip(&arrived).skip(pace.warm_up);
    Ok(Latencies {
        acknowledged: counted().map(|(sent, _)| sent.acknowledged - sent.at).collect(),
        consumed: counted().map(|(sent, arrived)| *arrived - sent.at).collect(),
    })
}

struct Sent {
    at: Instant,
    acknowledged: Instant,
}

fn produce(producer: &mut Client, topic: &str, pace: Pace, total: usize) -> Result<Vec<Sent>, Failure> {
    let value: Vec<u8> = (0..pace.record_bytes).map(|n| b'a' + u8::try_from(n % 23).expect("below 23")).collect();
    let mut sent = Vec::with_capacity(total);
    let begin = Instant::now();
    for number in 0..total {
        let due = begin + pace.every * u32::try_from(number).expect("few records");
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let request = request_of(topic, &value, pace.acks);
        let at = Instant::now();
        let response = producer.ask(&request)?;
        let acknowledged = Instant::now();
        let answer = response.responses.first().and_then(|topic| topic.partition_responses.first());
        let (error, base) = answer.map_or((-1, -1), |row| (row.error_code, row.base_offset));
        if error != 0 || usize::try_from(base) != Ok(number) {
            return Err(Failure::new(format!("record {number} got offset {base}, error {error}")));
        }
        sent.push(Sent { at, acknowledged });
    }
    Ok(sent)
}

fn request_of(topic: &str, value: &[u8], acks: i16) -> ProduceRequest {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let timestamp_ms = i64::try_from(now.as_millis()).expect("the year is below 292 million");
    let mut batch = BatchBuilder::new(Compression::None);
    batch.push(NewRecord { timestamp_ms, value: Some(value), ..Default::default() });
    let records: Bytes = batch.build().bytes().clone();
    let partition = PartitionProduceData { index: 0, records: Some(records) };
    let topic = TopicProduceData { name: topic.to_owned(), partition_data: vec![partition], ..Default::default() };
    ProduceRequest { acks, timeout_ms: 30_000, topic_data: vec![topic], ..Default::default() }
}

/// When each offset below `total` arrived.
fn consume(consumer: &mut Client, topic: &str, total: usize) -> Result<Vec<Instant>, Failure> {
    let mut arrived = Vec::with_capacity(total);
    let mut latest = Instant::now();
    while arrived.len() < total {
        let next = i64::try_from(arrived.len()).expect("few records");
        let partition = FetchPartition {
            partition: 0,
            fetch_offset: next,
            partition_max_bytes: FETCH_BYTES_MAX,
            ..Default::default()
        };
        let fetched = FetchTopic { topic: topic.to_owned(), partitions: vec![partition], ..Default::default() };
        let request = FetchRequest {
            max_wait_ms: FETCH_WAIT_MS,
            min_bytes: 1,
            max_bytes: FETCH_BYTES_MAX,
            topics: vec![fetched],
            ..Default::default()
        };
        let response = consumer.ask(&request)?;
        let at = Instant::now();
        let answer = response.responses.first().and_then(|topic| topic.partitions.first());
        let error = answer.map_or(response.error_code, |row| row.error_code);
        if error != 0 {
            return Err(Failure::new(format!("fetch at {next}: error {error}")));
        }
        let records = answer.and_then(|row| row.records.clone()).unwrap_or_default();
        let mut batches = headers(&records);
        let last = batches.by_ref().last().map_or(next, |batch| batch.header.next_offset().get());
        for _ in next..last {
            arrived.push(at);
            latest = at;
        }
        if at - latest > ARRIVES_WITHIN {
            return Err(Failure::new(format!("record {next} did not arrive")));
        }
    }
    Ok(arrived)
}
