//! Simulation: the gateway's locks on a ZooKeeper in memory, under thousands of schedules of accidents.
//!
//! [`answers`] shows that the ZooKeeper in memory is one: it answers what a real server answers. [`accidents`] shows
//! that each accident is what its name says. [`gateways`] uses both against the lock. A library that is [`faulty_client`] plays
//! what no wire does: [`wedged`] is one that is gone, [`left_parents`] what is refused too late, [`beside`] both of these among
//! the locks of other programs, [`exclusive_node`] a node that others make as well; [`latency`] is servers that take long.
//! [`whole`] is all of it: gateways, a guard, an upstream and clients.
//! [`supervised`] is a session without the rest of a gateway: [`lock_nodes`] is what each kind of lock does with its nodes.
//! [`cold`] is what locks cost of keys that are mostly free, [`unsent`] one of which nobody wants the node before it is made,
//! [`permits`] one that several hold at once. [`operations`] are written down before they are sent,
//! [`used_up_numbers`] is what becomes of a parent whose nodes have had the last number. [`delayed`] plays the
//! schedules of the model of that name.

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
