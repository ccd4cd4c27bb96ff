//! How keys are called where operators see them: as the policy lets its log call them. They may be names of accounts.

use fencegate_policies::{
    key::{ResourceKey, listed},
    pick,
    plan::KeysShown,
};

use super::fault::{Fault, Word};
use crate::lock::{keeper::Keeper, survey::Select};

/// Before the 16 digits of a key that is not to be shown. No key begins with it in a place where both could stand: a
/// key that does is meant only if nothing here has that number.
const MARK: char = '#';

/// What stands for a key that is not to be shown in any way.
const HIDDEN: &str = "(hidden)";

/// How keys are called under the plan in force.
#[derive(Debug, Clone, Copy)]
pub struct Names(pub KeysShown);

impl Names {
    pub fn of(self, key: &ResourceKey) -> String {
        match self.0 {
            KeysShown::Plain => key.to_string(),
            KeysShown::Hash => hashed(key),
            KeysShown::Off => HIDDEN.to_owned(),
        }
    }

    pub fn of_all(self, keys: &[ResourceKey]) -> String {
        match self.0 {
            KeysShown::Plain => listed(keys),
            KeysShown::Hash => keys.iter().map(hashed).collect::<Vec<_>>().join(", "),
            KeysShown::Off => HIDDEN.to_owned(),
        }
    }

    /// Do different keys have different names?
    pub fn is_nameable(self) -> bool {
        self.0 != KeysShown::Off
    }

    /// May what a request asked for be shown? It often names its key.
    pub fn shows_targets(self) -> bool {
        self.0 == KeysShown::Plain
    }

    /// The key that an operator means: by its own name, which whoever knows it may say, or by its number.
    pub fn meant(self, text: &str, keeper: &Keeper) -> Result<ResourceKey, Fault> {
        let numbered = text.strip_prefix(MARK).filter(|digits| digits.len() == DIGITS);
        if numbered.is_some() && self.0 == KeysShown::Hash {
            let all = keeper.survey(Select { limit: usize::MAX, ..Select::default() });
            if let Some(lock) = all.locks.into_iter().find(|lock| hashed(&lock.key) == text) {
                return Ok(lock.key);
            }
        }
        ResourceKey::parse(text).map_err(|bad| Fault::new(Word::Malformed, bad.to_string()))
    }
}

const DIGITS: usize = 16;

/// As in the access log, so that the one is found in the other.
fn hashed(key: &ResourceKey) -> String {
    format!("{MARK}{:016x}", pick::hash(key.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_not_to_be_shown_is_not() {
        let key = ResourceKey::parse("account/secret").expect("a key");
        assert_eq!(Names(KeysShown::Plain).of(&key), "account/secret");
        for shown in [KeysShown::Hash, KeysShown::Off] {
            assert!(!Names(shown).of(&key).contains("secret"));
            assert!(!Names(shown).of_all(&[key.clone(), key.clone()]).contains("secret"));
        }
        assert_eq!(Names(KeysShown::Hash).of(&key), Names(KeysShown::Hash).of(&key));
    }
}
