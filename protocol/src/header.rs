//! What stands before the body of a request and of a response.
//!
//! ```text
//! frame     length i32 (of what follows) · header · body
//! request   v0: api key i16 · api version i16 · correlation id i32
//!           v1: + client id (nullable string, never compact)
//!           v2: + tagged fields
//! response  v0: correlation id i32
//!           v1: + tagged fields
//! ```
//! Invariant: the response to ApiVersions always has header v0, so that a client of any version can read it.

use bytes::{BufMut, Bytes};

use crate::api::ApiKey;
use crate::codec::{Encode, Form, Reader, WireError, Writer};

/// Bytes of the length in front of a frame.
pub const LENGTH_BYTES: usize = 4;

/// The header of a request, borrowed from its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHeader<'a> {
    /// Which request follows. Always a key we know.
    pub api_key: ApiKey,
    /// In which version. May be one that we do not know.
    pub api_version: i16,
    /// Comes back in the response.
    pub correlation_id: i32,
    /// Who the client says it is.
    pub client_id: Option<&'a str>,
}

impl<'a> RequestHeader<'a> {
    /// Reads the header (after the length) and leaves `r` at the body.
    ///
    /// # Errors
    /// `UnknownApi` for a key we have never heard of; else as the fields.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, WireError> {
        let key = r.i16()?;
        let api_version = r.i16()?;
        let correlation_id = r.i32()?;
        let api_key = ApiKey::from_wire(key).ok_or(WireError::UnknownApi(key))?;
        let header_version = api_key.request_header_version(api_version);
        r.set_form(Form::Plain);
        let client_id = if header_version >= 1 { r.nullable_str()? } else { None };
        r.set_form(Form::of(header_version, 2));
        r.skip_tagged()?;
        r.set_form(Form::Plain);
        Ok(Self { api_key, api_version, correlation_id, client_id })
    }

    fn encode(&self, w: &mut Writer) -> Result<(), WireError> {
        let header_version = self.api_key.request_header_version(self.api_version);
        w.i16(self.api_key.key());
        w.i16(self.api_version);
        w.i32(self.correlation_id);
        if header_version >= 1 {
            w.nullable_string(self.client_id)?;
        }
        w.set_form(Form::of(header_version, 2));
        w.no_tagged();
        w.set_form(Form::Plain);
        Ok(())
    }
}

/// Writes the header of a response.
pub fn encode_response_header(w: &mut Writer, api_key: ApiKey, api_version: i16, correlation_id: i32) {
    w.i32(correlation_id);
    w.set_form(Form::of(api_key.response_header_version(api_version), 1));
    w.no_tagged();
    w.set_form(Form::Plain);
}

/// Reads the header of a response to a request that we sent: its correlation id. Leaves `r` at the body.
///
/// # Errors
/// As the fields.
pub fn decode_response_header(r: &mut Reader<'_>, api_key: ApiKey, api_version: i16) -> Result<i32, WireError> {
    let correlation_id = r.i32()?;
    r.set_form(Form::of(api_key.response_header_version(api_version), 1));
    r.skip_tagged()?;
    r.set_form(Form::Plain);
    Ok(correlation_id)
}

/// A whole request frame: length, header, body.
///
/// # Errors
/// As `Encode::encode`, and `TooLarge` for a frame of 2 GiB or more.
pub fn encode_request<T: Encode>(header: &RequestHeader<'_>, body: &T) -> Result<Bytes, WireError> {
    framed(|w| {
        header.encode(w)?;
        body.encode(w, header.api_version)
    })
}

/// A whole response frame: length, header, body.
///
/// # Errors
/// As `encode_request`.
pub fn encode_response<T: Encode>(
    api_key: ApiKey,
    api_version: i16,
    correlation_id: i32,
    body: &T,
) -> Result<Bytes, WireError> {
    framed(|w| {
        encode_response_header(w, api_key, api_version, correlation_id);
        body.encode(w, api_version)
    })
}

fn framed(fill: impl FnOnce(&mut Writer) -> Result<(), WireError>) -> Result<Bytes, WireError> {
    let mut w = Writer::new();
    w.i32(0);
    fill(&mut w)?;
    let len = w.len() - LENGTH_BYTES;
    let wire_len = i32::try_from(len).map_err(|_| WireError::TooLarge(len))?;
    (&mut w.buffer_mut()[..LENGTH_BYTES]).put_i32(wire_len);
    Ok(w.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: RequestHeader<'static> =
        RequestHeader { api_key: ApiKey::Metadata, api_version: 0, correlation_id: 7, client_id: None };

    fn round_trip(header: &RequestHeader<'_>) -> usize {
        let frame = encode_request(header, &5i32).unwrap();
        let rest = frame.slice(LENGTH_BYTES..);
        let mut r = Reader::new(&frame);
        assert_eq!(r.i32(), Ok(i32::try_from(rest.len()).unwrap()));
        let mut r = Reader::new(&rest);
        assert_eq!(RequestHeader::decode(&mut r).as_ref(), Ok(header));
        assert_eq!(r.i32(), Ok(5));
        assert_eq!(r.end(), Ok(()));
        frame.len()
    }

    #[test]
    fn header_version_follows_the_request() {
        assert_eq!(round_trip(&NONE), 4 + 8 + 2 + 4);
        assert_eq!(round_trip(&RequestHeader { api_version: 9, ..NONE }), 4 + 8 + 2 + 1 + 4);
        assert_eq!(round_trip(&RequestHeader { api_version: 9, client_id: Some("abc"), ..NONE }), 4 + 8 + 5 + 1 + 4);
        assert_eq!(round_trip(&RequestHeader { api_key: ApiKey::ControlledShutdown, ..NONE }), 4 + 8 + 4);
    }

    #[test]
    fn an_unknown_version_of_api_versions_still_has_a_readable_header() {
        let header = RequestHeader { api_key: ApiKey::ApiVersions, api_version: 99, ..NONE };
        assert_eq!(round_trip(&header), 4 + 8 + 2 + 1 + 4);
    }

    #[test]
    fn response_to_api_versions_has_the_old_header() {
        for version in 0..=4 {
            assert_eq!(encode_response(ApiKey::ApiVersions, version, 7, &5i32).unwrap().len(), 12);
        }
        let frame = encode_response(ApiKey::Metadata, 9, 7, &5i32).unwrap();
        assert_eq!(&frame[..], &[0, 0, 0, 9, 0, 0, 0, 7, 0, 0, 0, 0, 5]);
        let mut r = Reader::new(&frame);
        assert_eq!(r.i32(), Ok(9));
        assert_eq!(decode_response_header(&mut r, ApiKey::Metadata, 9), Ok(7));
        assert_eq!(r.i32(), Ok(5));
    }

    #[test]
    fn an_unknown_key_is_named() {
        let frame = Bytes::from_static(&[0x03, 0xe8, 0, 0, 0, 0, 0, 0]);
        assert_eq!(RequestHeader::decode(&mut Reader::new(&frame)), Err(WireError::UnknownApi(1000)));
    }
}
