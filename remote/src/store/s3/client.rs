//! One attempt of each request, through the AWS SDK.
//!
//! Path: a store thread → here → HTTP. The SDK's own retries are off: one call is one attempt and is counted once.
//! The SDK signs each attempt anew, with the store's time as the last answer told it, so a wrong host clock costs one
//! refused attempt. Payloads are not signed (hashing costs as much as sending); integrity is the object's own checksums.

use std::ops::Range;
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    BehaviorVersion, Credentials, Region, RequestChecksumCalculation, ResponseChecksumValidation, SharedHttpClient,
    StalledStreamProtectionConfig,
};
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{Delete, ObjectIdentifier};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use bytes::{Bytes, BytesMut};

use super::S3Settings;
use super::body::lent_body;
use crate::key::ObjectKey;
use crate::store::classify::{Failure, classify, length_of_unsatisfied, place_range};
use crate::store::{CreateOnly, ListedObject, Listing, More, Put, StatusClass, StoreCounters, StoreError, Verb};
use crate::url::Addressing;

/// Raw response of the SDK.
type RawResponse = aws_sdk_s3::config::http::HttpResponse;

/// One client; belongs to one store thread.
#[derive(Clone)]
pub(super) struct S3Client {
    client: Client,
    bucket: String,
    attempt_timeout: Duration,
    counters: StoreCounters,
}

impl S3Client {
    pub(super) fn new(settings: &S3Settings, counters: StoreCounters) -> Self {
        let timeouts = TimeoutConfig::builder().connect_timeout(settings.connect_timeout).build();
        let credentials = &settings.credentials;
        let credentials = Credentials::new(
            credentials.access_key.clone(),
            credentials.secret_key.clone(),
            credentials.session_token.clone(),
            None,
            "settings",
        );
        let mut config = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(settings.url.region.clone()))
            .credentials_provider(credentials)
            .force_path_style(settings.url.addressing == Addressing::Path)
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
            .retry_config(RetryConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .timeout_config(timeouts)
            .http_client(http_client(settings));
        if let Some(endpoint) = &settings.url.endpoint {
            config = config.endpoint_url(endpoint);
        }
        Self {
            client: Client::from_conf(config.build()),
            bucket: settings.url.bucket.clone(),
            attempt_timeout: settings.attempt_timeout,
            counters,
        }
    }

    pub(super) async fn put(&self, put: Put) -> Result<(), StoreError> {
        let length = put.length();
        let mut request = self
            .client
            .put_object()
            .bucket(&self.bucket)
            .key(put.key.as_str())
            .content_length(i64::try_from(length).expect("an object is shorter than 2^63"))
            .body(ByteStream::new(lent_body(put.parts)));
        if put.create_only == CreateOnly::Yes {
            request = request.if_none_match("*");
        }
        self.counters.sent(length);
        let attempt = request.customize().disable_payload_signing().send();
        let outcome = tokio::time::timeout(self.attempt_timeout, attempt).await;
        self.settle(Verb::Put, outcome).map(|_| ())
    }

    pub(super) async fn get(&self, key: &ObjectKey, range: Range<u64>) -> Result<Bytes, StoreError> {
        assert!(range.start < range.end, "a get asks for bytes");
        let header = format!("bytes={}-{}", range.start, range.end - 1);
        let request = self.client.get_object().bucket(&self.bucket).key(key.as_str()).range(header);
        // One limit over answer and body: a body that stalls is a failed attempt too.
        let limit = tokio::time::Instant::now() + self.attempt_timeout;
        let outcome = tokio::time::timeout_at(limit, request.send()).await;
        let output = match self.settle(Verb::Get, outcome) {
            Err(StoreError::OutOfRange { length, .. }) => {
                return Err(StoreError::OutOfRange { asked: range.end, length });
            }
            other => other?,
        };
        let body = tokio::time::timeout_at(limit, self.read_body(output, range)).await;
        body.unwrap_or_else(|_| {
            Err(StoreError::Unknown { why: format!("no whole answer within {:?}", self.attempt_timeout) })
        })
    }

    async fn read_body(&self, output: GetObjectOutput, asked: Range<u64>) -> Result<Bytes, StoreError> {
        let content_length = output.content_length().and_then(|length| u64::try_from(length).ok());
        let place = place_range(&asked, output.content_range(), content_length)?;
        let wanted = usize_of(asked.end - asked.start)?;
        let mut skip = usize_of(place.start)?;
        let mut bytes = BytesMut::with_capacity(wanted);
        let mut body = output.body;
        while bytes.len() < wanted {
            let Some(frame) = body.next().await else { break };
            let frame = frame.map_err(|error| StoreError::BadReply { why: format!("body broke off: {error}") })?;
            self.counters.received(u64::try_from(frame.len()).expect("usize fits u64"));
            let skipped = skip.min(frame.len());
            skip -= skipped;
            let rest = &frame[skipped..];
            bytes.extend_from_slice(&rest[..rest.len().min(wanted - bytes.len())]);
        }
        if bytes.len() < wanted {
            return Err(StoreError::BadReply { why: format!("body of {} bytes for {asked:?}", bytes.len()) });
        }
        Ok(bytes.freeze())
    }

    pub(super) async fn delete(&self, keys: Vec<ObjectKey>) -> Result<(), StoreError> {
        let identifiers = keys.iter().map(|key| {
            ObjectIdentifier::builder().key(key.as_str()).build().expect("a key is all an identifier needs")
        });
        let delete = Delete::builder().set_objects(Some(identifiers.collect())).quiet(true).build();
        let delete = delete.expect("objects are all a deletion needs");
        let attempt = self.client.delete_objects().bucket(&self.bucket).delete(delete).send();
        let outcome = tokio::time::timeout(self.attempt_timeout, attempt).await;
        let output = self.settle(Verb::Delete, outcome)?;
        match output.errors().iter().find(|error| error.code() != Some("NoSuchKey")) {
            None => Ok(()),
            Some(error) => Err(StoreError::Retry { why: format!("{:?} of {:?}", error.code(), error.key()) }),
        }
    }

    pub(super) async fn list(&self, prefix: String, after: Option<ObjectKey>) -> Result<Listing, StoreError> {
        let after = after.map(|key| key.as_str().to_owned());
        let request = self.client.list_objects_v2().bucket(&self.bucket).prefix(prefix).set_start_after(after);
        let outcome = tokio::time::timeout(self.attempt_timeout, request.send()).await;
        let output = self.settle(Verb::List, outcome)?;
        let objects = output.contents().iter().filter_map(|object| {
            Some(ListedObject {
                key: ObjectKey::new(object.key()?),
                length: u64::try_from(object.size().unwrap_or(0)).unwrap_or(0),
                modified_ms: object.last_modified().and_then(|at| at.to_millis().ok()).unwrap_or(i64::MAX),
            })
        });
        let more = if output.is_truncated() == Some(true) { More::Yes } else { More::No };
        Ok(Listing { objects: objects.collect(), more })
    }

    /// Counts the attempt and sorts its failure.
    fn settle<T, E: ProvideErrorMetadata + std::error::Error + 'static>(
        &self,
        verb: Verb,
        outcome: Result<Result<T, SdkError<E, RawResponse>>, tokio::time::error::Elapsed>,
    ) -> Result<T, StoreError> {
        let error = match outcome {
            Ok(Ok(output)) => {
                self.counters.attempt(verb, StatusClass::Success);
                return Ok(output);
            }
            Ok(Err(error)) => error,
            Err(_) => {
                self.counters.attempt(verb, StatusClass::Unanswered);
                return Err(StoreError::Unknown { why: format!("no answer within {:?}", self.attempt_timeout) });
            }
        };
        let response = error.raw_response();
        let status = response.map(|response| response.status().as_u16());
        self.counters.attempt(verb, status.map_or(StatusClass::Unanswered, StatusClass::of));
        let code = error.code();
        if status == Some(416) {
            let total = response.and_then(|response| response.headers().get("content-range"));
            let length = total.and_then(length_of_unsatisfied);
            return Err(StoreError::OutOfRange { asked: 0, length });
        }
        let text = error.message().map_or_else(|| chain(&error), ToOwned::to_owned);
        Err(classify(Failure { status, code, text: &text }))
    }
}

fn http_client(settings: &S3Settings) -> SharedHttpClient {
    // Stores close idle connections after about 20 s; ours are gone before.
    let builder = Builder::new().pool_idle_timeout(settings.idle_timeout);
    if settings.url.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://")) {
        builder.build_http()
    } else {
        builder.tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
    }
}

fn usize_of(value: u64) -> Result<usize, StoreError> {
    usize::try_from(value).map_err(|_| StoreError::BadReply { why: format!("{value} bytes do not fit memory") })
}

/// The innermost causes say what happened; the outer ones only "dispatch failure".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
