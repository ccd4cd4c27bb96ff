//! Reads the YAML of a file into a tree in which everything has its place, or says what is wrong with the text.

mod document;
mod events;
mod read;
mod slips;

pub(super) use document::{MappingKey, Node, NodeValue, Scalar};
pub(super) use read::parse;
