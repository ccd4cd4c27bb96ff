//! Reads where the locks live, and refuses timing under which no session could be proved alive.

use std::time::Duration;

use super::{block::Block, scalar};
use crate::{
    diagnose::{Code, Diagnostic},
    plan::{Acl, ZooKeeper},
};

pub(super) fn zookeeper(policy: &mut Block) -> Option<ZooKeeper> {
    policy.require("zookeeper", "zookeeper: {servers: [zk1:2181, zk2:2181, zk3:2181]}");
    // Where the whole is missing, nothing is said about its parts.
    policy.is_present("zookeeper").then(|| policy.inner("zookeeper", settings)).flatten()
}

/// Goes on without servers where they are bad: a fault has been noted, and no plan comes of it.
fn settings(block: &mut Block) -> ZooKeeper {
    let servers = servers(block);
    let zookeeper = ZooKeeper {
        servers: servers.unwrap_or_default(),
        root: block.value("root", scalar::root).unwrap_or_else(|| "/fencegate".into()),
        session_timeout: block
            .value("session_timeout", scalar::time_limit)
            .unwrap_or(Duration::from_secs(12)),
        tick: block.value("tick", scalar::time_limit).unwrap_or(Duration::from_secs(2)),
        safety_margin: block.value("safety_margin", scalar::duration),
        sessions: block.value("sessions", sessions).unwrap_or(4),
        acl: block.word("acl", &[("checked", Acl::Checked), ("open", Acl::Open)]).unwrap_or_default(),
    };
    thin_margin(block, &zookeeper);
    short_session(block, &zookeeper);
    beyond_ticks(block, &zookeeper);
    zookeeper
}

fn servers(block: &mut Block) -> Option<Vec<String>> {
    block.require("servers", "servers: [zk1:2181, zk2:2181, zk3:2181]");
    let servers = block.values("servers", scalar::server)?;
    if servers.is_empty() {
        let fault = Diagnostic::new(Code::MissingField, "the list of ZooKeeper servers is empty");
        block.fault("servers", fault.remedy("write `[zk1:2181, zk2:2181, zk3:2181]`"));
    }
    Some(servers)
}

fn sessions(text: &str) -> Result<usize, Diagnostic> {
    match scalar::count(text)? {
        sessions @ 1..=ZooKeeper::MOST_SESSIONS => Ok(sessions),
        _ => Err(scalar::out_of_range(text, &format!("there may be 1 to {}", ZooKeeper::MOST_SESSIONS))),
    }
}

/// A follower may expire a session a tick early, and a heartbeat may be late by its own period.
fn thin_margin(block: &mut Block, zookeeper: &ZooKeeper) {
    let (session, tick) = (zookeeper.session_timeout, zookeeper.tick);
    let least = ZooKeeper::least_margin(session, tick);
    if let Some(margin) = zookeeper.safety_margin
        && margin < least
    {
        let message = format!(
            "a safety margin of {} is smaller than a heartbeat of {} and a tick of {}",
            scalar::written(margin),
            scalar::written(ZooKeeper::heartbeat(session)),
            scalar::written(tick),
        );
        let fault = Diagnostic::new(Code::ThinMargin, message);
        block.fault("safety_margin", fault.remedy(format!("it has to be at least `{}`", rounded_up(least))));
    }
}

fn short_session(block: &mut Block, zookeeper: &ZooKeeper) {
    let session = zookeeper.session_timeout;
    let (margin, heartbeat) = (zookeeper.margin(session), ZooKeeper::heartbeat(session));
    let usable = session.saturating_sub(margin);
    if usable < heartbeat * 2 {
        let message = format!(
            "a session of {} less its safety margin of {} leaves {}: not two heartbeats of {}",
            scalar::written(session),
            scalar::written(margin),
            scalar::written(usable),
            scalar::written(heartbeat),
        );
        let fault = Diagnostic::new(Code::ShortSession, message);
        block.fault(
            "session_timeout",
            fault.remedy("ask for a longer session, or lower the margin or the tick"),
        );
    }
}

/// What an ensemble grants unless its operator has set other bounds.
fn beyond_ticks(block: &mut Block, zookeeper: &ZooKeeper) {
    let (session, tick) = (zookeeper.session_timeout, zookeeper.tick);
    let (least, most) = (tick * 2, tick * 20);
    if (least..=most).contains(&session) {
        return;
    }
    let message = format!(
        "a session of {} is asked for, and with a tick of {} ZooKeeper grants {} to {}, unless it is set up otherwise",
        scalar::written(session),
        scalar::written(tick),
        scalar::written(least),
        scalar::written(most),
    );
    let fault = Diagnostic::new(Code::BeyondTicks, message);
    let field = if block.is_present("session_timeout") { "session_timeout" } else { "tick" };
    block.fault(field, fault.remedy("ask for a session between these, or write the ensemble's own `tick`"));
}

/// To the next whole millisecond, so that what the remedy says is enough.
fn rounded_up(duration: Duration) -> String {
    scalar::written(duration + Duration::from_nanos(999_999))
}
