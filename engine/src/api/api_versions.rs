//! ApiVersions: what this broker serves. Answered in any version, also ones we have never heard of. Pure.

use sakia_protocol::api::ApiKey;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::header::encode_response;
use sakia_protocol::messages::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};

use super::{SUPPORTED, decode, respond};
use crate::connection::{Request, Response};

pub(super) fn answer(request: &Request) -> Response {
    let (_, min, max) = range_of(ApiKey::ApiVersions);
    if !(min..=max).contains(&request.api_version) {
        return unknown_version(request);
    }
    match decode::<ApiVersionsRequest>(request) {
        Ok(_) => respond(request, &listing(SUPPORTED.iter().copied(), ErrorCode::None)),
        Err(close) => close,
    }
}

fn range_of(key: ApiKey) -> (ApiKey, i16, i16) {
    *SUPPORTED.iter().find(|row| row.0 == key).expect("ApiVersions is served")
}

/// A version we do not know gets a version 0 body, error 35, and our own range, so that the client can try again.
fn unknown_version(request: &Request) -> Response {
    let body = listing(std::iter::once(range_of(ApiKey::ApiVersions)), ErrorCode::UnsupportedVersion);
    match encode_response(ApiKey::ApiVersions, 0, request.correlation_id, &body) {
        Ok(frame) => Response::Pieces(vec![frame]),
        Err(error) => Response::Close(format!("could not encode the ApiVersions answer: {error}")),
    }
}

fn listing(rows: impl Iterator<Item = (ApiKey, i16, i16)>, error: ErrorCode) -> ApiVersionsResponse {
    ApiVersionsResponse {
        error_code: error.code(),
        api_keys: rows
            .map(|(key, min, max)| ApiVersion { api_key: key.key(), min_version: min, max_version: max })
            .collect(),
        ..ApiVersionsResponse::default()
    }
}
