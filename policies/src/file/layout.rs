//! Reads the layout and path of a fence's locks, and refuses fields that locks of other programs do not
//! support.

use super::{
    diagnostics::Diagnostics,
    key::{self, TemplateContext, TemplateKind},
    mapping::MappingReader,
    yaml::YamlScalar,
};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode, SourceSpan},
    key::{
        GlobRelation, KeyTemplate, LockPathErrorKind, LockPathTemplate, ParseKeyTemplateError,
        ParseLockPathError, TemplateGlob,
    },
    plan::{ForeignLockLayout, LockLayout, LockModeRule, LockPlacement},
};

/// The fields of the layout that are read before the keys.
pub(super) struct PartialLockLayout<'n> {
    /// The layout; `None` if the word in the file is not a layout.
    layout: Option<LockLayout>,
    path: Option<&'n YamlScalar>,
}

impl<'n> PartialLockLayout<'n> {
    pub(super) fn read(fence: &mut MappingReader<'n>) -> Self {
        let written = fence.keyword("layout", &LockLayout::WORDS);
        let layout = if fence.is_present("layout") { written } else { Some(LockLayout::Native) };
        Self { layout, path: fence.scalar("lock_path") }
    }

    pub(super) fn foreign_layout(&self) -> Option<ForeignLockLayout> {
        match self.layout {
            Some(LockLayout::Foreign(layout)) => Some(layout),
            Some(LockLayout::Native) | None => None,
        }
    }

    /// The placement of the fence's locks; `None` if a field is invalid. A set of keys is refused for a
    /// foreign layout.
    pub(super) fn placement(
        &self,
        fence: &mut MappingReader,
        naming: &TemplateContext,
        keys: Option<&[KeyTemplate]>,
    ) -> Option<LockPlacement> {
        if let (Some(layout), Some(field)) = (self.foreign_layout(), multi_key_field(fence, keys)) {
            let message = format!("a set of keys cannot be taken with `layout: {}`", layout.as_str());
            let fault = Diagnostic::new(DiagnosticCode::NotInLayout, message);
            let remedy = "write one `key`: a program that takes such locks one after the other could wait for the set, \
                          and the set for it";
            fence.report(field, fault.with_remedy(remedy));
            return None;
        }
        self.single_placement(fence, naming, keys)
    }

    /// The placement of the lock of one key; `None` if a field is invalid.
    pub(super) fn single_placement(
        &self,
        fence: &mut MappingReader,
        naming: &TemplateContext,
        keys: Option<&[KeyTemplate]>,
    ) -> Option<LockPlacement> {
        let Some(layout) = self.foreign_layout() else {
            self.check_native(fence);
            return self.layout.map(|_| LockPlacement::Native);
        };
        let Some(path) = self.path else {
            if !fence.is_present("lock_path") {
                let message = format!("`layout: {}` does not say where the locks are", layout.as_str());
                let fault = Diagnostic::new(DiagnosticCode::MissingField, message);
                fence.report("layout", fault.with_remedy("add `lock_path: \"/app/locks/{path.id}\"`"));
            }
            return None;
        };
        let [key] = keys? else { return None };
        if key.has_list() {
            let message = format!("a set of keys cannot be taken with `layout: {}`", layout.as_str());
            let fault = Diagnostic::new(DiagnosticCode::NotInLayout, message);
            fence.report("key", fault.with_remedy("name one resource, or leave `layout` out"));
            return None;
        }
        match LockPathTemplate::parse(&path.text, key) {
            Ok(path) => Some(LockPlacement::Foreign { layout, path }),
            Err(bad) => {
                fence.faults().push(malformed_diagnostic(naming, path, bad));
                None
            }
        }
    }

    fn check_native(&self, fence: &mut MappingReader) {
        if self.path.is_some() && self.layout.is_some() {
            let message = "`lock_path` has no effect without a `layout`: native locks lie below the root";
            let remedy = "leave it out, or write which programs have locks there: `layout: curator-mutex`";
            fence.report("lock_path", Diagnostic::new(DiagnosticCode::NoEffect, message).with_remedy(remedy));
        }
    }
}

/// The field by which a request may have several keys, if there is one.
fn multi_key_field(fence: &mut MappingReader, keys: Option<&[KeyTemplate]>) -> Option<&'static str> {
    if fence.is_present("keys") {
        return Some("keys");
    }
    keys.unwrap_or_default().iter().any(|key| key.has_list()).then_some("key")
}

fn malformed_diagnostic(naming: &TemplateContext, path: &YamlScalar, bad: ParseLockPathError) -> Diagnostic {
    let route = naming.route;
    let place = path.part(bad.span.clone());
    match bad.why {
        LockPathErrorKind::Template(why) => {
            let naming = TemplateContext { what: TemplateKind::LockPath, ..*naming };
            key::malformed_diagnostic(&naming, path, ParseKeyTemplateError { span: bad.span, why })
        }
        LockPathErrorKind::Path(why) => {
            Diagnostic::new(DiagnosticCode::BadLockPath, format!("the lock path of {route} {why}"))
                .at(place)
                .with_remedy("write a path such as `/app/locks/{path.id}`")
        }
        LockPathErrorKind::NotInKey(name) => {
            let message = format!(
                "the lock path of {route} uses `{{{name}}}`, which its key does not, or not in this form: one key \
                 could have two locks"
            );
            let remedy = "put the same variable into `key`, with no filter that it does not have here";
            Diagnostic::new(DiagnosticCode::LoosePath, message).at(place).with_remedy(remedy)
        }
    }
}

/// Reports a shared mode that the layout does not support.
pub(super) fn check_shared_mode(
    fence: &mut MappingReader,
    layout: Option<ForeignLockLayout>,
    mode: LockModeRule,
) {
    let Some(layout) = layout.filter(|_| mode.has_shared_requests()) else { return };
    let field = if fence.is_present("mode") { "mode" } else { "layout" };
    if !layout.has_shared_mode() {
        let message = format!("`mode: {}` does not exist with `layout: {}`", mode.as_str(), layout.as_str());
        let remedy = match layout {
            ForeignLockLayout::CuratorMutex => {
                "write `mode: exclusive`; readers hold together with Curator's read/write lock, `layout: curator-rw`"
            }
            _ => "write `mode: exclusive`: every contender for the node excludes every other",
        };
        fence.report(field, Diagnostic::new(DiagnosticCode::NotInLayout, message).with_remedy(remedy));
    } else if layout == ForeignLockLayout::Kazoo {
        let message = "a program with a kazoo `Lock` does not wait for those who share the key here";
        let remedy =
            "write `mode: exclusive`, unless every other program takes a `WriteLock` or a `ReadLock` there";
        fence.report(field, Diagnostic::new(DiagnosticCode::ReadersOvertaken, message).with_remedy(remedy));
    }
}

/// Reports lock paths at which the gateways or ZooKeeper keep their own nodes.
pub(super) fn check_reserved_paths<'r>(
    root: &str,
    fences: impl Iterator<Item = (&'r str, &'r LockPlacement, SourceSpan)>,
    faults: &Diagnostics,
) {
    for (route, placing, place) in fences {
        let LockPlacement::Foreign { path, .. } = placing else { continue };
        for (owner, what) in
            [(root, "the gateways keep their own nodes"), ("/zookeeper", "ZooKeeper keeps its own")]
        {
            if path.glob().relation_to(&TemplateGlob::literal(owner)) != GlobRelation::Disjoint {
                let message = format!("the lock path of route `{route}` can lie at `{owner}`, where {what}");
                let remedy =
                    "write a path whose first names are others, or give the installation another `root`";
                faults
                    .push(Diagnostic::new(DiagnosticCode::PathTaken, message).at(place).with_remedy(remedy));
            }
        }
    }
}
