//! The harness of the tests: it starts real gateways, a real ZooKeeper and recording upstreams, and judges what they
//! did.
//!
//! Reading order:
//! - One test: [`site`] is the set-up of one test, [`gateway`] is the process under test, and [`policy`] is the
//!   configuration of that process. [`client`], [`load`], [`each_once`] and [`rolling_load`] send requests.
//!   [`history`] judges the executions.
//! - ZooKeeper: [`zookeeper`] and [`ensemble`] start real servers, and [`zookeeper_proxy`] is a proxy to them.
//!   [`memory`] is a ZooKeeper for simulated time. [`curator`] is the class path of Java programs that take the
//!   locks of Curator.
//! - Upstreams: [`origin`] records requests, [`held_request`] is a request that the origin holds, and [`ledger`] is
//!   a service that keeps accounts.
//! - Guards: [`guard`] stands before an upstream, [`guarded`] is a site with guards, and [`http_proxy`] is an
//!   intermediary between gateway and guard. [`fencegate_testkit::postgres`] is a database with its faults, and
//!   [`small_disk`] is a disk that fills up. With [`syscall_faults`] a disk is slow or fails.
//! - Names, sockets and clocks: [`hosts`] sets the names that a process resolves, and
//!   [`fencegate_testkit::fault_proxy`] is a proxy between two processes that loses, holds or delays bytes. With
//!   [`namespaces`] packets are dropped. With [`stepped_clock`] a process sees other clocks, and with [`repeatable`]
//!   all of its runs are the same.
//! - Bytes: [`wire`] reads messages as they were spelled, [`case`] runs the byte cases of `tests/wire`, and
//!   [`peers`] starts proxies to compare with.
//! - Operations: [`prometheus`] collects metrics, [`alert_watch`] waits for alerts, and [`runbook`] follows the
//!   runbook's sections on alerts. [`pods`] runs the processes of a rendered chart. [`stored`] is data that one
//!   version writes and another version reads.
//! - Accidents: [`deadline_expiry`] lets a session deadline pass before its session ends, [`charged`] is a command
//!   under a lock with its faults, and [`crowd`] is a load on keys that several requests hold at once. [`matrix`]
//!   runs all accidents and judges the runs. [`zombie`] is a set-up in which a gateway has slept through its
//!   session, and [`browser`] looks at its status page.
//! - Reports: [`comparison`] compares locks, [`machine`] names the machine, and [`effort`] sets how much each
//!   promise does.

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
