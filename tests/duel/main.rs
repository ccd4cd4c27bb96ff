//! Compares lock systems under the same clients, pauses and kills, by their effect on a resource: how well each one
//! protects it. `tests/run --duel` runs it. With `--write` it puts the table into `deploy/docs/COMPARISON.md`.

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

use fencegate_testkit::scratch;
use fencegate_tests::comparison::LockSystem;

use self::{
    account::{AccountService, TokenCheck},
    clients::ClientProgram,
    gateways::{FencingLevel, GatewayProcesses},
    handlers::RestateProcesses,
    suite::{run_seeds, run_seeds_with_clients},
};

#[tokio::test(flavor = "multi_thread")]
async fn curator_mutex_allows_late_writes() {
    let home = scratch::temp_dir();
    let zookeeper = servers::zookeeper(home.path());
    run_seeds_with_clients(LockSystem::Curator, ClientProgram::java, zookeeper.address().to_string()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kazoo_lock_allows_late_writes() {
    let home = scratch::temp_dir();
    let zookeeper = servers::zookeeper(home.path());
    run_seeds_with_clients(
        LockSystem::Kazoo,
        || ClientProgram::python("kazoo"),
        zookeeper.address().to_string(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_lock_allows_late_writes() {
    let servers = servers::redis(1);
    run_seeds_with_clients(LockSystem::Redis, || ClientProgram::python("redis"), servers.server_list()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redlock_allows_late_writes() {
    let servers = servers::redis(5);
    run_seeds_with_clients(LockSystem::Redlock, || ClientProgram::python("redlock"), servers.server_list())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_lock_allows_late_writes() {
    let servers = servers::etcd();
    run_seeds_with_clients(LockSystem::Etcd, || ClientProgram::python("etcd"), servers.server_list()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_advisory_lock_allows_late_writes() {
    let (_server, database) = servers::postgres();
    run_seeds_with_clients(LockSystem::Postgres, || ClientProgram::python("postgres"), database.url()).await;
}

/// With Restate, late writes reach a resource outside of it that does not compare tokens.
#[tokio::test(flavor = "multi_thread")]
async fn restate_allows_late_writes_outside() {
    let start = async |account: &AccountService| RestateProcesses::start(account).await;
    run_seeds(LockSystem::Restate, TokenCheck::Nothing, start).await;
}

/// With level `none` of Fencegate, late writes reach a service that does not compare tokens.
#[tokio::test(flavor = "multi_thread")]
async fn fencegate_without_comparison_allows_late_writes() {
    fencegate_fights(LockSystem::None, FencingLevel::None).await;
}

/// With level `delay` of Fencegate, no other holder is admitted within the delay.
#[tokio::test(flavor = "multi_thread")]
async fn fencegate_delay_admits_no_early_holder() {
    fencegate_fights(LockSystem::Delay, FencingLevel::Delay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fencegate_guard_prevents_late_writes() {
    fencegate_fights(LockSystem::Guard, FencingLevel::Guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fencegate_token_comparison_prevents_late_writes() {
    fencegate_fights(LockSystem::Upstream, FencingLevel::Upstream).await;
}

async fn fencegate_fights(contestant: LockSystem, level: FencingLevel) {
    let home = scratch::temp_dir();
    let zookeeper = servers::zookeeper(home.path());
    let address = zookeeper.address();
    let start = async |account: &AccountService| GatewayProcesses::start(level, address, account).await;
    run_seeds(contestant, level.token_check(), start).await;
}
