//! Makes a session, registers it, has it kept, and begins anew when it is over.

use std::{cell::Cell, convert::Infallible, rc::Rc, sync::Arc, time::Duration};

use fencegate_process::said::{HumanDuration, causes};
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    collected::BatchQueue,
    era::{self, Era, InitOutcome, InitialEra, ReadMetaError},
    heartbeat::{HeartbeatSchedule, HeartbeatTracker},
    judged,
    keep::{SessionError, SessionRegistration, keep},
    link::{MultiError, ZkClient, ZkConnector, ZkError},
    live::{ActiveSession, CurrentSession, SessionState},
    paths::Paths,
    plans,
    proof::SessionDeadline,
    publication::PlanPublication,
    published_plan::AnnouncedPlan,
    settings::SessionSettings,
};
use crate::{meta::RollbackEvidence, session::registry::NodeRegistry, state::RollbackError};

/// Why there is no session yet.
#[derive(Debug, thiserror::Error)]
enum EstablishSessionError {
    #[error("connect to ZooKeeper: {0}")]
    Connect(ZkError),
    #[error("make the installation's nodes: {0}")]
    Init(ZkError),
    #[error(transparent)]
    Era(#[from] ReadMetaError),
    #[error(transparent)]
    WentBack(#[from] RollbackError),
    #[error("{path} changed each time that it was read, or the server is behind")]
    Behind { path: String },
    #[error("look whether that is what the ensemble says: {0}")]
    Confirm(ZkError),
    #[error("register: {0}")]
    Register(#[from] MultiError),
    #[error("read the registration just made: {0}")]
    Registration(ZkError),
    #[error("the registration just made is gone, or its transaction gives no token")]
    NoEpoch,
    #[error("publish the plan for the other gateways: {0}")]
    Publish(ZkError),
    #[error("compare the plan with those of the other gateways: {0}")]
    Compare(ZkError),
    #[error(
        "FG0501: ZooKeeper granted a session timeout of {negotiated:?} for the {asked:?} asked for, which leaves less \
         than two heartbeats before the safety margin of {margin:?}; raise maxSessionTimeout or lower the margin"
    )]
    Timeout { asked: Duration, negotiated: Duration, margin: Duration },
}

impl EstablishSessionError {
    /// Whether an ACL keeps our identity out.
    fn is_denied(&self) -> bool {
        match self {
            Self::Init(fault)
            | Self::Confirm(fault)
            | Self::Registration(fault)
            | Self::Publish(fault)
            | Self::Compare(fault) => {
                matches!(fault, ZkError::Denied(_))
            }
            Self::Era(ReadMetaError::Fault { source, .. }) => matches!(source, ZkError::Denied(_)),
            Self::Register(failed) => matches!(failed.fault, ZkError::Denied(_)),
            _ => false,
        }
    }
}

/// Keeps a session until `stop`, then closes it if nothing uses it any more. `chores`: the other work of each session,
/// beside its heartbeats.
pub async fn supervise<C: ZkConnector>(
    connect: C,
    settings: Rc<SessionSettings>,
    current: Rc<CurrentSession<C::Client>>,
    view: watch::Sender<SessionState>,
    stop: CancellationToken,
    chores: impl AsyncFn(&ActiveSession<C::Client>) -> Infallible,
) {
    let mut pause = PAUSE.start;
    while !stop.is_cancelled() {
        let established = tokio::select! {
            established = establish(&connect, &settings) => established,
            () = stop.cancelled() => return,
        };
        match established {
            Ok((live, registration)) => {
                let era = registration.era.clone();
                pause = PAUSE.start;
                let live = Rc::new(live);
                current.set(Some(live.clone()));
                let ended = keep(&live, registration, &settings, &view, &stop, &chores).await;
                if let Some((publishes, _)) = live.publishes() {
                    publishes.judge.ended(live.link.id());
                }
                if matches!(ended, SessionError::Stopped) {
                    drop(live);
                    return farewell(&current).await;
                }
                give_up(&live, &current, &view, &settings, &ended);
                // Only the session that saw it marks it: another session may be connected to another ensemble.
                if live.went_back.get() {
                    tokio::select! {
                        () = mark(&live.link, &live.paths, &era, &settings) => {}
                        () = stop.cancelled() => return,
                    }
                }
            }
            Err(why) => {
                refuse(&why, &view, &settings);
                tokio::select! { () = sleep(pause) => (), () = stop.cancelled() => return }
                pause = (pause * 2).min(PAUSE.end);
            }
        }
    }
}

/// Between two attempts to make a session.
const PAUSE: std::ops::Range<Duration> = Duration::from_millis(100)..Duration::from_secs(2);

/// Revokes the proof first, so that no byte leaves under this session any more, and then tells all others.
fn give_up<L: ZkClient>(
    live: &ActiveSession<L>,
    current: &CurrentSession<L>,
    view: &watch::Sender<SessionState>,
    settings: &SessionSettings,
    ended: &SessionError,
) {
    live.proof.revoke();
    live.over.cancel();
    current.set(None);
    settings.metrics.ended();
    error!(session = format_args!("{:#x}", live.link.id()), reason = %ended, "session.ended");
    view.send_replace(match ended {
        SessionError::RolledBack => SessionState::RolledBack(ended.to_string().into()),
        _ => SessionState::NoSession(ended.to_string().into()),
    });
}

/// Tells all others why there is no session.
fn refuse(why: &EstablishSessionError, view: &watch::Sender<SessionState>, settings: &SessionSettings) {
    settings.metrics.away();
    let told: Arc<str> = causes(why).into();
    if let EstablishSessionError::WentBack(_) = why {
        error!(code = "FG0503", error = %why, "session.rolled_back");
        // The alarm is raised once. The other sessions then check for themselves, and go on if they find nothing.
        if !matches!(*view.borrow(), SessionState::RolledBack(_)) {
            settings.memory.alarm();
        }
        view.send_replace(SessionState::RolledBack(told));
        settings.metrics.rolled_back(true);
        return;
    }
    if settings.complaints.is_news(&told) {
        let code = match why {
            EstablishSessionError::Era(ReadMetaError::Missing { .. }) => Some("FG0506"),
            EstablishSessionError::Connect(ZkError::Tls(_)) => Some("FG0521"),
            why if why.is_denied() => Some("FG0524"),
            _ => None,
        };
        warn!(code, error = %told, "no ZooKeeper session");
    }
    view.send_replace(match why {
        EstablishSessionError::Era(ReadMetaError::Missing { .. }) => SessionState::NotInitialised(told),
        _ => SessionState::NoSession(told),
    });
}

/// Tells the other gateways through `meta`. Gateways that did not run before cannot see it by themselves.
async fn mark(link: &impl ZkClient, paths: &Paths, era: &Era, settings: &SessionSettings) {
    let uuid = &era.meta.uuid;
    // Only epochs of this installation count. With those of another one a sound installation would be stopped.
    let highest = settings.memory.highest_of(uuid);
    if highest == 0 {
        return;
    }
    let mark = RollbackEvidence { highest, era: settings.memory.era_of(uuid), by: settings.gateway.clone() };
    let marked = era::suspect(link, paths, era, mark);
    match timeout(link.timeout(), marked).await {
        Ok(Ok(())) => error!(code = "FG0503", path = %paths.meta(), "installation marked: no gateway grants"),
        // Another gateway was faster; otherwise the next session tries again.
        Ok(Err(failed)) => warn!(error = %failed, "installation not marked"),
        Err(_elapsed) => warn!("installation not marked in time"),
    }
}

async fn establish<C: ZkConnector>(
    connect: &C,
    settings: &SessionSettings,
) -> Result<(ActiveSession<C::Client>, SessionRegistration), EstablishSessionError> {
    let alarm = settings.memory.listen();
    // Taken before the session exists, so the session cannot be older than this.
    let connecting = settings.clock.now();
    let link = connect.connect().await.map_err(EstablishSessionError::Connect)?;
    let connection = link.reconnects();
    let rhythm = rhythm(settings, &link)?;
    let paths = Paths::below(&settings.policy.root);
    if settings.init && settings.memory.known().is_none() {
        let init = era::init(&link, &paths, InitialEra::default(), &*settings.randomness)
            .await
            .map_err(EstablishSessionError::Init)?;
        if init == InitOutcome::Made {
            info!(path = %paths.meta(), "installation made");
        }
    }
    let era = fitting(&link, &paths, settings).await?;
    let member = paths.member(&settings.gateway, link.id());
    let announced = register(&link, &paths, &era, &member, settings).await?;
    settings.memory.serves(&era.meta);
    settings.metrics.rolled_back(false);
    info!(
        session = format_args!("{:#x}", link.id()),
        timeout = %HumanDuration(rhythm.timeout),
        heartbeat = %HumanDuration(rhythm.period),
        margin = %HumanDuration(rhythm.margin),
        era = era.meta.era,
        "session.established"
    );
    settings.metrics.established(rhythm.timeout);
    settings.complaints.forget();
    // The proof holds only from the first beat that extends it. A session that took long to make has little time left,
    // and a lock granted in that time would be given up at once.
    let proof = Arc::new(SessionDeadline::until(link.id(), connecting));
    let live = ActiveSession {
        link,
        member: Paths::member_name(&settings.gateway, proof.session()),
        paths,
        reach: settings.member.reach().cloned(),
        plate: settings.member.clone(),
        announced: announced.map(AnnouncedPlan::of),
        proof,
        base: era.meta.base,
        memory: settings.memory.clone(),
        registry: NodeRegistry::default(),
        collected: BatchQueue::with(&settings.policy.identities),
        over: CancellationToken::new(),
        clock: settings.clock.clone(),
        randomness: settings.randomness.clone(),
        sequence_limit: settings.sequence_limit,
        metrics: settings.metrics.clone(),
        rhythm: Cell::new(rhythm),
        beaten: Notify::new(),
        acknowledged: Cell::new(settings.clock.now()),
        went_back: Cell::new(false),
    };
    // No lock is granted before the plans of the other gateways are known.
    let compared = timeout(rhythm.timeout, judged::compare(&live)).await;
    let compared = compared.unwrap_or_else(|_late| Err(ZkError::Ambiguous("not in time".to_owned())));
    compared.map_err(EstablishSessionError::Compare)?;
    Ok((
        live,
        SessionRegistration {
            member,
            era,
            beats: HeartbeatTracker::new(rhythm, connecting),
            connection,
            alarm,
        },
    ))
}

/// Reads `meta`, and refuses it if its tokens would not be above all that were seen.
async fn fitting(
    link: &impl ZkClient,
    paths: &Paths,
    settings: &SessionSettings,
) -> Result<Era, EstablishSessionError> {
    let mut looks = 0;
    loop {
        looks += 1;
        let era = match era::read(link, paths).await {
            Err(ReadMetaError::Missing { path }) => {
                let gone = settings.memory.missed(&path).map(EstablishSessionError::from);
                return Err(gone.unwrap_or_else(|| ReadMetaError::Missing { path }.into()));
            }
            read => read?,
        };
        let Err(went_back) = settings.memory.fits(&era.meta) else { return Ok(era) };
        // A server that is behind may show an older `meta`, which is no reason for an alarm.
        if era::is_still(link, paths, &era)
            .await
            .map_err(|failed| EstablishSessionError::Confirm(failed.fault))?
        {
            if is_news(&went_back, &era) {
                mark(link, paths, &era, settings).await;
            }
            return Err(went_back.into());
        }
        if looks == MAX_META_READS {
            return Err(EstablishSessionError::Behind { path: paths.meta() });
        }
        link.sync(&paths.meta()).await.map_err(EstablishSessionError::Confirm)?;
    }
}

/// How often `meta` is read again from a server that may be behind.
const MAX_META_READS: usize = 3;

/// Whether `meta` has to be marked for others. Gateways without memory cannot see it, and the next era has to be above
/// the highest epoch that anybody has seen. Another installation is not marked, because it may be sound.
fn is_news(went_back: &RollbackError, era: &Era) -> bool {
    match (went_back, &era.meta.suspect) {
        (RollbackError::OlderEra { .. }, _) => true,
        (RollbackError::Suspect { highest }, Some(marked)) => *highest > marked.highest,
        _ => false,
    }
}

/// Makes the member node. The epoch of that node tells whether ZooKeeper went back, before a lock is granted.
async fn register(
    link: &impl ZkClient,
    paths: &Paths,
    era: &Era,
    member: &str,
    settings: &SessionSettings,
) -> Result<Option<PlanPublication>, EstablishSessionError> {
    settings.member.others().is_ours(member);
    let before = settings.memory.compared_with(&era.meta.uuid).map_or(0, |known| known.highest);
    let publication = settings.member.publishes().map(|publishes| publishes.now.borrow().clone());
    let mut namings = Vec::new();
    if let Some(publication) = &publication {
        plans::write(link, paths, publication).await.map_err(EstablishSessionError::Publish)?;
        namings = plans::namings(paths, publication, &Paths::member_name(&settings.gateway, link.id()));
    }
    era::register(link, paths, era, (member, &settings.member.data()), &namings).await?;
    let epoch =
        era::epoch_of(link, member, era.meta.base).await.map_err(EstablishSessionError::Registration)?;
    let epoch = epoch.ok_or(EstablishSessionError::NoEpoch)?;
    // Checked again, because another session of this process may meanwhile have met another ensemble.
    settings.memory.fits(&era.meta)?;
    let seen = settings.memory.saw(epoch, before);
    if let Err(went_back) = seen {
        mark(link, paths, era, settings).await;
        return Err(went_back.into());
    }
    Ok(publication)
}

fn rhythm(
    settings: &SessionSettings,
    link: &impl ZkClient,
) -> Result<HeartbeatSchedule, EstablishSessionError> {
    let (asked, negotiated) = (settings.policy.session_timeout, link.timeout());
    let rhythm = HeartbeatSchedule::of(&settings.policy, negotiated);
    if negotiated != asked {
        warn!(code = "FG0501", asked = %HumanDuration(asked), negotiated = %HumanDuration(negotiated), "negotiated session timeout differs");
    }
    if !rhythm.is_sound(&settings.policy) {
        return Err(EstablishSessionError::Timeout { asked, negotiated, margin: rhythm.margin });
    }
    Ok(rhythm)
}

/// Closes the session, so that its nodes go at once and not by its timeout.
async fn farewell<L: ZkClient>(current: &CurrentSession<L>) {
    let Some(live) = current.set(None) else { return };
    live.proof.revoke();
    live.over.cancel();
    match Rc::try_unwrap(live) {
        Ok(live) => live.link.close().await,
        // A request still holds a lock under it. Closing would hand the key on while the upstream works.
        Err(_) => warn!("session left to its timeout: something still runs under it"),
    }
}
