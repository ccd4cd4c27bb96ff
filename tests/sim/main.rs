//! Simulation: the gateway's locks on a ZooKeeper in memory, under thousands of schedules of accidents.
//!
//! [`answers`] shows that the ZooKeeper in memory is faithful: it answers like a real server. [`accidents`] shows that
//! each accident does what its name states. [`gateways`] uses both against the lock. A [`faulty_client`] is a client
//! library with faults that no wire has: [`wedged`] is a library whose task is gone, [`left_parents`] has requests that
//! are refused too late, [`beside`] has both among the locks of foreign programs, [`exclusive_node`] a node that foreign
//! programs make as well; [`latency`] has slow servers. [`whole`] is all of it: gateways, a guard, an upstream and
//! clients. [`supervised`] is a session without the rest of a gateway: [`lock_nodes`] tests the nodes of each kind of
//! lock. [`cold`] counts the cost of locks on keys that are mostly free, [`unsent`] gives locks up before their nodes are
//! made, [`permits`] has locks with several holders. [`operations`] are recorded before they are sent,
//! [`used_up_numbers`] brings the sequence numbers below a parent to their limit. [`delayed`] plays the schedules of the
//! model of that name.

mod accidents;
mod agreement;
mod answers;
mod beside;
mod cold;
mod delayed;
mod event_log;
mod exclusive_node;
mod faulty_client;
mod gateways;
mod latency;
mod left_parents;
mod lock_nodes;
mod operations;
mod permits;
mod plan;
mod run;
mod simulated_time;
mod supervised;
mod unsent;
mod used_up_numbers;
mod wedged;
mod whole;
