//! Locks under the same clients, pauses and kills, with the resource behind them: how well each lock protects it.
//! `tests/run --duel` runs it. With `--write` it puts the table into `deploy/docs/COMPARISON.md`.

mod account;
mod clients;
mod fetched;
mod gateways;
mod handlers;
mod run;
mod schedule;
mod servers;
mod suite;
mod table;
mod verdict;

use fencegate_tests::{comparison::LockSystem, scratch};

use self::{
    account::{AccountService, TokenCheck},
    clients::ClientProgram,
    gateways::{FencingLevel, GatewayProcesses},
    handlers::HandlerProcesses,
    suite::{run_clients, run_seeds},
};

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_land_behind_the_mutex_of_curator() {
    let home = scratch::temp_dir();
    let zookeeper = servers::zookeeper(home.path());
    run_clients(LockSystem::Curator, ClientProgram::java, zookeeper.address().to_string()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_land_behind_the_lock_of_kazoo() {
    let home = scratch::temp_dir();
    let zookeeper = servers::zookeeper(home.path());
    run_clients(LockSystem::Kazoo, || ClientProgram::python("kazoo"), zookeeper.address().to_string()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_land_behind_a_lock_of_redis() {
    let servers = servers::redis(1);
    run_clients(LockSystem::Redis, || ClientProgram::python("redis"), servers.server_list()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_land_behind_redlock() {
    let servers = servers::redis(5);
    run_clients(LockSystem::Redlock, || ClientProgram::python("redlock"), servers.server_list()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_land_behind_the_locks_of_etcd() {
    let servers = servers::etcd();
    run_clients(LockSystem::Etcd, || ClientProgram::python("etcd"), servers.server_list()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_land_behind_an_advisory_lock_of_postgresql() {
    let (_server, database) = servers::postgres();
    run_clients(LockSystem::Postgres, || ClientProgram::python("postgres"), database.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_land_outside_of_restate() {
    let start = async |account: &AccountService| HandlerProcesses::start(account).await;
    run_seeds(LockSystem::Restate, TokenCheck::Nothing, start).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_land_where_nobody_compares_tokens_of_fencegate() {
    fencegate_fights(LockSystem::None, FencingLevel::None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_let_in_within_a_delay_of_fencegate() {
    fencegate_fights(LockSystem::Delay, FencingLevel::Delay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_late_write_lands_behind_a_guard_of_fencegate() {
    fencegate_fights(LockSystem::Guard, FencingLevel::Guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_late_write_lands_in_a_service_that_compares_tokens_of_fencegate() {
    fencegate_fights(LockSystem::Upstream, FencingLevel::Upstream).await;
}

async fn fencegate_fights(contestant: LockSystem, level: FencingLevel) {
    let home = scratch::temp_dir();
    let zookeeper = servers::zookeeper(home.path());
    let address = zookeeper.address();
    let start = async |account: &AccountService| GatewayProcesses::start(level, address, account).await;
    run_seeds(contestant, level.token_check(), start).await;
}
