//! The steps of the request path, one file each; their order is in [`crate::stack`].

pub mod admit;
pub mod answer;
pub mod buffer;
pub mod check;
pub mod claim;
pub mod detach;
pub mod fence;
pub mod forward;
pub mod forwarded;
pub mod hop;
pub mod hygiene;
pub mod key;
pub mod limit;
pub mod name;
pub mod once;
pub mod probe;
pub mod route;
pub mod trace;
pub mod upgrade;
