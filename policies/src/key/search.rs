//! Searches unparsed bytes for a name, in every spelling that some reader takes for it.

use std::{collections::VecDeque, iter};

use super::form;

/// Whether `word` occurs anywhere in `body`, plain or percent-encoded, in upper or lower case. `word`: in lower case.
pub(super) fn contains_word(body: &[u8], word: &str) -> bool {
    contains_literal_word(body, word)
        || body.contains(&b'%') && contains_literal_word(&form::decode_leniently(body), word)
}

fn contains_literal_word(body: &[u8], word: &str) -> bool {
    let length = word.chars().count();
    let mut last = VecDeque::with_capacity(length + 1);
    length == 0
        || fold_case(body).any(|character| {
            last.push_back(character);
            if last.len() > length {
                last.pop_front();
            }
            last.iter().copied().eq(word.chars())
        })
}

/// Whether an XML document may have an element or attribute with this name. `word`: in lower case, without separators.
pub(super) fn contains_xml_name(body: &[u8], word: &str) -> bool {
    let mut name = String::new();
    for character in fold_case(body).chain(iter::once(' ')) {
        match character {
            '_' | '-' | '.' => {}
            // One character more than `word` is kept, which is enough to see that a longer name is different.
            _ if character.is_alphanumeric() && name.len() <= word.len() => name.push(character),
            _ if character.is_alphanumeric() => {}
            _ if name == word => return true,
            _ => name.clear(),
        }
    }
    false
}

/// The characters of `body` with case folded. Bytes that are not UTF-8 are left out, as some readers do.
fn fold_case(body: &[u8]) -> impl Iterator<Item = char> {
    let characters = body.utf8_chunks().flat_map(|chunk| chunk.valid().chars());
    characters.flat_map(char::to_uppercase).flat_map(char::to_lowercase)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn word_is_found_in_any_spelling() {
        for body in ["id", "xID", "i%64", "%49d", "iid", "x\u{131}id"] {
            assert!(contains_word(body.as_bytes(), "id"), "{body}");
        }
        assert!(
            contains_word(b"i\xffd", "id")
                && contains_word("\u{212a}e\u{17f}".as_bytes(), "kes")
                && contains_word(b"", "")
        );
        for body in ["", "i", "di", "i d", "i%zzd", "i%%64"] {
            assert!(!contains_word(body.as_bytes(), "id"), "{body}");
        }
    }

    #[test]
    fn xml_name_is_found_only_whole() {
        for body in ["<id/>", "<a:ID>", "<a i-d='1'", "id", "<_Id_>", "a.b id"] {
            assert!(contains_xml_name(body.as_bytes(), "id"), "{body}");
        }
        for body in ["", "<ids/>", "<width/>", "<aid/>", "<i d/>", "<account_id/>"] {
            assert!(!contains_xml_name(body.as_bytes(), "id"), "{body}");
        }
    }

    proptest! {
        #[test]
        fn word_is_found_at_any_position(
            before in prop::collection::vec(any::<u8>(), 0..40),
            behind in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            prop_assert!(contains_word(&[&before[..], b"aab", &behind].concat(), "aab"));
            prop_assert!(contains_xml_name(&[&before[..], b"<aab/>", &behind].concat(), "aab"));
        }
    }
}
