//! Tests of this version together with the previous one: the newest release, or the commit that
//! `tests/versions/before` names.
//!
//! `tests/run --versions` builds that one, and sets `FENCEGATE_BEFORE` to its path.
//!
//! Gateways of both versions take turns under load and hand keys to each other. Gateways and guards of different
//! versions understand each other. Each version reads the data that the other one has stored, up and down.
//!
//! `stored/` is the data that an earlier version has written, and the promise `stored` reads it in each run.
//! `REWRITE=1 tests/run --versions` writes it anew, once for each release.

use std::{env, fs, net::SocketAddr, path::PathBuf, process::Command};

use fencegate_testkit::{child::Signal, scratch};
use fencegate_tests::{
    client::TestRequest,
    gateway::GatewayLaunch,
    guard::GuardFixture,
    guarded::GuardedSite,
    policy::TestPolicy,
    process::binary,
    rolling_load::RollingLoad,
    site::TestSite,
    stored::{
        assert_gateway_state, assert_guard_store, policy_with_delay, write_gateway_state, write_guard_store,
    },
};

fn other_version_binary() -> PathBuf {
    env::var_os("FENCEGATE_BEFORE").expect("`tests/run --versions` sets it").into()
}

/// The binaries that write and read the state, for an upgrade and for a downgrade: the second one must read what the
/// first one has stored.
fn both_ways() -> [(PathBuf, PathBuf); 2] {
    [(other_version_binary(), binary()), (binary(), other_version_binary())]
}

/// A guard reads the store that the other version wrote, in both directions.
#[tokio::test]
async fn guard_reads_store_of_other_version() {
    for (writes, reads) in both_ways() {
        let beside = GuardFixture::new().await;
        let guard = write_guard_store(&beside, &writes).await.with_binary(&reads).start().await;
        assert_guard_store(&guard, &beside.origin).await;
    }
}

/// Gateways read the state in ZooKeeper and on disk that the other version wrote, in both directions.
#[tokio::test]
async fn gateways_read_state_of_other_version() {
    for (writes, reads) in both_ways() {
        let site = TestSite::fresh().await;
        let state = scratch::temp_dir();
        write_gateway_state(&site, &writes, state.path()).await;
        assert_gateway_state(&site, &reads).await;
        let policy = policy_with_delay(&site, "gw-5").with("/state_dir", state.path().display().to_string());
        let gateway = GatewayLaunch::new(&policy).with_binary(&reads).start().await;
        gateway.wait_ready().await;
        assert_eq!(gateway.send(&TestRequest::post("/pay/1")).await.status, 200);
    }
}

fn policy(site: &TestSite, name: &str, address: SocketAddr) -> TestPolicy {
    site.policy(name).with_cached_hold().with("/listeners/public/address", address.to_string())
}

/// Gateways of both versions replace each other in turn, and no request fails. While both run, they hand keys over.
#[tokio::test]
async fn gateway_versions_alternate_without_failed_request() {
    let site = TestSite::alone().await;
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut gateway = GatewayLaunch::new(&policy(&site, "gw-0", anywhere))
        .with_binary(&other_version_binary())
        .start()
        .await;
    gateway.wait_ready().await;
    let address = gateway.public;
    // Another gateway of the previous version is never replaced, so that keys are handed over all the time.
    let stays = GatewayLaunch::new(&policy(&site, "gw-stays", anywhere))
        .with_binary(&other_version_binary())
        .start()
        .await;
    stays.wait_ready().await;
    let load = RollingLoad::start(&[address, stays.public]);
    for (round, version) in [binary(), other_version_binary(), binary()].iter().enumerate() {
        let seen = site.origin.count("/read");
        site.origin.wait_for_request("/read", seen + 20).await;
        let policy = policy(&site, &format!("gw-{}", round + 1), address);
        let next = GatewayLaunch::new(&policy).with_binary(version).with_shared_address().start().await;
        next.wait_ready().await;
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.exit().await.code(), Some(0), "round {round}");
        gateway = next;
    }
    let requests = load.finish(&site.origin).await;
    assert!(requests > 200, "not exercised: {requests} requests");
}

/// A gateway and a guard of different versions serve a request together, and its watermark is raised.
#[tokio::test]
async fn gateway_works_with_other_guard_version() {
    for (gateways, guards) in both_ways() {
        let guarded = GuardedSite::fresh().await;
        let guard = guarded.launch().await.with_binary(&guards).start().await;
        let policy = guarded.policy("gw-1", &[guard.public]);
        let gateway = GatewayLaunch::new(&policy).with_binary(&gateways).start().await;
        gateway.wait_ready().await;
        let answer = gateway.send(&TestRequest::post("/pay/7")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let token = answer.token().expect("a token");
        guard.wait_watermark("account/7", token.number()).await;
    }
}

/// Not a test: with `REWRITE=1`, once for each release, it writes the files that the promises of `stored` read.
#[tokio::test]
async fn store_state_of_previous_version() {
    if env::var_os("REWRITE").is_none() {
        return;
    }
    let kept = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("versions/stored");
    drop(fs::remove_dir_all(&kept));
    let state = kept.join("state_dir");
    fs::create_dir_all(&state).expect("our own tree");
    let site = TestSite::fresh().await;
    let nodes = write_gateway_state(&site, &other_version_binary(), &state).await;
    let nodes: Vec<String> = nodes.iter().map(|node| format!("  {node}")).collect();
    fs::write(kept.join("nodes.json"), format!("[\n{}\n]\n", nodes.join(",\n"))).expect("our own tree");
    for left in fs::read_dir(&state).expect("our own tree").map(|entry| entry.expect("our own tree").path()) {
        if left.extension().is_none_or(|kind| kind != "json") {
            fs::remove_file(left).expect("our own tree");
        }
    }
    let beside = GuardFixture::new().await;
    let launch = write_guard_store(&beside, &other_version_binary()).await;
    let packed = Command::new("gzip").arg("-9nc").arg(launch.store()).output().expect("gzip");
    assert!(packed.status.success(), "{packed:?}");
    fs::write(kept.join("guard.redb.gz"), packed.stdout).expect("our own tree");
}
