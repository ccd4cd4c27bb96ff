//! Further facts about the key: its last requests, its leases, its watermark, and links to more.

use std::collections::BTreeSet;

use fencegate_metrics::request_tracker::FinishedRequest;
use fencegate_policies::plan::{FencingLevel, GatewayPlan};
use fencegate_refusal::DispatchOutcome;

use super::key_facts::{KeyFacts, routes_for_key};
use crate::{
    leases::AdminLease,
    models::{encode_path_segment, millis},
    page::{
        layout::{format_millis, format_time},
        peers::peer_page_url,
    },
};

/// A finished request.
pub(super) struct FinishedRequestRow {
    pub(super) at: String,
    pub(super) request: String,
    pub(super) route: String,
    pub(super) status: u16,
    pub(super) outcome: &'static str,
    /// The style class: bad for a row that a reader should notice.
    pub(super) class: &'static str,
    pub(super) why: &'static str,
    pub(super) took: String,
    pub(super) number: String,
}

/// A lease of the key, held or waiting.
pub(super) struct LeaseRow {
    pub(super) reference: String,
    pub(super) principal: String,
    pub(super) note: String,
    pub(super) state: String,
    pub(super) age: String,
    pub(super) expires: String,
    pub(super) revocation: String,
}

pub(super) struct Link {
    pub(super) url: String,
    pub(super) text: String,
}

impl FinishedRequestRow {
    pub(super) fn new(over: &FinishedRequest) -> Self {
        Self {
            at: format_time(over.at),
            request: over.request.as_ref().and_then(|name| name.to_str().ok()).unwrap_or_default().to_owned(),
            route: over.route.to_string(),
            status: over.status,
            outcome: over.outcome.as_str(),
            class: if over.outcome == DispatchOutcome::Unknown { "some" } else { "" },
            why: over.reason.map_or("", |reason| reason.title()),
            took: format_millis(millis(over.took)),
            number: over.token.map(|token| token.number().to_string()).unwrap_or_default(),
        }
    }
}

impl LeaseRow {
    pub(super) fn new(lease: &AdminLease) -> Self {
        Self {
            reference: lease.reference.clone(),
            principal: lease.principal.clone(),
            note: lease.note.clone().unwrap_or_default(),
            state: match (lease.token, lease.ahead) {
                (Some(token), _) => format!("holds with number {}", token.number()),
                (None, Some(ahead)) => format!("waits behind {ahead}"),
                (None, None) => "waits".into(),
            },
            age: format_millis(lease.age_ms),
            expires: format_millis(lease.expires_in_ms),
            revocation: lease.revocation.clone().unwrap_or_else(|| "no".into()),
        }
    }
}

/// The watermark of the key, as far as this gateway can derive it from its own accepted dispatches.
pub(super) fn inferred_watermark_text(known: &KeyFacts, plan: &GatewayPlan) -> Option<String> {
    let (_, _, upstream) = routes_for_key(plan, &known.key)
        .find(|(_, _, upstream)| matches!(upstream.fencing, FencingLevel::Guard | FencingLevel::Upstream))?;
    let who = if upstream.fencing == FencingLevel::Guard { "The guard" } else { "The service" };
    let newest = known
        .finished
        .iter()
        .filter(|over| over.outcome == DispatchOutcome::Done)
        .filter_map(|over| over.token)
        .max();
    Some(match newest {
        Some(token) => format!(
            "{who} before {} has let in token {token} (number {}): its watermark of this key is that or a newer one.",
            upstream.name,
            token.number()
        ),
        None => format!(
            "Of the last requests of this gateway none was let in that would tell the watermark of {}.",
            upstream.name
        ),
    })
}

/// Links to the same key on the pages of other gateways.
pub(super) fn peer_links(known: &KeyFacts, gateway: &str, request: &str) -> Vec<Link> {
    let names: BTreeSet<&str> = known.members.iter().map(|member| &*member.gateway).collect();
    let link = |name: &str| {
        let page = key_page_url(known, name, gateway)?;
        let url = if request.is_empty() {
            page
        } else {
            format!("{page}?request={}", encode_path_segment(request))
        };
        Some(Link { url, text: name.to_owned() })
    };
    names.into_iter().filter_map(link).collect()
}

/// The address of the page of the key at another gateway.
pub(super) fn key_page_url(known: &KeyFacts, name: &str, gateway: &str) -> Option<String> {
    let page = peer_page_url(&known.members, name, gateway)?;
    Some(format!("{page}locks/{}", known.link))
}
