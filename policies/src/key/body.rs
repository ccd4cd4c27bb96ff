//! The values of one body that the keys of a fence or the conditions of routes need.

use super::{form_values::FormValues, json::JsonValues};

/// The values of one body. Only the values of the templates or conditions for which the body was read are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyValues {
    Json(JsonValues),
    Form(FormValues),
}

impl BodyValues {
    pub(crate) fn json(&self) -> Option<&JsonValues> {
        match self {
            Self::Json(values) => Some(values),
            Self::Form(_) => None,
        }
    }

    pub(super) fn form(&self) -> Option<&FormValues> {
        match self {
            Self::Form(values) => Some(values),
            Self::Json(_) => None,
        }
    }
}
