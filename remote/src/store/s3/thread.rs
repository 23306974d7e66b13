//! A store thread: a tokio runtime that carries out requests and nothing else.
//!
//! Path: queue shared by all store threads → one task per request, bounded → one-shot reply to the asking shard.
//! Invariant: a request taken from the queue is answered, also while the process stops, unless its asker is gone.

use std::sync::Arc;

use bytes::Bytes;
use sakia_io::Reply;
use tokio::sync::Semaphore;

use super::client::S3Client;
use crate::key::ObjectKey;
use crate::limits::STORE_IN_FLIGHT_MAX;
use crate::store::{Listing, Put, StoreError};

pub(super) type StoreReply<T> = Reply<Result<T, StoreError>>;

/// One attempt to carry out. Lent bytes stay lent until it is answered.
pub(super) enum Request {
    Put(Put, StoreReply<()>),
    Get(ObjectKey, std::ops::Range<u64>, StoreReply<Bytes>),
    Delete(Vec<ObjectKey>, StoreReply<()>),
    List(String, Option<ObjectKey>, StoreReply<Listing>),
}

/// Runs until every sender of `queue` is gone and all taken requests are answered.
pub(super) async fn run(client: S3Client, queue: flume::Receiver<Request>) {
    let slots = Arc::new(Semaphore::new(STORE_IN_FLIGHT_MAX));
    loop {
        // A slot first: a request that cannot start here stays in the queue for another thread.
        let slot = Arc::clone(&slots).acquire_owned().await.expect("the semaphore is never closed");
        let Ok(request) = queue.recv_async().await else { break };
        let client = client.clone();
        tokio::spawn(async move {
            carry_out(client, request).await;
            drop(slot);
        });
    }
    let all = u32::try_from(STORE_IN_FLIGHT_MAX).expect("a small constant");
    drop(slots.acquire_many(all).await);
}

async fn carry_out(client: S3Client, request: Request) {
    // A reply that nobody waits for any more is dropped.
    match request {
        Request::Put(put, reply) => drop(reply.send(client.put(put).await)),
        Request::Get(key, range, reply) => drop(reply.send(client.get(&key, range).await)),
        Request::Delete(keys, reply) => drop(reply.send(client.delete(keys).await)),
        Request::List(prefix, after, reply) => drop(reply.send(client.list(prefix, after).await)),
    }
}
