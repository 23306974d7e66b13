//! Reads and writes any message by number, through the generated types.

use bytes::Bytes;
use sakia_protocol::api::{ApiKey, Request};
use sakia_protocol::codec::{Decode, Encode, WireError, decode_exact, encode_to_bytes};

use crate::Side;

/// Reads a message and writes it again.
///
/// # Errors
/// That of the reader or the writer, and `UnknownApi` for a key without a table.
pub fn rewrite(key: ApiKey, side: Side, version: i16, frame: &Bytes) -> Result<Bytes, WireError> {
    macro_rules! by_key {
        ($($api:ident $module:ident $versions:expr, $flexible:expr, $request:ident $response:ident;)*) => {
            match key {
                $(ApiKey::$api => both::<sakia_protocol::messages::$module::$request>(side, version, frame),)*
                other => Err(WireError::UnknownApi(other.key())),
            }
        };
    }
    sakia_protocol::for_each_api!(by_key)
}

fn both<R: Request>(side: Side, version: i16, frame: &Bytes) -> Result<Bytes, WireError> {
    match side {
        Side::Request => one::<R>(version, frame),
        Side::Response => one::<R::Response>(version, frame),
    }
}

fn one<T: Decode + Encode>(version: i16, frame: &Bytes) -> Result<Bytes, WireError> {
    encode_to_bytes(&decode_exact::<T>(frame, version)?, version)
}
