//! Reads a file into a plan, or reports all its mistakes at once.

mod access;
mod admin;
mod balancing;
mod bind;
mod body_conditions;
mod bypass;
mod conditions;
mod conflicts;
mod cors;
mod delay;
mod delay_conflicts;
mod diagnostics;
mod environment;
mod fence;
mod field_recorder;
mod former_lock;
mod gateway;
mod guard;
mod hints;
mod hold;
mod hold_conflicts;
mod holders;
mod identities;
mod journal;
mod jwt;
mod key;
mod kind;
mod large_bodies;
mod layout;
mod layout_conflicts;
mod lease_use;
mod leased_routes;
mod leases;
mod listener;
mod listener_conflicts;
mod lists;
mod log;
mod mapping;
mod nested;
mod once;
mod one_of;
mod only;
mod peer_forwarding;
mod peer_listener;
mod permit_conflicts;
mod principals;
mod probe;
mod route;
mod scalar;
mod served_tls;
mod shape_hints;
mod socket_path;
mod source_map;
mod store;
mod suffixes;
mod tickets;
mod tls;
mod unreachable_routes;
mod upstream;
mod version;
mod yaml;
mod zookeeper;

#[cfg(test)]
mod tests;

use self::{
    diagnostics::{Diagnostics, FoundDiagnostics},
    kind::reject_other_kind,
    mapping::MappingReader,
};
pub use self::{environment::Environment, kind::PolicyProcessKind, source_map::FieldLocator};
use crate::{
    diagnostics::{Diagnostic, Severity, SourceSpan},
    plan::{GatewayPlan, GuardPlan},
};

/// The result of reading a file.
#[derive(Debug, Clone)]
pub struct LoadedPolicy<P> {
    /// The plan; `Some` if and only if no diagnostic is an error.
    pub plan: Option<P>,
    /// Errors and warnings, sorted by place.
    pub diagnostics: Vec<Diagnostic>,
    /// Hints, sorted by place.
    pub hints: Vec<Diagnostic>,
    /// The place at which the file configures traces. Not every build can send them, so the caller has to check this.
    pub traces: Option<SourceSpan>,
}

/// Reads the policy of a gateway, with an environment that has no variables. Never panics, whatever the text.
pub fn load(text: &str) -> LoadedPolicy<GatewayPlan> {
    load_with_environment(text, &|_| None)
}

/// Reads the file of a guard, with an environment that has no variables. Never panics, whatever the text.
pub fn load_guard(text: &str) -> LoadedPolicy<GuardPlan> {
    load_guard_with_environment(text, &|_| None)
}

/// Like [`load`], with `environment` for the variables `${NAME}` in the file.
pub fn load_with_environment(text: &str, environment: &Environment) -> LoadedPolicy<GatewayPlan> {
    read(text, environment, PolicyProcessKind::Gateway, "the policy", gateway::parse_gateway_plan)
}

/// Like [`load_guard`], with `environment` for the variables `${NAME}` in the file.
pub fn load_guard_with_environment(text: &str, environment: &Environment) -> LoadedPolicy<GuardPlan> {
    read(text, environment, PolicyProcessKind::Guard, "the guard's file", guard::parse_guard_plan)
}

/// Determines by the fields of a file for which process it is meant.
pub fn detect_file_kind(text: &str) -> PolicyProcessKind {
    yaml::parse(text, &|_| None, &Diagnostics::default())
        .map_or(PolicyProcessKind::Gateway, |root| kind::detect(&root))
}

fn read<P>(
    text: &str,
    environment: &Environment,
    kind: PolicyProcessKind,
    what: &str,
    read: impl FnOnce(&mut MappingReader) -> Option<P>,
) -> LoadedPolicy<P> {
    let faults = Diagnostics::default();
    let start = SourceSpan { line: 1, column: 1, width: 1 };
    let plan = yaml::parse(text, environment, &faults)
        .filter(|root| reject_other_kind(root, kind, &faults))
        .and_then(|root| MappingReader::read(Some(&root), what, start, &faults, read)?);
    let FoundDiagnostics { faults, hints, traces } = faults.into_found();
    let sound = faults.iter().all(|diagnostic| diagnostic.severity != Severity::Error);
    LoadedPolicy { plan: plan.filter(|_| sound), diagnostics: faults, hints, traces }
}
