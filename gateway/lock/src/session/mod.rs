//! The ZooKeeper session: kept alive by one thread, and never believed without proof.
//!
//! [`client`] is what an ensemble can do for us, [`zookeeper`] the real one, where `watches` are bounded and `looks` see the rest, [`instrumented`] times either.
//! [`servers`] connects, with `credentials`; [`tls_diagnosis`] finds out why it could not. [`heartbeat`] turns
//! committed writes into the deadline of a [`session_deadline`], [`negotiated_timeout`] hears for how long a server keeps the session, [`lock_validity`] is that of one tenure; [`supervisor`] makes a session,
//! has it kept, and begins anew when it is over; `node_access` is who may write our nodes, [`acl_audit`] looks who may, [`apply_acl`] changes it; [`era_bump`] begins the next era; `others` sees what the other gateways do;
//! `plans` publishes what the gateway locks, `published_plan` is what a session has published, `judged` has what the others have published judged by whoever knows what it means ([`plan_publication`]); [`active_session`] is the one of the
//! moment, [`batch_sender`] sends what is [`batch`] for several keys at once, [`retained_parents`] stay while their keys come back.

mod acl;
pub mod acl_audit;
pub mod active_session;
mod announced_plan;
pub mod apply_acl;
pub mod batch;
pub mod batch_sender;
pub mod client;
pub mod credentials;
pub mod epoch;
pub mod era;
pub mod era_bump;
pub mod heartbeat;
mod heartbeat_loop;
pub mod instrumented;
pub mod local_member;
pub mod lock_validity;
pub mod log_dedup;
pub mod member;
pub mod negotiated_timeout;
pub mod parent_cache;
pub mod paths;
mod peer_check;
pub(crate) mod plan_compare;
mod plan_nodes;
pub mod plan_publication;
pub mod plan_watch;
mod polled_watch;
pub mod registry;
pub mod retained_parents;
pub mod servers;
pub mod session_check;
pub mod session_deadline;
pub mod settings;
pub mod supervisor;
pub mod tls_diagnosis;
mod watch_budget;
pub mod zookeeper;
