//! Our messages and those of `kafka-protocol` are the same bytes, for every request and response in every version.

use std::collections::BTreeMap;
use std::fmt::Debug;

use bytes::{Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{ApiKey as TheirKey, RequestKind, ResponseKind};
use sakia_codegen::schema::Api;
use sakia_protocol::api::ApiKey;
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol_oracle::frame::{Tags, message};
use sakia_protocol_oracle::random::Random;
use sakia_protocol_oracle::{Side, ours};

const SEED: u64 = 0x5a61_6b69;
const MESSAGES_PER_VERSION: usize = 200;

/// What `kafka-protocol` does not know: versions that were not final in Kafka 4.1, and our own keys.
const BEYOND_THEM: [(ApiKey, i16); 4] =
    [(ApiKey::ListOffsets, 11), (ApiKey::OffsetCommit, 10), (ApiKey::OffsetFetch, 10), (ApiKey::MetadataStream, 0)];

fn theirs(key: i16, side: Side, version: i16, frame: &Bytes) -> Result<Bytes, String> {
    let key = TheirKey::try_from(key).expect("a shared key");
    let mut rest = frame.clone();
    let mut out = BytesMut::new();
    match side {
        Side::Request => RequestKind::decode(key, &mut rest, version).and_then(|kind| kind.encode(&mut out, version)),
        Side::Response => ResponseKind::decode(key, &mut rest, version).and_then(|kind| kind.encode(&mut out, version)),
    }
    .map_err(|error| format!("{error:#}"))?;
    if rest.is_empty() { Ok(out.freeze()) } else { Err(format!("{} bytes are left", rest.len())) }
}

fn each_message(tags: Tags, mut judge: impl FnMut(&Api, ApiKey, Side, i16, &Bytes)) {
    let mut random = Random::new(SEED);
    for api in sakia_codegen::read_tables().expect("the tables are checked in") {
        let key = ApiKey::from_wire(api.key).expect("every table has its key");
        assert_eq!(key.name(), api.name);
        for version in api.versions.first..=api.versions.last {
            for side in Side::BOTH {
                for _ in 0..MESSAGES_PER_VERSION {
                    let frame = message(&api, side, version, tags, &mut random);
                    judge(&api, key, side, version, &frame);
                }
            }
        }
    }
}

/// Fails with every kind of message on which two readers differ.
#[derive(Default)]
struct Differences(BTreeMap<String, String>);

impl Differences {
    fn note<T: PartialEq + Debug>(&mut self, api: &Api, side: Side, version: i16, one: &T, other: &T) {
        if one != other {
            let message = format!("{} {side:?} version {version}", api.name);
            self.0.entry(message).or_insert_with(|| format!("{one:02x?}\n  {other:02x?}"));
        }
    }
}

impl Drop for Differences {
    fn drop(&mut self) {
        for (message, difference) in &self.0 {
            eprintln!("{message}:\n  {difference}");
        }
        assert!(self.0.is_empty(), "{} kinds of messages differ", self.0.len());
    }
}

#[test]
fn ours_come_back_byte_for_byte() {
    let mut differences = Differences::default();
    each_message(Tags::Canonical, |api, key, side, version, frame| {
        differences.note(api, side, version, &ours::rewrite(key, side, version, frame), &Ok(frame.clone()));
    });
}

#[test]
fn theirs_are_the_same_bytes() {
    let mut differences = Differences::default();
    each_message(Tags::Canonical, |api, key, side, version, frame| {
        if !BEYOND_THEM.contains(&(key, version)) {
            differences.note(api, side, version, &theirs(api.key, side, version, frame), &Ok(frame.clone()));
        }
    });
}

#[test]
fn a_stated_default_means_the_same_to_both() {
    let mut differences = Differences::default();
    each_message(Tags::Loose, |api, key, side, version, frame| {
        // Fields of our own are unknown to them and kept as they came, so there a stated default would stay.
        let private = matches!((key, version), (ApiKey::Fetch, 17..) | (ApiKey::BrokerRegistration, _));
        if !BEYOND_THEM.contains(&(key, version)) && !private {
            let ours = ours::rewrite(key, side, version, frame).map_err(|error| error.to_string());
            differences.note(api, side, version, &theirs(api.key, side, version, frame), &ours);
        }
    });
}

#[test]
fn error_codes_have_kafkas_names() {
    let mut shared = 0;
    for error in ErrorCode::ALL {
        let camel_case: String =
            error.name().split('_').map(|word| format!("{}{}", &word[..1], word[1..].to_lowercase())).collect();
        assert_eq!(camel_case, format!("{error:?}"));
        match ResponseError::try_from_code(error.code()) {
            Some(ResponseError::Unknown(_)) => {}
            Some(theirs) => {
                assert_eq!(format!("{theirs:?}"), camel_case, "code {}", error.code());
                shared += 1;
            }
            None => assert_eq!(*error, ErrorCode::None),
        }
    }
    assert!(shared > 120, "only {shared} codes are shared");
}
