//! What the first page of a gateway shows.

use std::{collections::BTreeMap, sync::Arc};

use askama::Template;
use fencegate_lock::once::unresolved::Unresolved;
use fencegate_lock::tenures::{
    inquiry::SessionStatus,
    question::RegisteredGateway,
    survey::{self, Order, Select, Survey, Why},
};
use fencegate_policies::{
    key::ResourceKey,
    plan::{Gateway, OnceStore},
};
use fencegate_process::{gathered::Gathered, shown::Names};
use futures_util::future::join_all;
use tokio::task::spawn_blocking;

use super::{
    forms::in_doubt,
    frame::VERSION,
    neighbours::page_of,
    parts::{Condition, Counter, InDoubt, Tile},
    plot::Plot,
    times::{brief, now},
};
use crate::{
    admin::{
        documents::{self, encoded},
        effective::Effective,
        gateway_seen::GatewaySeen,
    },
    refusal::Reason,
};

#[derive(Template)]
#[template(path = "gateway.html")]
pub(super) struct Overview {
    name: Arc<str>,
    version: &'static str,
    at: String,
    state: Condition,
    note: Option<&'static str>,
    tiles: Vec<Tile>,
    waits: Vec<Wait>,
    wanted: usize,
    locks: Vec<Held>,
    held: usize,
    plots: [Plot; 2],
    hot: Vec<Hot>,
    hot_over: String,
    safety: Vec<Counter>,
    sessions: Vec<SessionRow>,
    members: Result<Vec<Member>, String>,
    /// The operations in doubt, if ZooKeeper remembers operations.
    operations: Option<Result<Vec<InDoubt>, String>>,
    plan: Effective,
}

struct Wait {
    key: String,
    link: Option<String>,
    route: String,
    count: usize,
    longest: String,
    why: String,
}

struct Held {
    key: String,
    link: Option<String>,
    route: String,
    mode: &'static str,
    token: String,
    age: String,
    in_flight: u32,
    waiting: usize,
    state: &'static str,
}

struct Hot {
    key: String,
    link: Option<String>,
    requests: u64,
    refused: u64,
    waited: String,
    share: u64,
}

struct SessionRow {
    number: usize,
    state: String,
    id: String,
    proven: String,
}

struct Member {
    name: String,
    sessions: usize,
    version: String,
    plan: String,
    differs: bool,
    /// The gateway's page, if a link from here leads there.
    page: Option<String>,
}

/// The most rows that a reader needs.
const ROWS: usize = 50;
/// For how many keys ZooKeeper is asked on each view of the page.
const ASKED: usize = 8;

impl Overview {
    pub(super) async fn of(seen: &GatewaySeen, note: Option<&'static str>) -> Self {
        let plan = seen.in_force.plan();
        let names = seen.names();
        let survey =
            seen.keeper.survey(Select { limit: 20 * ROWS, order: Order::Interest, ..Select::default() });
        let metrics = seen.metrics.clone();
        let counted = spawn_blocking(move || metrics.gathered());
        let (waits, members, operations, counted) = tokio::join!(
            waits(seen, &survey, names),
            seen.keeper.members(),
            operations(seen, &plan, None),
            counted
        );
        let counted = counted.expect("counting does not panic");
        let sessions = seen.keeper.sessions();
        let safety = safety(&counted);
        let (hot, hot_over) = hot(seen);
        let points = seen.trends.points();
        let wait: Vec<_> = points.iter().map(|point| point.wait).collect();
        let hold: Vec<_> = points.iter().map(|point| point.hold).collect();
        Self {
            name: seen.name.clone(),
            version: VERSION,
            at: now(),
            state: state(seen),
            note,
            tiles: tiles(&counted, &survey, &sessions, &safety),
            waits,
            wanted: survey.wanted,
            locks: survey
                .locks
                .iter()
                .filter(|lock| !lock.held.is_empty())
                .take(ROWS)
                .map(|lock| held(lock, names))
                .collect(),
            held: survey.held,
            plots: [
                Plot::of("How long requests waited for their lock", &wait),
                Plot::of("How long requests held their lock", &hold),
            ],
            hot,
            hot_over,
            safety,
            sessions: sessions.into_iter().map(session).collect(),
            members: members
                .map(|found| grouped(&found, &seen.name, plan.fingerprint))
                .map_err(|why| why.to_string()),
            operations,
            plan: Effective::of(&plan),
        }
    }
}

fn state(seen: &GatewaySeen) -> Condition {
    match seen.not_ready() {
        None => Condition { word: "ready", class: "good", why: None },
        Some(why) if seen.drain.is_cancelled() => {
            Condition { word: "draining", class: "warn", why: Some(why) }
        }
        Some(why) => Condition { word: "not ready", class: "bad", why: Some(why) },
    }
}

fn tiles(counted: &Gathered, survey: &Survey, sessions: &[SessionStatus], safety: &[Counter]) -> Vec<Tile> {
    let longest = survey.locks.iter().filter_map(|lock| lock.line.first()).map(|waiter| waiter.since).max();
    let least = sessions.iter().map(|session| session.proven_for_ms).min().unwrap_or(0);
    let met: u64 = safety.iter().map(|counter| counter.count).sum();
    let plain = |value: String, label, bad: bool| Tile {
        value,
        label,
        means: "",
        class: if bad { "warn" } else { "" },
    };
    let in_flight = counted.sum("fencegate_requests_in_flight", None);
    vec![
        plain(survey.held.to_string(), "keys held", false),
        plain(format!("{in_flight:.0}"), "requests in flight", false),
        plain(survey.waiting.to_string(), "requests waiting", survey.waiting > 0),
        plain(
            longest.map_or_else(|| "none".into(), |longest| brief(documents::millis(longest))),
            "longest wait",
            longest.is_some(),
        ),
        Tile {
            value: brief(least),
            label: "sessions proven for, at least",
            means: "so long nothing that is sent can be too late; it is renewed all the time",
            class: if least == 0 { "bad" } else { "good" },
        },
        Tile {
            value: met.to_string(),
            label: "events that fencing met",
            means: "the sum of the table What fencing met, since the start",
            class: if met > 0 { "warn" } else { "good" },
        },
    ]
}

/// Links to keys work only where keys are shown, or have a number.
fn link(key: &ResourceKey, names: Names) -> Option<String> {
    names.is_nameable().then(|| format!("/locks/{}", encoded(&names.of(key))))
}

async fn waits(seen: &GatewaySeen, survey: &Survey, names: Names) -> Vec<Wait> {
    let wanted: Vec<_> = survey.locks.iter().filter(|lock| lock.waiting > 0).take(ROWS).collect();
    let asked = wanted.iter().filter(|lock| lock.why == Some(Why::HeldElsewhere)).take(ASKED);
    let lines =
        join_all(asked.map(async |lock| {
            (&lock.key, seen.keeper.line_of(&lock.key, seen.in_force.site(&lock.key)).await)
        }))
        .await;
    let line = |lock: &survey::Lock| {
        lines.iter().find(|(key, _)| **key == lock.key).and_then(|(_, line)| line.as_deref().ok())
    };
    let row = |lock: &&survey::Lock| {
        let first = lock.line.first();
        let mut why = documents::says(&seen.name, Some(lock), line(lock));
        if lock.why == Some(Why::HeldElsewhere) && line(lock).is_none() {
            why = "Another gateway was before us.".into();
        }
        Wait {
            key: names.of(&lock.key),
            link: link(&lock.key, names),
            route: first.map(|first| first.route.to_string()).unwrap_or_default(),
            count: lock.waiting,
            longest: first.map(|first| brief(documents::millis(first.since))).unwrap_or_default(),
            why,
        }
    };
    wanted.iter().map(row).collect()
}

fn held(lock: &survey::Lock, names: Names) -> Held {
    let first = lock.held.first().expect("only held keys are shown");
    Held {
        key: names.of(&lock.key),
        link: link(&lock.key, names),
        route: first.route.as_ref().map(ToString::to_string).unwrap_or_default(),
        mode: first.mode.word(),
        token: first.token.map(|token| token.to_string()).unwrap_or_default(),
        age: brief(documents::millis(first.since)),
        in_flight: lock.held.iter().map(|held| held.in_flight).sum(),
        waiting: lock.waiting,
        state: match first {
            held if !held.proven => "not proven: writes nothing",
            held if held.ending => "ending",
            held if held.contended => "wanted elsewhere",
            held if held.in_flight == 0 => "kept for the next",
            _ => "at work",
        },
    }
}

fn hot(seen: &GatewaySeen) -> (Vec<Hot>, String) {
    let (contention, names) = (seen.contention(10), seen.names());
    let all: f64 = contention.hot.iter().map(|key| key.waited_ms).sum();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a hundred; milliseconds"
    )]
    let row = |key: documents::HotKey| Hot {
        share: (key.waited_ms / all.max(0.001) * 100.0).round() as u64,
        waited: brief(key.waited_ms as u64),
        link: names.is_nameable().then(|| format!("/locks/{}", encoded(&key.key))),
        key: key.key,
        requests: key.requests,
        refused: key.refused,
    };
    (contention.hot.into_iter().map(row).collect(), brief(contention.over_ms))
}

/// Families of counters, each with an optional reason label, and their meaning for an operator.
const SAFETY: [(&str, Option<Reason>, &str, &str); 5] = [
    ("zk_session_expirations_total", None, "Sessions that ended unasked", "every lock under them was lost"),
    (
        "tenures_lost_total",
        None,
        "Tenures lost before they were given up",
        "their session ended, or somebody removed the node",
    ),
    (
        "guard_refusals_total",
        Some(Reason::Stale),
        "Stale dispatches refused by a guard or a comparing upstream",
        "a newer tenure was before us: the service is whole",
    ),
    (
        "rejections_total",
        Some(Reason::Suspended),
        "Requests stopped before a byte was written",
        "the session could not be proven",
    ),
    (
        "outcome_unknown_total",
        None,
        "Requests of which nobody knows the outcome",
        "something was sent, and no complete answer came",
    ),
];

fn safety(counted: &Gathered) -> Vec<Counter> {
    let counter = |(family, reason, what, means): (&str, Option<Reason>, &str, &'static str)| {
        let of_reason = reason.map(|reason| ("reason", reason.word()));
        let count = counted.sum(&format!("fencegate_{family}"), of_reason);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a counter")]
        Counter { what: what.to_owned(), means, count: count as u64, last: None }
    };
    SAFETY.into_iter().map(counter).collect()
}

fn session(session: SessionStatus) -> SessionRow {
    SessionRow {
        number: session.number,
        state: match (session.away, session.connected) {
            (Some(why), _) => format!("away: {why}"),
            (None, true) => "connected".into(),
            (None, false) => "connection lost".into(),
        },
        id: session.id.unwrap_or_else(|| "none".into()),
        proven: if session.proven_for_ms == 0 { "not proven".into() } else { brief(session.proven_for_ms) },
    }
}

fn grouped(found: &[RegisteredGateway], ours: &str, fingerprint: u64) -> Vec<Member> {
    let same = format!("{fingerprint:016x}");
    let mut members: BTreeMap<&str, Member> = BTreeMap::new();
    for one in found {
        let plan = one.plan.clone().unwrap_or_default();
        let member = members.entry(&one.gateway).or_insert_with(|| Member {
            name: one.gateway.clone(),
            sessions: 0,
            version: one.version.clone().unwrap_or_default(),
            differs: plan != same,
            plan,
            page: page_of(found, &one.gateway, ours).map(str::to_owned),
        });
        member.sessions += 1;
    }
    members.into_values().collect()
}

/// Operations in doubt, of one key or of all; `None` if ZooKeeper remembers none.
pub(super) async fn operations(
    seen: &GatewaySeen,
    plan: &Gateway,
    key: Option<&ResourceKey>,
) -> Option<Result<Vec<InDoubt>, String>> {
    let routes = plan.serving.routes.routes();
    let remembered = routes.iter().filter_map(|route| route.fence.as_ref()?.once.as_ref());
    let names = seen.names();
    if !remembered.into_iter().any(|once| once.store == OnceStore::ZooKeeper) {
        return None;
    }
    let open = seen.keeper.operations().await.map_err(|why| why.to_string());
    let meant = |one: &&Unresolved| key.is_none_or(|key| one.record.keys.contains(key));
    Some(open.map(|open| open.iter().filter(meant).take(ROWS).map(|one| in_doubt(one, names)).collect()))
}
