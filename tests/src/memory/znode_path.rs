//! Refuses what cannot be a path, in the client, as its library does.

use fencegate_lock::session::link::{Fault, Kind};

use super::request::{OwnedStep, Request};

/// # Errors
/// [`Fault::Refused`]: nothing was sent.
pub(super) fn check(request: &Request) -> Result<(), Fault> {
    match request {
        Request::Create { path, kind, .. } => created(path, *kind),
        Request::Delete { path } => deleted(path),
        Request::Children { path, .. }
        | Request::Seen { path }
        | Request::Data { path, .. }
        | Request::Sync { path }
        | Request::Ephemerals { prefix: path } => plain(path),
        Request::ChildrenOf { paths } => paths.iter().try_for_each(|path| plain(path)),
        Request::Commit { steps } => steps.iter().try_for_each(|step| match step {
            OwnedStep::Check { path, .. } | OwnedStep::Set { path, .. } => plain(path),
            OwnedStep::Create { path, kind, .. } => created(path, *kind),
            OwnedStep::Delete { path, .. } => deleted(path),
        }),
        Request::Ping | Request::Close => Ok(()),
    }
}

/// The name of a sequential node may be its number alone.
fn created(path: &str, kind: Kind) -> Result<(), Fault> {
    match kind {
        Kind::EphemeralSequential => plain(path.strip_suffix('/').filter(|p| !p.is_empty()).unwrap_or(path)),
        Kind::Persistent | Kind::Container | Kind::Ephemeral => plain(path),
    }
}

fn deleted(path: &str) -> Result<(), Fault> {
    if path == "/" {
        return Err(Fault::Refused("the root cannot be deleted".to_owned()));
    }
    plain(path)
}

fn plain(path: &str) -> Result<(), Fault> {
    let refused = |why: &str| Err(Fault::Refused(format!("{path:?} {why}")));
    let Some(segments) = path.strip_prefix('/') else { return refused("does not begin with a slash") };
    if path.chars().any(is_unsupported) {
        return refused("has an unsupported character");
    }
    if !segments.is_empty() && segments.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        return refused("has an empty or relative segment");
    }
    Ok(())
}

/// The ranges that ZooKeeper's documentation names; surrogates cannot occur here.
fn is_unsupported(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}')
}
