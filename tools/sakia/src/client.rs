//! A small blocking client of the Kafka protocol, for the tools: one connection, one request at a time.
//!
//! The version of each request is the newest that both sides know, from ApiVersions.

use std::fmt;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::api::{ApiKey, Request};
use sakia_protocol::codec::{Decode, Reader};
use sakia_protocol::header::{RequestHeader, decode_response_header, encode_request};
use sakia_protocol::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use sakia_protocol::messages::metadata::{MetadataRequest, MetadataResponse, MetadataResponseBroker};

use crate::failure::Failure;

/// For connecting and for each answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Largest answer that is read.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// The broker that is asked first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bootstrap {
    host: String,
    port: u16,
}

impl Bootstrap {
    pub(crate) fn new(host: &str, port: u16) -> Self {
        Self { host: host.to_owned(), port }
    }
}

impl FromStr for Bootstrap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || format!("{text} must look like host:port");
        let (host, port) = text.rsplit_once(':').ok_or_else(malformed)?;
        let port = port.parse().map_err(|_| malformed())?;
        Ok(Self::new(host.trim_start_matches('[').trim_end_matches(']'), port))
    }
}

impl fmt::Display for Bootstrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// A connection to one broker.
pub(crate) struct Client {
    stream: TcpStream,
    address: Bootstrap,
    versions: Vec<(i16, i16, i16)>,
    correlation_id: i32,
}

impl Client {
    /// Connects and learns what the broker speaks.
    pub(crate) fn connect(address: &Bootstrap) -> Result<Self, Failure> {
        Self::connect_within(address, PATIENCE)
    }

    pub(crate) fn connect_within(address: &Bootstrap, patience: Duration) -> Result<Self, Failure> {
        let failed = |why: &dyn fmt::Display| Failure::failed(format!("cannot reach a broker at {address}: {why}"));
        let sockets = (address.host.as_str(), address.port).to_socket_addrs().map_err(|error| failed(&error))?;
        let mut last = None;
        for socket in sockets {
            match TcpStream::connect_timeout(&socket, patience) {
                Ok(stream) => return Self::greet(stream, address, patience),
                Err(error) => last = Some(error),
            }
        }
        Err(last.map_or_else(|| failed(&"the name has no address"), |error| failed(&error)))
    }

    fn greet(stream: TcpStream, address: &Bootstrap, patience: Duration) -> Result<Self, Failure> {
        let set = stream.set_read_timeout(Some(patience)).and(stream.set_write_timeout(Some(patience)));
        set.and(stream.set_nodelay(true)).map_err(Failure::failed)?;
        let mut client = Self { stream, address: address.clone(), versions: Vec::new(), correlation_id: 0 };
        let request = ApiVersionsRequest { client_software_name: "sakia".into(), ..Default::default() };
        let answer: ApiVersionsResponse = client.ask_in(&request, 0)?;
        check(answer.error_code, "ApiVersions", None)?;
        client.versions = answer.api_keys.iter().map(|row| (row.api_key, row.min_version, row.max_version)).collect();
        Ok(client)
    }

    /// Sends a request in the newest version that both sides know, and waits for the answer.
    pub(crate) fn ask<R: Request>(&mut self, request: &R) -> Result<R::Response, Failure> {
        let version = self.version(R::KEY)?;
        self.ask_in(request, version)
    }

    fn version(&self, key: ApiKey) -> Result<i16, Failure> {
        let ours = key.versions();
        let theirs = self.versions.iter().find(|(number, ..)| *number == key.key());
        let newest = theirs.map(|(_, min, max)| (*min.max(ours.start()), *max.min(ours.end())));
        match newest {
            Some((min, max)) if min <= max => Ok(max),
            _ => Err(Failure::failed(format!("the broker at {} does not speak {}", self.address, key.name()))),
        }
    }

    fn ask_in<R: Request>(&mut self, request: &R, version: i16) -> Result<R::Response, Failure> {
        self.correlation_id += 1;
        let header = RequestHeader {
            api_key: R::KEY,
            api_version: version,
            correlation_id: self.correlation_id,
            client_id: Some("sakia-tool"),
        };
        let address = self.address.clone();
        let name = R::KEY.name();
        let failed = |why: &dyn fmt::Display| Failure::failed(format!("{name} to the broker at {address}: {why}"));
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
        self.receive_frame().map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => std::io::Error::other(
                "the connection was closed without an answer; is a controller reachable (sakia cluster describe)?",
            ),
            _ => error,
        })
    }

    fn receive_frame(&mut self) -> std::io::Result<Bytes> {
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

    /// Brokers, and the topics named; `None` is all.
    pub(crate) fn metadata(&mut self, topics: Option<&[String]>) -> Result<MetadataResponse, Failure> {
        use sakia_protocol::messages::metadata::MetadataRequestTopic;
        let named = |name: &String| MetadataRequestTopic { name: Some(name.clone()), ..Default::default() };
        let request = MetadataRequest {
            topics: topics.map(|names| names.iter().map(named).collect()),
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        self.ask(&request)
    }
}

/// Where a broker of the cluster is reached.
pub(crate) fn address_of(broker: &MetadataResponseBroker) -> Result<Bootstrap, Failure> {
    let port =
        u16::try_from(broker.port).map_err(|_| Failure::failed(format!("broker {} has no port", broker.node_id)))?;
    Ok(Bootstrap::new(&broker.host, port))
}

/// An error code becomes a failure that names what was asked.
pub(crate) fn check(code: i16, what: &str, message: Option<&str>) -> Result<(), Failure> {
    let error = ErrorCode::from_wire(code);
    if error.is_none() {
        return Ok(());
    }
    let message = message.map_or_else(String::new, |text| format!(": {text}"));
    Err(Failure::failed(format!("{what}: {error}{message}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        assert_eq!("a.b:92".parse(), Ok(Bootstrap::new("a.b", 92)));
        assert_eq!("[::1]:92".parse(), Ok(Bootstrap::new("::1", 92)));
        assert!("a.b".parse::<Bootstrap>().is_err() && "a:x".parse::<Bootstrap>().is_err());
    }
}
