//! A request that is given up before the create of its node is sent leaves no node: the create, which is already
//! queued, is still sent, and the cleanup looks for the node after it.

use std::time::Duration;

use fencegate_policies::plan::{LockLocation, LockMode};
use fencegate_recipe::attempt::LockAttempt;
use futures_util::FutureExt;
use tokio::time::{sleep, timeout};

use crate::{
    faulty_client::key,
    simulated_time,
    supervised::{SupervisedSession, WaitingRequest},
};

const T: Duration = Duration::from_secs(12);
const WAY: Duration = Duration::from_millis(10);

/// A node whose request was given up before its create was sent is removed when it is created.
#[test]
fn abandoned_unsent_create_is_removed_later() {
    simulated_time::run(async {
        let session = SupervisedSession::start(T).await;
        let live = session.live();

        let begin = async |name: &str| {
            let begun =
                LockAttempt::begin(&live, &key(name), &LockLocation::Native, LockMode::Exclusive).await;
            begun.expect("there is room")
        };
        // A first lock of each key creates the folder of the keys.
        let mut attempts = Vec::new();
        for number in 0..4 {
            let attempt = begin(&format!("key-{number}")).await;
            attempt.acquire(&mut WaitingRequest::default()).await.expect("free");
            attempt.remove_nodes().await;
            attempts.push(begin(&format!("key-{number}")).await);
        }
        session.doctor.wire().delay(WAY..WAY);
        for attempt in &attempts {
            // Polled once, the attempt queues its create, and is then dropped, as after a panic.
            assert!(Box::pin(attempt.acquire(&mut WaitingRequest::default())).now_or_never().is_none());
        }
        let cleared = async {
            for attempt in attempts.into_iter().rev() {
                attempt.remove_nodes().await;
            }
        };
        timeout(T, cleared).await.expect("it ends");
        sleep(WAY * 10).await;
        assert_eq!(session.lock_nodes(), [""; 0]);
        session.end().await;
    });
}
