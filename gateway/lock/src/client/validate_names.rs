//! Checks the names from a program: its keys, and the path of a node that it shares with other programs.

use fencegate_policies::{
    key::ResourceKey,
    plan::{ForeignLockLayout, LockLocation},
};

use super::error::LockClientError;

pub(super) fn parse_keys<'k>(
    keys: impl IntoIterator<Item = &'k str>,
) -> Result<Vec<ResourceKey>, LockClientError> {
    let parse = |key| {
        ResourceKey::parse_user_input(key).map_err(|error| LockClientError::Key(format!("`{key}`: {error}")))
    };
    let mut keys = keys.into_iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    keys.sort();
    keys.dedup();
    if keys.is_empty() {
        let most = ResourceKey::MOST_IN_SET;
        return Err(LockClientError::Key(format!("no key: 1 to {most} can be asked for at once")));
    }
    ResourceKey::check_set_size(keys.iter().map(ResourceKey::as_str))
        .map_err(|bad| LockClientError::Key(bad.to_string()))?;
    Ok(keys)
}

/// The site of a node that is shared with other programs. `root`: the root of the installation.
pub(super) fn parse_exclusive_node(path: &str, root: &str) -> Result<LockLocation, LockClientError> {
    match is_path_outside_root(path, root) {
        true => Ok(LockLocation::Foreign { layout: ForeignLockLayout::ExclusiveNode, path: path.into() }),
        false => Err(LockClientError::Key(format!(
            "`{path}`: a node that is shared with other programs has a path like `/app/locks/7`, not below the root"
        ))),
    }
}

/// Whether ZooKeeper accepts this path, and it lies outside of `root` and of ZooKeeper's own nodes.
fn is_path_outside_root(path: &str, root: &str) -> bool {
    let plain = |name: &str| !matches!(name, "" | "." | "..") && !name.contains(char::is_control);
    let below =
        |above: &str| path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let above = root.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
    path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(plain))
        && !below(root)
        && !below("/zookeeper")
        && !above
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shared node is accepted only as a valid path outside the root, its ancestors and ZooKeeper's own nodes.
    #[test]
    fn shared_node_lies_outside_root() {
        for path in ["/app", "/app/locks/7", "/billing-app/7", "/app/billing"] {
            assert!(parse_exclusive_node(path, "/billing").is_ok(), "{path}");
        }
        for path in [
            "",
            "/",
            "app",
            "/app/",
            "//app",
            "/app/../x",
            "/a\u{7}",
            "/billing",
            "/billing/locks/7",
            "/zookeeper/x",
        ] {
            assert!(parse_exclusive_node(path, "/billing").is_err(), "{path}");
        }
        assert!(
            parse_exclusive_node("/apps", "/apps/billing").is_err(),
            "an ephemeral node has nothing below it"
        );
    }
}
