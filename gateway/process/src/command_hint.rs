//! The commands that messages suggest. Each works as printed on the machine of this process, because it has the file or
//! address from this process's own arguments. A word in capitals stands for a value that the process does not have; the
//! text around the command explains where to find it.

use std::{ffi::OsStr, sync::OnceLock};

/// The kind of process that a command works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandHintTarget {
    Gateway,
    Guard,
}

/// The arguments that name the file or address of this process, if it has any. This is global, as the arguments of a
/// process are.
static TOLD: OnceLock<(CommandHintTarget, String)> = OnceLock::new();

/// Stores the arguments that name the file or address of this process, such as `["-c", "policy.yaml"]`.
pub fn set_command_arguments<W: AsRef<OsStr>>(of: CommandHintTarget, words: impl IntoIterator<Item = W>) {
    let words = words.into_iter().map(|word| shell_quote(&word.as_ref().to_string_lossy()));
    // Only the first call counts, which comes from the command line.
    TOLD.set((of, words.map(|word| format!(" {word}")).collect())).ok();
}

/// A command that can be run as printed, such as `fencegate era init -c policy.yaml`.
pub fn command_line(of: CommandHintTarget, verb: &str) -> String {
    let told = TOLD.get().filter(|(told, _)| *told == of).map_or("", |(_, words)| words);
    format!("fencegate {verb}{told}")
}

/// Quotes a text, so that a shell reads it as one word.
pub fn shell_quote(word: &str) -> String {
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
    fn quoted_word_is_one_shell_word() {
        for (word, quoted_as) in [
            ("account/7", "account/7"),
            ("sku/%E8%8B", "sku/%E8%8B"),
            ("a b", "'a b'"),
            ("a;rm", "'a;rm'"),
            ("it's", r"'it'\''s'"),
            ("#0123", "'#0123'"),
            ("", "''"),
        ] {
            assert_eq!(shell_quote(word), quoted_as);
        }
    }
}
