//! The tenures of one process, and the requests that wait for them.
//!
//! A worker asks the [`keeper`] and gets a [`tenure`]. Cached keys: [`queue`] decides which request is next under the
//! [`tenured`] lock, [`slot`] shares the queue between workers, and [`attend`] is the task of a key. Locks for one
//! request: [`strict`] is the task, [`own_node`] the worker's side; a client's lease is a [`leased_lock`].
//! [`lock_refused`] says why there is no tenure; `other_number` asks again for a key whose number of permits has just
//! changed. Callbacks run inside a [`chain`], by [`calls`]. [`desk`] does the [`work`] on the session's thread,
//! [`caught`] if it panics; [`ended`] says why a tenure is over. [`ways`] remembers which other gateway keeps a key,
//! [`ended_sessions`] which sessions of others have ended, and `member_names` which are there.
//! For operators: [`survey`] shows the locks of this gateway, with [`roll`]; [`inquiry`] asks ZooKeeper.

pub mod ahead;
pub mod attend;
pub mod calls;
pub mod caught;
pub mod chain;
pub mod chores;
pub mod deadline;
pub mod desk;
pub mod ended;
pub mod ended_sessions;
pub mod inquiry;
pub mod keeper;
pub mod leased_lock;
mod leftovers;
pub mod lock_refused;
mod member_names;
pub mod occupancy;
mod other_number;
pub mod own_node;
pub mod question;
pub mod queue;
pub mod roll;
pub mod slot;
pub mod strict;
pub mod survey;
pub mod tenure;
pub mod tenured;
pub mod ways;
pub mod wish;
pub mod work;
