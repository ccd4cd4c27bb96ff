//! How others read what keys are made of: PHP, Python, Node and nginx as real programs, what they have read as data, and the
//! same as the gateway reads it.

pub mod asked_programs;
pub mod made_keys;
pub mod reading;
