//! HTTP/2, frame by frame: varnishtest plays the clients and services of a gateway, as `tests/vtc` describes them.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use fencegate_testkit::{child::ChildProcess, scratch, wait::PATIENCE};
use fencegate_tests::{ensemble::free_address, gateway::Gateway, site::TestSite};
use tokio::task::spawn_blocking;

use crate::wire;

/// The limit of streams on one connection, small enough for a test to reach.
const STREAMS: usize = 8;

/// The files of the cases, sorted.
fn files() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vtc");
    let entries = fs::read_dir(folder).expect("the folder of the cases").flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "vtc"));
    files.sort();
    files
}

/// Runs varnishtest on a file. Returns its output if it has found a fault.
fn run(file: &Path, fencegate: SocketAddr, service: SocketAddr) -> Option<String> {
    let home = scratch::temp_dir();
    // varnishtest expects an address with a space before its port.
    let address = |name: &str, address: SocketAddr| format!("-D{name}={} {}", address.ip(), address.port());
    let arguments = [
        format!("TMPDIR={}", home.path().display()),
        "varnishtest".to_owned(),
        "-t8".to_owned(),
        address("fencegate", fencegate),
        address("service", service),
        file.display().to_string(),
    ];
    let child = ChildProcess::spawn("env", arguments).expect("setpriv");
    let status = child.wait(PATIENCE * 2);
    let passed = status.is_some_and(|status| status.success());
    (!passed).then(|| child.log())
}

/// Every case of varnishtest holds. All its services listen on one port, one after another, because the gateway is
/// started with that address.
#[tokio::test]
async fn every_varnishtest_case_holds() {
    let site = TestSite::fresh().await;
    let service = free_address();
    let policy = wire::policy(&site, service, service).with("/listeners/public/limits/streams", STREAMS);
    let gateway = Gateway::start(&policy).await;
    let public = gateway.public;
    let said = spawn_blocking(move || {
        let failed = files().into_iter().filter_map(|file| {
            let said = run(&file, public, service)?;
            Some(format!("{}:\n{said}\n", file.display()))
        });
        failed.collect::<Vec<_>>()
    });
    let said = said.await.expect("no panic");
    assert!(said.is_empty(), "{} cases failed\n{}", said.len(), said.join("\n"));
}
