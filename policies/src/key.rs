//! Makes the resource key of a request: two requests for one resource get one key, for two resources two keys.

mod asked;
mod conflict;
mod declared;
mod expand;
mod form;
pub mod json;
mod lock_path;
mod members;
mod multipart;
mod name;
mod no_key;
mod overlap;
mod parse;
mod pointer;
mod query;
mod resource;
mod search;
mod sources;
mod taken_apart;
mod template;
mod values;

pub(crate) use asked::check_spelling;
pub(crate) use conflict::compare;
pub use conflict::{CompleteBody, RequestSources};
pub use declared::ContentDeclaration;
pub(crate) use expand::{header, parameter};
pub use lock_path::{LockPath, LockPathErrorKind, ParseLockPathError};
pub use no_key::KeyError;
pub(crate) use overlap::{Glob, GlobRelation};
pub use parse::{KeyTemplateErrorKind, ParseKeyTemplateError};
pub use pointer::Pointer;
pub(crate) use pointer::format_names;
pub use resource::{InvalidKeyError, ParseKeyError, ResourceKey, join_keys};
pub use sources::{ConflictPolicy, RequestSource};
pub use template::{KeyTemplate, Span, TemplateVariable, ValueFilter, ValueSource};
pub use values::{HeaderField, RequestValues};
