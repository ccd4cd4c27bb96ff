//! Operations of `once: {store: zookeeper}`: written down before they are sent, and once.
//!
//! [`repeats`] is what a request is told whose operation is known. [`lost_answers`] is what becomes of a record whose writer
//! does not hear of its write, [`lost_word`] the same where the server also refuses to show the record. [`operators`] is
//! what a person decides.

mod fixture;
mod lost_answers;
mod lost_word;
mod operators;
mod repeats;
