//! The filters of a template. Each gives one spelling to all values that mean the same resource, or refuses the value.

use std::fmt;

use unicode_normalization::UnicodeNormalization;

use super::{error::ExtractValueError, pattern::ValuePattern, query::CommaPolicy};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplateValueFilter {
    /// Makes ASCII letters lower case. Only ASCII, because Unicode's tables grow, and gateways of two versions must
    /// agree.
    Lower,
    /// Folds the case of all letters, in the composed form, by the tables of Unicode. The version of the tables is part
    /// of the published plan.
    Casefold,
    /// Makes the composed form of Unicode (UAX 15). The version of the tables is part of the published plan.
    Nfc,
    /// Removes spaces from both ends.
    Trim,
    /// Accepts a whole number of at most 39 digits, and removes leading zeros.
    Int,
    /// Accepts a UUID (RFC 9562, section 4), and writes it in lower case with its four hyphens.
    Uuid,
    /// Refuses a value that the pattern does not match as a whole.
    Match(ValuePattern),
    /// Removes one of these suffixes, in upper or lower case of ASCII letters.
    Without(Vec<Box<str>>),
    /// For a list of parameters: one parameter contains several values, with commas between them. Changes no single
    /// value.
    Split,
    /// For a list of parameters: a comma is a part of the value. Changes no value.
    Whole,
}

/// The mistake in a filter of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ParseTemplateFilterError {
    Unknown,
    Malformed(String),
}

impl TemplateValueFilter {
    pub const WORDS: [&str; 10] =
        ["lower", "casefold", "nfc", "trim", "int", "uuid", "match", "without", "split", "whole"];

    /// Reads a filter. `text`: a word, or a word with quoted arguments: `without('.json', '.xml')`.
    pub(super) fn parse(text: &str) -> Result<Self, ParseTemplateFilterError> {
        let (word, arguments) = match text.split_once('(') {
            Some((word, inside)) => (word.trim_end(), Some(parse_arguments(inside)?)),
            None => (text, None),
        };
        let plain = |filter| match arguments {
            None => Ok(filter),
            Some(_) => Err(ParseTemplateFilterError::Malformed(format!("`{word}` takes no arguments"))),
        };
        match word {
            "lower" => plain(Self::Lower),
            "casefold" => plain(Self::Casefold),
            "nfc" => plain(Self::Nfc),
            "trim" => plain(Self::Trim),
            "int" => plain(Self::Int),
            "uuid" => plain(Self::Uuid),
            "whole" => plain(Self::Whole),
            "split" => match arguments.as_deref() {
                Some([separator]) if separator == "," => Ok(Self::Split),
                _ => Err(ParseTemplateFilterError::Malformed(
                    "values are split at commas: `split(',')`".into(),
                )),
            },
            "match" => match arguments.as_deref() {
                Some([pattern]) => {
                    ValuePattern::parse(pattern).map(Self::Match).map_err(ParseTemplateFilterError::Malformed)
                }
                _ => Err(ParseTemplateFilterError::Malformed(
                    "write a pattern in quotes: `match('[a-z0-9-]{1,40}')`".into(),
                )),
            },
            "without" => match arguments {
                Some(suffixes)
                    if !suffixes.is_empty() && suffixes.iter().all(|suffix| !suffix.is_empty()) =>
                {
                    Ok(Self::Without(suffixes.into_iter().map(Into::into).collect()))
                }
                _ => Err(ParseTemplateFilterError::Malformed(
                    "write the suffixes in quotes: `without('.json', '.xml')`".into(),
                )),
            },
            _ => Err(ParseTemplateFilterError::Unknown),
        }
    }

    /// Whether the filter gives one form to all values that mean the same resource to a database, or refuses them.
    pub fn has_canonical_output(&self) -> bool {
        match self {
            Self::Int | Self::Uuid => true,
            Self::Match(pattern) => pattern.is_ascii(),
            Self::Lower | Self::Casefold | Self::Nfc | Self::Trim | Self::Without(_) => false,
            Self::Split | Self::Whole => false,
        }
    }

    pub(super) fn apply(&self, value: String) -> Result<String, ExtractValueError> {
        match self {
            Self::Lower => Ok(value.to_ascii_lowercase()),
            Self::Casefold => Ok(fold_case(&value)),
            Self::Nfc => Ok(value.nfc().collect()),
            Self::Trim => Ok(value.trim_matches(' ').to_owned()),
            Self::Int => whole_number(&value),
            Self::Uuid => uuid(&value),
            Self::Match(_) if value.is_empty() => Err(ExtractValueError::Missing),
            Self::Match(pattern) if pattern.is_match(&value) => Ok(value),
            Self::Match(_) => Err(ExtractValueError::Invalid("does not match the pattern of its key")),
            Self::Without(suffixes) => Ok(without_suffix(value, suffixes)),
            Self::Split | Self::Whole => Ok(value),
        }
    }

    /// The meaning of a comma in a list parameter, if the filter declares it.
    pub(crate) fn commas(&self) -> Option<CommaPolicy> {
        match self {
            Self::Split => Some(CommaPolicy::Split),
            Self::Whole => Some(CommaPolicy::Keep),
            _ => None,
        }
    }

    /// Applies the filter to a text. A text that the filter refuses is returned unchanged.
    pub(crate) fn apply_to_text(&self, text: &str) -> String {
        self.apply(text.to_owned()).unwrap_or_else(|_| text.to_owned())
    }

    /// The filter as the published plan has it: with escaped braces, and with the version of the Unicode tables that
    /// its results depend on.
    pub(super) fn published(&self) -> String {
        let (major, minor, update) = unicode_normalization::UNICODE_VERSION;
        let composed = format!("nfc {major}.{minor}.{update}");
        match self {
            Self::Casefold => {
                let (major, minor, update) = char::UNICODE_VERSION;
                format!("{self} {major}.{minor}.{update} {composed}")
            }
            Self::Nfc => composed,
            _ => self.to_string().replace('%', "%25").replace('{', "%7B").replace('}', "%7D"),
        }
    }
}

/// The arguments between the parentheses. `inside`: the text after the opening parenthesis, with the closing one.
fn parse_arguments(inside: &str) -> Result<Vec<String>, ParseTemplateFilterError> {
    let malformed = || {
        let reason = "arguments stand in quotes, with commas between them: `without('.json', '.xml')`";
        ParseTemplateFilterError::Malformed(reason.into())
    };
    let mut rest = inside.strip_suffix(')').ok_or_else(malformed)?.trim();
    let mut arguments = Vec::new();
    while !rest.is_empty() {
        let (argument, behind) =
            rest.strip_prefix('\'').and_then(|open| open.split_once('\'')).ok_or_else(malformed)?;
        arguments.push(argument.to_owned());
        rest = behind.trim_start();
        if let Some(next) = rest.strip_prefix(',') {
            rest = next.trim_start();
            if rest.is_empty() {
                return Err(malformed());
            }
        } else if !rest.is_empty() {
            return Err(malformed());
        }
    }
    Ok(arguments)
}

/// Gives one form to letters that some case-insensitive reader takes for the same.
///
/// Folds the case twice, because the capital sharp s has another lower case than the upper case of the small one.
/// Composes before, because a letter and its accents come in different orders in some spellings, and the iota below a
/// Greek vowel becomes a letter of its own in upper case. Composes after that, because some capitals are two characters
/// (Unicode 3.13, D145, with NFC instead of NFD).
fn fold_case(value: &str) -> String {
    let lower = value.nfc().flat_map(char::to_lowercase);
    lower.flat_map(char::to_uppercase).flat_map(char::to_lowercase).nfc().collect()
}

/// Removes leading zeros from a whole number. 39 digits are enough for any number of 128 bits.
fn whole_number(value: &str) -> Result<String, ExtractValueError> {
    if value.is_empty() {
        return Err(ExtractValueError::Missing);
    }
    if !value.bytes().all(|byte| byte.is_ascii_digit()) || value.len() > 39 {
        return Err(ExtractValueError::Invalid("is not a whole number of at most 39 digits"));
    }
    let digits = value.trim_start_matches('0');
    Ok(if digits.is_empty() { "0".into() } else { digits.to_owned() })
}

/// Gives one form to all spellings that PostgreSQL and Python's `uuid` take for the same UUID: in upper or lower case,
/// in braces, after `urn:uuid:`, and with or without hyphens after groups of four digits.
fn uuid(value: &str) -> Result<String, ExtractValueError> {
    if value.is_empty() {
        return Err(ExtractValueError::Missing);
    }
    let invalid = || ExtractValueError::Invalid("is not a UUID");
    let lower = value.to_ascii_lowercase();
    let bare = lower.strip_prefix("urn:uuid:").unwrap_or(&lower);
    let bare = match bare.strip_prefix('{') {
        Some(open) => open.strip_suffix('}').ok_or_else(invalid)?,
        None => bare,
    };
    let mut digits = String::with_capacity(36);
    let mut after_hyphen = false;
    for char in bare.chars() {
        match char {
            '0'..='9' | 'a'..='f' if digits.len() < 32 => {
                digits.push(char);
                after_hyphen = false;
            }
            '-' if !after_hyphen && digits.len().is_multiple_of(4) && (1..32).contains(&digits.len()) => {
                after_hyphen = true;
            }
            _ => return Err(invalid()),
        }
    }
    if digits.len() != 32 {
        return Err(invalid());
    }
    for at in [20, 16, 12, 8] {
        digits.insert(at, '-');
    }
    Ok(digits)
}

fn without_suffix(mut value: String, suffixes: &[Box<str>]) -> String {
    let ends = |suffix: &str| {
        let at = value.len().checked_sub(suffix.len());
        at.and_then(|at| value.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(suffix))
    };
    let ending = suffixes.iter().filter(|suffix| ends(suffix));
    if let Some(longest) = ending.map(|suffix| suffix.len()).max() {
        value.truncate(value.len() - longest);
    }
    value
}

impl fmt::Display for TemplateValueFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lower => "lower",
            Self::Casefold => "casefold",
            Self::Nfc => "nfc",
            Self::Trim => "trim",
            Self::Int => "int",
            Self::Uuid => "uuid",
            Self::Split => "split(',')",
            Self::Whole => "whole",
            Self::Match(pattern) => return write!(f, "match('{pattern}')"),
            Self::Without(suffixes) => {
                let quoted: Vec<_> = suffixes.iter().map(|suffix| format!("'{suffix}'")).collect();
                return write!(f, "without({})", quoted.join(", "));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn apply(filter: &str, value: &str) -> Result<String, &'static str> {
        match TemplateValueFilter::parse(filter).expect(filter).apply(value.to_owned()) {
            Ok(value) => Ok(value),
            Err(ExtractValueError::Missing) => Err("missing"),
            Err(ExtractValueError::Invalid(why)) => Err(why),
            Err(ExtractValueError::NoClientName | ExtractValueError::NoToken) => Err("no identity"),
        }
    }

    /// All spellings of a UUID get the same form, and every other value is refused.
    #[test]
    fn uuid_spellings_have_one_form() {
        let one = Ok("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11".to_owned());
        for spelling in [
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
            "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
            "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
            "URN:UUID:a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ] {
            assert_eq!(apply("uuid", spelling), one, "{spelling}");
        }
        for other in [
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a112",
            "a0eebc99--9c0b-4ef8-bb6d-6bb9bd380a11",
            "-a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11-",
            "a0eeb-c99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            "g0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "1-1-1-1-1",
            " a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "\u{ff41}0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ] {
            assert_eq!(apply("uuid", other), Err("is not a UUID"), "{other}");
        }
        assert_eq!(apply("uuid", ""), Err("missing"));
    }

    /// A value passes unchanged if the pattern matches the whole value.
    #[test]
    fn pattern_matches_whole_value() {
        let id = "match('[a-z0-9-]{1,8}')";
        assert_eq!(apply(id, "a-7").as_deref(), Ok("a-7"));
        for other in ["A-7", "a.7", "a-7\n", "\na-7", "a-7-b-8-c-9", "a|7"] {
            assert_eq!(apply(id, other), Err("does not match the pattern of its key"), "{other:?}");
        }
        assert_eq!(apply("match('a|b')", "b").as_deref(), Ok("b"));
        assert!(apply("match('a|b')", "ab").is_err());
        assert!(apply("match('(?m)^a$')", "a\nb").is_err());
        assert_eq!(apply("match('.*')", ""), Err("missing"));
    }

    /// One suffix is removed once, the longest, in upper or lower case.
    #[test]
    fn suffix_is_removed_once() {
        let formats = "without('.json', '.xml', '.v2.json')";
        for (value, wanted) in [
            ("42", "42"),
            ("42.json", "42"),
            ("42.JSON", "42"),
            ("42.xml", "42"),
            ("42.v2.json", "42"),
            ("42.json.json", "42.json"),
            ("42.yaml", "42.yaml"),
            ("42json", "42json"),
            (".json", ""),
            ("\u{e9}", "\u{e9}"),
            ("42.jso\u{e9}", "42.jso\u{e9}"),
        ] {
            assert_eq!(apply(formats, value).as_deref(), Ok(wanted), "{value}");
        }
    }

    /// Letters that differ only in case get the same form.
    #[test]
    fn case_is_folded_for_all_letters() {
        for (one, other) in [
            ("\u{c9}COLE", "\u{e9}cole"),
            ("STRASSE", "stra\u{df}e"),
            ("stra\u{1e9e}e", "stra\u{df}e"),
            ("\u{3a3}", "\u{3c2}"),
            ("\u{212a}ind", "kind"),
            ("\u{17f}ku", "SKU"),
            ("E\u{301}cole", "\u{e9}cole"),
            ("\u{1f0}", "J\u{30c}"),
            ("\u{3b1}\u{345}\u{301}", "\u{1fb4}"),
            ("a\u{323}\u{307}", "A\u{307}\u{323}"),
        ] {
            assert_eq!(apply("casefold", one), apply("casefold", other), "{one} {other}");
        }
        assert_eq!(apply("nfc", "e\u{301}"), apply("nfc", "\u{e9}"));
        assert_ne!(apply("nfc", "\u{c9}"), apply("nfc", "\u{e9}"));
        for char in (0..=0x10_ffff).filter_map(char::from_u32) {
            let folded = fold_case(&char.to_string());
            assert_eq!(fold_case(&folded), folded, "{char:?}");
            assert_eq!(fold_case(&char.to_lowercase().to_string()), folded, "{char:?}");
            assert_eq!(fold_case(&char.to_uppercase().to_string()), folded, "{char:?}");
        }
    }

    /// A malformed filter is refused with a reason.
    #[test]
    fn malformed_filter_is_refused() {
        for text in [
            "int('x')",
            "match",
            "match()",
            "match('a', 'b')",
            "match(a)",
            "match('a'",
            "match('[')",
            "match('a)|(b')",
            "match('\\\\p{Greek}{1,900}{900}')",
            "without",
            "without()",
            "without('')",
            "without('.a',)",
            "without('.a' '.b')",
            "without('.a'.b)",
            "split",
            "split(';')",
            "split(',', ';')",
            "whole('x')",
        ] {
            let refused = TemplateValueFilter::parse(text);
            assert!(matches!(refused, Err(ParseTemplateFilterError::Malformed(_))), "{text}: {refused:?}");
        }
        for text in ["", "upper", "upper('a')", "Int"] {
            assert_eq!(TemplateValueFilter::parse(text), Err(ParseTemplateFilterError::Unknown), "{text}");
        }
        let long = format!("match('{}')", "a".repeat(ValuePattern::LONGEST + 1));
        assert!(matches!(TemplateValueFilter::parse(&long), Err(ParseTemplateFilterError::Malformed(_))));
    }

    proptest! {
        /// A filter does not change its own result.
        #[test]
        fn filter_keeps_own_result(
            value in "\\PC{0,12}|[0-9a-fA-F{}-]{30,40}|[0-9]{1,5}|[a-z]{1,3}\\.(json|JSON)",
            filter in prop::sample::select(vec!["lower", "casefold", "trim", "int", "uuid", "nfc", "match('[^x]*')"]),
        ) {
            if let Ok(once) = apply(filter, &value) {
                prop_assert_eq!(apply(filter, &once), Ok(once));
            }
        }

        /// Letters with accents get the same form from every normalisation and every case.
        #[test]
        fn normalisations_fold_alike(letters in "[\\u{41}-\\u{24f}\\u{386}-\\u{3ce}\\u{1f00}-\\u{1ffc}]{1,4}", accents in "[\\u{300}-\\u{344}]{0,3}") {
            let value = format!("{letters}{accents}");
            let folded = apply("casefold", &value);
            let decomposed: String = value.nfd().collect();
            prop_assert_eq!(&apply("casefold", &decomposed), &folded);
            let composed: String = value.nfc().collect();
            prop_assert_eq!(&apply("casefold", &composed.to_uppercase()), &folded);
        }
    }
}
