//! Which guards are believed: a gateway asks each who it is before anything is sent to it, and remembers what it heard.

mod announced;
mod guards;
mod processes;

pub use self::guards::{Distrust, Guards};
