//! How keys are called where operators see them: as the policy lets its log call them. They may be names of accounts.

use fencegate_policies::{
    key::{ResourceKey, listed},
    pick,
    plan::KeysShown,
};

use super::fault::{Fault, Word};
use crate::lock::{keeper::Keeper, survey::Select};

/// Before the 16 digits of a key that is not to be shown. A key that itself reads so is asked for by its number only.
const MARK: char = '#';

/// What stands for a key that is not to be shown in any way.
pub const HIDDEN: &str = "(hidden)";

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

    pub fn of_each(self, keys: &[ResourceKey]) -> Vec<String> {
        keys.iter().map(|key| self.of(key)).collect()
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
    ///
    /// # Errors
    /// `changed` for a number that no key here has, or two have: clients choose what keys are called, and who looks for
    /// it finds two with one number.
    pub fn meant(self, text: &str, keeper: &Keeper) -> Result<ResourceKey, Fault> {
        if self.0 != KeysShown::Hash || !is_number(text) {
            return ResourceKey::parse(text).map_err(|bad| Fault::new(Word::Malformed, bad.to_string()));
        }
        let all = keeper.survey(Select { limit: usize::MAX, ..Select::default() });
        numbered(text, all.locks.into_iter().map(|lock| lock.key))
    }
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(MARK).unwrap_or_default().as_bytes();
    digits.len() == DIGITS && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// The only one of `keys` with that number.
fn numbered(number: &str, keys: impl Iterator<Item = ResourceKey>) -> Result<ResourceKey, Fault> {
    let changed = |said| Fault::new(Word::Changed, said);
    let mut keys = keys.filter(|key| hashed(key) == number);
    let only = keys.next().ok_or_else(|| changed("no key here has that number any more; look again"))?;
    match keys.next() {
        None => Ok(only),
        Some(_) => Err(changed("two keys here have that number; say the key itself")),
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

    #[test]
    fn a_number_means_one_key_or_none() {
        let key = |text| ResourceKey::parse(text).expect("a key");
        let number = hashed(&key("a"));
        assert!(is_number(&number) && !is_number("#0123456789abcdeg") && !is_number("0123456789abcdef"));
        let meant = |keys: &[&'static str]| numbered(&number, keys.iter().map(|text| key(text)));
        assert_eq!(meant(&["b", "a"]).expect("it is there"), key("a"));
        for keys in [&["b"][..], &["a", "a"]] {
            assert_eq!(meant(keys).map_err(|fault| fault.word), Err(Word::Changed), "{keys:?}");
        }
    }
}
