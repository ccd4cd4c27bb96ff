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

pub(crate) use conflict::compare;
pub use conflict::{CompleteBody, RequestSources};
pub use content_declaration::ContentDeclaration;
pub use error::KeyError;
pub(crate) use expand::{header, parameter};
pub(crate) use glob::{Glob, GlobRelation};
pub use lock_path::{LockPath, LockPathErrorKind, ParseLockPathError};
pub use parse::{KeyTemplateErrorKind, ParseKeyTemplateError};
pub use pointer::Pointer;
pub(crate) use pointer::format_names;
pub use resource::{InvalidKeyError, ParseKeyError, ResourceKey, join_keys};
pub use sources::{ConflictPolicy, RequestSource};
pub(crate) use spelling::check_spelling;
pub use template::{KeyTemplate, Span, TemplateVariable, ValueFilter, ValueSource};
pub use values::{HeaderField, RequestValues};
