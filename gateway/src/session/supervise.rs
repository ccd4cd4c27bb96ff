//! Makes a session, registers it, has it kept, and begins anew when it is over.

use std::{
    rc::Rc,
    sync::{Arc, OnceLock},
    time::Duration,
};

use fencegate_policies::plan;
use tokio::{
    sync::{Notify, watch},
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    clock::SharedClock,
    era::{self, Init, Meta},
    heartbeat::{Beats, Rhythm},
    keep::{Ended, Registration, keep},
    link::{Connect, Failed, Fault, Link},
    live::{Current, Live, View},
    nameplate::Nameplate,
    paths::Paths,
    proof::Proof,
};
use crate::{admin::metrics::SessionMetrics, lock::registry::Registry, randomness::Randomness};

/// What a session is made with.
pub struct Settings {
    pub policy: plan::ZooKeeper,
    /// The gateway's name: part of its member node's name.
    pub gateway: String,
    /// Data of the member node.
    pub member: Nameplate,
    /// Make `meta` if there is none, before the first session of the process; never again: an ensemble that loses
    /// `meta` while we run was wiped, and would count its tokens from the beginning.
    pub init: bool,
    /// Numbers above it are not served: see [`crate::lock::rotate`].
    pub sequence_limit: u32,
    /// The installation that this process serves, from its first session on.
    pub installation: Arc<OnceLock<Meta>>,
    pub clock: SharedClock,
    pub randomness: Arc<dyn Randomness>,
    pub metrics: SessionMetrics,
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
    settings.member.others().is_ours(&member);
    era::register(&link, &paths, &era, &member, &settings.member.data()).await?;
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
        member: Paths::member_name(&settings.gateway, proof.session()),
        paths,
        reach: settings.member.reach().cloned(),
        proof,
        base: era.meta.base,
        registry: Registry::default(),
        over: CancellationToken::new(),
        clock: settings.clock.clone(),
        randomness: settings.randomness.clone(),
        sequence_limit: settings.sequence_limit,
        metrics: settings.metrics.clone(),
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
