//! The path of a request: its one canonical spelling, and the patterns of routes that match it.

mod canonical;
mod escape;
pub(crate) mod segments;
mod template;

pub use canonical::{Ambiguity, CanonicalPath};
pub(crate) use escape::{escape, is_unreserved, percent_encoded};
pub use template::{BadTemplate, Bound, PathTemplate};
pub(crate) use template::{Piece, is_name};
