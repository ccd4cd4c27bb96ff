//! The harness: starts real gateways, a real ZooKeeper and recording upstreams, and judges what they did.
//!
//! Reading order: [`site`] is what one test has to itself, [`gateway`] the process under test and [`policy`] what it is
//! told, [`zookeeper`] and [`ensemble`] the servers behind it and [`faulty_link`] the way there, [`origin`] the
//! upstream that records, [`held`] a request that it works on until told, and [`ledger`] one that keeps accounts,
//! [`guard`] what stands before one, [`guarded`] a site with both and [`hop`] what may stand between, [`hosts`] the
//! names that a process sees, [`socket_relay`] the way by a unix socket, [`client`], [`load`] and [`rolling_load`] who asks, [`history`] the judge. [`wire`] reads messages as they
//! were spelled, [`prometheus`] watches, [`watch`] sees alerts come and go, [`runbook`] does what their sections say, [`case`] plays the byte cases of `tests/wire`, and [`peers`] are proxies to
//! compare with. [`zombie`] is a set-up with an accident behind it, for whoever shows what happens, and [`browser`] who
//! looks at it. [`postgres`] is a database with its accidents. [`lapse`] lets a proof end before its session.
//! [`small_disk`] is one that fills up. [`crowd`] is a load on keys that several hold at once, and [`effort`] says how much is asked for. [`charged`] is a command under a lock, and the mishaps of
//! who watches over it. [`stepped_clock`] has one process see other clocks, and [`repeatable`] has it do the same in each run. [`stored`] is what one version writes and
//! another one reads. [`severable`] is the way to a server, which breaks or falls silent. [`matrix`] plays all accidents and judges what they have done. [`pods`] are what a chart renders, as processes. [`memory`] is a ZooKeeper for simulated time, and [`curator`] what Java programs need that take its locks. [`duel`] is what is told of locks
//! that stood beside each other, and [`machine`] where.

pub mod balancer;
pub mod browser;
pub mod case;
pub mod charged;
pub mod client;
pub mod crowd;
pub mod curator;
pub mod duel;
pub mod effort;
pub mod ensemble;
pub mod faulty_link;
pub mod foreign_readings;
pub mod gateway;
pub mod guard;
pub mod guarded;
pub mod held;
pub mod history;
pub mod hop;
pub mod hosts;
pub mod lapse;
pub mod leases;
pub mod ledger;
pub mod load;
mod log_lines;
pub mod machine;
pub mod matrix;
pub mod memory;
pub mod migration;
pub mod mutants;
pub mod origin;
pub mod origin_h2;
pub mod patience;
pub mod peers;
pub mod pods;
pub mod policy;
pub mod postgres;
mod preloaded;
pub mod process;
pub mod prometheus;
pub mod repeatable;
pub mod rolling_load;
pub mod runbook;
pub mod scratch;
pub mod severable;
pub mod shared_store;
pub mod sharing;
pub mod site;
pub mod small_disk;
pub mod socket_relay;
pub mod stepped_clock;
pub mod stored;
pub mod terminal_picture;
pub mod terminator;
pub mod unlocked;
pub mod values;
pub mod watch;
pub mod wire;
pub mod zombie;
pub mod zookeeper;
