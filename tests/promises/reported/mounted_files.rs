//! A policy that is mounted is read again however its file is replaced.

use std::{fs, os::unix::fs::symlink, time::SystemTime};

use fencegate_tests::{client::TestRequest, gateway::GatewayLaunch, policy::TestPolicy, site::TestSite};
use serde_json::json;

/// Reported as minio/minio#14357, eventing-kafka-broker#3323, Mailu#1302, dadrus/heimdall#2926 and kube-rbac-proxy#45:
/// a watcher that follows one file by its events, time or size misses the way in which an orchestrator replaces it.
/// This test covers the ways to give a file another content.
#[tokio::test]
async fn replaced_policy_is_seen() {
    let site = TestSite::fresh().await;
    // All these policies have the same length, so the length does not show a change.
    let policy = |word: &str| -> TestPolicy {
        site.policy("gw-1").with_route(json!({
            "name": "word", "upstream": "ledger", "fence": "none",
            "match": {"methods": ["PUT"], "path": format!("/{word}")},
        }))
    };
    let gateway = GatewayLaunch::new(&policy("aaaa")).with_file_watch().start().await;
    gateway.wait_ready().await;
    let file = gateway.file();
    let folder = file.parent().expect("a folder").to_owned();
    let serves = async |word: &str, how: &str| {
        let reached = async {
            while gateway.send(&TestRequest::with_method("PUT", &format!("/{word}"))).await.status != 200 {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        fencegate_testkit::wait::wait_until(how, reached, || gateway.log()).await;
    };
    // The folder is replaced by a new link, as the kubelet does it.
    let swap = |word: &str| {
        let data = folder.join(format!("data-{word}"));
        fs::create_dir(&data).expect("new");
        fs::write(data.join("policy.yaml"), policy(word).to_string()).expect("written");
        let link = folder.join("..data.new");
        symlink(&data, &link).expect("linked");
        fs::rename(&link, folder.join("..data")).expect("renamed");
    };
    swap("bbbb");
    fs::remove_file(&file).expect("there");
    symlink("..data/policy.yaml", &file).expect("linked");
    serves("bbbb", "a link").await;
    swap("cccc");
    serves("cccc", "a swapped folder").await;
    fs::remove_file(&file).expect("there");
    fs::write(&file, policy("dddd").to_string()).expect("written");
    serves("dddd", "a new file").await;
    // The file is overwritten in place, with the same length and an older time.
    fs::write(&file, policy("eeee").to_string()).expect("written");
    fs::File::options()
        .write(true)
        .open(&file)
        .and_then(|open| open.set_modified(SystemTime::UNIX_EPOCH))
        .expect("set");
    serves("eeee", "an older file").await;
    let new = folder.join("policy.new");
    fs::write(&new, policy("ffff").to_string()).expect("written");
    fs::rename(&new, &file).expect("renamed");
    serves("ffff", "a renamed file").await;
}
