//! Operations of `once: {store: zookeeper}`: recorded before they are sent, and executed once.
//!
//! [`repeats`] has the answers to requests whose operation is recorded already. [`lost_answers`] loses the answer to the
//! write of a record, [`lost_word`] the same where the server also refuses to show the record. [`operators`] has the
//! decisions of a person.

mod fixture;
mod lost_answers;
mod lost_word;
mod operators;
mod repeats;
