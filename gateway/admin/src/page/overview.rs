//! The content of the first page of a gateway.

use std::{collections::BTreeMap, sync::Arc};

use askama::Template;
use fencegate_idempotency::unresolved::UnresolvedOperation;
use fencegate_lock::manager::{
    admin::SessionStatus,
    admin_query::RegisteredGateway,
    listing::{self, LockListFilter, LockListOrder, LockListing, WaitReason},
};
use fencegate_policies::{
    key::ResourceKey,
    plan::{FencingLevel, GatewayPlan, IdempotencyStore},
};
use fencegate_process::{key_redaction::KeyRedaction, registry::MetricSnapshot};
use fencegate_refusal::RefusalReason;
use futures_util::future::join_all;
use tokio::task::spawn_blocking;

use super::{
    forms::operation_row,
    layout::{
        CounterRow, ProcessStatusBadge, Tile, UnresolvedOperationRow, VERSION, format_millis, format_now,
    },
    peers::peer_page_url,
    plot::Plot,
};
use crate::{
    config_dump::EffectiveConfig,
    models::{self, encode_path_segment},
    state::GatewayAdminState,
};

#[derive(Template)]
#[template(path = "gateway.html")]
pub(super) struct OverviewPage {
    name: Arc<str>,
    version: &'static str,
    at: String,
    state: ProcessStatusBadge,
    note: Option<&'static str>,
    /// The problems apart from the sessions: a process may be ready although its requests fail.
    troubles: Vec<RunbookIssue>,
    tiles: Vec<Tile>,
    waits: Vec<WaitingKeyRow>,
    wanted: usize,
    locks: Vec<LockRow>,
    held: usize,
    plots: [Plot; 2],
    hot: Vec<HotKeyRow>,
    hot_over: String,
    safety: Vec<CounterRow>,
    sessions: Vec<SessionRow>,
    members: Result<Vec<MemberRow>, String>,
    /// The operations in doubt, if ZooKeeper records operations.
    operations: Option<Result<Vec<UnresolvedOperationRow>, String>>,
    plan: EffectiveConfig,
}

/// A problem, and the section of the runbook about it.
#[derive(Debug, PartialEq, Eq)]
struct RunbookIssue {
    text: String,
    section: &'static str,
}

impl RunbookIssue {
    fn link(&self) -> String {
        format!("/runbook#{}", self.section)
    }
}

const CONFIGURATION: &str = "configuration";
const GUARD: &str = "the-guard-refuses";
const SERVICE: &str = "endpoint-silent";
/// The sections to which this page leads by a [`RunbookIssue`].
#[cfg(test)]
pub(super) const SECTIONS: [&str; 3] = [CONFIGURATION, GUARD, SERVICE];

struct WaitingKeyRow {
    key: String,
    link: Option<String>,
    route: String,
    count: usize,
    longest: String,
    why: String,
}

struct LockRow {
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

struct HotKeyRow {
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

struct MemberRow {
    name: String,
    sessions: usize,
    version: String,
    plan: String,
    differs: bool,
    /// The address of the gateway's page, if a link from this page leads there.
    page: Option<String>,
}

/// The most rows that are shown.
const ROWS: usize = 50;
/// The number of keys for which ZooKeeper is queried on each view of the page.
const ASKED: usize = 8;

impl OverviewPage {
    pub(super) async fn load(seen: &GatewayAdminState, note: Option<&'static str>) -> Self {
        let plan = seen.config.plan();
        let names = seen.key_redaction();
        let survey = seen.locks.list_locks(LockListFilter {
            limit: 20 * ROWS,
            order: LockListOrder::Interest,
            ..LockListFilter::default()
        });
        let metrics = seen.process.metrics.clone();
        let counted = spawn_blocking(move || metrics.gather());
        let (waits, members, operations, counted) = tokio::join!(
            wait_rows(seen, &survey, names),
            seen.locks.members(),
            operation_rows(seen, &plan, None),
            counted
        );
        let counted = counted.expect("counting does not panic");
        let sessions = seen.locks.sessions();
        let safety = safety_counters(&counted);
        let (hot, hot_over) = hot_key_rows(seen);
        let points = seen.history.interval_percentiles();
        let wait: Vec<_> = points.iter().map(|point| point.wait).collect();
        let hold: Vec<_> = points.iter().map(|point| point.hold).collect();
        Self {
            name: seen.name.clone(),
            version: VERSION,
            at: format_now(),
            state: process_status(seen),
            note,
            troubles: current_runbook_issues(&counted, seen),
            tiles: tiles(&counted, &survey, &sessions, &safety),
            waits,
            wanted: survey.wanted,
            locks: survey
                .locks
                .iter()
                .filter(|lock| !lock.held.is_empty())
                .take(ROWS)
                .map(|lock| lock_row(lock, names))
                .collect(),
            held: survey.held,
            plots: [
                Plot::new("How long requests waited for their lock", &wait),
                Plot::new("How long requests held their lock", &hold),
            ],
            hot,
            hot_over,
            safety,
            sessions: sessions.into_iter().map(session_row).collect(),
            members: members
                .map(|found| member_rows(&found, &seen.name, plan.fingerprint))
                .map_err(|error| error.to_string()),
            operations,
            plan: EffectiveConfig::new(&plan),
        }
    }
}

fn process_status(seen: &GatewayAdminState) -> ProcessStatusBadge {
    match seen.not_ready_reason() {
        None => ProcessStatusBadge { word: "ready", class: "good", why: None },
        Some(why) if seen.process.drain.is_cancelled() => {
            ProcessStatusBadge { word: "draining", class: "warn", why: Some(why) }
        }
        Some(why) => ProcessStatusBadge { word: "not ready", class: "bad", why: Some(why) },
    }
}

fn current_runbook_issues(counted: &MetricSnapshot, seen: &GatewayAdminState) -> Vec<RunbookIssue> {
    let reload = (counted.sum("fencegate_config_last_reload_successful", None) < 1.0).then(|| RunbookIssue {
        text: "The last reload was refused, and the plan before it is in force: the file has mistakes, or needs a restart. \
               `fencegate reload --dry-run` says which."
            .to_owned(),
        section: CONFIGURATION,
    });
    let mut found: Vec<RunbookIssue> = reload.into_iter().collect();
    let Some((_, config)) = seen.config.active_config() else { return found };
    for fleet in config.fleets.all() {
        let upstream = &fleet.upstream;
        found.extend(fleet.endpoints().iter().filter_map(|endpoint| {
            let state = endpoint.state().as_str();
            let failures = endpoint.failures_in_a_row();
            endpoint_trouble(
                &upstream.name,
                upstream.fencing == FencingLevel::Guard,
                &endpoint.name,
                state,
                failures,
            )
        }));
    }
    found
}

/// The problem of an endpoint, if it has one. `state` is a value of the label of the metric
/// `fencegate_upstream_endpoints`.
fn endpoint_trouble(
    upstream: &str,
    is_guard: bool,
    endpoint: &str,
    state: &str,
    failures: usize,
) -> Option<RunbookIssue> {
    let (what, section) = match is_guard {
        true => ("The guard", GUARD),
        false => ("The service", SERVICE),
    };
    let is = match (state, failures) {
        ("usable", 0) => return None,
        ("usable", 1) => "does not answer: the last request there failed".to_owned(),
        ("usable", failures) => format!("does not answer: the last {failures} requests there failed"),
        (state, _) => format!("is {state}, and gets no requests"),
    };
    Some(RunbookIssue { text: format!("{what} at {endpoint} (upstream {upstream}) {is}."), section })
}

fn tiles(
    counted: &MetricSnapshot,
    survey: &LockListing,
    sessions: &[SessionStatus],
    safety: &[CounterRow],
) -> Vec<Tile> {
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
            longest.map_or_else(|| "none".into(), |longest| format_millis(models::millis(longest))),
            "longest wait",
            longest.is_some(),
        ),
        Tile {
            value: format_millis(least),
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

/// The link to the page of a key. `None` if the policy shows neither keys nor hashes of them.
fn key_link(key: &ResourceKey, names: KeyRedaction) -> Option<String> {
    names.tells_keys_apart().then(|| format!("/locks/{}", encode_path_segment(&names.display(key))))
}

async fn wait_rows(
    seen: &GatewayAdminState,
    survey: &LockListing,
    names: KeyRedaction,
) -> Vec<WaitingKeyRow> {
    let wanted: Vec<_> = survey.locks.iter().filter(|lock| lock.waiting > 0).take(ROWS).collect();
    let queried = wanted.iter().filter(|lock| lock.why == Some(WaitReason::HeldElsewhere)).take(ASKED);
    let lines = join_all(queried.map(async |lock| {
        (&lock.key, seen.locks.queue_entries(&lock.key, seen.config.site(&lock.key)).await)
    }))
    .await;
    let line = |lock: &listing::ListedLock| {
        lines.iter().find(|(key, _)| **key == lock.key).and_then(|(_, line)| line.as_deref().ok())
    };
    let row = |lock: &&listing::ListedLock| {
        let first = lock.line.first();
        let mut why = models::describe_waiting(&seen.name, Some(lock), line(lock));
        if lock.why == Some(WaitReason::HeldElsewhere) && line(lock).is_none() {
            why = "Another gateway was before us.".into();
        }
        WaitingKeyRow {
            key: names.display(&lock.key),
            link: key_link(&lock.key, names),
            route: first.map(|first| first.route.to_string()).unwrap_or_default(),
            count: lock.waiting,
            longest: first.map(|first| format_millis(models::millis(first.since))).unwrap_or_default(),
            why,
        }
    };
    wanted.iter().map(row).collect()
}

fn lock_row(lock: &listing::ListedLock, names: KeyRedaction) -> LockRow {
    let first = lock.held.first().expect("only held keys are shown");
    LockRow {
        key: names.display(&lock.key),
        link: key_link(&lock.key, names),
        route: first.route.as_ref().map(ToString::to_string).unwrap_or_default(),
        mode: first.mode.as_str(),
        token: first.token.map(|token| token.to_string()).unwrap_or_default(),
        age: format_millis(models::millis(first.since)),
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

fn hot_key_rows(seen: &GatewayAdminState) -> (Vec<HotKeyRow>, String) {
    let contention = seen.contention(10);
    let names = seen.key_redaction();
    let all: f64 = contention.hot.iter().map(|key| key.waited_ms).sum();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a hundred; milliseconds"
    )]
    let row = |key: models::HotKeyJson| HotKeyRow {
        share: (key.waited_ms / all.max(0.001) * 100.0).round() as u64,
        waited: format_millis(key.waited_ms as u64),
        link: names.tells_keys_apart().then(|| format!("/locks/{}", encode_path_segment(&key.key))),
        key: key.key,
        requests: key.requests,
        refused: key.refused,
    };
    (contention.hot.into_iter().map(row).collect(), format_millis(contention.over_ms))
}

/// Families of counters, each with a reason for the label `reason` or none, and their meaning for an operator.
const SAFETY: [(&str, Option<RefusalReason>, &str, &str); 5] = [
    ("zk_session_expirations_total", None, "Sessions that ended unasked", "every lock under them was lost"),
    (
        "tenures_lost_total",
        None,
        "Tenures lost before they were given up",
        "their session ended, or somebody removed the node",
    ),
    (
        "guard_refusals_total",
        Some(RefusalReason::Stale),
        "Stale dispatches refused by a guard or a comparing upstream",
        "a newer tenure was before us: the service is whole",
    ),
    (
        "rejections_total",
        Some(RefusalReason::Suspended),
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

fn safety_counters(counted: &MetricSnapshot) -> Vec<CounterRow> {
    let counter = |(family, reason, what, means): (&str, Option<RefusalReason>, &str, &'static str)| {
        let of_reason = reason.map(|reason| ("reason", reason.word()));
        let count = counted.sum(&format!("fencegate_{family}"), of_reason);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a counter")]
        CounterRow { what: what.to_owned(), means, count: count as u64, last: None }
    };
    SAFETY.into_iter().map(counter).collect()
}

fn session_row(session: SessionStatus) -> SessionRow {
    SessionRow {
        number: session.number,
        state: match (session.away, session.connected) {
            (Some(why), _) => format!("away: {why}"),
            (None, true) => "connected".into(),
            (None, false) => "connection lost".into(),
        },
        id: session.id.unwrap_or_else(|| "none".into()),
        proven: if session.proven_for_ms == 0 {
            "not proven".into()
        } else {
            format_millis(session.proven_for_ms)
        },
    }
}

fn member_rows(found: &[RegisteredGateway], ours: &str, fingerprint: u64) -> Vec<MemberRow> {
    let same = format!("{fingerprint:016x}");
    let mut members: BTreeMap<&str, MemberRow> = BTreeMap::new();
    for one in found {
        let plan = one.plan.clone().unwrap_or_default();
        let is_program = one.is_lock_client();
        let member = members.entry(&one.gateway).or_insert_with(|| MemberRow {
            name: one.gateway.clone(),
            sessions: 0,
            version: one.version.clone().unwrap_or_default(),
            differs: plan != same && !is_program,
            plan: if is_program { "none: it names its keys itself".to_owned() } else { plan },
            page: peer_page_url(found, &one.gateway, ours).map(str::to_owned),
        });
        member.sessions += 1;
    }
    members.into_values().collect()
}

/// Operations in doubt, of one key or of all; `None` if ZooKeeper records none.
pub(super) async fn operation_rows(
    seen: &GatewayAdminState,
    plan: &GatewayPlan,
    key: Option<&ResourceKey>,
) -> Option<Result<Vec<UnresolvedOperationRow>, String>> {
    let routes = plan.serving.routes.routes();
    let remembered = routes.iter().filter_map(|route| route.fence.as_ref()?.once.as_ref());
    let names = seen.key_redaction();
    if !remembered.into_iter().any(|once| once.store == IdempotencyStore::ZooKeeper) {
        return None;
    }
    let open = seen.locks.unresolved_operations().await.map_err(|error| error.to_string());
    let meant = |one: &&UnresolvedOperation| key.is_none_or(|key| one.record.keys.contains(key));
    Some(open.map(|open| open.iter().filter(meant).take(ROWS).map(|one| operation_row(one, names)).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An endpoint that fails is reported on the page, as a guard if it is one. An endpoint that answers is not
    /// reported.
    #[test]
    fn failing_endpoint_is_told() {
        let told = |is_guard, state, failures| {
            endpoint_trouble("ledger", is_guard, "127.0.0.1:8081", state, failures)
                .map(|trouble| trouble.text)
        };
        assert_eq!(told(true, "usable", 0), None);
        for (is_guard, state, failures, text) in [
            (
                true,
                "usable",
                3,
                "The guard at 127.0.0.1:8081 (upstream ledger) does not answer: the last 3 requests there failed.",
            ),
            (
                false,
                "usable",
                1,
                "The service at 127.0.0.1:8081 (upstream ledger) does not answer: the last request there failed.",
            ),
            (
                false,
                "unhealthy",
                0,
                "The service at 127.0.0.1:8081 (upstream ledger) is unhealthy, and gets no requests.",
            ),
            (
                true,
                "ejected",
                0,
                "The guard at 127.0.0.1:8081 (upstream ledger) is ejected, and gets no requests.",
            ),
        ] {
            assert_eq!(told(is_guard, state, failures).as_deref(), Some(text));
        }
    }
}
