//! Reads the leases that clients may hold: for how long, how many, and by which principals.

use std::time::Duration;

use super::{mapping::MappingReader, principals, scalar};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    plan::{LeaseGrantSettings, ListenerSettings},
};

/// The leases of a file.
#[derive(Debug)]
pub(super) enum ParsedLeases {
    Absent,
    /// The file has `leases` with a mistake that has been reported.
    Invalid,
    Leases(LeaseGrantSettings),
}

impl ParsedLeases {
    pub(super) fn into_leases(self) -> Option<LeaseGrantSettings> {
        match self {
            Self::Absent | Self::Invalid => None,
            Self::Leases(leases) => Some(leases),
        }
    }
}

/// Reads `leases`. `listener`: the listener to which clients connect, if it could be read.
pub(super) fn leases(file: &mut MappingReader, listener: Option<&ListenerSettings>) -> ParsedLeases {
    // If the section is absent, no mistake in its parts must be reported.
    if !file.is_present("leases") {
        return ParsedLeases::Absent;
    }
    let read = file.read_inner("leases", |block| {
        let ttl = LeaseTtlBounds::read(block);
        let max_age = block.value("max_age", scalar::keep).unwrap_or(LeaseGrantSettings::MAX_AGE);
        check_order(block, "max_ttl", ttl.max, "max_age", max_age, "no lease gets that old");
        let max_wait = block.value("max_wait", scalar::duration).unwrap_or(LeaseGrantSettings::MAX_WAIT);
        let most = block.value("most", scalar::limit).unwrap_or(LeaseGrantSettings::MOST);
        let per_principal = block.value("per_principal", scalar::limit);
        let principals = principals::principals(block);
        principals::check_credentials(block, principals.as_deref().unwrap_or_default(), listener);
        Some(LeaseGrantSettings {
            min_ttl: ttl.min,
            max_ttl: ttl.max,
            default_ttl: ttl.usual,
            max_wait,
            max_age,
            most,
            per_principal: per_principal.unwrap_or(LeaseGrantSettings::PER_PRINCIPAL.min(most)),
            principals: principals?.into_iter().map(|written| written.principal).collect(),
        })
    });
    read.flatten().map_or(ParsedLeases::Invalid, ParsedLeases::Leases)
}

/// The bounds and the default for the time to live of a lease.
struct LeaseTtlBounds {
    min: Duration,
    usual: Duration,
    max: Duration,
}

impl LeaseTtlBounds {
    fn read(block: &mut MappingReader) -> Self {
        let min = block.value("min_ttl", scalar::time_limit).unwrap_or(LeaseGrantSettings::MIN_TTL);
        let max = block.value("max_ttl", scalar::time_limit).unwrap_or(LeaseGrantSettings::MAX_TTL);
        let usual = block.value("default_ttl", scalar::time_limit);
        check_order(block, "min_ttl", min, "max_ttl", max, "no lease can be asked for");
        if let Some(usual) = usual {
            let consequence = "a client that asks for no time would get one that is not allowed";
            check_order(block, "min_ttl", min, "default_ttl", usual, consequence);
            check_order(block, "default_ttl", usual, "max_ttl", max, consequence);
        }
        // If the bounds are in the wrong order, this was reported above; the value only has to be some
        // duration.
        let within = |ttl: Duration| ttl.min(max).max(min);
        Self { min, usual: usual.unwrap_or_else(|| within(LeaseGrantSettings::TTL)), max }
    }
}

/// Reports two durations in the wrong order, at the one that the file sets.
fn check_order(
    block: &mut MappingReader,
    less: &'static str,
    shorter: Duration,
    more: &'static str,
    longer: Duration,
    consequence: &str,
) {
    if shorter <= longer {
        return;
    }
    let message = format!(
        "`{less}` is {}, and `{more}` {}: {consequence}",
        scalar::format_duration(shorter),
        scalar::format_duration(longer)
    );
    let field = if block.is_present(less) { less } else { more };
    let remedy = "`min_ttl`, `default_ttl`, `max_ttl` and `max_age` come in this order, each at least as long as the one \
                  before; without them they are `2s`, `15s`, `60s` and `24h`";
    block.report(field, Diagnostic::new(DiagnosticCode::LeaseTimes, message).with_remedy(remedy));
}
