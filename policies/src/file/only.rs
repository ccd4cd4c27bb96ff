//! Reads `only`: the most items of a list from which keys are made. Each item has to be in a key, because the service
//! would process any other item without a lock.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
};

use super::{mapping::MappingReader, scalar};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    key::{JsonPointer, KeyTemplate, PointerStep, TemplateValueSource, TemplateVariable, format_steps},
};

const FIELD: &str = "only";

/// A list, and the place of a value in each of its items: the names before the index, and those after it.
type JsonListLocation<'t> = (&'t [PointerStep], &'t [PointerStep]);

pub(super) fn parse_max_list_items(fence: &mut MappingReader) -> Option<usize> {
    fence.value(FIELD, scalar::limit)
}

/// The diagnostic for a variable that names single items of a list whose length is not limited. `what`: the name of
/// the template in messages.
pub(super) fn partial_list_fault(
    what: impl Display,
    variable: &TemplateVariable,
    only: Option<usize>,
) -> Option<Diagnostic> {
    if let TemplateValueSource::Query(name) | TemplateValueSource::Form(name) = &variable.source
        && is_item(name)
    {
        let message =
            format!("{what} names one of several parameters, and a request may have more than are named");
        let remedy = "let requests name one resource each, or take all of them: `{query.sku[]*}`, `{body:/items/*/sku}`";
        return Some(Diagnostic::new(DiagnosticCode::PartOfList, message).with_remedy(remedy));
    }
    let pointer = variable.pointer()?;
    if let Some(name) = pointer.foreign_wildcard() {
        let message = format!("{what} names a member that is called `{name}`, not each item of a list");
        let remedy = format!(
            "write `*` for each item of a list, `{{body:/items/*/sku}}`; a member with such a name stands in quotes: `/\"{name}\"`"
        );
        return Some(Diagnostic::new(DiagnosticCode::PartOfList, message).with_remedy(remedy));
    }
    let last = pointer.items().map(|item| item.index).max().filter(|_| only.is_none())?;
    let message =
        format!("{what} names item {last} of a list, and a list may have more items than are named");
    let remedy = format!(
        "write `*` for each item, or say how many there may be, and name each of them: `only: {}`",
        last.saturating_add(1)
    );
    Some(Diagnostic::new(DiagnosticCode::PartOfList, message).with_remedy(remedy))
}

/// Whether a parameter name is that of a list item: true for `sku[]` and `sku[0]`, false for `order[id]`.
fn is_item(parameter: &str) -> bool {
    let member = |part: &str| part.trim_end_matches(']').bytes().all(|byte| byte.is_ascii_digit());
    parameter.split('[').skip(1).any(member)
}

/// Reports items of a list that no template names. Each of `groups`: the keys of one lock, or the template of one
/// name.
pub(super) fn check_unnamed_items(fence: &mut MappingReader, only: Option<usize>, groups: &[&[KeyTemplate]]) {
    let Some(only) = only else { return };
    let mut lists = 0;
    for ((list, rest), indexes) in groups.iter().copied().flat_map(indexes_by_list) {
        lists += 1;
        let item = |index: usize| format!("{{body:{}/{index}{}}}", format_steps(list), format_steps(rest));
        let (message, remedy) = if let Some(beyond) = indexes.range(only..).next() {
            let message = format!("`only: {only}` leaves no room for `{}`", item(*beyond));
            (message, format!("write `only: {}`", beyond.saturating_add(1)))
        } else if let Some(missing) = (0..only).find(|index| !indexes.contains(index)) {
            let message =
                format!("`only: {only}` lets a list have an item that is not named: `{}`", item(missing));
            (message, "name it as well: a key is made of each item that a list may have".into())
        } else {
            continue;
        };
        fence.report(FIELD, Diagnostic::new(DiagnosticCode::PartOfList, message).with_remedy(remedy));
    }
    if lists == 0 {
        let message = "`only` has no effect where no key is made of an item of a list";
        let remedy = "leave it out, or name the items: `{body:/items/0/sku}`";
        fence.report(FIELD, Diagnostic::new(DiagnosticCode::NoEffect, message).with_remedy(remedy));
    }
}

fn indexes_by_list(group: &[KeyTemplate]) -> BTreeMap<JsonListLocation<'_>, BTreeSet<usize>> {
    let mut named: BTreeMap<JsonListLocation<'_>, BTreeSet<usize>> = BTreeMap::new();
    for item in group.iter().flat_map(KeyTemplate::pointers).flat_map(JsonPointer::items) {
        named.entry((item.list, item.rest)).or_default().insert(item.index);
    }
    named
}
