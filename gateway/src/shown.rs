//! How keys are called in the log of the process: as the policy in force lets its log call them, for they may be names of
//! accounts. Every line of the log that has to do with a key takes its name from here.

use std::sync::atomic::{AtomicU8, Ordering};

use fencegate_policies::{key::ResourceKey, plan::KeysShown};

use crate::admin::names::{HIDDEN, Names};

/// There is one log in a process, and so one rule.
static RULE: AtomicU8 = AtomicU8::new(PLAIN);

const PLAIN: u8 = 0;
const HASH: u8 = 1;
const OFF: u8 = 2;

/// From now on.
pub fn keys_are(shown: KeysShown) {
    let rule = match shown {
        KeysShown::Plain => PLAIN,
        KeysShown::Hash => HASH,
        KeysShown::Off => OFF,
    };
    RULE.store(rule, Ordering::Relaxed);
}

fn names() -> Names {
    Names(match RULE.load(Ordering::Relaxed) {
        PLAIN => KeysShown::Plain,
        HASH => KeysShown::Hash,
        _ => KeysShown::Off,
    })
}

pub fn key(key: &ResourceKey) -> String {
    names().of(key)
}

pub fn keys(keys: &[ResourceKey]) -> String {
    names().of_all(keys)
}

/// A lock node or its parent, whose name is the key's.
pub fn path(path: &str) -> String {
    named(path, names())
}

fn named(path: &str, names: Names) -> String {
    const LOCKS: &str = "/locks/";
    let below = path.find(LOCKS).map(|at| path.split_at(at + LOCKS.len()));
    match below {
        Some((root, below)) if !names.shows_targets() => {
            // `<shard>/<key>/<node>`.
            let node = below.splitn(3, '/').nth(2).map(|node| format!("/{node}"));
            format!("{root}{HIDDEN}{}", node.unwrap_or_default())
        }
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_lock_tells_its_key_only_where_keys_are_told() {
        let node = "/fencegate/locks/5c/account%2F7/0f-w-0000000001";
        for (rule, path, shown) in [
            (KeysShown::Plain, node, node),
            (KeysShown::Hash, node, "/fencegate/locks/(hidden)/0f-w-0000000001"),
            (KeysShown::Off, "/fencegate/locks/5c/account%2F7", "/fencegate/locks/(hidden)"),
            (KeysShown::Off, "/fencegate/meta", "/fencegate/meta"),
        ] {
            assert_eq!(named(path, Names(rule)), shown);
        }
    }
}
