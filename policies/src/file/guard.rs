//! Reads the file of a guard: its listener and store, how long it waits, and whose tickets it accepts. A file with
//! `filter` in the place of `store` configures a filter.

use std::time::Duration;

use super::{
    admin, journal, listener,
    listener_conflicts::{self, ConfiguredListener},
    log,
    mapping::MappingReader,
    one_of::exactly_one,
    scalar, store, tickets,
    upstream::{self, GuardUpstream},
    version,
};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    plan::{
        BindAddress, ClientCertificateMode, CommonServingPlan, Enforcement, GuardPlan, GuardStoreLocation,
        JwtSettings, ListenerSettings, MissingFencingTokenPolicy, NotAfterEnforcement, ReservedHeaderNames,
        RouteTable, UnmatchedRequestPolicy, UpstreamId,
    },
};

/// The least `evict_after` without a warning: the default `max_tenure` of a gateway, and some minutes for which
/// other gateways may wait for the key.
const LEAST_MEMORY: Duration = Duration::from_secs(15 * 60);

/// Reads the plan of a guard. `None` if a required part is missing or invalid; this has been reported.
pub(super) fn parse_guard_plan(block: &mut MappingReader) -> Option<GuardPlan> {
    version::version(block);
    let name = block.value("name", scalar::name);
    let written = listener::single_listener(block, "guard");
    // The default port is the one after that of a gateway, so that both can run on one machine.
    let admin = admin::admin(block, 9902);
    if let Some(written) = &written {
        let public = ConfiguredListener::public_listener(block, "listener", &written.listener.address);
        let listeners: Vec<ConfiguredListener> =
            public.into_iter().chain([admin.configured_listener()]).collect();
        listener_conflicts::report_clashes(&listeners, block.faults());
        written.check_max_body_fits_memory(block.faults());
    }
    let upstream = upstream::parse_guard_upstream(block);
    let filter = filter_clock_error(block);
    let store = match filter {
        None => store::store(block),
        Some(_) => Some(GuardStoreLocation::Stateless),
    };
    let times = GuardExecutionTimings::read(block);
    match (filter, &upstream) {
        (Some(_), _) => {
            report_store_fields(block);
            if let Some(written) = &written {
                warn_exposed_filter_listener(block, &written.listener);
            }
        }
        (None, Some(upstream)) => {
            times.warn_early_watermark_eviction(block);
            times.warn_short_execution(block, upstream);
            if let Some(written) = &written {
                let place = upstream.place.unwrap_or_else(|| block.place_of("upstream"));
                written.warn_short_drain([(&upstream.upstream, place)].into_iter(), block.faults());
            }
        }
        (None, None) => times.warn_early_watermark_eviction(block),
    }
    let unfenced = block.values("unfenced", scalar::method);
    let missing = block.keyword("missing", MissingFencingTokenPolicy::WORDS);
    let enforce = block.keyword("enforce", Enforcement::WORDS);
    warn_observing(block, missing, enforce);
    let tickets = if filter.is_none() { tickets::parse_ticket_verification(block) } else { None };
    let expiry = upstream.as_ref().map_or(NotAfterEnforcement::Ignored, |beside| beside.upstream.expiry);
    let journal = journal::journal(block, expiry);
    let log = log::log(block);

    let GuardUpstream { mut upstream, .. } = upstream?;
    upstream.deliver_within = upstream.deliver_within.min(times.send_within);
    let renamed = upstream::gateway_fields(&upstream);
    Some(GuardPlan {
        serving: CommonServingPlan {
            name,
            listener: written?.listener,
            jwt: JwtSettings::default(),
            admin: admin.admin,
            routes: RouteTable::build(Vec::new()),
            unmatched: UnmatchedRequestPolicy::Pass(UpstreamId(0)),
            log,
            fields: ReservedHeaderNames::new(renamed),
            upstreams: vec![upstream],
        },
        store: store?,
        settle: times.settle,
        max_execution: times.max_execution,
        send_within: times.send_within,
        clock_error: filter.unwrap_or(times.clock_error),
        evict_after: times.evict_after,
        unfenced: unfenced.unwrap_or_default(),
        missing: missing.unwrap_or(MissingFencingTokenPolicy::Refuse),
        enforce: enforce.unwrap_or_default(),
        tickets,
        journal: journal?,
    })
}

/// The default clock error, which a machine with synchronised time keeps.
const CLOCK_ERROR: Duration = Duration::from_millis(500);

/// The clock error of a filter; `None` if the file has no `filter`.
fn filter_clock_error(block: &mut MappingReader) -> Option<Duration> {
    if !block.is_present("filter") {
        return None;
    }
    exactly_one(block, &["store", "filter"], "add `filter: {clock_error: 500ms}`");
    let read = |block: &mut MappingReader| block.value("clock_error", scalar::duration);
    Some(block.read_inner("filter", read).flatten().unwrap_or(CLOCK_ERROR))
}

/// Reports fields that have an effect only on a guard with a store.
fn report_store_fields(block: &mut MappingReader) {
    for field in ["settle", "max_execution", "send_within", "evict_after", "clock_error", "journal"] {
        if block.is_present(field) {
            let message = format!("`{field}` has no effect in a filter, which has no store");
            let fault = Diagnostic::new(DiagnosticCode::NoEffect, message);
            block.report(field, fault.with_remedy("leave it out"));
        }
    }
    if block.is_present("tickets") {
        let message =
            "`tickets` has no effect in a filter: the moment of a guard is its own, and no ticket has it";
        let remedy = "leave it out, and let only guards and gateways reach the filter";
        block.report("tickets", Diagnostic::new(DiagnosticCode::NoEffect, message).with_remedy(remedy));
    }
}

/// Warns if a filter listens on the network without requiring client certificates: it trusts the deadline in a
/// request, and every caller that reaches it can write one.
fn warn_exposed_filter_listener(block: &mut MappingReader, listener: &ListenerSettings) {
    let knows = listener
        .tls
        .as_ref()
        .is_some_and(|tls| matches!(tls.client_auth, ClientCertificateMode::Required(_)));
    let is_near = match &listener.address {
        BindAddress::Tcp(address) => address.ip().is_loopback(),
        BindAddress::Unix(_) => true,
    };
    if knows || is_near {
        return;
    }
    let message =
        "a filter believes each `Fencing-Not-After`, and whoever reaches this listener can make one up";
    let remedy = "write an address on loopback or `unix:`, or `tls` with `client_auth: required`";
    block.report("listener", Diagnostic::new(DiagnosticCode::OpenFilter, message).with_remedy(remedy));
}

struct GuardExecutionTimings {
    settle: Duration,
    max_execution: Duration,
    send_within: Duration,
    clock_error: Duration,
    evict_after: Duration,
}

impl GuardExecutionTimings {
    fn read(block: &mut MappingReader) -> Self {
        let evict_after = block.value("evict_after", scalar::keep);
        let clock_error = block.value("clock_error", scalar::duration);
        let mut limit =
            |name, seconds| block.value(name, scalar::time_limit).unwrap_or(Duration::from_secs(seconds));
        Self {
            settle: limit("settle", 10),
            max_execution: limit("max_execution", 30),
            send_within: limit("send_within", 5),
            clock_error: clock_error.unwrap_or(CLOCK_ERROR),
            evict_after: evict_after.unwrap_or(Duration::from_secs(60 * 60)),
        }
    }

    /// Warns if an answer may still arrive when its execution no longer counts as running.
    fn warn_short_execution(
        &self,
        block: &mut MappingReader,
        GuardUpstream { upstream, place }: &GuardUpstream,
    ) {
        if upstream.response_timeout + self.send_within <= self.max_execution {
            return;
        }
        let message = format!(
            "a request may be sent {} after it was admitted and answered {} later, but counts as over after {}",
            scalar::format_duration(self.send_within),
            scalar::format_duration(upstream.response_timeout),
            scalar::format_duration(self.max_execution),
        );
        let fault = Diagnostic::new(DiagnosticCode::ShortExecution, message)
            .with_remedy("make `response_timeout` and `send_within` together no longer than `max_execution`");
        let here = ["max_execution", "send_within"].into_iter().find(|field| block.is_present(field));
        match (place, here) {
            (Some(place), _) => block.report_at(*place, fault),
            (None, here) => block.report(here.unwrap_or("upstream"), fault),
        }
    }

    fn warn_early_watermark_eviction(&self, block: &mut MappingReader) {
        if self.evict_after < LEAST_MEMORY {
            let message = format!(
                "watermarks are forgotten after {}, and a key may be kept and waited for longer than that",
                scalar::format_duration(self.evict_after),
            );
            let remedy =
                "write at least `15m`: more than `max_tenure` and the longest `wait` of all gateways";
            block.report(
                "evict_after",
                Diagnostic::new(DiagnosticCode::EarlyEviction, message).with_remedy(remedy),
            );
        }
    }
}

/// Warns of `observe`, with which a migration begins, so that its end is not forgotten.
fn warn_observing(
    block: &mut MappingReader,
    missing: Option<MissingFencingTokenPolicy>,
    enforce: Option<Enforcement>,
) {
    if missing == Some(MissingFencingTokenPolicy::Observe) {
        let message =
            "requests without a token pass: nothing is promised while requests can go round the gateways";
        let remedy = "write `refuse` once no such requests are counted any more";
        block.report("missing", Diagnostic::new(DiagnosticCode::Observed, message).with_remedy(remedy));
    }
    if enforce == Some(Enforcement::Observe) {
        let message = "stale requests are reported and pass: nothing is promised";
        let remedy = "write `refuse` once nothing is reported any more that should have passed";
        block.report("enforce", Diagnostic::new(DiagnosticCode::Observed, message).with_remedy(remedy));
    }
}
