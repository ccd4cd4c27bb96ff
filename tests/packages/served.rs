//! Runs the binary that a package installs in an empty root folder, with a real ZooKeeper.

use std::{fs, net::SocketAddr, time::Duration};

use fencegate_testkit::{child::ChildProcess, scratch};
use fencegate_tests::{client::TestRequest, policy::TestPolicy, site::TestSite};
use serde_json::Value;
use tempfile::TempDir;

use super::{PACKAGES, programs::path};

/// The devices from which a static libc takes randomness.
const DEVICES: [&str; 2] = ["random", "urandom"];

/// A folder with the binary, its policy, and what every container has: `/etc/hosts` and a source of randomness.
fn empty_root(policy: &TestPolicy) -> TempDir {
    let installed = PACKAGES.unpack();
    let home = TempDir::new_in(scratch::folder()).expect("a folder");
    let root = home.path();
    fs::copy(installed.path().join("usr/bin/fencegate"), root.join("fencegate")).expect("the binary");
    fs::write(root.join("policy.yaml"), policy.to_string()).expect("our own folder");
    for folder in ["etc", "dev"] {
        fs::create_dir(root.join(folder)).expect("our own folder");
    }
    for device in DEVICES {
        fs::write(root.join(format!("dev/{device}")), "").expect("our own folder");
    }
    fs::write(root.join("etc/hosts"), "127.0.0.1 localhost upstream.test\n").expect("our own folder");
    home
}

/// The installed binary serves a request in a root folder with nothing else in it.
#[tokio::test(flavor = "multi_thread")]
async fn binary_serves_in_empty_root() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1");
    let door = site.origin.open_listener("gw-1");
    let policy =
        policy.with("/upstreams/ledger/endpoints", vec![format!("http://upstream.test:{}", door.port())]);
    let home = empty_root(&policy);
    // In namespaces of its own, so that the test does not need to run as root.
    let at = path(home.path());
    let mounts = DEVICES.map(|device| format!("mount --bind /dev/{device} '{at}/dev/{device}'"));
    let enter = format!("{} && exec chroot '{at}' \"$@\"", mounts.join(" && "));
    let entered = ["--map-root-user", "--mount", "sh", "-c", &enter, "sh", "/fencegate"];
    assert_serves("unshare", &entered, "/policy.yaml").await;
}

/// Asserts that a gateway started by this command serves a request that needs a lock.
pub(super) async fn assert_serves(program: &str, before: &[&str], policy: &str) {
    let own = ["--log-format", "json", "run", "--init", "-c", policy];
    let child = ChildProcess::spawn(program, [before, &own[..]].concat()).expect("setpriv");
    let line = child.wait_line(|line| public_address(line).is_some(), Duration::from_secs(20));
    let line = line.unwrap_or_else(|_| panic!("it does not listen: {}", child.log()));
    let address = public_address(&line).expect("an address");
    child.wait_line(|line| line.contains("session.established"), Duration::from_secs(20)).expect("a session");
    // The gateway answers 503 until it has compared the plans of all gateways through its session, so try again.
    let mut answer = TestRequest::post("/pay/7").send_to(address).await.expect("it answers");
    for _ in 0..100 {
        if answer.status != 503 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        answer = TestRequest::post("/pay/7").send_to(address).await.expect("it answers");
    }
    assert_eq!(answer.status, 200, "{answer:?}\n{}", child.log());
}

/// The address of the public listener, if this line of the log states it.
fn public_address(line: &str) -> Option<SocketAddr> {
    let line: Value = serde_json::from_str(line).unwrap_or_default();
    let fields = &line["fields"];
    (fields["listener"] == "public").then(|| fields["address"].as_str()?.parse().ok()).flatten()
}
