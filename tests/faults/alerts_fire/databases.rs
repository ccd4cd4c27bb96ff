//! Alerts of guards that share a database, after faults of a guard and of the database.

use std::time::Duration;

use fencegate_testkit::{
    fault_proxy::FaultProxy,
    postgres::{PostgresServer, StandbyMode, TestDatabase, fresh_database},
    wait::wait_until,
};
use fencegate_tests::{
    alert_watch::AlertWatch,
    client::TestRequest,
    gateway::Gateway,
    guard::{Guard, GuardLaunch},
    guarded::GuardedSite,
    runbook::RunbookWalk,
    shared_database::SharedDatabase,
};
use tokio::task::{block_in_place, spawn_blocking};

struct SharedStoreFixture {
    _guarded: GuardedSite,
    _sharing: SharedDatabase,
    one: Guard,
    /// The second guard, which only some tests start.
    other: GuardLaunch,
    gateway: Gateway,
}

impl SharedStoreFixture {
    async fn for_url(url: &str) -> Self {
        let guarded = GuardedSite::fresh().await;
        let sharing = SharedDatabase::new(url);
        let [one, other] = guarded.launch_pair(&sharing).await;
        let one = one.start().await;
        one.wait_ready().await;
        let gateway = guarded.gateway_through("gw-1", &[one.public]).await;
        Self { _guarded: guarded, _sharing: sharing, one, other, gateway }
    }

    async fn send_payment(&self) {
        assert_eq!(self.gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    }
}

/// The alerts for an unreachable database and a lost guard fire, and are resolved afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn unreachable_database_and_lost_guard_alert() {
    let watch = AlertWatch::shared().await;
    let here = watch.installation("away");
    let database = spawn_blocking(fresh_database).await.expect("no panic");
    let cut = FaultProxy::start(database.address);
    let shared = SharedStoreFixture::for_url(&database.url_at(&[cut.address])).await;
    let other = shared.other.start().await;
    here.set_targets(&[shared.one.admin, other.admin, shared.gateway.admin]).await;
    shared.send_payment().await;

    other.kill().await;
    let gone = here.wait_firing("FencegateGuardGone").await;

    cut.close();
    let away = here.wait_firing("FencegateGuardStoreAway").await;
    let file = shared.one.launch().path();
    let walk = RunbookWalk::for_alert(&away).with("/etc/fencegate/guard.yaml", file.display());
    walk.with_exit_code("fencegate check --online", 78).follow().await;
    cut.open();
    here.wait_resolved(&away).await;
    here.wait_resolved(&gone).await;
}

/// The alert for a rolled-back store fires when a standby is promoted that lacked rows, and is resolved afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn incomplete_standby_alerts_rollback() {
    let watch = AlertWatch::shared().await;
    let here = watch.installation("rolled-back");
    let mut primary = block_in_place(|| PostgresServer::start(&[]));
    let standby = block_in_place(|| primary.standby(StandbyMode::Synchronously));
    let database: TestDatabase = primary.fresh_database();
    let shared = SharedStoreFixture::for_url(&database.url_at(&[primary.address(), standby.address()])).await;
    here.set_targets(&[shared.one.admin, shared.gateway.admin]).await;
    shared.send_payment().await;
    block_in_place(|| primary.disable_sync_standby());
    // Wait for this row: without it the standby does not know that the guard used another server, and so cannot
    // detect that commits are missing.
    let copy = standby.database(&database.name);
    let noted = async {
        while block_in_place(|| copy.run("SELECT origin <> '' AND NOT followed FROM fencegate.store")) != "t"
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    wait_until("the standby to hear which server the guard used", noted, || shared.one.log()).await;
    block_in_place(|| {
        primary.kill();
        standby.promote();
    });
    // The guard detects the rollback only when a request makes it query the new server, so send requests all the
    // time.
    let asks = async {
        loop {
            shared.gateway.send(&TestRequest::post("/pay/8")).await;
        }
    };
    tokio::select! {
        () = shared.one.wait_gauge("fencegate_guard_store_rolled_back", 1.0) => {}
        () = asks => unreachable!("it asks for as long as it is polled"),
    }
    let firing = here.wait_firing("FencegateGuardStoreRolledBack").await;
    here.wait_resolved(&firing).await;
}
