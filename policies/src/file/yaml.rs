//! Reads the YAML of a file into a tree in which every value has its place, or reports the mistake in the text.

mod ast;
mod errors;
mod events;
mod read;

pub(super) use ast::{YamlMappingKey, YamlNode, YamlNodeValue, YamlScalar};
pub(super) use read::parse;
