//! Makes the resource key of a request: two requests for one resource get one key, for two resources two keys.

mod bad;
mod declared;
mod expand;
pub mod json;
mod name;
mod parse;
mod pointer;
mod query;
mod resource;
mod template;
mod values;

pub use bad::BadKey;
pub use declared::Said;
pub(crate) use expand::{header, parameter};
pub use parse::{BadKeyTemplate, Why};
pub use pointer::Pointer;
pub use resource::{NoKey, ResourceKey, listed};
pub use template::{Filter, KeyTemplate, Source, Span, Variable};
pub use values::{Field, Values};
