//! Wishes while there is no session.

use fencegate_policies::{key::KeyTemplate, plan::Mode};
use fencegate_process::clock::MachineClock;

use super::*;

/// A slot made for a refused request would stay without a task, and later get a lock node that nobody wants.
#[tokio::test]
async fn while_there_is_no_session_nothing_is_begun_for_who_is_refused() {
    let (keeper, _desks) = lock_manager(Arc::new(MachineClock), 1);
    let key = KeyTemplate::parse("one").expect("a literal").expand(&()).expect("short");
    for hold in [Hold::Cached(CachedHold::default()), Hold::Strict] {
        let wish = LockRequest {
            keys: std::slice::from_ref(&key),
            sites: &[],
            mode: Mode::Exclusive,
            hold,
            wait: Duration::from_secs(9),
            queue: 1,
            waits: WaitPlace::Here,
            delay: None,
            route: &"pay".into(),
        };
        assert!(matches!(keeper.acquire(wish).await, Err(AcquireError::Service(_))));
        assert_eq!(keeper.key_count(), 0, "{hold:?}");
    }
}
