//! Lock requests while there is no session.

use fencegate_policies::{key::KeyTemplate, plan::LockMode};
use fencegate_process::clock::MachineClock;

use super::*;

/// A request that is refused without a session leaves no slot: the slot would have no task, and would later get
/// a lock node that no request wants.
#[tokio::test]
async fn refused_request_without_session_leaves_nothing() {
    let (manager, _workers) = create_lock_manager(Arc::new(MachineClock), 1);
    let key = KeyTemplate::parse("one").expect("a literal").expand(&()).expect("short");
    for hold in [LockReusePolicy::Cached(CachedHoldLimits::default()), LockReusePolicy::Strict] {
        let request = LockRequest {
            keys: std::slice::from_ref(&key),
            sites: &[],
            mode: LockMode::Exclusive,
            hold,
            wait: Duration::from_secs(9),
            queue: 1,
            waits: LockWaitPlace::Here,
            delay: None,
            route: &"pay".into(),
        };
        assert!(matches!(manager.acquire(request).await, Err(AcquireError::Service(_))));
        assert_eq!(manager.key_count(), 0, "{hold:?}");
    }
}
