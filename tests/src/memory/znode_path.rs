//! Refuses invalid paths in the client, as its library does.

use fencegate_zookeeper::session::client::{NodeCreateMode, ZkError};

use super::request::{OwnedMultiOp, ServerRequest};

/// Checks the paths of a request.
///
/// # Errors
/// Returns [`ZkError::Refused`], and nothing is sent, if a path is invalid.
pub(super) fn check(request: &ServerRequest) -> Result<(), ZkError> {
    match request {
        ServerRequest::Create { path, kind, .. } => check_create(path, *kind),
        ServerRequest::Delete { path } => check_delete(path),
        ServerRequest::Children { path, .. }
        | ServerRequest::Seen { path }
        | ServerRequest::Data { path, .. }
        | ServerRequest::Sync { path }
        | ServerRequest::Ephemerals { prefix: path } => check_znode_path(path),
        ServerRequest::ChildrenOf { paths } => paths.iter().try_for_each(|path| check_znode_path(path)),
        ServerRequest::Commit { steps } => steps.iter().try_for_each(|step| match step {
            OwnedMultiOp::Check { path, .. } | OwnedMultiOp::Set { path, .. } => check_znode_path(path),
            OwnedMultiOp::Create { path, kind, .. } => check_create(path, *kind),
            OwnedMultiOp::Delete { path, .. } => check_delete(path),
        }),
        ServerRequest::Ping | ServerRequest::Close => Ok(()),
    }
}

/// Checks the path of a create. The name of a sequential node may be empty before its number.
fn check_create(path: &str, kind: NodeCreateMode) -> Result<(), ZkError> {
    match kind {
        NodeCreateMode::EphemeralSequential => {
            check_znode_path(path.strip_suffix('/').filter(|p| !p.is_empty()).unwrap_or(path))
        }
        NodeCreateMode::Persistent | NodeCreateMode::Container | NodeCreateMode::Ephemeral => {
            check_znode_path(path)
        }
    }
}

fn check_delete(path: &str) -> Result<(), ZkError> {
    if path == "/" {
        return Err(ZkError::Refused("the root cannot be deleted".to_owned()));
    }
    check_znode_path(path)
}

fn check_znode_path(path: &str) -> Result<(), ZkError> {
    let refused = |why: &str| Err(ZkError::Refused(format!("{path:?} {why}")));
    let Some(segments) = path.strip_prefix('/') else { return refused("does not begin with a slash") };
    if path.chars().any(is_unsupported) {
        return refused("has an unsupported character");
    }
    if !segments.is_empty() && segments.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        return refused("has an empty or relative segment");
    }
    Ok(())
}

/// True for characters in the ranges that ZooKeeper's documentation excludes. Surrogates cannot occur in a `char`.
fn is_unsupported(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}')
}
