//! The S3 operations there are, over files.
//!
//! Path: parsed and authenticated request → [`Disk`] → answer. Operations that are not here are answered with 501.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use hyper::header::{CONTENT_RANGE, HeaderMap, HeaderValue};
use s3s::dto::{
    Bucket, CommonPrefix, CreateBucketInput, CreateBucketOutput, DeleteObjectInput, DeleteObjectOutput,
    DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, ETag, ETagCondition, GetObjectInput, GetObjectOutput,
    HeadBucketInput, HeadBucketOutput, HeadObjectInput, HeadObjectOutput, ListBucketsInput, ListBucketsOutput,
    ListObjectsV2Input, ListObjectsV2Output, Object, PutObjectInput, PutObjectOutput, StreamingBlob,
};
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};

use crate::disk::{Create, Disk, Entry, WriteError};

/// Names in one page of a listing.
const PAGE: usize = 1000;
/// Bytes read from a file at once.
const READ_LENGTH: u64 = 256 * 1024;

pub(crate) struct Operations {
    disk: Disk,
}

impl Operations {
    pub(crate) fn new(disk: Disk) -> Self {
        Self { disk }
    }

    fn find(&self, bucket: &str, key: &str) -> S3Result<Entry> {
        self.check_bucket(bucket)?;
        self.disk.entry(bucket, key).ok_or_else(|| s3_error!(NoSuchKey, "no object {key}"))
    }

    fn check_bucket(&self, bucket: &str) -> S3Result<()> {
        if self.disk.has_bucket(bucket) { Ok(()) } else { Err(s3_error!(NoSuchBucket, "no bucket {bucket}")) }
    }
}

#[async_trait::async_trait]
impl S3 for Operations {
    async fn put_object(&self, request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let input = request.input;
        let create = match input.if_none_match {
            None => Create::OrReplace,
            Some(ETagCondition::Any) => Create::Only,
            Some(ETagCondition::ETag(_)) => {
                return Err(s3_error!(NotImplemented, "if-none-match knows only *"));
            }
        };
        if input.if_match.is_some() {
            return Err(s3_error!(NotImplemented, "if-match is not known"));
        }
        let mut object = self.disk.begin().map_err(disk_error)?;
        if let Some(mut body) = input.body {
            while let Some(bytes) = next(&mut body).await {
                object.write(&bytes.map_err(|error| s3_error!(IncompleteBody, "{error}"))?).map_err(disk_error)?;
            }
        }
        if input.content_length.is_some_and(|length| u64::try_from(length) != Ok(object.length())) {
            return Err(s3_error!(IncompleteBody, "body of {} bytes", object.length()));
        }
        let entry = self.disk.publish(&input.bucket, &input.key, &object, create).map_err(|error| match error {
            WriteError::NoBucket => s3_error!(NoSuchBucket, "no bucket {}", input.bucket),
            WriteError::KeyTooLong => s3_error!(KeyTooLongError, "a part of the key is too long"),
            WriteError::Exists => s3_error!(PreconditionFailed, "{} exists", input.key),
            WriteError::Disk(error) => disk_error(error),
        })?;
        Ok(S3Response::new(PutObjectOutput { e_tag: Some(tag(&entry)), ..Default::default() }))
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let input = request.input;
        self.check_bucket(&input.bucket)?;
        let opened = self.disk.open_object(&input.bucket, &input.key).map_err(disk_error)?;
        let (mut file, entry) = opened.ok_or_else(|| s3_error!(NoSuchKey, "no object {}", input.key))?;
        let range = match input.range {
            None => 0..entry.length,
            Some(range) => range.check(entry.length).map_err(|_| unsatisfiable(&entry))?,
        };
        file.seek(SeekFrom::Start(range.start)).map_err(disk_error)?;
        let length = range.end - range.start;
        let content_range = input.range.map(|_| format!("bytes {}-{}/{}", range.start, range.end - 1, entry.length));
        Ok(S3Response::new(GetObjectOutput {
            body: Some(StreamingBlob::wrap(FileBytes { file, rest: length })),
            content_length: i64::try_from(length).ok(),
            content_range,
            e_tag: Some(tag(&entry)),
            last_modified: Some(entry.modified.into()),
            accept_ranges: Some("bytes".to_owned()),
            ..Default::default()
        }))
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        let entry = self.find(&request.input.bucket, &request.input.key)?;
        Ok(S3Response::new(HeadObjectOutput {
            content_length: i64::try_from(entry.length).ok(),
            e_tag: Some(tag(&entry)),
            last_modified: Some(entry.modified.into()),
            accept_ranges: Some("bytes".to_owned()),
            ..Default::default()
        }))
    }

    async fn delete_object(&self, request: S3Request<DeleteObjectInput>) -> S3Result<S3Response<DeleteObjectOutput>> {
        self.check_bucket(&request.input.bucket)?;
        self.disk.delete(&request.input.bucket, &request.input.key).map_err(disk_error)?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let input = request.input;
        self.check_bucket(&input.bucket)?;
        let mut deleted = Vec::new();
        for object in input.delete.objects {
            self.disk.delete(&input.bucket, &object.key).map_err(disk_error)?;
            deleted.push(DeletedObject { key: Some(object.key), ..Default::default() });
        }
        let deleted = if input.delete.quiet == Some(true) { None } else { Some(deleted) };
        Ok(S3Response::new(DeleteObjectsOutput { deleted, ..Default::default() }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        let prefix = input.prefix.clone().unwrap_or_default();
        let bound = input.max_keys.and_then(|bound| usize::try_from(bound).ok()).unwrap_or(PAGE).min(PAGE);
        // A continuation token is the last name (or common prefix) of the page before.
        let after = input.continuation_token.clone().or_else(|| input.start_after.clone());
        let page = self
            .page(&input.bucket, &prefix, after, input.delimiter.as_deref(), bound)
            .ok_or_else(|| s3_error!(NoSuchBucket, "no bucket {}", input.bucket))?;
        let count = page.objects.len() + page.prefixes.len();
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: input.prefix,
            delimiter: input.delimiter,
            max_keys: i32::try_from(bound).ok(),
            key_count: i32::try_from(count).ok(),
            is_truncated: Some(page.next.is_some()),
            continuation_token: input.continuation_token,
            next_continuation_token: page.next,
            start_after: input.start_after,
            contents: Some(page.objects),
            common_prefixes: Some(page.prefixes),
            ..Default::default()
        }))
    }

    async fn head_bucket(&self, request: S3Request<HeadBucketInput>) -> S3Result<S3Response<HeadBucketOutput>> {
        self.check_bucket(&request.input.bucket)?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn create_bucket(&self, request: S3Request<CreateBucketInput>) -> S3Result<S3Response<CreateBucketOutput>> {
        // The name was checked by the S3 layer.
        self.disk.create_bucket(&request.input.bucket).map_err(disk_error)?;
        Ok(S3Response::new(CreateBucketOutput::default()))
    }

    async fn list_buckets(&self, _: S3Request<ListBucketsInput>) -> S3Result<S3Response<ListBucketsOutput>> {
        let names = self.disk.bucket_names().into_iter();
        let buckets = names.map(|name| Bucket { name: Some(name), ..Default::default() }).collect();
        Ok(S3Response::new(ListBucketsOutput { buckets: Some(buckets), ..Default::default() }))
    }
}

struct Page {
    objects: Vec<Object>,
    prefixes: Vec<CommonPrefix>,
    next: Option<String>,
}

impl Operations {
    /// One page; names that share `prefix` up to the next `delimiter` are shown as one common prefix.
    fn page(
        &self,
        bucket: &str,
        prefix: &str,
        mut after: Option<String>,
        delimiter: Option<&str>,
        bound: usize,
    ) -> Option<Page> {
        let mut page = Page { objects: Vec::new(), prefixes: Vec::new(), next: None };
        loop {
            let found = self.disk.list(bucket, prefix, after.as_deref(), 1 + bound)?;
            let Some((first, _)) = found.first() else { return Some(page) };
            if page.objects.len() + page.prefixes.len() >= bound {
                page.next = after;
                return Some(page);
            }
            if let Some(common) = common_prefix(first, prefix, delimiter) {
                // Past every name under it: no name goes on with the largest character.
                after = Some(format!("{common}{}", char::MAX));
                page.prefixes.push(CommonPrefix { prefix: Some(common) });
                continue;
            }
            let room = bound - page.objects.len() - page.prefixes.len();
            for (key, entry) in found.into_iter().take(room) {
                if common_prefix(&key, prefix, delimiter).is_some() {
                    break;
                }
                after = Some(key.clone());
                page.objects.push(listed(key, &entry));
            }
        }
    }
}

fn common_prefix(key: &str, prefix: &str, delimiter: Option<&str>) -> Option<String> {
    let delimiter = delimiter.filter(|delimiter| !delimiter.is_empty())?;
    let end = key.get(prefix.len()..)?.find(delimiter)? + prefix.len() + delimiter.len();
    Some(key[..end].to_owned())
}

fn listed(key: String, entry: &Entry) -> Object {
    Object {
        key: Some(key),
        size: i64::try_from(entry.length).ok(),
        last_modified: Some(entry.modified.into()),
        e_tag: Some(tag(entry)),
        ..Default::default()
    }
}

fn tag(entry: &Entry) -> ETag {
    ETag::Strong(entry.tag())
}

/// 416 with the object's length, as HTTP wants it.
fn unsatisfiable(entry: &Entry) -> s3s::S3Error {
    let mut error = s3_error!(InvalidRange, "the object has {} bytes", entry.length);
    let value = HeaderValue::from_str(&format!("bytes */{}", entry.length)).expect("digits are a valid header");
    error.set_headers(HeaderMap::from_iter([(CONTENT_RANGE, value)]));
    error
}

fn disk_error(error: io::Error) -> s3s::S3Error {
    tracing::error!(%error, "bucket disk");
    s3_error!(error, InternalError)
}

async fn next(body: &mut StreamingBlob) -> Option<Result<Bytes, s3s::StdError>> {
    std::future::poll_fn(|context| Pin::new(&mut *body).poll_next(context)).await
}

/// The rest of a file, read piece by piece as the connection takes it.
struct FileBytes {
    file: File,
    rest: u64,
}

impl Stream for FileBytes {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.rest == 0 {
            return Poll::Ready(None);
        }
        let length = usize::try_from(self.rest.min(READ_LENGTH)).expect("at most READ_LENGTH");
        let mut bytes = vec![0; length];
        if let Err(error) = self.file.read_exact(&mut bytes) {
            self.rest = 0;
            return Poll::Ready(Some(Err(error)));
        }
        self.rest -= u64::try_from(length).expect("usize fits u64");
        Poll::Ready(Some(Ok(bytes.into())))
    }
}
