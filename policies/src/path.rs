//! The path of a request in its canonical spelling, and the path templates of routes.

mod affixed;
mod canonical;
mod escape;
pub(crate) mod route_trie;
mod template;

pub(crate) use affixed::{AffixedVariable, TextAroundVariable, VariableSuffix};
pub use canonical::{AmbiguousPathError, CanonicalPath};
pub use escape::decode_escapes;
pub(crate) use escape::{decode_escape, is_unreserved, percent_encode};
pub(crate) use template::{LiteralPathSuffix, PathTemplateSegment, is_variable_name};
pub use template::{ParsePathTemplateError, PathParams, PathTemplate};
