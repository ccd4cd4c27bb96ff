//! Creates a session, registers it, runs its heartbeats, and begins anew when it is over.

use std::{cell::Cell, convert::Infallible, rc::Rc, sync::Arc, time::Duration};

use fencegate_process::display::{FormattedDuration, error_chain};
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    active_session::{ActiveSession, CurrentSession, SessionState},
    batch::ZkBatchQueue,
    client::{MultiError, ZkClient, ZkConnector, ZkError},
    era::{self, InitInstallationOutcome, InitialEra, ReadInstallationMetaError, VersionedInstallationMeta},
    heartbeat::{HeartbeatSchedule, HeartbeatTracker},
    heartbeat_loop::{SessionError, SessionRegistration, keep_session_alive},
    paths::ZkPaths,
    pause_detection::run_pause_detection,
    plan_nodes,
    plan_publication::{PublishedPlanBytes, PublishedPlanState},
    plan_watch,
    session_deadline::SessionDeadline,
    settings::SessionSettings,
};
use crate::{
    installation::ZooKeeperRollbackEvidence, session::registry::LockNodeRegistry,
    state::ZooKeeperRollbackError,
};

/// Errors of session establishment.
#[derive(Debug, thiserror::Error)]
enum EstablishSessionError {
    #[error("cannot connect to ZooKeeper: {0}")]
    Connect(ZkError),
    #[error("cannot create the installation's nodes: {0}")]
    Init(ZkError),
    #[error(transparent)]
    Era(#[from] ReadInstallationMetaError),
    #[error(transparent)]
    WentBack(#[from] ZooKeeperRollbackError),
    #[error("{path} changed on each read, or the server is behind the ensemble")]
    Behind { path: String },
    #[error("cannot confirm the installation's record with the ensemble: {0}")]
    Confirm(ZkError),
    #[error("cannot register the session: {0}")]
    Register(#[from] MultiError),
    #[error("cannot read the registration just made: {0}")]
    Registration(ZkError),
    #[error("the registration just made is gone, or its transaction gives no token")]
    NoEpoch,
    #[error("cannot publish the plan for the other gateways: {0}")]
    Publish(ZkError),
    #[error("cannot compare the plan with those of the other gateways: {0}")]
    Compare(ZkError),
    #[error(
        "FG0501: ZooKeeper granted a session timeout of {negotiated:?} for the {asked:?} asked for, which leaves less \
         than two heartbeats before the safety margin of {margin:?}; raise maxSessionTimeout or lower the margin"
    )]
    Timeout { asked: Duration, negotiated: Duration, margin: Duration },
}

impl EstablishSessionError {
    /// Whether an ACL denies the identity of this process.
    fn is_denied_by_acl(&self) -> bool {
        match self {
            Self::Init(fault)
            | Self::Confirm(fault)
            | Self::Registration(fault)
            | Self::Publish(fault)
            | Self::Compare(fault) => {
                matches!(fault, ZkError::Denied(_))
            }
            Self::Era(ReadInstallationMetaError::Fault { source, .. }) => {
                matches!(source, ZkError::Denied(_))
            }
            Self::Register(failed) => matches!(failed.fault, ZkError::Denied(_)),
            _ => false,
        }
    }
}

/// Keeps a session until `stop`, then closes it if nothing uses it any more. `chores`: the other work of each session,
/// beside its heartbeats.
pub async fn supervise_session<C: ZkConnector>(
    connect: C,
    settings: Rc<SessionSettings>,
    current: Rc<CurrentSession<C::Client>>,
    view: watch::Sender<SessionState>,
    stop: CancellationToken,
    chores: impl AsyncFn(&ActiveSession<C::Client>) -> Infallible,
) {
    let schedule = || current.session().map(|live| live.heartbeat_schedule.get());
    tokio::select! {
        // Pause detection is polled first, so that a pause is reported before the session that it ends.
        biased;
        never = run_pause_detection(&settings, schedule) => match never {},
        () = keep_sessions(connect, &settings, &current, view, stop, chores) => {}
    }
}

async fn keep_sessions<C: ZkConnector>(
    connect: C,
    settings: &SessionSettings,
    current: &CurrentSession<C::Client>,
    view: watch::Sender<SessionState>,
    stop: CancellationToken,
    chores: impl AsyncFn(&ActiveSession<C::Client>) -> Infallible,
) {
    let mut pause = PAUSE.start;
    while !stop.is_cancelled() {
        let established = tokio::select! {
            established = establish_session(&connect, settings) => established,
            () = stop.cancelled() => return,
        };
        match established {
            Ok((live, registration)) => {
                let era = registration.era.clone();
                pause = PAUSE.start;
                let live = Rc::new(live);
                current.set(Some(live.clone()));
                let ended = keep_session_alive(&live, registration, settings, &view, &stop, &chores).await;
                if let Some((publishes, _)) = live.plan_publisher() {
                    publishes.judge.end_session(live.client.id());
                }
                if matches!(ended, SessionError::Stopped) {
                    drop(live);
                    return close_session(current).await;
                }
                revoke_session(&live, current, &view, settings, &ended);
                // Only the session that detected the rollback marks `meta`: another session may be connected to
                // another ensemble.
                if live.rolled_back.get() {
                    tokio::select! {
                        () = report_rollback_to_peers(&live.client, &live.paths, &era, settings) => {}
                        () = stop.cancelled() => return,
                    }
                }
            }
            Err(error) => {
                report_no_session(&error, &view, settings);
                tokio::select! { () = sleep(pause) => (), () = stop.cancelled() => return }
                pause = (pause * 2).min(PAUSE.end);
            }
        }
    }
}

/// The pause between two attempts to create a session.
const PAUSE: std::ops::Range<Duration> = Duration::from_millis(100)..Duration::from_secs(2);

/// Revokes the session deadline first, so that no byte is sent under this session any more, and then informs all
/// waiters.
fn revoke_session<L: ZkClient>(
    live: &ActiveSession<L>,
    current: &CurrentSession<L>,
    view: &watch::Sender<SessionState>,
    settings: &SessionSettings,
    ended: &SessionError,
) {
    live.session_deadline.revoke();
    live.ended.cancel();
    current.set(None);
    settings.metrics.record_session_ended();
    error!(session = format_args!("{:#x}", live.client.id()), reason = %ended, "session.ended");
    view.send_replace(match ended {
        SessionError::RolledBack => SessionState::RolledBack(ended.to_string().into()),
        _ => SessionState::NoSession(ended.to_string().into()),
    });
}

/// Reports to all waiters why there is no session.
fn report_no_session(
    error: &EstablishSessionError,
    view: &watch::Sender<SessionState>,
    settings: &SessionSettings,
) {
    settings.metrics.set_no_session();
    let reason: Arc<str> = error_chain(error).into();
    if let EstablishSessionError::WentBack(_) = error {
        error!(code = "FG0503", error = %error, "session.rolled_back");
        // The alarm is raised only when this session newly finds a rollback. The other sessions then check for
        // themselves, and go on if they find nothing.
        if !matches!(*view.borrow(), SessionState::RolledBack(_)) {
            settings.token_history.raise_rollback_alarm();
        }
        view.send_replace(SessionState::RolledBack(reason));
        settings.metrics.set_rolled_back(true);
        return;
    }
    if settings.log_dedup.should_log(&reason) {
        let code = match error {
            EstablishSessionError::Era(ReadInstallationMetaError::Missing { .. }) => Some("FG0506"),
            EstablishSessionError::Connect(ZkError::Tls(_)) => Some("FG0521"),
            EstablishSessionError::Connect(ZkError::Unreachable(_)) => Some("FG0505"),
            error if error.is_denied_by_acl() => Some("FG0524"),
            _ => None,
        };
        warn!(code, error = %reason, "no ZooKeeper session");
    }
    view.send_replace(match error {
        EstablishSessionError::Era(ReadInstallationMetaError::Missing { .. }) => {
            SessionState::NotInitialised(reason)
        }
        _ => SessionState::NoSession(reason),
    });
}

/// Reports a rollback to the peers through `meta`. Gateways that did not run before cannot detect it by themselves.
async fn report_rollback_to_peers(
    link: &impl ZkClient,
    paths: &ZkPaths,
    era: &VersionedInstallationMeta,
    settings: &SessionSettings,
) {
    let uuid = &era.meta.uuid;
    // Only epochs of this installation count. With those of another one an intact installation would be stopped.
    let highest = settings.token_history.highest_epoch_for(uuid);
    if highest == 0 {
        return;
    }
    let mark = ZooKeeperRollbackEvidence {
        highest,
        era: settings.token_history.era_for(uuid),
        by: settings.gateway.clone(),
    };
    let marked = era::record_rollback_evidence(link, paths, era, mark);
    match timeout(link.negotiated_timeout(), marked).await {
        Ok(Ok(())) => {
            error!(code = "FG0503", path = %paths.meta_path(), "the installation is marked as rolled back: no gateway grants locks")
        }
        // Another gateway was faster, or the write failed; then the next session tries again.
        Ok(Err(failed)) => warn!(error = %failed, "the installation could not be marked as rolled back"),
        Err(_elapsed) => warn!("the installation could not be marked as rolled back in time"),
    }
}

async fn establish_session<C: ZkConnector>(
    connect: &C,
    settings: &SessionSettings,
) -> Result<(ActiveSession<C::Client>, SessionRegistration), EstablishSessionError> {
    let alarm = settings.token_history.subscribe();
    // The time is taken before the session exists, so the session cannot be older than this.
    let connecting = settings.clock.now();
    let link = connect.connect().await.map_err(EstablishSessionError::Connect)?;
    let connection = link.reconnect_count();
    let schedule = heartbeat_schedule(settings, &link)?;
    let paths = ZkPaths::new(&settings.policy.root);
    if settings.init && settings.token_history.newest_record().is_none() {
        let init = era::init_installation(&link, &paths, InitialEra::default(), &*settings.randomness)
            .await
            .map_err(EstablishSessionError::Init)?;
        if init == InitInstallationOutcome::Made {
            info!(path = %paths.meta_path(), "the installation's nodes were created");
        }
    }
    let era = read_valid_era(&link, &paths, settings).await?;
    let member = paths.member_path(&settings.gateway, link.id());
    let announced = register_member(&link, &paths, &era, &member, settings).await?;
    settings.token_history.set_installation(&era.meta);
    settings.metrics.set_rolled_back(false);
    info!(
        session = format_args!("{:#x}", link.id()),
        timeout = %FormattedDuration(schedule.timeout),
        heartbeat = %FormattedDuration(schedule.period),
        margin = %FormattedDuration(schedule.margin),
        era = era.meta.era,
        "session.established"
    );
    settings.metrics.record_session_established(schedule.timeout);
    settings.log_dedup.clear_logged_reasons();
    // The session counts as valid only from the first heartbeat that extends its deadline. A session that took long to
    // create has little time left, and a lock granted in that time would be given up at once.
    let session_deadline = Arc::new(SessionDeadline::new(link.id(), connecting));
    let live = ActiveSession {
        client: link,
        member: ZkPaths::member_name(&settings.gateway, session_deadline.session_id()),
        paths,
        peer_endpoint: settings.member.endpoint().cloned(),
        local_member: settings.member.clone(),
        announced_plan: announced.map(PublishedPlanState::new),
        session_deadline,
        base: era.meta.base,
        token_history: settings.token_history.clone(),
        registry: LockNodeRegistry::default(),
        batch_queue: ZkBatchQueue::new(&settings.policy.identities),
        ended: CancellationToken::new(),
        clock: settings.clock.clone(),
        randomness: settings.randomness.clone(),
        sequence_limit: settings.sequence_limit,
        metrics: settings.metrics.clone(),
        heartbeat_schedule: Cell::new(schedule),
        heartbeat_acknowledged: Notify::new(),
        last_acknowledged: Cell::new(settings.clock.now()),
        rolled_back: Cell::new(false),
    };
    // No lock is granted before the plans of the peers are known.
    let compared = timeout(schedule.timeout, plan_watch::evaluate_peer_plans(&live)).await;
    let compared = compared.unwrap_or_else(|_late| Err(ZkError::Ambiguous("not in time".to_owned())));
    compared.map_err(EstablishSessionError::Compare)?;
    Ok((
        live,
        SessionRegistration {
            member,
            era,
            beats: HeartbeatTracker::new(schedule, connecting),
            connection,
            alarm,
        },
    ))
}

/// Reads `meta`, and refuses it if its tokens would not be above all tokens seen.
async fn read_valid_era(
    link: &impl ZkClient,
    paths: &ZkPaths,
    settings: &SessionSettings,
) -> Result<VersionedInstallationMeta, EstablishSessionError> {
    let mut looks = 0;
    loop {
        looks += 1;
        let era = match era::read_meta(link, paths).await {
            Err(ReadInstallationMetaError::Missing { path }) => {
                let gone = settings.token_history.missing_meta_error(&path).map(EstablishSessionError::from);
                return Err(gone.unwrap_or_else(|| ReadInstallationMetaError::Missing { path }.into()));
            }
            read => read?,
        };
        let Err(went_back) = settings.token_history.check_installation(&era.meta) else { return Ok(era) };
        // A server that is behind may show an older `meta`, which is no reason for an alarm.
        if era::is_meta_unchanged(link, paths, &era)
            .await
            .map_err(|failed| EstablishSessionError::Confirm(failed.fault))?
        {
            if should_record_rollback(&went_back, &era) {
                report_rollback_to_peers(link, paths, &era, settings).await;
            }
            return Err(went_back.into());
        }
        if looks == MAX_META_READS {
            return Err(EstablishSessionError::Behind { path: paths.meta_path() });
        }
        link.sync(&paths.meta_path()).await.map_err(EstablishSessionError::Confirm)?;
    }
}

/// `meta` is read this often from a server that may be behind.
const MAX_META_READS: usize = 3;

/// Whether `meta` has to be marked for the peers. Gateways without a history cannot detect the rollback, and the next
/// era has to be above the highest epoch that any gateway has seen. Another installation is not marked, because it may
/// be intact.
fn should_record_rollback(went_back: &ZooKeeperRollbackError, era: &VersionedInstallationMeta) -> bool {
    match (went_back, &era.meta.suspect) {
        (ZooKeeperRollbackError::OlderEra { .. }, _) => true,
        (ZooKeeperRollbackError::Suspect { highest }, Some(marked)) => *highest > marked.highest,
        _ => false,
    }
}

/// Creates the member node. The epoch of that node shows whether ZooKeeper was rolled back, before a lock is granted.
async fn register_member(
    link: &impl ZkClient,
    paths: &ZkPaths,
    era: &VersionedInstallationMeta,
    member: &str,
    settings: &SessionSettings,
) -> Result<Option<PublishedPlanBytes>, EstablishSessionError> {
    settings.member.peer_check().add_own_member(member);
    let before =
        settings.token_history.own_or_highest_record(&era.meta.uuid).map_or(0, |known| known.highest);
    let publication = settings.member.publisher().map(|publishes| publishes.now.borrow().clone());
    let mut namings = Vec::new();
    if let Some(publication) = &publication {
        plan_nodes::write_plan_parts(link, paths, publication)
            .await
            .map_err(EstablishSessionError::Publish)?;
        namings = plan_nodes::announcement_paths(
            paths,
            publication,
            &ZkPaths::member_name(&settings.gateway, link.id()),
        );
    }
    era::register_session(link, paths, era, member, &settings.member.encoded_member(), &namings).await?;
    let epoch =
        era::node_epoch(link, member, era.meta.base).await.map_err(EstablishSessionError::Registration)?;
    let epoch = epoch.ok_or(EstablishSessionError::NoEpoch)?;
    // The installation is checked again, because another session of this process may meanwhile have met another
    // ensemble.
    settings.token_history.check_installation(&era.meta)?;
    let seen = settings.token_history.record_epoch(epoch, before);
    if let Err(went_back) = seen {
        report_rollback_to_peers(link, paths, era, settings).await;
        return Err(went_back.into());
    }
    Ok(publication)
}

fn heartbeat_schedule(
    settings: &SessionSettings,
    link: &impl ZkClient,
) -> Result<HeartbeatSchedule, EstablishSessionError> {
    let asked = settings.policy.session_timeout;
    let negotiated = link.negotiated_timeout();
    let schedule = HeartbeatSchedule::new(&settings.policy, negotiated);
    if negotiated != asked {
        warn!(code = "FG0501", asked = %FormattedDuration(asked), negotiated = %FormattedDuration(negotiated), "ZooKeeper granted another session timeout than the one asked for");
    }
    if !schedule.leaves_time_for_heartbeats(&settings.policy) {
        return Err(EstablishSessionError::Timeout { asked, negotiated, margin: schedule.margin });
    }
    Ok(schedule)
}

/// Closes the session, so that its nodes are removed at once and not by its timeout.
async fn close_session<L: ZkClient>(current: &CurrentSession<L>) {
    let Some(live) = current.set(None) else { return };
    live.session_deadline.revoke();
    live.ended.cancel();
    match Rc::try_unwrap(live) {
        Ok(live) => live.client.close().await,
        // A request still holds a lock under the session. Closing it would pass the key on while the upstream works.
        Err(_) => {
            warn!("the session is not closed, because requests still run under it: it ends by its timeout")
        }
    }
}
