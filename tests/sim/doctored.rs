//! A client library with faults of its own, beside those of the wire. It may report a wrong state of the connection,
//! answer at once, or give an answer that differs from what the server did.

mod fate;
mod library;
mod locks;

pub(crate) use self::{
    fate::{RequestFate, SessionRequest, is_heartbeat, throttled, unanswered},
    library::{FaultInjector, FaultyClient, FaultySession},
    locks::{LockSide, clock, key, parent, settings},
};
