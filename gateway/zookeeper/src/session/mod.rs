//! The ZooKeeper session: kept alive by one thread, and valid only until its deadline.
//!
//! [`client`] is the interface to an ensemble, and [`zookeeper`] the real implementation: `polled_watch` bounds its
//! watches, and polls the nodes beyond the bound. [`instrumented`] times any implementation. [`servers`]
//! connects, with [`credentials`]; [`tls_diagnosis`] finds out why a connection failed. [`supervisor`] creates a session,
//! runs its heartbeats, and begins anew when it is over; `pause_detection` tells when the process stood still. [`heartbeat`] turns committed writes into a
//! [`session_deadline`], and [`negotiated_timeout`] observes for how long a server keeps the session; [`lock_validity`] is
//! the validity of one tenure. `acl` has the ACLs of the nodes, [`acl_audit`] audits them, and [`apply_acl`] changes them.
//! [`era_bump`] starts the next era. `plan_nodes` publishes the plan of the gateway, [`plan_publication`] has the
//! published plan of a session, and the evaluator to which [`plan_watch`] passes the peers' plans; `peer_check` detects
//! peers that lock other keys. [`active_session`] is the current session. [`batch_sender`] sends the operations of a
//! [`batch`] for several keys at once, and [`retained_parents`] keeps the parents of keys that come back.

mod acl;
pub mod acl_audit;
pub mod active_session;
pub mod apply_acl;
pub mod batch;
pub mod batch_sender;
pub mod client;
pub mod credentials;
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
mod pause_detection;
mod peer_check;
pub mod plan_compare;
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
pub mod zookeeper;
