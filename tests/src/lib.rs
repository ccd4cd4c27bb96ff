//! The harness: starts real gateways, a real ZooKeeper and recording upstreams, and judges what they did.
//!
//! Reading order:
//! - One test: [`site`] is the set-up that it has to itself, [`gateway`] is the process under test, and [`policy`] is
//!   the configuration of that process. [`client`], [`load`], [`each_once`] and [`rolling_load`] send requests.
//!   [`history`] judges the executions.
//! - ZooKeeper: [`zookeeper`] and [`ensemble`] are real servers, and [`zookeeper_proxy`] is a proxy to them. [`memory`] is
//!   a ZooKeeper for simulated time. [`curator`] is the class path of Java programs that take its locks.
//! - Upstreams: [`origin`] records requests, [`held_request`] is a request that the origin holds, and [`ledger`] keeps
//!   accounts.
//! - Guards: [`guard`] stands before an upstream, [`guarded`] is a site with guards, and [`http_proxy`] is an intermediary
//!   between gateway and guard. [`fencegate_testkit::postgres`] is a database with its accidents, and [`small_disk`] is a disk that fills up. With [`syscall_faults`] a disk is slow, or
//!   fails.
//! - Names, sockets and clocks: [`hosts`] are the names that a process resolves, and
//!   [`fencegate_testkit::fault_proxy`] is the proxy between two processes that loses, withholds or delays bytes. With [`namespaces`] packets are dropped.
//!   With [`stepped_clock`] a process sees other clocks, and with [`repeatable`] it does the same in each run.
//! - Bytes: [`wire`] reads messages as they were spelled, [`case`] plays the byte cases of `tests/wire`, and [`peers`]
//!   are proxies to compare with.
//! - Operations: [`prometheus`] collects metrics, [`alert_watch`] waits for alerts, and [`runbook`] follows their
//!   sections. [`pods`] are the processes that a chart renders. [`stored`] is data that one version writes and
//!   another reads.
//! - Accidents: [`deadline_expiry`] lets a session deadline pass before its session ends, [`charged`] is a command
//!   under a lock and its faults, and [`crowd`] is a load on keys that several requests hold at once. [`matrix`]
//!   plays all accidents and judges the runs. [`zombie`] is a set-up in which a gateway has slept through its
//!   session, and [`browser`] looks at it.
//! - Reports: [`comparison`] compares locks, [`machine`] names the machine, and [`effort`] sets how much each promise does.

pub mod alert_watch;
pub mod browser;
pub mod case;
pub mod charged;
pub mod client;
pub mod comparison;
pub mod crowd;
pub mod curator;
pub mod deadline_expiry;
pub mod each_once;
pub mod effort;
pub mod ensemble;
pub mod foreign_readings;
pub mod freeze;
pub mod gateway;
pub mod guard;
pub mod guarded;
pub mod held_request;
pub mod history;
pub mod hosts;
pub mod http_proxy;
mod ld_preload;
pub mod leases;
pub mod ledger;
pub mod load;
mod log_lines;
pub mod machine;
pub mod matrix;
pub mod memory;
pub mod migration;
pub mod mutants;
pub mod namespaces;
pub mod origin;
pub mod origin_h2;
pub mod path_values;
pub mod peers;
pub mod pods;
pub mod policy;
pub mod process;
pub mod prometheus;
pub mod repeatable;
pub mod rolling_load;
pub mod runbook;
pub mod shared_database;
pub mod shared_store;
pub mod site;
pub mod small_disk;
pub mod stepped_clock;
pub mod stored;
pub mod syscall_faults;
pub mod terminal_picture;
pub mod unlocked_request;
pub mod unread_process;
pub mod wire;
pub mod zombie;
pub mod zookeeper;
pub mod zookeeper_proxy;
