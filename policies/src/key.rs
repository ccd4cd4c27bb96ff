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

pub(crate) use asked::fits_routes;
pub(crate) use conflict::compare;
pub use conflict::{Content, Sent};
pub use declared::Said;
pub(crate) use expand::{header, parameter};
pub use lock_path::{BadLockPath, LockPath, WhyNot};
pub use no_key::BadKey;
pub(crate) use overlap::{Glob, Meeting};
pub use parse::{BadKeyTemplate, Why};
pub use pointer::Pointer;
pub(crate) use pointer::written_names;
pub use resource::{NoKey, ParseKeyError, ResourceKey, listed};
pub use sources::{Conflicts, RequestSource};
pub use template::{Filter, KeyTemplate, Source, Span, Variable};
pub use values::{Field, Values};
