//! The lock of a resource key: asked for on any worker, taken on the session's thread.
//!
//! [`keeper`] is what a worker sees, [`tenure`] what it gets. [`recipe`] is the life of one lock node, [`layout`] its
//! name and order, [`janitor`] the net below, [`queues`] the bound on what may wait.

pub mod janitor;
pub mod keeper;
pub mod layout;
pub mod queues;
pub mod recipe;
pub mod tenure;
