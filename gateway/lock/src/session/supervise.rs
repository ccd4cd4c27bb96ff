//! Makes a session, registers it, has it kept, and begins anew when it is over.

use std::{cell::Cell, convert::Infallible, rc::Rc, sync::Arc, time::Duration};

use fencegate_process::said::{Brief, causes};
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    collected::Collected,
    era::{self, Beginning, Era, Init, MetaUnreadable},
    heartbeat::{Beats, Rhythm},
    judged,
    keep::{Registration, SessionEnd, keep},
    link::{Connect, Failed, Fault, Link},
    live::{Current, Live, View},
    paths::Paths,
    plans,
    proof::Proof,
    publication::Publication,
    published_plan::Announced,
    settings::Settings,
};
use crate::{meta::Suspicion, session::registry::Registry, state::WentBack};

/// Why there is no session yet.
#[derive(Debug, thiserror::Error)]
enum NotEstablished {
    #[error("connect to ZooKeeper: {0}")]
    Connect(Fault),
    #[error("make the installation's nodes: {0}")]
    Init(Fault),
    #[error(transparent)]
    Era(#[from] MetaUnreadable),
    #[error(transparent)]
    WentBack(#[from] WentBack),
    #[error("{path} changed each time that it was read, or the server is behind")]
    Behind { path: String },
    #[error("look whether that is what the ensemble says: {0}")]
    Confirm(Fault),
    #[error("register: {0}")]
    Register(#[from] Failed),
    #[error("read the registration just made: {0}")]
    Registration(Fault),
    #[error("the registration just made is gone, or its transaction gives no token")]
    NoEpoch,
    #[error("publish the plan for the other gateways: {0}")]
    Publish(Fault),
    #[error("compare the plan with those of the other gateways: {0}")]
    Compare(Fault),
    #[error(
        "FG0501: ZooKeeper granted a session timeout of {negotiated:?} for the {asked:?} asked for, which leaves less \
         than two heartbeats before the safety margin of {margin:?}; raise maxSessionTimeout or lower the margin"
    )]
    Timeout { asked: Duration, negotiated: Duration, margin: Duration },
}

impl NotEstablished {
    /// Whether an ACL keeps our identity out.
    fn is_denied(&self) -> bool {
        match self {
            Self::Init(fault)
            | Self::Confirm(fault)
            | Self::Registration(fault)
            | Self::Publish(fault)
            | Self::Compare(fault) => {
                matches!(fault, Fault::Denied(_))
            }
            Self::Era(MetaUnreadable::Fault { source, .. }) => matches!(source, Fault::Denied(_)),
            Self::Register(failed) => matches!(failed.fault, Fault::Denied(_)),
            _ => false,
        }
    }
}

/// Keeps a session until `stop`, then closes it if nothing uses it any more. `chores`: the other work of each session,
/// beside its heartbeats.
pub async fn supervise<C: Connect>(
    connect: C,
    settings: Rc<Settings>,
    current: Rc<Current<C::Link>>,
    view: watch::Sender<View>,
    stop: CancellationToken,
    chores: impl AsyncFn(&Live<C::Link>) -> Infallible,
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
                if matches!(ended, SessionEnd::Stopped) {
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
fn give_up<L: Link>(
    live: &Live<L>,
    current: &Current<L>,
    view: &watch::Sender<View>,
    settings: &Settings,
    ended: &SessionEnd,
) {
    live.proof.revoke();
    live.over.cancel();
    current.set(None);
    settings.metrics.ended();
    error!(session = format_args!("{:#x}", live.link.id()), reason = %ended, "session.ended");
    view.send_replace(match ended {
        SessionEnd::RolledBack => View::RolledBack(ended.to_string().into()),
        _ => View::Away(ended.to_string().into()),
    });
}

/// Tells all others why there is no session.
fn refuse(why: &NotEstablished, view: &watch::Sender<View>, settings: &Settings) {
    settings.metrics.away();
    let told: Arc<str> = causes(why).into();
    if let NotEstablished::WentBack(_) = why {
        error!(code = "FG0503", error = %why, "session.rolled_back");
        // The alarm is raised once. The other sessions then check for themselves, and go on if they find nothing.
        if !matches!(*view.borrow(), View::RolledBack(_)) {
            settings.memory.alarm();
        }
        view.send_replace(View::RolledBack(told));
        settings.metrics.rolled_back(true);
        return;
    }
    if settings.complaints.is_news(&told) {
        let code = match why {
            NotEstablished::Era(MetaUnreadable::Missing { .. }) => Some("FG0506"),
            NotEstablished::Connect(Fault::Tls(_)) => Some("FG0521"),
            why if why.is_denied() => Some("FG0524"),
            _ => None,
        };
        warn!(code, error = %told, "no ZooKeeper session");
    }
    view.send_replace(match why {
        NotEstablished::Era(MetaUnreadable::Missing { .. }) => View::Unmade(told),
        _ => View::Away(told),
    });
}

/// Tells the other gateways through `meta`. Gateways that did not run before cannot see it by themselves.
async fn mark(link: &impl Link, paths: &Paths, era: &Era, settings: &Settings) {
    let uuid = &era.meta.uuid;
    // Only epochs of this installation count. With those of another one a sound installation would be stopped.
    let highest = settings.memory.highest_of(uuid);
    if highest == 0 {
        return;
    }
    let mark = Suspicion { highest, era: settings.memory.era_of(uuid), by: settings.gateway.clone() };
    let marked = era::suspect(link, paths, era, mark);
    match timeout(link.timeout(), marked).await {
        Ok(Ok(())) => error!(code = "FG0503", path = %paths.meta(), "installation marked: no gateway grants"),
        // Another gateway was faster; otherwise the next session tries again.
        Ok(Err(failed)) => warn!(error = %failed, "installation not marked"),
        Err(_elapsed) => warn!("installation not marked in time"),
    }
}

async fn establish<C: Connect>(
    connect: &C,
    settings: &Settings,
) -> Result<(Live<C::Link>, Registration), NotEstablished> {
    let alarm = settings.memory.listen();
    // Taken before the session exists, so the session cannot be older than this.
    let connecting = settings.clock.now();
    let link = connect.connect().await.map_err(NotEstablished::Connect)?;
    let connection = link.reconnects();
    let rhythm = rhythm(settings, &link)?;
    let paths = Paths::below(&settings.policy.root);
    if settings.init && settings.memory.known().is_none() {
        let init = era::init(&link, &paths, Beginning::default(), &*settings.randomness)
            .await
            .map_err(NotEstablished::Init)?;
        if init == Init::Made {
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
        timeout = %Brief(rhythm.timeout),
        heartbeat = %Brief(rhythm.period),
        margin = %Brief(rhythm.margin),
        era = era.meta.era,
        "session.established"
    );
    settings.metrics.established(rhythm.timeout);
    settings.complaints.forget();
    // The proof holds only from the first beat that extends it. A session that took long to make has little time left,
    // and a lock granted in that time would be given up at once.
    let proof = Arc::new(Proof::until(link.id(), connecting));
    let live = Live {
        link,
        member: Paths::member_name(&settings.gateway, proof.session()),
        paths,
        reach: settings.member.reach().cloned(),
        plate: settings.member.clone(),
        announced: announced.map(Announced::of),
        proof,
        base: era.meta.base,
        memory: settings.memory.clone(),
        registry: Registry::default(),
        collected: Collected::with(&settings.policy.identities),
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
    let compared = compared.unwrap_or_else(|_late| Err(Fault::Ambiguous("not in time".to_owned())));
    compared.map_err(NotEstablished::Compare)?;
    Ok((live, Registration { member, era, beats: Beats::new(rhythm, connecting), connection, alarm }))
}

/// Reads `meta`, and refuses it if its tokens would not be above all that were seen.
async fn fitting(link: &impl Link, paths: &Paths, settings: &Settings) -> Result<Era, NotEstablished> {
    let mut looks = 0;
    loop {
        looks += 1;
        let era = match era::read(link, paths).await {
            Err(MetaUnreadable::Missing { path }) => {
                let gone = settings.memory.missed(&path).map(NotEstablished::from);
                return Err(gone.unwrap_or_else(|| MetaUnreadable::Missing { path }.into()));
            }
            read => read?,
        };
        let Err(went_back) = settings.memory.fits(&era.meta) else { return Ok(era) };
        // A server that is behind may show an older `meta`, which is no reason for an alarm.
        if era::is_still(link, paths, &era).await.map_err(|failed| NotEstablished::Confirm(failed.fault))? {
            if is_news(&went_back, &era) {
                mark(link, paths, &era, settings).await;
            }
            return Err(went_back.into());
        }
        if looks == LOOKS {
            return Err(NotEstablished::Behind { path: paths.meta() });
        }
        link.sync(&paths.meta()).await.map_err(NotEstablished::Confirm)?;
    }
}

/// How often `meta` is read again from a server that may be behind.
const LOOKS: usize = 3;

/// Whether `meta` has to be marked for others. Gateways without memory cannot see it, and the next era has to be above
/// the highest epoch that anybody has seen. Another installation is not marked, because it may be sound.
fn is_news(went_back: &WentBack, era: &Era) -> bool {
    match (went_back, &era.meta.suspect) {
        (WentBack::OlderEra { .. }, _) => true,
        (WentBack::Suspect { highest }, Some(marked)) => *highest > marked.highest,
        _ => false,
    }
}

/// Makes the member node. The epoch of that node tells whether ZooKeeper went back, before a lock is granted.
async fn register(
    link: &impl Link,
    paths: &Paths,
    era: &Era,
    member: &str,
    settings: &Settings,
) -> Result<Option<Publication>, NotEstablished> {
    settings.member.others().is_ours(member);
    let before = settings.memory.compared_with(&era.meta.uuid).map_or(0, |known| known.highest);
    let publication = settings.member.publishes().map(|publishes| publishes.now.borrow().clone());
    let mut namings = Vec::new();
    if let Some(publication) = &publication {
        plans::write(link, paths, publication).await.map_err(NotEstablished::Publish)?;
        namings = plans::namings(paths, publication, &Paths::member_name(&settings.gateway, link.id()));
    }
    era::register(link, paths, era, (member, &settings.member.data()), &namings).await?;
    let epoch = era::epoch_of(link, member, era.meta.base).await.map_err(NotEstablished::Registration)?;
    let epoch = epoch.ok_or(NotEstablished::NoEpoch)?;
    // Checked again, because another session of this process may meanwhile have met another ensemble.
    settings.memory.fits(&era.meta)?;
    let seen = settings.memory.saw(epoch, before);
    if let Err(went_back) = seen {
        mark(link, paths, era, settings).await;
        return Err(went_back.into());
    }
    Ok(publication)
}

fn rhythm(settings: &Settings, link: &impl Link) -> Result<Rhythm, NotEstablished> {
    let (asked, negotiated) = (settings.policy.session_timeout, link.timeout());
    let rhythm = Rhythm::of(&settings.policy, negotiated);
    if negotiated != asked {
        warn!(code = "FG0501", asked = %Brief(asked), negotiated = %Brief(negotiated), "negotiated session timeout differs");
    }
    if !rhythm.is_sound(&settings.policy) {
        return Err(NotEstablished::Timeout { asked, negotiated, margin: rhythm.margin });
    }
    Ok(rhythm)
}

/// Closes the session, so that its nodes go at once and not by its timeout.
async fn farewell<L: Link>(current: &Current<L>) {
    let Some(live) = current.set(None) else { return };
    live.proof.revoke();
    live.over.cancel();
    match Rc::try_unwrap(live) {
        Ok(live) => live.link.close().await,
        // A request still holds a lock under it. Closing would hand the key on while the upstream works.
        Err(_) => warn!("session left to its timeout: something still runs under it"),
    }
}
