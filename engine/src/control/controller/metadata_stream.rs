//! MetadataStream: what was applied here above the index that a broker has, by long poll; the whole image when that is
//! too old.
//!
//! Invariant: an answer holds everything up to its commit index, whole entries only.

use std::time::Duration;

use bytes::Bytes;
use sakia_controller::Event;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{BrokerEpoch, BrokerId, MetadataIndex};
use sakia_protocol::messages::metadata_stream::{MetadataEvent, MetadataStreamRequest, MetadataStreamResponse};

use super::ControllerApi;
use crate::control::limits::{STREAM_EVENT_BYTES_SOFT_MAX, STREAM_WAIT_MAX};
use crate::messages::Refusal;

impl ControllerApi {
    pub(super) async fn metadata_stream(&self, body: MetadataStreamRequest) -> MetadataStreamResponse {
        self.streamed(&body).await.unwrap_or_else(|refusal| MetadataStreamResponse {
            error_code: refusal.code.code(),
            error_message: refusal.message,
            ..MetadataStreamResponse::default()
        })
    }

    async fn streamed(&self, body: &MetadataStreamRequest) -> Result<MetadataStreamResponse, Refusal> {
        self.check_reader(body)?;
        let from = MetadataIndex::from_wire(body.from_index);
        if let Some(from) = from {
            let commit = self.controller.commit_index();
            if from > commit {
                return Err(Refusal::with_message(ErrorCode::OffsetOutOfRange, format!("the log ends at {commit}")));
            }
            let wait = Duration::from_millis(u64::try_from(body.max_wait_ms).unwrap_or(0)).min(STREAM_WAIT_MAX);
            self.controller.wait_past(from, wait).await;
            self.check_reader(body)?;
        }
        let image = self.controller.image();
        let (controller_epoch, commit) = (image.controller_epoch.get(), image.index);
        let plain = MetadataStreamResponse { controller_epoch, ..MetadataStreamResponse::default() };
        Ok(match from.and_then(|from| self.controller.events_after(from)) {
            Some(events) => {
                let (events, reaches) = encode_events(&events, commit);
                MetadataStreamResponse { commit_index: reaches.get(), events, ..plain }
            }
            None => MetadataStreamResponse {
                commit_index: commit.get(),
                image: Some(Bytes::from(image.encode())),
                image_index: commit.get(),
                ..plain
            },
        })
    }

    /// Only the active controller's image is complete, and only a registered process is told.
    fn check_reader(&self, body: &MetadataStreamRequest) -> Result<(), Refusal> {
        if !self.controller.is_active() {
            return Err(Refusal::code(ErrorCode::NotController));
        }
        let image = self.controller.image();
        let ids = (BrokerId::from_wire(body.broker_id), BrokerEpoch::from_wire(body.broker_epoch));
        let is_known = matches!(ids, (Some(broker), Some(epoch)) if image.broker_at(broker, epoch).is_some());
        if is_known { Ok(()) } else { Err(Refusal::code(ErrorCode::StaleBrokerEpoch)) }
    }
}

/// Events as far as they fit, cut between entries, and the index up to which they reach.
fn encode_events(events: &[(MetadataIndex, Event)], commit: MetadataIndex) -> (Vec<MetadataEvent>, MetadataIndex) {
    let mut encoded: Vec<MetadataEvent> = Vec::with_capacity(events.len());
    let mut bytes = 0;
    for (index, event) in events {
        if let Some(last) = encoded.last().map(|event| event.index)
            && bytes >= STREAM_EVENT_BYTES_SOFT_MAX
            && last != index.get()
        {
            return (encoded, MetadataIndex::new(last));
        }
        let mut body = Vec::new();
        event.encode_body(&mut body);
        bytes += body.len();
        let (kind, version) = (event.kind().cast_signed(), event.version().cast_signed());
        encoded.push(MetadataEvent { index: index.get(), kind, version, body: Bytes::from(body) });
    }
    (encoded, commit)
}

#[cfg(test)]
mod tests {
    use sakia_controller::event::ConfigsSet;
    use sakia_controller::image::ConfigResource;

    use super::*;

    fn large() -> Event {
        let value = Some("x".repeat(STREAM_EVENT_BYTES_SOFT_MAX / 2 + 1));
        ConfigsSet { resource: ConfigResource::Cluster, changes: vec![("name".into(), value)] }.into()
    }

    #[test]
    fn an_answer_is_cut_between_entries_and_says_how_far_it_reaches() {
        let index = MetadataIndex::new;
        let events = [(index(3), large()), (index(4), large()), (index(4), large()), (index(6), large())];
        let (encoded, reaches) = encode_events(&events, index(9));
        assert_eq!((encoded.len(), reaches), (3, index(4)));
        let (encoded, reaches) = encode_events(&events[3..], index(9));
        assert_eq!((encoded.len(), reaches), (1, index(9)));
    }
}
