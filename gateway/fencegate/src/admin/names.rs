//! Which key an operator means, who sees keys as the policy lets its log call them.

use fencegate_lock::tenures::{keeper::Keeper, survey::Select};
use fencegate_policies::{key::ResourceKey, plan::KeysShown};
use fencegate_process::shown::{Names, hashed, is_number};

use super::fault::{Fault, Word};

/// The key that an operator means: by its own name, which whoever knows it may say, or by its number.
///
/// # Errors
/// `changed` for a number that no key here has, or two have: clients choose what keys are called, and who looks for
/// it finds two with one number.
pub fn meant(names: Names, text: &str, keeper: &Keeper) -> Result<ResourceKey, Fault> {
    if names.0 != KeysShown::Hash || !is_number(text) {
        return ResourceKey::parse(text).map_err(|bad| Fault::new(Word::Malformed, bad.to_string()));
    }
    let all = keeper.survey(Select { limit: usize::MAX, ..Select::default() });
    numbered(text, all.locks.into_iter().map(|lock| lock.key))
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

#[cfg(test)]
mod tests {
    use super::*;

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
