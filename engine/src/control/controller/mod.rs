//! The controller process: the CONTROLLER listener over the metadata quorum.
//!
//! Path: `connection` → here → `sakia_controller` (propose, apply) → the answer. Reading order: this file (process,
//! dispatch), `registration` and `heartbeat` (brokers come, stay and go), `metadata_stream` (what they are told),
//! `alter_partition` and `producer_ids` (what they ask), `create_topics`, `delete_topics`, `create_partitions` (what
//! administrators ask, forwarded by brokers as received).
//!
//! Invariant: whatever is answered as done is committed and applied here: a controller killed at any moment loses
//! nothing that it answered. Requests of one connection are worked on at once; their answers leave in order.

mod alter_partition;
mod create_partitions;
mod create_topics;
mod delete_topics;
mod gauges;
mod heartbeat;
mod metadata_stream;
mod producer_ids;
mod registration;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::{Future, ready};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use sakia_controller::{Command, CommandError, Controller, ControllerConfig, OpenError, ProposeError, decide};
use sakia_io::{Class, Listener, Signal, Stream, Task, random_bytes, sleep, spawn, timeout};
use sakia_metrics::Registry;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::api::{ApiKey, Request as WireRequest};
use sakia_protocol::codec::{Encode, decode_exact};
use sakia_protocol::header::encode_response;
use sakia_protocol::ids::{MetadataIndex, Uuid};
use sakia_protocol::messages::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
use tracing::{info, warn};

use super::limits::{ACCEPT_PAUSE, ACTIVATION_MAX, CONTROLLER_CONNECTIONS_MAX};
use crate::connection::{ConnectionLimits, Dispatch, LineLimit, LocalFuture, Request, Response, serve};
use crate::messages::Refusal;
use crate::select::{Either, either};
use crate::settings::{self, Settings};

use gauges::ControllerGauges;

/// Requests of the CONTROLLER listener with the versions served there.
pub const SUPPORTED: &[(ApiKey, i16, i16)] = &[
    (ApiKey::ApiVersions, 0, 4),
    (ApiKey::CreateTopics, 2, 7),
    (ApiKey::DeleteTopics, 1, 6),
    (ApiKey::CreatePartitions, 0, 3),
    (ApiKey::AlterPartition, 2, 3),
    (ApiKey::BrokerRegistration, 0, 4),
    (ApiKey::BrokerHeartbeat, 0, 1),
    (ApiKey::AllocateProducerIds, 0, 0),
    (ApiKey::MetadataStream, 0, 0),
];

/// Folder of the controller's log in the data folder: Kafka's name.
const LOG_FOLDER: &str = "__cluster_metadata-0";

/// What a controller process starts with.
pub struct ControllerProcess {
    /// The process's settings.
    pub settings: Arc<Settings>,
    /// Where it is counted.
    pub registry: Registry,
    /// Asks it to stop cleanly when raised.
    pub stop: Signal,
}

/// Why a controller process ends.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// Its folder cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A listener is no address.
    #[error("listener {name}: `{host}` is no IP address; name hosts in controller.quorum.voters")]
    Address { name: String, host: String },
    /// Its port cannot be used.
    #[error("the controller cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    /// Its log failed while it ran (R6): nothing that was answered is lost, nothing more can be answered.
    #[error("the log of the controller failed")]
    LogFailed,
}

/// Runs a controller until it is asked to stop. Main future of the control shard.
///
/// # Errors
/// A sentence: it could not start, or its log failed.
pub async fn run(process: ControllerProcess) -> Result<(), String> {
    serve_until_stopped(process).await.map_err(|error| error.to_string())
}

async fn serve_until_stopped(process: ControllerProcess) -> Result<(), ControllerError> {
    let ControllerProcess { settings, registry, stop } = process;
    let addresses: Vec<SocketAddr> = settings.controller_listeners.iter().map(address).collect::<Result<_, _>>()?;
    let config = ControllerConfig {
        session_timeout: settings.session_timeout,
        ..ControllerConfig::new(settings.node_id, settings.folder.join(LOG_FOLDER))
    };
    let controller = Controller::open(config).await?;
    let gauges = ControllerGauges::new(&registry);
    let counting = spawn(Class::Background, gauges.follow(controller.clone()));
    let api = Rc::new(ControllerApi { controller: controller.clone(), settings });
    let ended = match listen(api, addresses) {
        Ok(accepting) => {
            let ended = match either(stop.wait(), controller.failed()).await {
                Either::Left(()) => Ok(()),
                Either::Right(()) => Err(ControllerError::LogFailed),
            };
            drop(accepting);
            ended
        }
        Err(error) => Err(error),
    };
    drop(counting);
    controller.shutdown().await;
    ended
}

/// A host name is not looked up: a listener binds an address or every address.
fn address(listener: &settings::Listener) -> Result<SocketAddr, ControllerError> {
    let host = match listener.host.as_str() {
        "" => "0.0.0.0",
        "localhost" => "127.0.0.1",
        host => host,
    };
    let unknown = |_| ControllerError::Address { name: listener.name.clone(), host: host.to_owned() };
    Ok(SocketAddr::new(host.parse().map_err(unknown)?, listener.port))
}

fn listen(api: Rc<ControllerApi>, addresses: Vec<SocketAddr>) -> Result<Vec<Task<()>>, ControllerError> {
    let door = Rc::new(Door { api, lines: Rc::default(), sessions: Cell::new(0), open: Cell::new(0) });
    let mut accepting = Vec::new();
    for address in addresses {
        let listener = Listener::bind(address).map_err(|source| ControllerError::Listen { address, source })?;
        info!(address = %listener.local_addr(), "controller listens");
        accepting.push(spawn(Class::Foreground, accept(door.clone(), listener)));
    }
    Ok(accepting)
}

/// What the connections of a controller share.
struct Door {
    api: Rc<ControllerApi>,
    lines: Rc<LineLimit>,
    sessions: Cell<u64>,
    open: Cell<usize>,
}

async fn accept(door: Rc<Door>, listener: Listener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => admit(&door, stream),
            Err(why) => {
                warn!("a connection could not be accepted: {why}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit(door: &Rc<Door>, stream: Stream) {
    if door.open.get() >= CONTROLLER_CONNECTIONS_MAX {
        door.lines.warn(stream.peer(), "the controller has too many connections");
        return;
    }
    door.open.set(door.open.get() + 1);
    let session = door.sessions.get() + 1;
    door.sessions.set(session);
    let settings = &door.api.settings;
    let limits = ConnectionLimits { request_bytes_max: settings.request_bytes_max, idle_max: settings.idle_max };
    let door = door.clone();
    spawn(Class::Foreground, async move {
        serve(stream, session, door.api.clone(), limits, door.lines.clone()).await;
        door.open.set(door.open.get() - 1);
    })
    .detach();
}

/// The requests of the CONTROLLER listener.
struct ControllerApi {
    controller: Controller,
    settings: Arc<Settings>,
}

impl Dispatch for ControllerApi {
    fn start(self: Rc<Self>, request: Request) -> LocalFuture<LocalFuture<Response>> {
        // A task of its own: what waits for the log does not keep the next request of the connection from it.
        let answer: LocalFuture<Response> = Box::pin(spawn(Class::Foreground, self.answer(request)));
        Box::pin(ready(answer))
    }
}

impl ControllerApi {
    async fn answer(self: Rc<Self>, request: Request) -> Response {
        let (key, version) = (request.api_key, request.api_version);
        let is_served = SUPPORTED.iter().any(|(k, min, max)| *k == key && (*min..=*max).contains(&version));
        if !is_served {
            return unserved(&request);
        }
        match key {
            ApiKey::ApiVersions => {
                with(&request, |_: ApiVersionsRequest| ready(versions(SUPPORTED, ErrorCode::None))).await
            }
            ApiKey::BrokerRegistration => with(&request, |body| self.register_broker(body)).await,
            ApiKey::BrokerHeartbeat => with(&request, |body| self.heartbeat(body)).await,
            ApiKey::AlterPartition => with(&request, |body| self.alter_partition(body, version)).await,
            ApiKey::AllocateProducerIds => with(&request, |body| self.allocate_producer_ids(body)).await,
            ApiKey::MetadataStream => with(&request, |body| self.metadata_stream(body)).await,
            ApiKey::CreateTopics => with(&request, |body| self.create_topics(body)).await,
            ApiKey::DeleteTopics => with(&request, |body| self.delete_topics(body, version)).await,
            ApiKey::CreatePartitions => with(&request, |body| self.create_partitions(body)).await,
            _ => unserved(&request),
        }
    }

    /// Waits, not long, until this node is the active controller: one that has just started soon will be.
    async fn activation(&self) -> Result<(), ProposeError> {
        let waited = timeout(ACTIVATION_MAX, self.controller.wait_active()).await;
        waited.map_err(|_| ProposeError::NotActive { leader: self.controller.leader() })
    }

    /// What the command would do now. A command that is refused as things stand does not get into the log.
    fn check(&self, command: &Command) -> Result<(), CommandError> {
        let image = self.controller.image();
        let next = MetadataIndex::new(image.index.get() + 1);
        decide(&image, next, command).map(|_| ())
    }

    /// Proposes what an administrator asked for, if it would be accepted now; returns when it is applied.
    async fn propose(&self, command: impl Into<Command>) -> Result<(), Refusal> {
        let command = command.into();
        self.check(&command).map_err(|error| refusal(&error))?;
        self.controller.propose(command).await.map(|_| ()).map_err(|error| unproposed(&error))
    }
}

/// Decodes a request, answers it, encodes the answer. A body that cannot be read closes the connection, as in Kafka.
async fn with<R, F>(request: &Request, act: impl FnOnce(R) -> F) -> Response
where
    R: WireRequest,
    F: Future<Output = R::Response>,
{
    match decode_exact(&request.body(), request.api_version) {
        Ok(body) => encoded(request, request.api_version, &act(body).await),
        Err(error) => {
            let (name, version) = (request.api_key.name(), request.api_version);
            Response::Close(format!("bad {name} request version {version}: {error}"))
        }
    }
}

fn encoded(request: &Request, version: i16, body: &impl Encode) -> Response {
    match encode_response(request.api_key, version, request.correlation_id, body) {
        Ok(frame) => Response::Pieces(vec![frame]),
        Err(error) => Response::Close(format!("could not encode the {} answer: {error}", request.api_key.name())),
    }
}

/// An unknown version of ApiVersions gets our range in a form that every client reads; all else closes the connection.
fn unserved(request: &Request) -> Response {
    match request.api_key {
        ApiKey::ApiVersions => encoded(request, 0, &versions(&SUPPORTED[..1], ErrorCode::UnsupportedVersion)),
        key => Response::Close(format!("{} version {} is not served by a controller", key.name(), request.api_version)),
    }
}

/// Private keys are not listed: tools would not know them.
fn versions(rows: &[(ApiKey, i16, i16)], error: ErrorCode) -> ApiVersionsResponse {
    let listed = rows.iter().filter(|(key, ..)| !key.is_private());
    ApiVersionsResponse {
        error_code: error.code(),
        api_keys: listed
            .map(|(key, min, max)| ApiVersion { api_key: key.key(), min_version: *min, max_version: *max })
            .collect(),
        ..ApiVersionsResponse::default()
    }
}

fn refusal(error: &CommandError) -> Refusal {
    Refusal::with_message(ErrorCode::from_wire(error.code()), error.to_string())
}

fn unproposed(error: &ProposeError) -> Refusal {
    Refusal::with_message(ErrorCode::from_wire(error.code()), error.to_string())
}

/// A random id whose text does not begin with a dash, which a command line would take for an option.
fn random_uuid() -> Uuid {
    loop {
        let id = Uuid::from_bytes(random_bytes());
        if !id.is_zero() && !id.to_string().starts_with('-') {
            return id;
        }
    }
}

/// Names that occur more than once.
fn repeated<'a>(names: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    names.filter(|name| !seen.insert(*name)).map(str::to_owned).collect()
}
