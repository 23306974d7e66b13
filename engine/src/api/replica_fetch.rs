//! A follower's fetch: references where the object path works, record bytes where it does not.
//!
//! Path: `fetch` → here → owner shards (state and plan, R9-R11) → objects gathered over all partitions → the private
//! tagged field of the answer.
//!
//! Parked until a partition has something, a new high watermark is worth telling (after 5 ms), the wait is over, or the
//! follower's next fetch arrives: that one reports newer ends.

use std::collections::BTreeMap;
use std::rc::Rc;

use sakia_io::{Moment, Signal, now, sleep_until};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::fetch_view::{FetchReplica, FetchView};
use sakia_protocol::ids::{Offset, PartitionKey};
use sakia_remote::ReferencedObject;
use sakia_remote::wal_tag::{FetchPlace, ReplyMode, WalRequest, WalResponse, Wants};

use super::fetch::{Fetching, read_all, write};
use crate::connection::{Request, Response};
use crate::limits::HIGH_WATERMARK_WAKE;
use crate::messages::{LastRead, ReadResult, Reader, ReplicaReader, Waiting};
use crate::select::{Either, either};
use crate::shard::Shard;

pub(super) async fn answer(
    shard: Rc<Shard>,
    request: Request,
    view: &FetchView,
    replica: FetchReplica,
    mut fetching: Fetching,
) -> Response {
    let wanted = match view.private_field().map(|field| WalRequest::decode(&field)).transpose() {
        Ok(wanted) => wanted,
        Err(error) => return Response::Close(format!("bad object path field in a replica's Fetch: {error}")),
    };
    if let Some(wanted) = &wanted {
        let until: BTreeMap<PartitionKey, Offset> = wanted.bytes_until.iter().map(|u| (u.key, u.offset)).collect();
        for read in &mut fetching.reads {
            read.bytes_until = until.get(&read.key).copied();
        }
    }
    // The follower counts its own fetches; for one that does not, connections are counted as they were accepted.
    let counted = FetchPlace { session: request.session, number: request.number };
    let place = wanted.as_ref().map_or(counted, |wanted| wanted.place);
    let reader = ReplicaReader {
        broker: replica.id,
        broker_epoch: replica.epoch,
        session: place.session,
        session_epoch: place.number,
        wants_references: wanted.as_ref().is_some_and(|wanted| wanted.wants == Wants::References),
    };
    let results = wait_for_rows(&shard, &request, &fetching, reader).await;
    let private = wanted.map(|_| objects(&results).encode());
    let records: usize = results.iter().flat_map(|row| &row.records).map(bytes::Bytes::len).sum();
    let response = write(&shard, &request, &fetching, results, private.as_deref());
    if let Response::Pieces(pieces) = &response {
        let whole: usize = pieces.iter().map(bytes::Bytes::len).sum();
        let control = u64::try_from(whole.saturating_sub(records)).unwrap_or(0);
        shard.counters.replication_control_bytes_out.add(control);
    }
    response
}

async fn wait_for_rows(
    shard: &Rc<Shard>,
    request: &Request,
    fetching: &Fetching,
    replica: ReplicaReader,
) -> Vec<ReadResult> {
    let mut deadline = fetching.deadline;
    let reader = Reader::Replica(replica);
    loop {
        let waiter = Signal::new();
        let last = now() >= deadline || request.successor.is_raised();
        let parked = (!last).then(|| Waiting { session: request.session, signal: waiter.clone() });
        let mode = if last { LastRead::Yes } else { LastRead::IfAny };
        let results = read_all(shard, fetching, &reader, mode, parked).await;
        let any = results.iter().any(|row| row.error != ErrorCode::None || row.has_data());
        if last || any || !fetching.failed.is_empty() {
            return results;
        }
        if results.iter().any(|row| row.has_news) {
            deadline = deadline.min(now() + HIGH_WATERMARK_WAKE);
        }
        let again = results.iter().filter_map(|row| row.again_at).min().map(Moment::from_duration);
        let until = again.map_or(deadline, |again| again.min(deadline)).max(now());
        match either(sleep_until(until), either(waiter.wait(), request.successor.wait())).await {
            // The successor is on its way: this fetch is answered with what there is.
            Either::Right(Either::Right(())) => deadline = now(),
            Either::Left(()) | Either::Right(Either::Left(())) => {}
        }
    }
}

/// The objects of a reply: each once, to be read as far as the last slice that is wanted of it.
fn objects(results: &[ReadResult]) -> WalResponse {
    let mut objects: Vec<ReferencedObject> = Vec::new();
    for slice in results.iter().flat_map(|row| &row.references) {
        match objects.iter_mut().rfind(|known| known.object == slice.object) {
            Some(known) => known.get_end = known.get_end.max(slice.end),
            None => {
                objects.push(ReferencedObject { object: slice.object, get_end: slice.end, excluded: Vec::new() });
            }
        }
    }
    let bytes = results.iter().any(|row| !row.records.is_empty());
    WalResponse { mode: if bytes { ReplyMode::Fallback } else { ReplyMode::References }, objects }
}
