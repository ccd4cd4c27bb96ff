//! What the nodes of a kept key say to others: who holds alone names its gateway, so that requests can be sent on to it.

use fencegate_lock::{recipe::attempt::Attempt, session::client::ZkClient};
use fencegate_policies::plan::{ForeignLayout, LockSite, Mode};

use super::fixture::T;
use crate::{
    faulty_client::key,
    simulated_time,
    supervised::{SupervisedSession, WaitingRequest},
};

#[test]
fn only_who_holds_a_native_lock_alone_names_its_gateway_for_requests() {
    let curator = LockSite::Foreign { layout: ForeignLayout::CuratorReadWrite, path: "/app/locks/a".into() };
    simulated_time::run(async {
        let session = SupervisedSession::start(T).await;
        let live = session.live();
        // Among other programs' nodes it tells people whose node this is.
        let (signature, member) = (live.signature().to_vec(), live.member.as_bytes().to_vec());
        for (site, mode, says) in [
            (LockSite::Native, Mode::Exclusive, signature),
            (LockSite::Native, Mode::Shared, Vec::new()),
            (curator.clone(), Mode::Exclusive, member.clone()),
            (curator, Mode::Shared, member),
        ] {
            let attempt = Attempt::begin(&live, &key("a"), &site, mode).await.expect("room").with_signature();
            let granted = attempt.acquire(&mut WaitingRequest::default()).await.expect("free");
            let (said, _) = live.client.data(&granted.nodes[0]).await.expect("it holds");
            assert_eq!(said, says, "{site:?} {mode:?}");
            attempt.clear().await;
        }
        drop(live);
        session.end().await;
    });
}
