//! Kafka's wire: ids, codec, messages, record batches. No I/O.
//!
//! Reading order: `ids` (the numbers), `codec` (how fields are written), `header` (what precedes a message), `api`
//! (which requests and errors there are), `messages` (one file per request, generated from `schema/`); then the hot path,
//! written by hand: `batch` (record batches), `produce_view`, `fetch_view`, `fetch_response`.

pub mod api;
pub mod batch;
pub mod codec;
pub mod fetch_response;
pub mod fetch_view;
pub mod header;
pub mod ids;
pub mod messages;
pub mod produce_view;
pub mod topic_ref;
