//! The ZooKeeper session: kept alive by one thread, and never believed without proof.
//!
//! [`link`] is what an ensemble can do for us, [`zookeeper`] the real one, where `watches` are bounded and `looks` see the rest, [`metered`] times either.
//! [`servers`] connects, with `credentials`; [`handshake`] finds out why it could not. [`heartbeat`] turns
//! committed writes into the deadline of a [`proof`], [`granted`] hears for how long a server keeps the session, [`evidence`] is that of one tenure; [`supervise`] makes a session,
//! has it kept, and begins anew when it is over; `node_access` is who may write our nodes, [`open_nodes`] looks who may, [`applied`] changes it; [`bump`] begins the next era; `others` sees what the other gateways do;
//! `plans` publishes what the gateway locks, `published_plan` is what a session has published, `judged` has what the others have published judged by whoever knows what it means ([`publication`]); [`live`] is the one of the
//! moment, [`together`] sends what is [`collected`] for several keys at once, [`kept_parents`] stay while their keys come back.

pub mod applied;
pub mod bump;
pub mod collected;
pub(crate) mod compare;
pub mod complaints;
pub mod credentials;
pub mod epoch;
pub mod era;
pub mod evidence;
pub mod granted;
pub mod handshake;
pub mod heartbeat;
pub mod judged;
mod keep;
pub mod kept_parents;
pub mod link;
pub mod live;
mod looks;
pub mod member;
pub mod metered;
pub mod nameplate;
mod node_access;
pub mod open_nodes;
mod others;
pub mod parents;
pub mod paths;
mod plans;
pub mod proof;
pub mod publication;
mod published_plan;
pub mod reattach;
pub mod registry;
pub mod servers;
pub mod settings;
pub mod supervise;
pub mod together;
mod watches;
pub mod zookeeper;
