//! A request in another spelling than the sample.

use bytes::Bytes;
use hyper::header::{CONTENT_LENGTH, HeaderValue};

use crate::explain::sample::SampleRequest;

/// A request in another spelling than the sample.
pub(in crate::explain) struct RequestVariant {
    /// The difference in spelling.
    pub(in crate::explain) spelling: String,
    /// The part of the request that differs: its method, its target, a header field, or its body.
    pub(in crate::explain) written: String,
    pub(in crate::explain) request: SampleRequest,
}

impl RequestVariant {
    pub(super) fn with_target(sample: &SampleRequest, spelling: String, target: String) -> Self {
        Self { spelling, written: target.clone(), request: SampleRequest { target, ..sample.clone() } }
    }

    pub(super) fn with_body(sample: &SampleRequest, spelling: String, body: String) -> Self {
        let mut fields = sample.fields.clone();
        if let Some(length) = fields.get_mut(CONTENT_LENGTH) {
            *length = HeaderValue::from(body.len());
        }
        let written = body.clone();
        let request = SampleRequest { fields, body: Bytes::from(body), ..sample.clone() };
        Self { spelling, written, request }
    }
}
