//! Reads `remote.wal.storage.url`. Pure.
//!
//! ```text
//! s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=us-east-1&path-style=true
//! ```
//! `endpoint` is optional (AWS by region), `region` defaults to us-east-1, `path-style` to true with an endpoint and
//! false without. Values may be percent-encoded. Anything not understood is an error with the remedy: a typing mistake
//! must not choose another bucket.

use std::fmt;

/// Where a bucket is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorageUrl {
    /// Bucket name.
    pub bucket: String,
    /// What names begin with; no outer slashes; may be empty.
    pub prefix: String,
    /// Base URL of the service; `None`: AWS.
    pub endpoint: Option<String>,
    /// Region for signing.
    pub region: String,
    /// How the bucket is named in requests.
    pub addressing: Addressing,
}

/// How the bucket is named in requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addressing {
    /// `http://host/bucket/key`.
    Path,
    /// `http://bucket.host/key`.
    VirtualHost,
}

/// What is wrong with the setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("remote.wal.storage.url: {why}")]
pub struct UrlError {
    why: String,
}

impl StorageUrl {
    /// Reads the setting.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let rest = text.strip_prefix("s3://").ok_or_else(|| {
            wrong(format!("{text:?} must begin with s3://, as in s3://bucket/prefix?region=eu-west-1"))
        })?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        let mut url = Self {
            bucket: decode(bucket)?,
            prefix: decode(prefix)?.trim_matches('/').to_owned(),
            endpoint: None,
            region: "us-east-1".to_owned(),
            addressing: Addressing::VirtualHost,
        };
        check_bucket(&url.bucket)?;
        url.read_query(query)?;
        Ok(url)
    }

    fn read_query(&mut self, query: &str) -> Result<(), UrlError> {
        let mut addressing = None;
        let mut seen: Vec<&str> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| wrong(format!("{pair:?} has no value")))?;
            if seen.contains(&name) {
                return Err(wrong(format!("{name} is given twice")));
            }
            seen.push(name);
            let value = decode(value)?;
            match name {
                "endpoint" => self.endpoint = Some(check_endpoint(&value)?),
                "region" if value.is_empty() => return Err(wrong("region is empty".to_owned())),
                "region" => self.region = value,
                "path-style" => addressing = Some(parse_path_style(&value)?),
                _ => return Err(wrong(format!("{name:?} is not known; known are endpoint, region, path-style"))),
            }
        }
        let usual = if self.endpoint.is_some() { Addressing::Path } else { Addressing::VirtualHost };
        self.addressing = addressing.unwrap_or(usual);
        Ok(())
    }
}

impl fmt::Display for StorageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if !self.prefix.is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        write!(f, "?region={}", self.region)?;
        if let Some(endpoint) = &self.endpoint {
            write!(f, "&endpoint={endpoint}")?;
        }
        write!(f, "&path-style={}", self.addressing == Addressing::Path)
    }
}

fn wrong(why: String) -> UrlError {
    UrlError { why }
}

fn check_bucket(bucket: &str) -> Result<(), UrlError> {
    if !(3..=63).contains(&bucket.len()) {
        return Err(wrong(format!("bucket name {bucket:?} must have 3 to 63 characters")));
    }
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if !bucket.chars().all(allowed) || !edge(bucket.chars().next()) || !edge(bucket.chars().last()) {
        return Err(wrong(format!(
            "bucket name {bucket:?} may have lower-case letters, digits, '-' and '.', and begins and ends with a \
             letter or digit"
        )));
    }
    Ok(())
}

fn check_endpoint(endpoint: &str) -> Result<String, UrlError> {
    let host = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
    match host.map(|host| host.trim_end_matches('/')) {
        Some(host) if !host.is_empty() && !host.contains('/') => Ok(endpoint.trim_end_matches('/').to_owned()),
        _ => Err(wrong(format!("endpoint {endpoint:?} must be http://host:port or https://host:port"))),
    }
}

fn parse_path_style(value: &str) -> Result<Addressing, UrlError> {
    match value {
        "true" => Ok(Addressing::Path),
        "false" => Ok(Addressing::VirtualHost),
        _ => Err(wrong(format!("path-style is {value:?}, must be true or false"))),
    }
}

fn decode(text: &str) -> Result<String, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |b: Option<u8>| b.and_then(|b| char::from(b).to_digit(16)).and_then(|d| u8::try_from(d).ok());
        match (digit(rest.next()), digit(rest.next())) {
            (Some(high), Some(low)) => bytes.push(high * 16 + low),
            _ => return Err(wrong(format!("{text:?} has a '%' without two hexadecimal digits"))),
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong(format!("{text:?} is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_form_is_read() {
        let text = "s3://sakia-wal/some/prefix/?endpoint=http://127.0.0.1:9000&region=eu-west-1&path-style=true";
        let url = StorageUrl::parse(text).expect("valid");
        assert_eq!((url.bucket.as_str(), url.prefix.as_str()), ("sakia-wal", "some/prefix"));
        assert_eq!(url.endpoint.as_deref(), Some("http://127.0.0.1:9000"));
        assert_eq!((url.region.as_str(), url.addressing), ("eu-west-1", Addressing::Path));
        assert_eq!(StorageUrl::parse(&url.to_string()), Ok(url));
    }

    #[test]
    fn the_short_form_means_aws() {
        let url = StorageUrl::parse("s3://my-bucket").expect("valid");
        assert_eq!((url.endpoint, url.addressing, url.prefix.as_str()), (None, Addressing::VirtualHost, ""));
        let encoded = StorageUrl::parse("s3://my-bucket?endpoint=http%3A%2F%2Fh%3A1").expect("valid");
        assert_eq!((encoded.endpoint.as_deref(), encoded.addressing), (Some("http://h:1"), Addressing::Path));
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("https://bucket", "s3://"),
            ("s3://ab", "3 to 63"),
            ("s3://My_Bucket", "lower-case"),
            ("s3://bucket?regoin=x", "regoin"),
            ("s3://bucket?region", "no value"),
            ("s3://bucket?region=", "empty"),
            ("s3://bucket?region=a&region=b", "twice"),
            ("s3://bucket?endpoint=localhost:9000", "http://host:port"),
            ("s3://bucket?endpoint=http://", "http://host:port"),
            ("s3://bucket?path-style=yes", "true or false"),
            ("s3://bucket/%zz", "hexadecimal"),
        ];
        for (text, part) in cases {
            let error = StorageUrl::parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(error.starts_with("remote.wal.storage.url: "), "{error}");
        }
    }
}
