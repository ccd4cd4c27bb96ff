//! A ZooKeeper client library with faults of its own, beside those of the connection: it may report a wrong state,
//! answer at once, or give an answer that differs from what the server did.

mod client;
mod lock_side;
mod request_fate;

pub(crate) use self::{
    client::{FaultInjector, FaultyClient, FaultySession},
    lock_side::{GatewayLockStack, clock, key, parent, settings},
    request_fate::{SessionRequest, ZkRequestFate, is_heartbeat, throttled, unanswered},
};
