//! Refuses a request whose resource another gateway, which was there before, locks otherwise.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{fencing::Fencing, held_tenure::HeldTenure};
use crate::{
    agreement::Standing,
    refusal::{Reason, Refusal},
    steps::{
        key::{Fenced, Keyed},
        presence::WaitingClient,
    },
};

/// However short a request would wait for its key, ZooKeeper has this long to publish what is new of the plan.
const LEAST: Duration = Duration::from_secs(1);

impl<N> Fencing<N> {
    /// Returns when the session by which the lock would be taken may serve the route. Where there is no session, whoever asks
    /// for the lock is told so.
    pub(super) async fn agreed(
        &self,
        request: &Keyed,
        fenced: &Fenced,
        deadline: Instant,
        client: &mut WaitingClient,
    ) -> Result<(), Refusal> {
        let deadline = deadline.max(Instant::now() + LEAST);
        let mut news = None;
        loop {
            let Some(session) = self.keeper.session_of(&fenced.keys[0]) else { return Ok(()) };
            match self.accord.standing(session, fenced.route) {
                Standing::Agreed => return Ok(()),
                Standing::Refused(by) => {
                    let why = format!("FG0550: {by} locks the resource otherwise, and was there before");
                    return Err(Refusal::new(Reason::ConfigMismatch, why));
                }
                Standing::Unknown => {}
            }
            // Most requests need not listen; who does looks once more, for what was told before.
            let Some(news) = &mut news else {
                news = Some(self.accord.hears());
                continue;
            };
            tokio::select! {
                _ = news.changed() => {}
                () = sleep_until(deadline) => {
                    let why = "FG0550: the route is new, and other gateways do not know of it yet";
                    return Err(Refusal::new(Reason::ConfigMismatch, why));
                }
                () = self.drained(request.plan.listener.timeouts.drain / 2) => {
                    let why = "the other gateways did not know of the route yet when the gateway stops";
                    return Err(Refusal::new(Reason::Draining, why));
                }
                () = client.gone() => {
                    return Err(Refusal::new(Reason::Locked, "the client went away while waiting"));
                }
            }
        }
    }

    /// Whether the session under which the lock was granted may serve the route: it may be another one than was asked about.
    pub(super) fn is_agreed(&self, fenced: &Fenced, held: &HeldTenure) -> bool {
        self.accord.standing(held.tenure.evidence().session(), fenced.route) == Standing::Agreed
    }
}
