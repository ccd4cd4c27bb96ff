//! A request that clients of a test send.

use bytes::Bytes;

/// A request: method, target, fields and body.
#[derive(Debug, Clone)]
pub struct TestRequest {
    pub(super) method: &'static str,
    pub(super) target: String,
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Bytes,
}

impl TestRequest {
    pub fn get(target: &str) -> Self {
        Self::with_method("GET", target)
    }

    pub fn post(target: &str) -> Self {
        Self::with_method("POST", target)
    }

    pub fn with_method(method: &'static str, target: &str) -> Self {
        Self { method, target: target.to_owned(), fields: Vec::new(), body: Bytes::new() }
    }

    pub fn target(&self) -> &str {
        &self.target
    }

    #[must_use]
    pub fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }
}
