//! What happens to a request: control pages, faults, the S3 operation, latency, ledger.
//!
//! Path: connection → here → `s3s` (signature, parsing) → [`crate::s3::Operations`] → answer.
//! Invariant: every S3 request that is answered is counted once, before its answer leaves.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use hyper::{Method, Request, Response, StatusCode};
use s3s::Body;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::BucketConfig;
use crate::disk::Disk;
use crate::fault::{Fault, FaultSwitch, spoil};
use crate::ledger::{Ledger, Verb};
use crate::s3::Operations;

/// Longest body of a control request.
const CONTROL_BODY_MAX: usize = 4096;

pub(crate) struct Front {
    s3: S3Service,
    ledger: Ledger,
    fault: FaultSwitch,
    put_latency: Duration,
    get_latency: Duration,
}

impl Front {
    pub(crate) fn new(config: &BucketConfig, disk: Disk) -> Self {
        let mut builder = S3ServiceBuilder::new(Operations::new(disk));
        builder.set_auth(SimpleAuth::from_single(config.access_key.clone(), config.secret_key.clone()));
        Self {
            s3: builder.build(),
            ledger: Ledger::default(),
            fault: FaultSwitch::default(),
            put_latency: config.put_latency,
            get_latency: config.get_latency,
        }
    }

    pub(crate) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        if request.uri().path().starts_with("/_") {
            return Ok(self.control(request).await);
        }
        Ok(self.operation(request).await)
    }

    async fn operation(&self, request: Request<Incoming>) -> Response<Body> {
        let arrived = Instant::now();
        let verb = Verb::of(request.method(), request.uri());
        let sent = object_length(request.headers());
        self.fault.wait_while(Fault::Hang).await;
        let response = if self.fault.now() == Fault::Error503 {
            slow_down()
        } else {
            match self.s3.call(request.map(Body::from)).await {
                Ok(response) if verb == Verb::Get && response.status().is_success() => self.read_body(response).await,
                Ok(response) => response,
                Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:?}")),
            }
        };
        let latency = if verb == Verb::Put { self.put_latency } else { self.get_latency };
        tokio::time::sleep_until(arrived + latency).await;
        if verb == Verb::Put {
            self.fault.wait_while(Fault::LosePutReply).await;
        }
        self.count(verb, sent, &response);
        response
    }

    /// A body that is read, damaged if the fault says so.
    async fn read_body(&self, response: Response<Body>) -> Response<Body> {
        let Some(number) = self.fault.spoils() else { return response };
        let (head, body) = response.into_parts();
        match body.collect().await {
            Ok(whole) => {
                let mut bytes = whole.to_bytes().to_vec();
                spoil(&mut bytes, number);
                Response::from_parts(head, Body::from(Bytes::from(bytes)))
            }
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:?}")),
        }
    }

    fn count(&self, verb: Verb, sent: u64, response: &Response<Body>) {
        self.ledger.answered(verb, response.status().as_u16());
        if !response.status().is_success() {
            return;
        }
        match verb {
            Verb::Put => self.ledger.bytes_in(sent),
            Verb::Get => self.ledger.bytes_out(length(response.headers(), CONTENT_LENGTH.as_str())),
            _ => {}
        }
    }

    async fn control(&self, request: Request<Incoming>) -> Response<Body> {
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/_health") => plain(StatusCode::OK, "ok\n".to_owned()),
            (&Method::GET, "/_ledger") => page(&self.ledger.to_json()),
            (&Method::GET, "/_fault") => page(&json!({ "mode": self.fault.now().name() })),
            (&Method::POST, "/_fault") => self.switch_fault(request.into_body()).await,
            _ => plain(StatusCode::NOT_FOUND, "known are /_health, /_ledger and /_fault\n".to_owned()),
        }
    }

    async fn switch_fault(&self, body: Incoming) -> Response<Body> {
        let body = Limited::new(body, CONTROL_BODY_MAX).collect().await.map(http_body_util::Collected::to_bytes);
        let body: Bytes = body.unwrap_or_default();
        let mode = serde_json::from_slice::<Value>(&body).ok();
        let mode = mode.as_ref().and_then(|body| body.get("mode")).and_then(Value::as_str).and_then(Fault::parse);
        let Some(mode) = mode else {
            let text = "expected {\"mode\": \"none\" | \"hang\" | \"error503\" | \"lose-put-reply\" | \"spoil-get\"}\n";
            return plain(StatusCode::BAD_REQUEST, text.to_owned());
        };
        self.fault.set(mode);
        tracing::info!(mode = mode.name(), "bucket fault");
        page(&json!({ "mode": mode.name() }))
    }
}

/// Length of the object in a put: of the decoded body if it is sent in signed chunks.
fn object_length(headers: &HeaderMap) -> u64 {
    let decoded = length(headers, "x-amz-decoded-content-length");
    if decoded > 0 { decoded } else { length(headers, CONTENT_LENGTH.as_str()) }
}

fn length(headers: &HeaderMap, name: &str) -> u64 {
    headers.get(name).and_then(|value| value.to_str().ok()).and_then(|value| value.parse().ok()).unwrap_or(0)
}

fn plain(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}

fn page(value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{value:#}\n")));
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
    response
}

fn slow_down() -> Response<Body> {
    let text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
                <Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>";
    let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, text.to_owned());
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/xml"));
    response
}
