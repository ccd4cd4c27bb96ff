//! Keeps one session proven, until it is over.

use std::{convert::Infallible, time::Duration};

use fencegate_process::{again, said::Brief};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    era::Era,
    heartbeat::{Beats, Rhythm},
    link::{ConnectionState, Failed, Fault, Link, Step},
    live::{Live, View},
    reattach::speaks_for_us,
};
use crate::session::settings::Settings;
use crate::state::Alarm;

/// The registration of a session, as its heartbeats need it.
pub(super) struct Registration {
    pub(super) member: String,
    pub(super) era: Era,
    pub(super) beats: Beats,
    /// The connection over which the session was made.
    pub(super) connection: u64,
    pub(super) alarm: Alarm,
}

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionEnd {
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
    #[error("the connection came back, and it is not known for how long the server keeps the session now")]
    Unheard,
    #[error(
        "FG0501: the connection came back to a server that keeps the session for {granted:?} only, which leaves less than \
         two heartbeats before the safety margin; give all servers one `maxSessionTimeout` and `tickTime`"
    )]
    Cut { granted: Duration },
    #[error(
        "connected, as it is said, and nothing was acknowledged for twice the session timeout and longer"
    )]
    Silent,
    #[error(
        "FG0503: ZooKeeper went back, and nothing is granted: `{}` says how far, and `{}` makes larger tokens",
        again::command(again::Of::Gateway, "era show"),
        again::command(again::Of::Gateway, "era bump")
    )]
    RolledBack,
}

/// Keeps the session until it is over, or until `stop`. Runs `chores` meanwhile.
pub(super) async fn keep<L: Link>(
    live: &Live<L>,
    mut registration: Registration,
    settings: &Settings,
    view: &watch::Sender<View>,
    stop: &CancellationToken,
    chores: &impl AsyncFn(&Live<L>) -> Infallible,
) -> SessionEnd {
    let mut alarm = registration.alarm.clone();
    tokio::select! {
        ended = beat(live, &mut registration, settings) => ended,
        ended = report(live, settings, view) => ended,
        ended = silence(live) => ended,
        never = pauses(live, settings) => match never {},
        never = chores(live) => match never {},
        // This session has found that ZooKeeper went back, or another one of the process has; the next session checks
        // for itself.
        () = alarm.raised() => SessionEnd::RolledBack,
        // An attempt has found a node of ours with another owner.
        () = live.over.cancelled() => SessionEnd::Swapped,
        () = stop.cancelled() => SessionEnd::Stopped,
    }
}

/// Passes on what the client library says of the connection. Only the end of a session is believed; nothing here
/// extends the proof.
async fn report<L: Link>(live: &Live<L>, settings: &Settings, view: &watch::Sender<View>) -> SessionEnd {
    loop {
        let state = live.link.state();
        match state {
            ConnectionState::Connected => settings.metrics.connected(),
            ConnectionState::Disconnected => settings.metrics.disconnected(),
            ConnectionState::Over => {
                settings.metrics.away();
                return SessionEnd::Expired;
            }
        }
        // At once, and not with the next beat: the proof was computed with the longer timeout, and is too long now.
        if let Err(ended) = follow_grant(live, settings) {
            return ended;
        }
        let connected = state == ConnectionState::Connected;
        debug!(connected, "session.state");
        view.send_replace(View::Live { connected, proof: live.proof.clone() });
        live.link.state_changed().await;
        if live.link.state() == ConnectionState::Connected {
            settings.metrics.reconnected();
        }
    }
}

/// Writes the member node in rhythm; each acknowledged write moves the deadline of the proof.
async fn beat<L: Link>(live: &Live<L>, registration: &mut Registration, settings: &Settings) -> SessionEnd {
    let meta = live.paths.meta();
    // The connection of which we know that it belongs to our session.
    let Registration { member, era, beats, connection: ours, .. } = registration;
    let mut next = Instant::now();
    let mut pace = Pace::default();
    loop {
        sleep_until(next).await;
        let connection = live.link.reconnects();
        if connection != *ours {
            match speaks_for_us(&live.link, member).await {
                Some(true) if live.link.granted().is_none() => return SessionEnd::Unheard,
                Some(true) => *ours = connection,
                Some(false) => return SessionEnd::Swapped,
                None => {}
            }
        }
        if let Err(ended) = follow_grant(live, settings) {
            return ended;
        }
        beats.sending(live.clock.now(), live.rhythm.get());
        // Counted from now, because missed beats are not made up for after a pause.
        next = Instant::now() + beats.period();
        let (sent, says) = (live.clock.now(), settings.member.data());
        let steps =
            [Step::Check { path: &meta, version: era.version }, Step::Set { path: member, data: &says }];
        let answer = live.link.commit(&steps).await;
        let took = live.clock.now().since(sent);
        settings.metrics.beat(took);
        match answer {
            Ok(_) => {
                live.acknowledged.set(live.clock.now());
                pace.heard(took, live.rhythm.get());
                // Only if the connection was known to be our session's before and after: the write may have waited and
                // gone out over a new one.
                if let (Some(deadline), true) = (beats.acknowledged(), live.link.reconnects() == *ours) {
                    live.proof.extend(deadline);
                    live.beaten.notify_waiters();
                }
            }
            Err(Failed { fault: Fault::Over, .. }) => return SessionEnd::Expired,
            Err(Failed { step: Some(0), .. }) => return SessionEnd::MetaChanged,
            Err(Failed { step: Some(_), fault: Fault::NoNode }) => return SessionEnd::MemberGone,
            Err(failed) => warn!(error = %failed, "heartbeat not acknowledged"),
        }
        settings.metrics.proof(live.proof.deadline().since(live.clock.now()));
        settings.metrics.nodes(live.registry.nodes(), live.registry.bytes());
    }
}

/// Tells the log whether heartbeats are acknowledged in time.
///
/// Each heartbeat is sent after the answer to the one before. If answers take longer than the gap, every beat counts as
/// the first after a gap and extends nothing. Then no lock is granted, and the operator has to know the reason.
#[derive(Default)]
struct Pace {
    slow: bool,
}

impl Pace {
    fn heard(&mut self, took: Duration, rhythm: Rhythm) {
        let slow = took > rhythm.gap;
        if slow && !self.slow {
            let longest = Brief(rhythm.gap);
            warn!(took = %Brief(took), %longest, "heartbeats are acknowledged too slowly to prove the session; ZooKeeper is slow, and nothing is granted meanwhile");
        }
        if !slow && self.slow {
            info!(took = %Brief(took), "heartbeats are acknowledged in time again");
        }
        self.slow = slow;
    }
}

/// A server may grant less than the session was made with, and so end the session sooner. The proof is cut by the
/// difference.
fn follow_grant<L: Link>(live: &Live<L>, settings: &Settings) -> Result<(), SessionEnd> {
    let before = live.rhythm.get();
    let Some(granted) = live.link.granted().filter(|granted| *granted < before.timeout) else {
        return Ok(());
    };
    let rhythm = Rhythm::of(&settings.policy, granted);
    live.proof.shorten(before.proves().saturating_sub(rhythm.proves()));
    live.rhythm.set(rhythm);
    if !rhythm.is_sound(&settings.policy) {
        return Err(SessionEnd::Cut { granted });
    }
    warn!(code = "FG0501", before = %Brief(before.timeout), granted = %Brief(granted), "a server keeps the session for less than the one before");
    settings.metrics.established(granted);
    Ok(())
}

/// Returns when the client library says that it is connected, but nothing was acknowledged for too long for that to be
/// true. Its task may have died, and then it never reports an end. Slow acknowledgements count here even if they extend
/// no proof: a new session would not make the servers faster.
async fn silence<L: Link>(live: &Live<L>) -> SessionEnd {
    loop {
        let timeout = live.rhythm.get().timeout;
        sleep(timeout / 2).await;
        let silent = live.clock.now().since(live.acknowledged.get()) > timeout * 2;
        if silent && live.link.state() == ConnectionState::Connected {
            return SessionEnd::Silent;
        }
    }
}

/// Reports pauses of the process. It only sleeps and looks at the clock, so that slow answers of ZooKeeper do not count
/// as pauses.
async fn pauses<L: Link>(live: &Live<L>, settings: &Settings) -> Infallible {
    loop {
        // A pause is only seen from the end of the sleep on. So the sleep is short compared with a third of the session
        // timeout, the pause that an alert is about.
        let (asleep, rest) = (live.clock.now(), live.rhythm.get().period / 8);
        sleep(rest).await;
        let late = live.clock.now().since(asleep).saturating_sub(rest);
        if late > settings.policy.tick / 2 {
            warn!(late = %Brief(late), "process.paused");
            settings.metrics.paused(late, live.rhythm.get().timeout);
        }
    }
}
