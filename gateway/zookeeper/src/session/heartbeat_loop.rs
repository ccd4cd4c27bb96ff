//! Extends the deadline of one session, until it is over.

use std::{convert::Infallible, time::Duration};

use fencegate_process::{command_hint, display::FormattedDuration};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    active_session::{ActiveSession, SessionState},
    client::{MultiError, MultiOp, ZkClient, ZkConnectionState, ZkError},
    era::VersionedInstallationMeta,
    heartbeat::{HeartbeatSchedule, HeartbeatTracker},
    session_check::check_same_session,
};
use crate::session::settings::SessionSettings;
use crate::state::RollbackAlarm;

/// The facts of a registered session that its heartbeats need.
pub(super) struct SessionRegistration {
    pub(super) member: String,
    pub(super) era: VersionedInstallationMeta,
    pub(super) beats: HeartbeatTracker,
    /// The reconnect count of the connection over which the session was created.
    pub(super) connection: u64,
    pub(super) alarm: RollbackAlarm,
}

/// The reason why a session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("the process stops the session")]
    Stopped,
    #[error("the session expired")]
    Expired,
    #[error("the gateway's member node is gone from ZooKeeper")]
    MemberGone,
    #[error("the installation's meta node was changed or removed")]
    MetaChanged,
    #[error("ZooKeeper gave the session another id when the connection came back")]
    Swapped,
    #[error("the connection came back, and for how long its server keeps the session is unknown")]
    Unheard,
    #[error(
        "FG0501: the connection came back to a server that keeps the session for {granted:?} only, which leaves less than \
         two heartbeats before the safety margin; give all servers one `maxSessionTimeout` and `tickTime`"
    )]
    Cut { granted: Duration },
    #[error(
        "ZooKeeper has acknowledged no heartbeat for {}, although the connection looks open",
        FormattedDuration(*.0)
    )]
    Silent(Duration),
    #[error(
        "FG0503: ZooKeeper went back to an older state, and no lock is granted: `{}` says how far, and `{}` makes \
         larger tokens",
        command_hint::command_line(command_hint::CommandHintTarget::Gateway, "era show"),
        command_hint::command_line(command_hint::CommandHintTarget::Gateway, "era bump")
    )]
    RolledBack,
}

/// Keeps the session until it is over, or until `stop`. Runs `chores` meanwhile.
pub(super) async fn keep_session_alive<L: ZkClient>(
    live: &ActiveSession<L>,
    mut registration: SessionRegistration,
    settings: &SessionSettings,
    view: &watch::Sender<SessionState>,
    stop: &CancellationToken,
    chores: &impl AsyncFn(&ActiveSession<L>) -> Infallible,
) -> SessionError {
    let mut alarm = registration.alarm.clone();
    tokio::select! {
        ended = send_heartbeats(live, &mut registration, settings) => ended,
        ended = watch_connection_state(live, settings, view) => ended,
        ended = wait_until_silent(live) => ended,
        never = chores(live) => match never {},
        // A session of this process, this one or another one, has found a rollback of ZooKeeper. The next session
        // checks for itself.
        () = alarm.wait_raised() => SessionError::RolledBack,
        // An attempt has found that its node is owned by another session.
        () = live.ended.cancelled() => SessionError::Swapped,
        () = stop.cancelled() => SessionError::Stopped,
    }
}

/// Reports the connection state of the client library. Of that state only the end of the session is trusted; nothing
/// here extends the deadline.
async fn watch_connection_state<L: ZkClient>(
    live: &ActiveSession<L>,
    settings: &SessionSettings,
    view: &watch::Sender<SessionState>,
) -> SessionError {
    loop {
        let state = live.client.state();
        match state {
            ZkConnectionState::Connected => settings.metrics.set_connected(),
            ZkConnectionState::Disconnected => settings.metrics.set_disconnected(),
            ZkConnectionState::Ended => {
                settings.metrics.set_no_session();
                return SessionError::Expired;
            }
        }
        // The timeout is applied now, and not with the next heartbeat: the deadline was computed with the longer
        // timeout, and may be too late now.
        if let Err(ended) = apply_granted_timeout(live, settings) {
            return ended;
        }
        let connected = state == ZkConnectionState::Connected;
        debug!(connected, "session.state");
        view.send_replace(SessionState::Active { connected, deadline: live.session_deadline.clone() });
        live.client.state_changed().await;
        if live.client.state() == ZkConnectionState::Connected {
            settings.metrics.record_reconnect();
        }
    }
}

/// Writes the member node in rhythm; each acknowledged write moves the session deadline.
async fn send_heartbeats<L: ZkClient>(
    live: &ActiveSession<L>,
    registration: &mut SessionRegistration,
    settings: &SessionSettings,
) -> SessionError {
    let meta = live.paths.meta_path();
    // The connection that is known to belong to this session.
    let SessionRegistration { member, era, beats, connection: ours, .. } = registration;
    let mut next = Instant::now();
    let mut pace = HeartbeatLagLogger::default();
    loop {
        sleep_until(next).await;
        let connection = live.client.reconnect_count();
        if connection != *ours {
            match check_same_session(&live.client, member).await {
                Some(true) if live.client.shortest_granted_timeout().is_none() => {
                    return SessionError::Unheard;
                }
                Some(true) => *ours = connection,
                Some(false) => return SessionError::Swapped,
                None => {}
            }
        }
        if let Err(ended) = apply_granted_timeout(live, settings) {
            return ended;
        }
        beats.record_sent(live.clock.now(), live.heartbeat_schedule.get());
        // The next heartbeat is counted from now, because missed heartbeats are not made up for after a pause.
        next = Instant::now() + beats.period();
        let sent = live.clock.now();
        let says = settings.member.encoded_member();
        let steps = [
            MultiOp::Check { path: &meta, version: era.version },
            MultiOp::Set { path: member, data: &says },
        ];
        let answer = live.client.commit(&steps).await;
        let took = live.clock.now().since(sent);
        settings.metrics.record_heartbeat(took);
        match answer {
            Ok(_) => {
                live.last_acknowledged.set(live.clock.now());
                pace.log_lag_change(took, live.heartbeat_schedule.get());
                // The deadline is extended only if the connection was known to be this session's before the write and
                // is the same after it: the write may have waited and gone out over a new one.
                if let (Some(deadline), true) =
                    (beats.acknowledged_deadline(), live.client.reconnect_count() == *ours)
                {
                    live.session_deadline.extend(deadline);
                    live.heartbeat_acknowledged.notify_waiters();
                }
            }
            Err(MultiError { fault: ZkError::SessionEnded, .. }) => return SessionError::Expired,
            Err(MultiError { step: Some(0), .. }) => return SessionError::MetaChanged,
            Err(MultiError { step: Some(_), fault: ZkError::NoNode }) => return SessionError::MemberGone,
            Err(failed) => warn!(error = %failed, "ZooKeeper did not acknowledge a heartbeat"),
        }
        settings.metrics.set_proof_remaining(live.session_deadline.expires_at().since(live.clock.now()));
        settings.metrics.set_ephemeral_nodes(live.registry.node_count(), live.registry.path_bytes());
    }
}

/// Logs whether heartbeats are acknowledged in time.
///
/// Each heartbeat is sent after the answer to the one before. If answers take longer than the gap, every heartbeat
/// counts as the first after a gap and extends nothing. Then no lock is granted, and the operator needs the reason in
/// the log.
#[derive(Default)]
struct HeartbeatLagLogger {
    slow: bool,
}

impl HeartbeatLagLogger {
    fn log_lag_change(&mut self, took: Duration, schedule: HeartbeatSchedule) {
        let slow = took > schedule.gap;
        if slow && !self.slow {
            let longest = FormattedDuration(schedule.gap);
            warn!(took = %FormattedDuration(took), %longest, "heartbeats are acknowledged too slowly to prove the session; ZooKeeper is slow, and nothing is granted meanwhile");
        }
        if !slow && self.slow {
            info!(took = %FormattedDuration(took), "heartbeats are acknowledged in time again");
        }
        self.slow = slow;
    }
}

/// Applies a shorter timeout that a server has granted after the session was created. Such a server expires the session
/// sooner, so the deadline is moved back by the difference.
fn apply_granted_timeout<L: ZkClient>(
    live: &ActiveSession<L>,
    settings: &SessionSettings,
) -> Result<(), SessionError> {
    let before = live.heartbeat_schedule.get();
    let Some(granted) = live.client.shortest_granted_timeout().filter(|granted| *granted < before.timeout)
    else {
        return Ok(());
    };
    let schedule = HeartbeatSchedule::new(&settings.policy, granted);
    live.session_deadline.shorten(before.validity_duration().saturating_sub(schedule.validity_duration()));
    live.heartbeat_schedule.set(schedule);
    if !schedule.leaves_time_for_heartbeats(&settings.policy) {
        return Err(SessionError::Cut { granted });
    }
    warn!(code = "FG0501", before = %FormattedDuration(before.timeout), granted = %FormattedDuration(granted), "a ZooKeeper server keeps the session for a shorter time than the server before");
    settings.metrics.record_session_established(granted);
    Ok(())
}

/// Returns when the client library reports a connection, but nothing was acknowledged for longer than a connection can
/// be silent. The library's task may have died, and then it never reports an end. Here slow acknowledgements count even
/// if they extend no deadline: a new session would not make the servers faster.
async fn wait_until_silent<L: ZkClient>(live: &ActiveSession<L>) -> SessionError {
    loop {
        let timeout = live.heartbeat_schedule.get().timeout;
        sleep(timeout / 2).await;
        let silence = live.clock.now().since(live.last_acknowledged.get());
        if silence > timeout * 2 && live.client.state() == ZkConnectionState::Connected {
            return SessionError::Silent(silence);
        }
    }
}
