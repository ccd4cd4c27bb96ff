//! Operations of `once: {store: zookeeper}`, which are recorded before they are sent, and executed once.
//!
//! [`repeats`] has the answers to requests whose operation is already recorded. [`lost_answers`] loses the answer to
//! the write of a record, and [`lost_word`] also refuses to show the record. [`operators`] has the decisions of a
//! person.

mod fixture;
mod lost_answers;
mod lost_word;
mod operators;
mod repeats;
