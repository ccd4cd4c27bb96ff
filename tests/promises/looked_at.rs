//! A session may watch fewer nodes than it has cached keys. Cached keys without a watch are yielded to a peer all the
//! same.
//!
//! One session keeps 1,000 keys with long names, which is more than four times as many as it may watch. Among the
//! faults it keeps 5,000 keys with short names.

use std::time::Duration;

use fencegate_tests::{
    client::TestRequest, each_once::each_once, effort::effort, gateway::Gateway, site::TestSite,
};

/// A number of keys whose paths exceed the 96 KiB that a session watches by far: they hold about 210 long names, or
/// fewer than 3,000 short ones.
fn keys() -> usize {
    effort(1000, 5000)
}

/// The path of a key. With few keys the names are long.
fn path(key: usize) -> String {
    let digits = effort(430, 1);
    format!("/pay/{key:0>digits$}")
}

/// The time between two checks of a key without a watch, and time for a hand-over.
const SOON: Duration = Duration::from_secs(8);

/// A cached key that is not watched is yielded when another gateway wants it.
#[tokio::test]
async fn unwatched_cached_key_yields_to_peer() {
    let (_zookeeper, site) = TestSite::with_own_zookeeper().await;
    let policy =
        |name| site.policy(name).with("/zookeeper/session_timeout", "20s").with("/zookeeper/sessions", 1);
    let one = Gateway::start(&policy("gw-1").with_linger("9m")).await;
    let keys = keys();
    each_once(one.public, keys, path).await;
    let tree = site.tree().await;
    assert_eq!(tree.locks().await.len(), keys, "not exercised");

    let two = Gateway::start(&policy("gw-2").with("/routes/0/fence/wait", "20s")).await;
    for key in [0, keys / 2, keys - 1] {
        let answer = two.send(&TestRequest::post(&path(key))).await;
        assert_eq!(answer.status, 200, "key {key}: {answer:?}");
        assert!(answer.took() < SOON, "key {key} took {:?}", answer.took());
    }
}
