//! The YAML of a file: its text as a tree in which everything knows its place, or what is wrong with the text.

mod raw;
mod read;
mod slips;
mod tree;

pub(super) use read::parse;
pub(super) use tree::{Key, Node, Scalar, Value};
