//! Makes a session, registers it, keeps it proven, and begins anew when it is over.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{Arc, OnceLock},
    time::Duration,
};

use fencegate_policies::plan;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{
    clock::SharedClock,
    era::{self, Era, Init, Meta},
    heartbeat::{Beats, Rhythm},
    link::{Connect, Failed, Fault, Kind, Link, State, Step},
    paths::Paths,
    proof::Proof,
};
use crate::{
    admin::metrics::SessionMetrics,
    lock::{janitor, registry::Registry},
    randomness::Randomness,
};

/// What a session is made with.
pub struct Settings {
    pub policy: plan::ZooKeeper,
    /// The gateway's name: part of its member node's name.
    pub gateway: String,
    /// Data of the member node.
    pub member: Vec<u8>,
    /// Make `meta` if there is none, before the first session of the process; never again: an ensemble that loses
    /// `meta` while we run was wiped, and would count its tokens from the beginning.
    pub init: bool,
    /// The installation that this process serves, from its first session on.
    pub installation: Arc<OnceLock<Meta>>,
    pub clock: SharedClock,
    pub randomness: Arc<dyn Randomness>,
    pub metrics: SessionMetrics,
}

/// A registered session, shared by all that act under it on its thread.
pub struct Live<L> {
    pub link: L,
    pub paths: Paths,
    pub proof: Arc<Proof>,
    /// Added to a czxid to make the epoch of a token.
    pub base: u64,
    pub registry: Registry,
    /// No new grant under this session: it is over, or about to be given up.
    pub over: CancellationToken,
    pub clock: SharedClock,
    pub randomness: Arc<dyn Randomness>,
    beaten: Notify,
}

impl<L: Link> Live<L> {
    /// Returns when the proof holds. Does not return for a session that is over: select on [`Live::over`] beside it.
    pub async fn proven(&self) {
        while !self.proof.holds(self.clock.now()) {
            self.beaten.notified().await;
        }
    }
}

/// What the rest of the gateway sees of the session.
#[derive(Debug, Clone)]
pub enum View {
    /// No session; why.
    Away(Arc<str>),
    Live {
        connected: bool,
        proof: Arc<Proof>,
    },
}

impl View {
    /// Could a lock be granted now?
    pub fn is_ready(&self, clock: &SharedClock) -> bool {
        matches!(self, View::Live { connected: true, proof } if proof.holds(clock.now()))
    }
}

/// The session of the moment, on its own thread.
pub struct Current<L> {
    live: RefCell<Option<Rc<Live<L>>>>,
    made: Notify,
}

impl<L> Default for Current<L> {
    fn default() -> Self {
        Self { live: RefCell::new(None), made: Notify::new() }
    }
}

impl<L> Current<L> {
    pub fn live(&self) -> Option<Rc<Live<L>>> {
        self.live.borrow().clone()
    }

    /// Returns when there is another session than before.
    pub async fn changed(&self) {
        self.made.notified().await;
    }

    fn set(&self, live: Option<Rc<Live<L>>>) -> Option<Rc<Live<L>>> {
        let before = self.live.replace(live);
        self.made.notify_waiters();
        before
    }
}

/// What the beats of one session need.
struct Registration {
    member: String,
    era: Era,
    rhythm: Rhythm,
    beats: Beats,
}

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
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
}

/// Why there is no session yet.
#[derive(Debug, thiserror::Error)]
enum NotEstablished {
    #[error("connect to ZooKeeper: {0}")]
    Connect(Fault),
    #[error("make the installation's nodes: {0}")]
    Init(Fault),
    #[error(transparent)]
    Era(#[from] era::Unreadable),
    #[error(
        "FG0503: this gateway serves installation {known}, and ZooKeeper now has {found} or an older era of it: it was \
         wiped or restored, and its tokens would go back; restart the gateways when that is meant"
    )]
    OtherInstallation { known: String, found: String },
    #[error("register: {0}")]
    Register(#[from] Failed),
    #[error(
        "FG0501: ZooKeeper granted a session timeout of {negotiated:?} for the {asked:?} asked for, which leaves less \
         than two heartbeats before the safety margin of {margin:?}; raise maxSessionTimeout or lower the margin"
    )]
    Timeout { asked: Duration, negotiated: Duration, margin: Duration },
}

/// Keeps a session until `stop`, then closes it if nothing uses it any more.
pub async fn supervise<C: Connect>(
    connect: C,
    settings: Rc<Settings>,
    current: Rc<Current<C::Link>>,
    view: watch::Sender<View>,
    stop: CancellationToken,
) {
    let mut pause = PAUSE.start;
    while !stop.is_cancelled() {
        let established = tokio::select! {
            established = establish(&connect, &settings) => established,
            () = stop.cancelled() => return,
        };
        match established {
            Ok((live, registration)) => {
                pause = PAUSE.start;
                let live = Rc::new(live);
                current.set(Some(live.clone()));
                let ended = keep(&live, registration, &settings, &view, &stop).await;
                if matches!(ended, Ended::Stopped) {
                    drop(live);
                    return farewell(&current).await;
                }
                give_up(&live, &current, &view, &settings, &ended);
            }
            Err(why) => {
                warn!(error = %why, "no ZooKeeper session");
                settings.metrics.away();
                view.send_replace(View::Away(why.to_string().into()));
                tokio::select! { () = sleep(pause) => (), () = stop.cancelled() => return }
                pause = (pause * 2).min(PAUSE.end);
            }
        }
    }
}

/// Between two attempts to make a session.
const PAUSE: std::ops::Range<Duration> = Duration::from_millis(100)..Duration::from_secs(2);

/// First the proof, so that no byte leaves under this session any more; then the word to all others.
fn give_up<L: Link>(
    live: &Live<L>,
    current: &Current<L>,
    view: &watch::Sender<View>,
    settings: &Settings,
    ended: &Ended,
) {
    live.proof.revoke();
    live.over.cancel();
    current.set(None);
    settings.metrics.ended();
    error!(session = format_args!("{:#x}", live.link.id()), reason = %ended, "session.ended");
    view.send_replace(View::Away(ended.to_string().into()));
}

async fn establish<C: Connect>(
    connect: &C,
    settings: &Settings,
) -> Result<(Live<C::Link>, Registration), NotEstablished> {
    // Before the session exists: it cannot be older than this.
    let connecting = settings.clock.now();
    let link = connect.connect().await.map_err(NotEstablished::Connect)?;
    let rhythm = rhythm(settings, &link)?;
    let paths = Paths::below(&settings.policy.root);
    if settings.init && settings.installation.get().is_none() {
        let init = era::init(&link, &paths, &*settings.randomness).await.map_err(NotEstablished::Init)?;
        if init == Init::Made {
            info!(path = %paths.meta(), "installation made");
        }
    }
    let era = era::read(&link, &paths).await?;
    let known = settings.installation.get_or_init(|| era.meta.clone());
    if !era.meta.follows(known) {
        return Err(NotEstablished::OtherInstallation {
            known: known.uuid.clone(),
            found: era.meta.uuid.clone(),
        });
    }
    let member = paths.member(&settings.gateway, link.id());
    era::register(&link, &paths, &era, &member, &settings.member).await?;
    info!(
        session = format_args!("{:#x}", link.id()),
        timeout = ?rhythm.timeout,
        heartbeat = ?rhythm.period,
        margin = ?rhythm.margin,
        era = era.meta.era,
        "session.established"
    );
    settings.metrics.established(rhythm.timeout);
    let proof = Arc::new(Proof::until(link.id(), rhythm.deadline(connecting)));
    let live = Live {
        link,
        paths,
        proof,
        base: era.meta.base,
        registry: Registry::default(),
        over: CancellationToken::new(),
        clock: settings.clock.clone(),
        randomness: settings.randomness.clone(),
        beaten: Notify::new(),
    };
    Ok((live, Registration { member, era, rhythm, beats: Beats::new(rhythm, connecting) }))
}

fn rhythm(settings: &Settings, link: &impl Link) -> Result<Rhythm, NotEstablished> {
    let (asked, negotiated) = (settings.policy.session_timeout, link.timeout());
    let rhythm = Rhythm::of(&settings.policy, negotiated);
    if negotiated != asked {
        warn!(code = "FG0501", ?asked, ?negotiated, "negotiated session timeout differs");
    }
    let too_short = rhythm.margin + rhythm.period * 2 > negotiated
        || rhythm.margin < plan::ZooKeeper::least_margin(negotiated, settings.policy.tick);
    if too_short {
        return Err(NotEstablished::Timeout { asked, negotiated, margin: rhythm.margin });
    }
    Ok(rhythm)
}

/// Until the session is over or `stop`.
async fn keep<L: Link>(
    live: &Live<L>,
    mut registration: Registration,
    settings: &Settings,
    view: &watch::Sender<View>,
    stop: &CancellationToken,
) -> Ended {
    let janitor = janitor::sweep_every(live, registration.rhythm.timeout);
    tokio::select! {
        ended = beat(live, &mut registration, settings) => ended,
        ended = report(live, settings, view) => ended,
        never = janitor => match never {},
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
    }
}

/// Writes the member node in rhythm; each acknowledged write moves the deadline of the proof.
async fn beat<L: Link>(live: &Live<L>, registration: &mut Registration, settings: &Settings) -> Ended {
    let meta = live.paths.meta();
    let Registration { member, era, rhythm, beats } = registration;
    // The connection that is known to speak for our session.
    let mut ours = live.link.reconnects();
    let mut next = Instant::now();
    let mut scheduled = live.clock.now();
    loop {
        sleep_until(next).await;
        let late = live.clock.now().since(scheduled);
        if late > settings.policy.tick / 2 {
            warn!(?late, "process.paused");
            settings.metrics.paused(late);
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
        let sent = live.clock.now();
        let steps = [
            Step::Check { path: &meta, version: era.version },
            Step::Set { path: member, data: &settings.member },
        ];
        let answer = live.link.commit(&steps).await;
        settings.metrics.beat(live.clock.now().since(sent), answer.is_ok());
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

/// Closes the session, so that its nodes go at once and not by its timeout.
async fn farewell<L: Link>(current: &Current<L>) {
    let Some(live) = current.set(None) else { return };
    live.proof.revoke();
    live.over.cancel();
    match Rc::try_unwrap(live) {
        Ok(live) => live.link.close().await,
        // Somebody still holds a lock under it: closing would hand its key on while the upstream works.
        Err(_) => warn!("session left to its timeout: something still runs under it"),
    }
}
