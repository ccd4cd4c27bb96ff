//! Keeps one session proven, until it is over.

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    era::Era,
    heartbeat::{Beats, Rhythm},
    link::{Failed, Fault, Kind, Link, State, Step},
    live::{Live, View},
    others,
    supervise::Settings,
};
use crate::{lock::janitor, once::sweep, state::Alarm};

/// What the beats of one session need.
pub(super) struct Registration {
    pub(super) member: String,
    pub(super) era: Era,
    pub(super) rhythm: Rhythm,
    pub(super) beats: Beats,
    pub(super) alarm: Alarm,
}

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("asked to stop")]
    Stopped,
    #[error("the session expired")]
    Expired,
    #[error("the member node is gone")]
    MemberGone,
    #[error("the installation's meta node changed or went")]
    MetaChanged,
    #[error("the connection came back with another session id")]
    Swapped,
    #[error(
        "FG0503: ZooKeeper went back, and nothing is granted: `fencegate era show -c <policy>` says how far, and \
         `fencegate era bump` makes larger tokens"
    )]
    RolledBack,
}

/// Until the session is over or `stop`.
pub(super) async fn keep<L: Link>(
    live: &Live<L>,
    mut registration: Registration,
    settings: &Settings,
    view: &watch::Sender<View>,
    stop: &CancellationToken,
) -> Ended {
    let every = registration.rhythm.timeout;
    let janitor = janitor::sweep_every(live, every);
    let mut alarm = registration.alarm.clone();
    tokio::select! {
        ended = beat(live, &mut registration, settings) => ended,
        ended = report(live, settings, view) => ended,
        never = janitor => match never {},
        never = sweep::sweep_every(live) => match never {},
        never = others::watch(live, settings, every) => match never {},
        // This session found it out, or another one of the process: then the next session looks for itself.
        () = alarm.raised() => Ended::RolledBack,
        // Whoever found a node of another owner.
        () = live.over.cancelled() => Ended::Swapped,
        () = stop.cancelled() => Ended::Stopped,
    }
}

/// Passes on what the client library says of the connection. Never evidence for the proof: only its end is believed.
async fn report<L: Link>(live: &Live<L>, settings: &Settings, view: &watch::Sender<View>) -> Ended {
    loop {
        let state = live.link.state();
        settings.metrics.state(state);
        if state == State::Over {
            return Ended::Expired;
        }
        let connected = state == State::Connected;
        debug!(connected, "session.state");
        view.send_replace(View::Live { connected, proof: live.proof.clone() });
        live.link.state_changed().await;
        if live.link.state() == State::Connected {
            settings.metrics.reconnected();
        }
    }
}

/// Writes the member node in rhythm; each acknowledged write moves the deadline of the proof.
async fn beat<L: Link>(live: &Live<L>, registration: &mut Registration, settings: &Settings) -> Ended {
    let meta = live.paths.meta();
    let Registration { member, era, rhythm, beats, .. } = registration;
    // The connection that is known to speak for our session.
    let mut ours = live.link.reconnects();
    let mut next = Instant::now();
    let mut scheduled = live.clock.now();
    loop {
        sleep_until(next).await;
        let late = live.clock.now().since(scheduled);
        if late > settings.policy.tick / 2 {
            warn!(?late, "process.paused");
            settings.metrics.paused(late, rhythm.timeout);
        }
        let connection = live.link.reconnects();
        if connection != ours {
            match is_still_ours(live, member).await {
                Some(true) => ours = connection,
                Some(false) => return Ended::Swapped,
                None => {}
            }
        }
        beats.sending(live.clock.now());
        // From now, not from the last one: after a pause there is nothing to catch up.
        next = Instant::now() + rhythm.period;
        scheduled = live.clock.now() + rhythm.period;
        let (sent, says) = (live.clock.now(), settings.member.data());
        let steps =
            [Step::Check { path: &meta, version: era.version }, Step::Set { path: member, data: &says }];
        let answer = live.link.commit(&steps).await;
        settings.metrics.beat(live.clock.now().since(sent));
        match answer {
            Ok(_) => {
                // Only over a connection that was known to be ours before and still is: the write may have waited and
                // gone out over another one.
                if let (Some(deadline), true) = (beats.acknowledged(), live.link.reconnects() == ours) {
                    live.proof.extend(deadline);
                    live.beaten.notify_waiters();
                }
            }
            Err(Failed { fault: Fault::Over, .. }) => return Ended::Expired,
            Err(Failed { step: Some(0), .. }) => return Ended::MetaChanged,
            Err(Failed { step: Some(_), fault: Fault::NoNode }) => return Ended::MemberGone,
            Err(failed) => warn!(error = %failed, "heartbeat not acknowledged"),
        }
        settings.metrics.proof(live.proof.deadline().since(live.clock.now()));
        settings.metrics.nodes(live.registry.nodes(), live.registry.bytes());
    }
}

/// After a reconnect: does this connection still speak for the session we think it does? A write to the member node
/// would succeed from any session, and so "prove" one that nobody keeps alive. The owner of a node made now tells.
/// `None`: it could not be told.
async fn is_still_ours<L: Link>(live: &Live<L>, member: &str) -> Option<bool> {
    let probe = format!("{member}-probe");
    let made = live.link.create(&probe, b"", Kind::Ephemeral).await;
    let owner = match made {
        Ok(created) => Some(created.seen.owner),
        // Ours from a probe before, whose delete was lost.
        Err(Fault::NodeExists) => live.link.seen(&probe).await.ok().flatten().map(|seen| seen.owner),
        Err(_) => None,
    };
    if let Err(fault) = live.link.delete(&probe).await {
        debug!(%fault, "probe left behind until the session ends");
    }
    owner.map(|owner| owner == live.link.id())
}
