//! The names of keys in the log. The policy sets how keys are shown, because they may name accounts. Every log line
//! about a key takes the name of the key from here.

use std::{
    fmt,
    sync::{
        Arc, LazyLock, PoisonError, RwLock,
        atomic::{AtomicU8, Ordering},
    },
};

use aws_lc_rs::hmac;

use fencegate_policies::{
    key::{ResourceKey, join_keys},
    plan::KeyVisibility,
};

use crate::randomness::{Randomness as _, SystemRandomness};

/// Precedes the 16 digits of the hash of a key that must not be shown. A key that itself looks like such a hash can be
/// looked up only by its own hash.
const MARK: char = '#';

/// Stands for a key of which not even a hash may be shown.
pub const HIDDEN: &str = "(hidden)";

/// Makes the names of keys by the rule of one plan.
#[derive(Debug, Clone, Copy)]
pub struct KeyRedaction(pub KeyVisibility);

impl KeyRedaction {
    pub fn display(self, key: &ResourceKey) -> String {
        match self.0 {
            KeyVisibility::Plain => key.to_string(),
            KeyVisibility::Hash => hash_key(key),
            KeyVisibility::Off => HIDDEN.to_owned(),
        }
    }

    pub fn display_each(self, keys: &[ResourceKey]) -> Vec<String> {
        keys.iter().map(|key| self.display(key)).collect()
    }

    pub fn display_list(self, keys: &[ResourceKey]) -> String {
        match self.0 {
            KeyVisibility::Plain => join_keys(keys),
            KeyVisibility::Hash => keys.iter().map(hash_key).collect::<Vec<_>>().join(", "),
            KeyVisibility::Off => HIDDEN.to_owned(),
        }
    }

    /// Whether different keys have different names.
    pub fn tells_keys_apart(self) -> bool {
        self.0 != KeyVisibility::Off
    }

    /// Whether the targets of requests may be shown. They often contain the key.
    pub fn shows_targets(self) -> bool {
        self.0 == KeyVisibility::Plain
    }
}

/// Whether this text looks like the hash of a key.
pub fn is_key_hash(text: &str) -> bool {
    let digits = text.strip_prefix(MARK).unwrap_or_default().as_bytes();
    digits.len() == DIGITS && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

const DIGITS: usize = 16;

/// The hash of a key under the secret of this process.
pub fn hash_key(key: &ResourceKey) -> String {
    format!("{MARK}{}", hash_digits(key.as_str()))
}

/// The digits of a hash, as the access log and spans show them for a key or a list of keys.
pub fn hash_digits(text: &str) -> String {
    SECRET
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .unwrap_or(&OWN)
        .hash_digits_with_secret(text)
}

/// The secret of key hashes. Without it nobody can find a key by trying all possible keys. Processes with the same
/// secret have the same hashes.
#[derive(Clone)]
pub struct KeyHashSecret(Arc<hmac::Key>);

impl KeyHashSecret {
    pub fn new(secret: &[u8]) -> Self {
        Self(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, secret)))
    }

    /// The first 64 bits of HMAC-SHA-256: enough to tell the keys of an installation apart.
    pub fn hash_digits_with_secret(&self, text: &str) -> String {
        let tag = hmac::sign(&self.0, text.as_bytes());
        tag.as_ref().iter().take(DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Hides the secret.
impl fmt::Debug for KeyHashSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySecret")
    }
}

/// The secret that the policy configures.
static SECRET: RwLock<Option<KeyHashSecret>> = RwLock::new(None);

/// The secret of this process if the policy configures none.
static OWN: LazyLock<KeyHashSecret> = LazyLock::new(|| {
    let mut secret = [0; 32];
    SystemRandomness.fill(&mut secret);
    KeyHashSecret::new(&secret)
});

/// The rule of this process. A process has one log, and so one rule.
static RULE: AtomicU8 = AtomicU8::new(PLAIN);

const PLAIN: u8 = 0;
const HASH: u8 = 1;
const OFF: u8 = 2;

/// Sets the rule from now on, and the secret for hashes. If `secret` is `None`, the secret of this process is used.
pub fn set_key_redaction(shown: KeyVisibility, secret: Option<KeyHashSecret>) {
    *SECRET.write().unwrap_or_else(PoisonError::into_inner) = secret;
    let rule = match shown {
        KeyVisibility::Plain => PLAIN,
        KeyVisibility::Hash => HASH,
        KeyVisibility::Off => OFF,
    };
    RULE.store(rule, Ordering::Relaxed);
}

fn current_redaction() -> KeyRedaction {
    KeyRedaction(match RULE.load(Ordering::Relaxed) {
        PLAIN => KeyVisibility::Plain,
        HASH => KeyVisibility::Hash,
        _ => KeyVisibility::Off,
    })
}

pub fn redact_key(key: &ResourceKey) -> String {
    current_redaction().display(key)
}

pub fn redact_keys(keys: &[ResourceKey]) -> String {
    current_redaction().display_list(keys)
}

/// The path of a lock node or its parent, with the key as the rule shows it. `locks`: the folder of all locks.
pub fn redact_lock_node_path(locks: &str, path: &str) -> String {
    redact_lock_node_path_with(locks, path, current_redaction())
}

/// The path of a lock node or its parent among the nodes of other programs, hidden unless the rule shows targets.
pub fn redact_foreign_znode_path(path: &str) -> String {
    if current_redaction().shows_targets() { path.to_owned() } else { HIDDEN.to_owned() }
}

/// Finds the key in a path by the known folder before it. A search for the word `locks` would be wrong, because root
/// and key may have any name.
fn redact_lock_node_path_with(locks: &str, path: &str, names: KeyRedaction) -> String {
    let below = path.strip_prefix(locks).and_then(|below| below.strip_prefix('/'));
    match below {
        Some(below) if !names.shows_targets() => {
            // The part below has the form `<shard>/<key>/<node>`.
            let node = below.splitn(3, '/').nth(2).map(|node| format!("/{node}"));
            format!("{locks}/{HIDDEN}{}", node.unwrap_or_default())
        }
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When keys are hashed or off, the text of a key appears in no form of it; equal keys have equal hashes.
    #[test]
    fn redacted_key_never_shows_text() {
        let key = ResourceKey::parse("account/secret").expect("a key");
        assert_eq!(KeyRedaction(KeyVisibility::Plain).display(&key), "account/secret");
        for shown in [KeyVisibility::Hash, KeyVisibility::Off] {
            assert!(!KeyRedaction(shown).display(&key).contains("secret"));
            assert!(!KeyRedaction(shown).display_list(&[key.clone(), key.clone()]).contains("secret"));
        }
        assert_eq!(
            KeyRedaction(KeyVisibility::Hash).display(&key),
            KeyRedaction(KeyVisibility::Hash).display(&key)
        );
    }

    /// The hash is a truncated HMAC-SHA-256, as in RFC 4231, test case 2.
    #[test]
    fn hash_is_truncated_hmac() {
        let secret = KeyHashSecret::new(b"Jefe");
        assert_eq!(secret.hash_digits_with_secret("what do ya want for nothing?"), "5bdcc146bf60754e");
        assert!(!format!("{secret:?}").contains("Jefe"));
    }

    /// The path of a lock node contains its key only where keys are shown in plain text.
    #[test]
    fn lock_path_redacts_hidden_key() {
        let node = "/fencegate/locks/5c/account%2F7/0f-w-0000000001";
        let plain = "/fencegate/locks";
        let within = "/apps/locks/fencegate/locks";
        let top = "/locks";
        for (rule, locks, path, shown) in [
            (KeyVisibility::Plain, plain, node, node),
            (KeyVisibility::Hash, plain, node, "/fencegate/locks/(hidden)/0f-w-0000000001"),
            (KeyVisibility::Off, plain, "/fencegate/locks/5c/account%2F7", "/fencegate/locks/(hidden)"),
            (KeyVisibility::Off, plain, "/fencegate/meta", "/fencegate/meta"),
            (
                KeyVisibility::Off,
                plain,
                "/fencegate/locks/5c/locks/0f-w-1",
                "/fencegate/locks/(hidden)/0f-w-1",
            ),
            (KeyVisibility::Off, within, "/apps/locks/fencegate/meta", "/apps/locks/fencegate/meta"),
            (
                KeyVisibility::Off,
                within,
                "/apps/locks/fencegate/locks/5c/account%2F7/0f-w-1",
                "/apps/locks/fencegate/locks/(hidden)/0f-w-1",
            ),
            (
                KeyVisibility::Hash,
                within,
                "/apps/locks/fencegate/locks/5c/locks",
                "/apps/locks/fencegate/locks/(hidden)",
            ),
            (KeyVisibility::Off, top, "/locks/5c/account%2F7/0f-w-1", "/locks/(hidden)/0f-w-1"),
        ] {
            assert_eq!(redact_lock_node_path_with(locks, path, KeyRedaction(rule)), shown);
        }
    }
}
