//! A request body of several lent ranges, sent as they are.
//!
//! Path: [`crate::store::Put::parts`] → HTTP client. Cost: one reference count per part and attempt; nothing is joined.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use aws_sdk_s3::primitives::SdkBody;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The body of one attempt; can be made again for another.
pub(super) fn lent_body(parts: Vec<Bytes>) -> SdkBody {
    let parts: Arc<[Bytes]> = parts.into();
    SdkBody::retryable(move || {
        let rest = parts.iter().map(|part| u64::try_from(part.len()).expect("usize fits u64")).sum();
        SdkBody::from_body_1_x(LentBody { parts: Arc::clone(&parts), next: 0, rest })
    })
}

struct LentBody {
    parts: Arc<[Bytes]>,
    next: usize,
    rest: u64,
}

impl Body for LentBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Some(part) = self.parts.get(self.next).cloned() else { return Poll::Ready(None) };
        self.next += 1;
        self.rest -= u64::try_from(part.len()).expect("usize fits u64");
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.next == self.parts.len()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest)
    }
}
