//! The CSRF token of the admin forms, which no other site can read.

use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use fencegate_process::randomness::{Guid, Randomness};

use super::error::{AdminApiError, AdminErrorCode};

/// A random text that is part of every form of this process, and of nothing else.
#[derive(Clone)]
pub struct CsrfToken(Arc<str>);

impl CsrfToken {
    pub fn new(randomness: &dyn Randomness) -> Self {
        Self(format!("{}{}", Guid::new(randomness), Guid::new(randomness)).into())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn verify(&self, shown: &str) -> Result<(), AdminApiError> {
        verify_slices_are_equal(self.0.as_bytes(), shown.as_bytes()).map_err(|_| invalid_form_error())
    }
}

fn invalid_form_error() -> AdminApiError {
    AdminApiError::new(
        AdminErrorCode::CrossOrigin,
        "the form is older than this process, or not ours: load the page again",
    )
}
