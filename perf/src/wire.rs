//! A small blocking client: the same for every side, so that what differs is the broker.
//!
//! Versions are fixed at ones that name topics (Produce 9, Fetch 12): Apache Kafka 4.3 and Sakia know all of them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sakia_protocol::api::{ApiKey, Request};
use sakia_protocol::codec::{Decode, Reader};
use sakia_protocol::header::{RequestHeader, decode_response_header, encode_request};
use sakia_protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use sakia_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use sakia_protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};

use crate::failure::Failure;

/// For connecting and for each answer.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// `ListOffsets` asks for the end with this timestamp.
const LATEST: i64 = -1;

/// One connection, one request at a time.
pub(crate) struct Client {
    stream: TcpStream,
    correlation_id: i32,
}

/// Where a partition is led.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Leader {
    pub(crate) node: i32,
    pub(crate) address: SocketAddr,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::of(address, error);
        let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
        stream.set_nodelay(true).and(stream.set_read_timeout(Some(PATIENCE))).map_err(failed)?;
        Ok(Self { stream, correlation_id: 0 })
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn ask<R: Request>(&mut self, request: &R) -> Result<R::Response, Failure> {
        let failed = |why: &dyn std::fmt::Display| Failure::of(R::KEY.name(), why);
        let version = version(R::KEY);
        self.correlation_id += 1;
        let header = RequestHeader {
            api_key: R::KEY,
            api_version: version,
            correlation_id: self.correlation_id,
            client_id: Some("sakia-perf"),
        };
        let frame = encode_request(&header, request).map_err(|error| failed(&error))?;
        self.stream.write_all(&frame).map_err(|error| failed(&error))?;
        let answer = self.receive().map_err(|error| failed(&error))?;
        let mut reader = Reader::new(&answer);
        let correlation_id = decode_response_header(&mut reader, R::KEY, version).map_err(|error| failed(&error))?;
        if correlation_id != self.correlation_id {
            return Err(failed(&"the answer belongs to another request"));
        }
        let response = R::Response::decode(&mut reader, version).map_err(|error| failed(&error))?;
        reader.end().map_err(|error| failed(&error))?;
        Ok(response)
    }

    fn receive(&mut self) -> std::io::Result<Bytes> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > ANSWER_BYTES_MAX {
            return Err(std::io::Error::other(format!("an answer of {length} bytes")));
        }
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame)?;
        Ok(Bytes::from(frame))
    }

    /// Creates a topic of one partition on two brokers.
    pub(crate) fn create_topic(&mut self, name: &str, configs: &[(&str, &str)]) -> Result<(), Failure> {
        let config = |(name, value): &(&str, &str)| CreatableTopicConfig {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        };
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: 1,
            replication_factor: 2,
            configs: configs.iter().map(config).collect(),
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
        for result in self.ask(&request)?.topics {
            if result.error_code != 0 {
                let why = result.error_message.unwrap_or_default();
                return Err(Failure::new(format!("topic {name} was not created: error {} {why}", result.error_code)));
            }
        }
        Ok(())
    }

    /// Waits until the only partition of a topic has a leader and two replicas in sync.
    pub(crate) fn leader_of(&mut self, topic: &str) -> Result<Leader, Failure> {
        let named = MetadataRequestTopic { name: Some(topic.to_owned()), ..Default::default() };
        let request = MetadataRequest { topics: Some(vec![named]), ..Default::default() };
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(leader) = leader_in(&self.ask(&request)?) {
                return Ok(leader);
            }
            if Instant::now() > deadline {
                return Err(Failure::new(format!("topic {topic} has no leader with two replicas in sync")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Brokers that the asked broker knows to be alive.
    pub(crate) fn live_brokers(&mut self) -> Result<usize, Failure> {
        let request = MetadataRequest { topics: Some(Vec::new()), ..Default::default() };
        Ok(self.ask(&request)?.brokers.len())
    }

    /// Waits until the high watermark of the only partition is `end`: every record is on both brokers. To be asked at
    /// the leader.
    pub(crate) fn wait_for_high_watermark(&mut self, topic: &str, end: i64) -> Result<(), Failure> {
        let partition = ListOffsetsPartition { partition_index: 0, current_leader_epoch: -1, timestamp: LATEST };
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![ListOffsetsTopic { name: topic.to_owned(), partitions: vec![partition] }],
            ..Default::default()
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let response = self.ask(&request)?;
            let answer = response.topics.first().and_then(|topic| topic.partitions.first());
            let (error, offset) = answer.map_or((-1, -1), |row| (row.error_code, row.offset));
            if error == 0 && offset == end {
                return Ok(());
            }
            if offset > end || Instant::now() > deadline {
                return Err(Failure::new(format!("{topic} ends at {offset}, not at {end} (error {error})")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn version(key: ApiKey) -> i16 {
    match key {
        ApiKey::Produce => 9,
        ApiKey::Fetch | ApiKey::Metadata => 12,
        ApiKey::CreateTopics | ApiKey::ListOffsets => 7,
        _ => unreachable!("this client asks nothing else"),
    }
}

fn leader_in(metadata: &MetadataResponse) -> Option<Leader> {
    let partition = metadata.topics.first()?.partitions.first()?;
    if partition.isr_nodes.len() < 2 {
        return None;
    }
    let broker = metadata.brokers.iter().find(|broker| broker.node_id == partition.leader_id)?;
    let port = u16::try_from(broker.port).ok()?;
    Some(Leader { node: broker.node_id, address: SocketAddr::new(broker.host.parse().ok()?, port) })
}
