//! What a case needs to be set up, as data.

use std::time::Duration;

use super::errand::Errand;

#[derive(Debug, Clone, Copy)]
pub struct Apparatus {
    pub errand: Errand,
    pub speech: Speech,
    pub gateways: usize,
    pub guards: Guards,
    /// Who remembers operations, where clients name them.
    pub once: Once,
    /// What the first gateway finds on its ways.
    pub ways: Ways,
    /// The clocks of the first gateway can be set, and the guard asks for tickets, which have a time.
    pub clocks: bool,
    pub requests: Requests,
    /// T.
    pub session: Duration,
}

/// What clients speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speech {
    Http1,
    Http2,
    Tls,
}

/// At level `guard`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guards {
    /// With a store in a file.
    One,
    /// They share a PostgreSQL.
    TwoSharing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Once {
    InGuard,
    InZooKeeper,
}

/// Between the first gateway and others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ways {
    Direct,
    /// That to ZooKeeper can be cut.
    CutToZooKeeper,
    /// That to the service, or to its guard, can be cut.
    CutToService,
}

/// What gateways do with requests for a key that another one has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requests {
    /// They ask for the key.
    Wait,
    /// They send them on to that one.
    Forward,
}

/// Two gateways, a session of 2 s, and clients that pay.
pub const PLAIN: Apparatus = Apparatus {
    errand: Errand::Pay,
    speech: Speech::Http1,
    gateways: 2,
    guards: Guards::One,
    once: Once::InGuard,
    ways: Ways::Direct,
    clocks: false,
    requests: Requests::Wait,
    session: Duration::from_secs(2),
};
