//! The tenures of one process, and the requests that wait for them.
//!
//! A worker calls the [`lock_manager`] and gets a [`grant_guard`]. Cached keys: [`queue`] decides which request is next
//! under the [`held_lock`] lock, [`key_slot`] shares the queue between workers, and [`key_task`] is the task of a key.
//! Locks for one request: [`uncached_task`] is the task, [`uncached_lock`] the worker's side; a client's lease is a
//! [`leased_lock`]. [`error`] has the errors; a [`lock_request`] whose permit count has just changed is made again
//! after a pause. Callbacks run inside a [`call_chain`], by [`callbacks`]. [`session_worker`] runs each [`session_command`]
//! on the session's thread, and [`panic_guard`] catches its panics; [`fencegate_zookeeper::tenure_end`] is the reason why a tenure is over.
//! [`holder_cache`] caches which peer holds a key, [`ended_sessions`] which sessions of peers have ended, and
//! `member_cache` which exist. For operators: [`listing`] shows the locks of this gateway, with [`uncached_registry`];
//! [`admin`] queries ZooKeeper.

pub mod admin;
pub mod admin_query;
pub mod call_chain;
pub mod callbacks;
pub mod ended_sessions;
pub mod error;
pub mod grant_guard;
pub mod held_lock;
pub mod holder_cache;
pub mod key_capacity;
pub mod key_slot;
pub mod key_task;
pub mod leased_lock;
pub mod listing;
pub mod lock_manager;
pub mod lock_request;
mod member_cache;
mod orphan_cleanup;
pub mod panic_guard;
pub mod queue;
pub mod session_command;
pub mod session_worker;
pub mod uncached_lock;
pub mod uncached_registry;
pub mod uncached_task;
pub mod wait_deadline;
