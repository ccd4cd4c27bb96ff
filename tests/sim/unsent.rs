//! A request may give up before the create of its node was sent. It leaves no node: the collected create is still
//! sent, and the cleanup looks for the node after it.

use std::{future::pending, rc::Rc, sync::Arc, time::Duration};

use fencegate_lock::{
    recipe::{
        attempt::Attempt,
        grant::{Caller, Stop},
    },
    session::{
        live::{Current, View},
        supervise::supervise,
    },
    tenures::chores,
};
use fencegate_policies::plan::{LockSite, Mode};
use fencegate_tests::memory::{Ensemble, Settings};
use futures_util::FutureExt;
use tokio::{
    sync::watch,
    task::spawn_local,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    doctored::{Doctor, Library, clock, key, settings},
    simulated,
};

const T: Duration = Duration::from_secs(12);
const WAY: Duration = Duration::from_millis(10);

/// Waits for as long as it is asked to.
struct Patient;

impl Caller for Patient {
    fn is_gone(&self) -> bool {
        false
    }

    async fn gone(&mut self) {
        pending().await
    }

    fn behind(&mut self) -> Result<(), Stop> {
        Ok(())
    }
}

#[test]
fn what_is_given_up_before_it_is_sent_is_removed_when_it_is_made() {
    simulated::run(async {
        let (ensemble, doctor) = (Ensemble::start(Settings::default()), Doctor::new());
        let library = Library { ensemble: ensemble.clone(), timeout: T, doctor: doctor.clone() };
        let (current, stop) = (Rc::new(Current::default()), CancellationToken::new());
        let (view, mut seen) = watch::channel(View::Away("not yet".into()));
        let settings = Rc::new(settings(clock(), T));
        let chores = chores::of(settings.clone(), Arc::default());
        spawn_local(supervise(library, settings, current.clone(), view, stop.clone(), chores));
        seen.wait_for(|view| matches!(view, View::Live { .. })).await.expect("supervised");
        sleep(T).await;
        let live = current.live().expect("a session");

        let begin = async |name: &str| {
            let begun = Attempt::begin(&live, &key(name), &LockSite::Native, Mode::Exclusive).await;
            begun.expect("there is room")
        };
        // The folder of all of them is there.
        let mut attempts = Vec::new();
        for number in 0..4 {
            let attempt = begin(&format!("key-{number}")).await;
            attempt.acquire(&mut Patient).await.expect("free");
            attempt.clear().await;
            attempts.push(begin(&format!("key-{number}")).await);
        }
        doctor.wire().delay(WAY..WAY);
        for attempt in &attempts {
            // Asks, and gives up at once, as after a panic.
            assert!(Box::pin(attempt.acquire(&mut Patient)).now_or_never().is_none());
        }
        let cleared = async {
            for attempt in attempts.into_iter().rev() {
                attempt.clear().await;
            }
        };
        timeout(T, cleared).await.expect("it ends");
        sleep(WAY * 10).await;
        let nodes: Vec<_> = ensemble.paths().into_iter().filter(|path| path.contains("-w-")).collect();
        assert_eq!(nodes, [""; 0]);
        stop.cancel();
    });
}
