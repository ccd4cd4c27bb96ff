//! Reads how a guard keeps the operations that happen at most once.

use super::{mapping::MappingReader, once::final_status, probe, scalar};
use crate::{
    diagnostics::Diagnostic,
    plan::{IdempotencyJournalSettings, IdempotencyRule, NotAfterEnforcement},
};

/// Reads the journal; `None` if the probe is invalid, which has been reported.
pub(super) fn journal(
    guard: &mut MappingReader,
    expiry: NotAfterEnforcement,
) -> Option<IdempotencyJournalSettings> {
    guard.read_inner("journal", |block| {
        let keep = block.value("keep", scalar::keep);
        let max_body = block.value("store_body", parse_stored_body_limit);
        let most = block.value("max_size", scalar::size);
        let final_statuses = block.values("final", final_status);
        let has_probe = block.is_present("probe");
        let probe = block
            .read_inner("probe", |block| has_probe.then(|| probe::probe(block, expiry)).flatten())
            .flatten();
        (has_probe == probe.is_some()).then(|| IdempotencyJournalSettings {
            keep: keep.unwrap_or(IdempotencyRule::KEEP),
            max_body: max_body.unwrap_or(64 << 10),
            most: most.map_or(1 << 30, |most| u64::try_from(most).unwrap_or(u64::MAX)),
            final_statuses: final_statuses.unwrap_or_default(),
            probe,
        })
    })?
}

/// Reads the largest response body, in bytes, that is stored.
fn parse_stored_body_limit(text: &str) -> Result<usize, Diagnostic> {
    if text == "none" { Ok(0) } else { scalar::size(text) }
}
