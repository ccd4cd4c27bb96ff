//! The forms in which values of a plan are shown to people and programs: a duration as a policy writes it;
//! for a file only whether there is one. A plan contains the paths of secrets, and not even these are shown.

use std::{fmt::Display, time::Duration};

use serde::{Serialize, Serializer};

/// A duration as a policy writes it.
pub fn format_duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

pub(crate) fn duration<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_duration(*duration))
}

pub(crate) fn texts<T: Display, S: Serializer>(values: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(ToString::to_string))
}

/// Serializes the number of values.
pub(crate) fn count<T, S: Serializer>(values: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    values.len().serialize(serializer)
}

/// Serializes whether there is a value.
pub(crate) fn presence<T, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(value.is_some())
}
