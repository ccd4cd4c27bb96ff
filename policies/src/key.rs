//! Makes the resource key of a request: two requests for one resource get one key, for two resources two keys.

mod conflict;
mod content_declaration;
mod error;
mod expand;
mod form;
mod glob;
pub mod json;
mod lock_path;
mod members;
mod multipart;
mod operation_name;
mod parse;
mod parse_values;
mod pointer;
mod query;
mod resource;
mod search;
mod sources;
mod spelling;
mod template;
mod values;

pub(crate) use conflict::compare_with_other_sources;
pub use conflict::{CompleteBody, RequestSources};
pub use content_declaration::ContentDeclaration;
pub use error::KeyError;
pub(crate) use expand::{header_value, query_value};
pub(crate) use glob::{Glob, GlobRelation};
pub use lock_path::{LockPath, LockPathErrorKind, ParseLockPathError};
pub use parse::{KeyTemplateErrorKind, ParseKeyTemplateError};
pub use pointer::JsonPointer;
pub(crate) use pointer::format_names;
pub use resource::{InvalidKeyError, ParseKeyError, ResourceKey, join_keys};
pub use sources::{RequestSource, SourceConflictPolicy};
pub(crate) use spelling::check_spelling;
pub use template::{ByteSpan, KeyTemplate, TemplateVariable, ValueFilter, ValueSource};
pub use values::{HeaderField, RequestValues};
