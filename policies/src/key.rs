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
pub use conflict::{CompleteBody, RequestParameterSources};
pub use content_declaration::ContentDeclaration;
pub use error::ExtractKeyError;
pub(crate) use expand::{header_value, query_value};
pub(crate) use glob::{GlobRelation, TemplateGlob};
pub use lock_path::{LockPathErrorKind, LockPathTemplate, ParseLockPathError};
pub use parse::{KeyTemplateErrorKind, ParseKeyTemplateError};
pub use pointer::JsonPointer;
pub(crate) use pointer::format_names;
pub use resource::{InvalidKeyError, ParseKeyError, ResourceKey, join_keys};
pub use sources::{ParameterConflictPolicy, ParameterLocation};
pub(crate) use spelling::check_spelling;
pub use template::{ByteSpan, KeyTemplate, TemplateValueFilter, TemplateValueSource, TemplateVariable};
pub use values::{HeaderLookup, RequestValues};
