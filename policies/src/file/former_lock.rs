//! Reads the lock from which a fence is migrated. Requests of the fence take both locks, so they wait for every
//! holder of the former lock.

use super::{
    key::{self, TemplateContext},
    layout::PartialLockLayout,
    mapping::MappingReader,
};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    key::{GlobRelation, KeyTemplate},
    plan::{ForeignLockLayout, FormerLock, LockLayout, LockPlacement},
};

const FIELD: &str = "migrate_from";

/// Reads `migrate_from`: `Some(None)` if the fence is not migrated; `None` if the field is invalid.
pub(super) fn parse_former(
    fence: &mut MappingReader,
    naming: &TemplateContext,
) -> Option<Option<FormerLock>> {
    if !fence.is_present(FIELD) {
        return Some(None);
    }
    if !fence.is_mapping(FIELD) {
        let key = key::key_field(fence, FIELD, naming)?;
        return Some(Some(FormerLock { key, placing: LockPlacement::Native }));
    }
    let read = fence.read_inner(FIELD, |block| {
        let layout = PartialLockLayout::read(block);
        block.require("key", "key: \"order/{path.order_id}\"");
        let key = key::key_field(block, "key", naming);
        let placing = layout.single_placement(block, naming, key.as_ref().map(std::slice::from_ref));
        Some(FormerLock { key: key?, placing: placing? })
    });
    read.flatten().map(Some)
}

/// Reports a former lock that cannot be taken together with the lock of the fence.
pub(super) fn check_former_lock(
    fence: &mut MappingReader,
    former: &FormerLock,
    keys: &[KeyTemplate],
    placing: &LockPlacement,
) {
    let same = |key: &KeyTemplate| key.to_string() == former.key.to_string();
    if keys.iter().any(same) && *placing == former.placing {
        let message = "the lock is migrated to itself: its key and its place are those of the fence";
        let remedy = "leave `migrate_from` out, or write the key of the gateways that were not changed yet";
        fence.report(FIELD, Diagnostic::new(DiagnosticCode::MigratesNothing, message).with_remedy(remedy));
        return;
    }
    if [placing, &former.placing]
        .into_iter()
        .any(|one| one.layout() == LockLayout::Foreign(ForeignLockLayout::ExclusiveNode))
    {
        let message = "an `exclusive-node` lock cannot be taken together with another lock";
        let remedy = "stop the programs that take it, and change all gateways meanwhile: whoever finds the node there makes \
                      nothing, so the two would not be made in one transaction";
        fence.report(FIELD, Diagnostic::new(DiagnosticCode::NotMigrated, message).with_remedy(remedy));
    }
    if placing.permits().is_some() {
        let message = "a lock cannot be migrated to one that several hold at once: both are taken in one transaction, as a set";
        let remedy = "leave `migrate_from` out, and give all gateways the new file while no request runs";
        fence.report(FIELD, Diagnostic::new(DiagnosticCode::NotWithPermits, message).with_remedy(remedy));
    }
    let native = *placing == LockPlacement::Native && former.placing == LockPlacement::Native;
    let confused = |key: &KeyTemplate| key.glob().relation_to(&former.key.glob()) != GlobRelation::Disjoint;
    if !native && keys.iter().any(confused) {
        let message = "one key can be both that of the fence and the one that it is migrated from, and has two places then";
        let remedy = "give the new lock a key with another first word: `orders/` beside `order/`";
        fence.report(FIELD, Diagnostic::new(DiagnosticCode::NotMigrated, message).with_remedy(remedy));
    }
}
