//! A request in another spelling than the sample.

use crate::explain::sample::SampleRequest;

/// A request in another spelling than the sample.
pub(in crate::explain) struct RequestVariant {
    /// What is spelled differently.
    pub(in crate::explain) spelling: String,
    /// The part of the request that differs: its method, its target, a header field, or its body.
    pub(in crate::explain) written: String,
    pub(in crate::explain) request: SampleRequest,
}

impl RequestVariant {
    pub(super) fn with_target(sample: &SampleRequest, spelling: String, target: String) -> Self {
        Self { spelling, written: target.clone(), request: SampleRequest { target, ..sample.clone() } }
    }
}
