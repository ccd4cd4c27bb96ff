//! Keeps one session proven, until it is over.

use std::{convert::Infallible, time::Duration};

use fencegate_process::{again, said::HumanDuration};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    era::Era,
    heartbeat::{HeartbeatSchedule, HeartbeatTracker},
    link::{ConnectionState, MultiError, MultiOp, ZkClient, ZkError},
    live::{ActiveSession, SessionState},
    reattach::speaks_for_us,
};
use crate::session::settings::SessionSettings;
use crate::state::RollbackAlarm;

/// The registration of a session, as its heartbeats need it.
pub(super) struct SessionRegistration {
    pub(super) member: String,
    pub(super) era: Era,
    pub(super) beats: HeartbeatTracker,
    /// The connection over which the session was made.
    pub(super) connection: u64,
    pub(super) alarm: RollbackAlarm,
}

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
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
        again::command(again::CommandTarget::Gateway, "era show"),
        again::command(again::CommandTarget::Gateway, "era bump")
    )]
    RolledBack,
}

/// Keeps the session until it is over, or until `stop`. Runs `chores` meanwhile.
pub(super) async fn keep<L: ZkClient>(
    live: &ActiveSession<L>,
    mut registration: SessionRegistration,
    settings: &SessionSettings,
    view: &watch::Sender<SessionState>,
    stop: &CancellationToken,
    chores: &impl AsyncFn(&ActiveSession<L>) -> Infallible,
) -> SessionError {
    let mut alarm = registration.alarm.clone();
    tokio::select! {
        ended = beat(live, &mut registration, settings) => ended,
        ended = report(live, settings, view) => ended,
        ended = silence(live) => ended,
        never = pauses(live, settings) => match never {},
        never = chores(live) => match never {},
        // This session has found that ZooKeeper went back, or another one of the process has; the next session checks
        // for itself.
        () = alarm.raised() => SessionError::RolledBack,
        // An attempt has found a node of ours with another owner.
        () = live.over.cancelled() => SessionError::Swapped,
        () = stop.cancelled() => SessionError::Stopped,
    }
}

/// Passes on what the client library says of the connection. Only the end of a session is believed; nothing here
/// extends the proof.
async fn report<L: ZkClient>(
    live: &ActiveSession<L>,
    settings: &SessionSettings,
    view: &watch::Sender<SessionState>,
) -> SessionError {
    loop {
        let state = live.link.state();
        match state {
            ConnectionState::Connected => settings.metrics.connected(),
            ConnectionState::Disconnected => settings.metrics.disconnected(),
            ConnectionState::Ended => {
                settings.metrics.away();
                return SessionError::Expired;
            }
        }
        // At once, and not with the next beat: the proof was computed with the longer timeout, and is too long now.
        if let Err(ended) = follow_grant(live, settings) {
            return ended;
        }
        let connected = state == ConnectionState::Connected;
        debug!(connected, "session.state");
        view.send_replace(SessionState::Active { connected, proof: live.proof.clone() });
        live.link.state_changed().await;
        if live.link.state() == ConnectionState::Connected {
            settings.metrics.reconnected();
        }
    }
}

/// Writes the member node in rhythm; each acknowledged write moves the deadline of the proof.
async fn beat<L: ZkClient>(
    live: &ActiveSession<L>,
    registration: &mut SessionRegistration,
    settings: &SessionSettings,
) -> SessionError {
    let meta = live.paths.meta();
    // The connection of which we know that it belongs to our session.
    let SessionRegistration { member, era, beats, connection: ours, .. } = registration;
    let mut next = Instant::now();
    let mut pace = HeartbeatLag::default();
    loop {
        sleep_until(next).await;
        let connection = live.link.reconnects();
        if connection != *ours {
            match speaks_for_us(&live.link, member).await {
                Some(true) if live.link.granted().is_none() => return SessionError::Unheard,
                Some(true) => *ours = connection,
                Some(false) => return SessionError::Swapped,
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
        let steps = [
            MultiOp::Check { path: &meta, version: era.version },
            MultiOp::Set { path: member, data: &says },
        ];
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
            Err(MultiError { fault: ZkError::SessionEnded, .. }) => return SessionError::Expired,
            Err(MultiError { step: Some(0), .. }) => return SessionError::MetaChanged,
            Err(MultiError { step: Some(_), fault: ZkError::NoNode }) => return SessionError::MemberGone,
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
struct HeartbeatLag {
    slow: bool,
}

impl HeartbeatLag {
    fn heard(&mut self, took: Duration, rhythm: HeartbeatSchedule) {
        let slow = took > rhythm.gap;
        if slow && !self.slow {
            let longest = HumanDuration(rhythm.gap);
            warn!(took = %HumanDuration(took), %longest, "heartbeats are acknowledged too slowly to prove the session; ZooKeeper is slow, and nothing is granted meanwhile");
        }
        if !slow && self.slow {
            info!(took = %HumanDuration(took), "heartbeats are acknowledged in time again");
        }
        self.slow = slow;
    }
}

/// A server may grant less than the session was made with, and so end the session sooner. The proof is cut by the
/// difference.
fn follow_grant<L: ZkClient>(
    live: &ActiveSession<L>,
    settings: &SessionSettings,
) -> Result<(), SessionError> {
    let before = live.rhythm.get();
    let Some(granted) = live.link.granted().filter(|granted| *granted < before.timeout) else {
        return Ok(());
    };
    let rhythm = HeartbeatSchedule::of(&settings.policy, granted);
    live.proof.shorten(before.proves().saturating_sub(rhythm.proves()));
    live.rhythm.set(rhythm);
    if !rhythm.is_sound(&settings.policy) {
        return Err(SessionError::Cut { granted });
    }
    warn!(code = "FG0501", before = %HumanDuration(before.timeout), granted = %HumanDuration(granted), "a server keeps the session for less than the one before");
    settings.metrics.established(granted);
    Ok(())
}

/// Returns when the client library says that it is connected, but nothing was acknowledged for too long for that to be
/// true. Its task may have died, and then it never reports an end. Slow acknowledgements count here even if they extend
/// no proof: a new session would not make the servers faster.
async fn silence<L: ZkClient>(live: &ActiveSession<L>) -> SessionError {
    loop {
        let timeout = live.rhythm.get().timeout;
        sleep(timeout / 2).await;
        let silent = live.clock.now().since(live.acknowledged.get()) > timeout * 2;
        if silent && live.link.state() == ConnectionState::Connected {
            return SessionError::Silent;
        }
    }
}

/// Reports pauses of the process. It only sleeps and looks at the clock, so that slow answers of ZooKeeper do not count
/// as pauses.
async fn pauses<L: ZkClient>(live: &ActiveSession<L>, settings: &SessionSettings) -> Infallible {
    loop {
        // A pause is only seen from the end of the sleep on. So the sleep is short compared with a third of the session
        // timeout, the pause that an alert is about.
        let (asleep, rest) = (live.clock.now(), live.rhythm.get().period / 8);
        sleep(rest).await;
        let late = live.clock.now().since(asleep).saturating_sub(rest);
        if late > settings.policy.tick / 2 {
            warn!(late = %HumanDuration(late), "process.paused");
            settings.metrics.paused(late, live.rhythm.get().timeout);
        }
    }
}
