//! The running gateway: one thread for the session, one per worker, one for the admin listener; and their end.

pub mod gateway;
pub mod worker;
