//! A command runs under its lock and never beyond it, whatever happens to the processes that supervise it, and the
//! exit code reports how it ended.
//!
//! The command gets its token, its input and its signals. The keeper, the watchman, the command or ZooKeeper is
//! stopped or killed, or the connection to ZooKeeper is cut. Then the command, and every process that it left behind,
//! is dead before the proof ends and before the next holder has the lock. Over 20 rounds of killed keepers no two
//! commands of one key run at once. A command under the shortest proof is not ended without a fault, and neither is
//! one whose lease was granted late in its wait. `fencegate lock` also runs as the first process of a container.
//!
//! The same holds for locks that are leases of a gateway: the command shows its lease, the lease is revoked or
//! broken, or its gateway dies. `fencegate elect` reports the leader with its address.

mod ends;
mod leads;
mod outlives;
mod passes;
mod through;
mod turns;
