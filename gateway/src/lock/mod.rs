//! The lock of a resource key: asked for on any worker, taken on the session's thread.
//!
//! [`keeper`] is what a worker sees, [`tenure`] what it gets. Cached keys: [`queue`] decides who goes next, [`slot`]
//! shares it between workers, [`attend`] works for one key. Locks for one request only: [`order`], with one node
//! ([`attempt`]) or several ([`set`]). [`site`] is what both do at one key, [`layout`] how nodes are named and ordered,
//! [`rotate`] what happens when the numbers run out, [`parents`] what stands above the nodes, [`registry`] and [`janitor`]
//! see that none is forgotten, also where our own work is [`caught`] in a panic, [`desk`] puts it on its thread, [`ended`]
//! tells why a tenure is over. Kept by another gateway: [`signpost`] finds which one,
//! [`ways`] remembers it. For operators: [`survey`] shows what is held here, with
//! [`roll`]; [`inquiry`] asks ZooKeeper.

pub mod attempt;
pub mod attend;
pub mod caught;
pub mod deadline;
pub mod desk;
pub mod ended;
pub mod grant;
pub mod inquiry;
pub mod janitor;
pub mod keeper;
pub mod layout;
pub mod order;
pub mod parents;
pub mod queue;
pub mod queues;
pub mod registry;
pub mod roll;
pub mod rotate;
pub mod set;
pub mod signpost;
pub mod site;
pub mod slot;
pub mod survey;
pub mod tenure;
pub mod ways;
