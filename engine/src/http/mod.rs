//! HTTP of a process: `/metrics` for Prometheus and `/`, a page that shows the cluster as this process sees it.
//!
//! Path: beside the path of a batch, on the control shard. hyper speaks HTTP/1 over the executor's own streams
//! (`socket`); no other runtime is involved. Reading order: this page, `socket`, then `page` and `html` (Pure).
//!
//! Invariant: connections, request heads and waits are bounded, so a scraper that hangs costs one slot for a minute.

mod html;
mod page;
mod socket;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use sakia_io::{Class, Listener, Stream, spawn};
use sakia_metrics::{Format, Registry};

pub use page::{BrokerRow, PartitionRow, Process, StatusPage};

use self::socket::Socket;

/// Connections at once. At the bound a new one is closed at once: a scraper comes back by itself.
const CONNECTIONS_MAX: usize = 64;

/// Bytes of a request head. Above it hyper answers 431 and closes.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Silence, or a request head or an answer that does not move on, after which a connection is closed.
const STALLED_AFTER: Duration = Duration::from_secs(60);

/// Listens and serves until the shard ends. Call it on a shard; `status` is asked for each view of the page.
///
/// # Errors
/// The address cannot be taken.
pub fn serve(address: SocketAddr, registry: Registry, status: Rc<dyn Fn() -> StatusPage>) -> io::Result<()> {
    serve_on(Listener::bind(address)?, registry, status);
    Ok(())
}

fn serve_on(listener: Listener, registry: Registry, status: Rc<dyn Fn() -> StatusPage>) {
    spawn(Class::Background, accept(listener, Rc::new(Site { registry, status }))).detach();
}

async fn accept(listener: Listener, site: Rc<Site>) {
    let open = Rc::new(Cell::new(0_usize));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::error!(%error, address = %listener.local_addr(), "http listener failed, no more scrapes");
                return;
            }
        };
        let Some(slot) = Slot::take(&open) else {
            tracing::warn!(peer = %stream.peer(), "http connection refused, {CONNECTIONS_MAX} are open");
            continue;
        };
        spawn(Class::Background, converse(stream, site.clone(), slot)).detach();
    }
}

/// One of the connections that may be open; given back on drop.
struct Slot(Rc<Cell<usize>>);

impl Slot {
    fn take(open: &Rc<Cell<usize>>) -> Option<Self> {
        if open.get() >= CONNECTIONS_MAX {
            return None;
        }
        open.set(open.get() + 1);
        Some(Self(open.clone()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

async fn converse(stream: Stream, site: Rc<Site>, slot: Slot) {
    let peer = stream.peer();
    let answer = service_fn(move |request: Request<Incoming>| {
        let answer = site.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let socket = Socket::new(stream, STALLED_AFTER);
    let mut builder = http1::Builder::new();
    // Without a timer hyper sets no limits of its own; the socket does.
    builder.max_buf_size(HEAD_BYTES_MAX).header_read_timeout(None);
    if let Err(error) = builder.serve_connection(socket, answer).await {
        tracing::debug!(%error, %peer, "http connection ended");
    }
    drop(slot);
}

/// What is served.
struct Site {
    registry: Registry,
    status: Rc<dyn Fn() -> StatusPage>,
}

impl Site {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "text/plain; charset=utf-8", "only GET and HEAD\n");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match request.uri().path() {
            "/metrics" => {
                let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
                let format = Format::for_accept(accept);
                let mut page = String::new();
                self.registry.render_as(format, &mut page);
                text(StatusCode::OK, format.content_type(), page)
            }
            "/" => {
                let mut metrics = String::new();
                self.registry.render(&mut metrics);
                text(StatusCode::OK, "text/html; charset=utf-8", html::render(&(self.status)(), &metrics))
            }
            _ => text(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "there are / and /metrics\n"),
        }
    }
}

fn text(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
