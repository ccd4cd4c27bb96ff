//! The YAML of a file: its text as a tree in which everything knows its place, or what is wrong with the text.

mod document;
mod events;
mod read;
mod slips;

pub(super) use document::{Key, Node, Scalar, Value};
pub(super) use read::parse;
