//! The commands that this program tells somebody to run. Each works as it is printed, where this process runs: with the
//! file or address that it was itself told to work with. A word in capitals stands for what is not known here; the sentence around
//! it says where it is found.

use std::{ffi::OsStr, sync::OnceLock};

/// Whom a command works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Gateway,
    Guard,
}

/// How this process was told what it works with, if it was. A process is told once, so this is as global as its
/// arguments.
static TOLD: OnceLock<(Of, String)> = OnceLock::new();

/// Remembers what has to be said again: `["-c", "policy.yaml"]`.
pub fn told<W: AsRef<OsStr>>(of: Of, words: impl IntoIterator<Item = W>) {
    let words = words.into_iter().map(|word| quoted(&word.as_ref().to_string_lossy()));
    // Whoever is first was on the command line.
    TOLD.set((of, words.map(|word| format!(" {word}")).collect())).ok();
}

/// `fencegate era init -c policy.yaml`: a verb with what belongs to it, to be run as it stands.
pub fn command(of: Of, verb: &str) -> String {
    let told = TOLD.get().filter(|(told, _)| *told == of).map_or("", |(_, words)| words);
    format!("fencegate {verb}{told}")
}

/// One word for a shell.
pub fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+=,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_one_word_to_a_shell() {
        for (word, quoted_as) in [
            ("account/7", "account/7"),
            ("sku/%E8%8B", "sku/%E8%8B"),
            ("a b", "'a b'"),
            ("a;rm", "'a;rm'"),
            ("it's", r"'it'\''s'"),
            ("#0123", "'#0123'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), quoted_as);
        }
    }
}
