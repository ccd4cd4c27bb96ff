//! Reads the YAML of a file into a tree in which every value has its place, or reports what is wrong with the text.

mod ast;
mod errors;
mod events;
mod read;

pub(super) use ast::{YamlMappingKey, YamlNode, YamlNodeValue, YamlScalar};
pub(super) use read::parse;
