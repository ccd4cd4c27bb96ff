//! Locks under the same clients, pauses and kills, with the resource behind them: how well each lock protects it.
//! `tests/run --duel` runs it. With `--write` it puts the table into `deploy/docs/COMPARISON.md`.

mod account;
mod bout;
mod clients;
mod contest;
mod fetched;
mod gateways;
mod handlers;
mod schedule;
mod servers;
mod table;
mod verdict;

use fencegate_tests::{duel::Contestant, scratch};

use self::{
    account::{Account, Compares},
    clients::Program,
    contest::{clients_fight, fight},
    gateways::{Gateways, Level},
    handlers::Handlers,
};

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_land_behind_the_mutex_of_curator() {
    let home = scratch::place();
    let zookeeper = servers::zookeeper(home.path());
    clients_fight(Contestant::Curator, Program::java, zookeeper.address().to_string()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_land_behind_the_lock_of_kazoo() {
    let home = scratch::place();
    let zookeeper = servers::zookeeper(home.path());
    clients_fight(Contestant::Kazoo, || Program::python("kazoo"), zookeeper.address().to_string()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_land_behind_a_lock_of_redis() {
    let servers = servers::redis(1);
    clients_fight(Contestant::Redis, || Program::python("redis"), servers.told()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_land_behind_redlock() {
    let servers = servers::redis(5);
    clients_fight(Contestant::Redlock, || Program::python("redlock"), servers.told()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_land_behind_the_locks_of_etcd() {
    let servers = servers::etcd();
    clients_fight(Contestant::Etcd, || Program::python("etcd"), servers.told()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_land_behind_an_advisory_lock_of_postgresql() {
    let (_server, database) = servers::postgres();
    clients_fight(Contestant::Postgres, || Program::python("postgres"), database.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_land_outside_of_restate() {
    let start = async |account: &Account| Handlers::start(account).await;
    fight(Contestant::Restate, Compares::Nothing, start).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_land_where_nobody_compares_tokens_of_fencegate() {
    fencegate_fights(Contestant::None, Level::None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_let_in_within_a_delay_of_fencegate() {
    fencegate_fights(Contestant::Delay, Level::Delay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_late_write_lands_behind_a_guard_of_fencegate() {
    fencegate_fights(Contestant::Guard, Level::Guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_late_write_lands_in_a_service_that_compares_tokens_of_fencegate() {
    fencegate_fights(Contestant::Upstream, Level::Upstream).await;
}

async fn fencegate_fights(contestant: Contestant, level: Level) {
    let home = scratch::place();
    let zookeeper = servers::zookeeper(home.path());
    let address = zookeeper.address();
    let start = async |account: &Account| Gateways::start(level, address, account).await;
    fight(contestant, level.compares(), start).await;
}
