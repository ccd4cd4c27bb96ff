//! The spellings that databases and languages take for one row, as data in `readings/rows.jsonl`, and the keys that
//! a filter makes from the same spellings.

use std::{
    fmt::{self, Write as _},
    fs,
    path::PathBuf,
};

use fencegate_policies::key::{ExtractKeyError, KeyTemplate, ResourceKey};
use serde::{Deserialize, Serialize};

use super::reading::folder;
use crate::path_values::OnePathValue;

/// A value as a request has it: a text, or a whole number of a JSON body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SpelledValue {
    Number(u64),
    Text(String),
}

/// The result of comparing one spelling with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowSpellingMatch {
    /// The spelling is the value of the row.
    Same,
    /// The spelling is the value of another row, or of none.
    Other,
    /// The reader refuses the spelling.
    Refused,
}

/// One row of a column, or one result of a conversion, and spellings of its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowSpellings {
    /// The database, the language or the framework.
    pub reader: String,
    /// The type of the column, or the conversion.
    pub how: String,
    pub row: SpelledValue,
    /// The filter of a key template with which all spellings of the row have one key or are refused. Empty if the
    /// reader takes only one spelling for the row.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub filter: String,
    /// The spellings that the reader takes for the row.
    pub same: Vec<SpelledValue>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other: Vec<SpelledValue>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<SpelledValue>,
}

/// The keys of the spellings that a reader takes for one row.
#[derive(Debug, PartialEq, Eq)]
pub struct SpellingKeys<'r> {
    /// Each key once, in the order of the spellings.
    pub keys: Vec<ResourceKey>,
    /// The spellings that have a key.
    pub accepted: Vec<&'r SpelledValue>,
    /// The spellings that the gateway refuses.
    pub refused: Vec<&'r SpelledValue>,
}

impl RowSpellings {
    /// Reads the stored rows.
    ///
    /// # Panics
    /// If the file is missing or malformed.
    pub fn load() -> Vec<Self> {
        let text = fs::read_to_string(file()).expect("tests/readings");
        let row = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        text.lines().map(row).collect()
    }

    /// Stores rows.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn store(rows: &[Self]) {
        let line = |row| escape_beyond_ascii(&serde_json::to_string(row).expect("JSON")) + "\n";
        fs::write(file(), rows.iter().map(line).collect::<String>()).expect("the repository can be written");
    }

    /// All spellings, in the order in which they are stored.
    pub fn spellings(&self) -> impl Iterator<Item = &SpelledValue> {
        self.same.iter().chain(&self.other).chain(&self.refused)
    }

    /// The same spellings, regrouped by these results of a reader.
    ///
    /// # Panics
    /// If the number of results is not that of the spellings.
    #[must_use]
    pub fn regrouped(&self, results: &[RowSpellingMatch]) -> Self {
        assert_eq!(results.len(), self.spellings().count(), "{} {}", self.reader, self.how);
        let group = |wanted| {
            let with_result = self.spellings().zip(results);
            with_result
                .filter(|(_, result)| **result == wanted)
                .map(|(spelling, _)| spelling.clone())
                .collect()
        };
        Self {
            same: group(RowSpellingMatch::Same),
            other: group(RowSpellingMatch::Other),
            refused: group(RowSpellingMatch::Refused),
            ..self.clone()
        }
    }

    /// The keys that the gateway makes with this filter from the spellings of the row. Empty: no filter.
    ///
    /// # Panics
    /// If the filter does not exist.
    pub fn keys(&self, filter: &str) -> SpellingKeys<'_> {
        let written = if filter.is_empty() { String::new() } else { format!(" | {filter}") };
        let template = format!("{{path.id{written}}}");
        let template = KeyTemplate::parse(&template).unwrap_or_else(|error| panic!("{template}: {error:?}"));
        let mut found = SpellingKeys { keys: Vec::new(), accepted: Vec::new(), refused: Vec::new() };
        for spelling in &self.same {
            match template.expand(&OnePathValue(spelling.to_string())) {
                Ok(key) => {
                    found.accepted.push(spelling);
                    if !found.keys.contains(&key) {
                        found.keys.push(key);
                    }
                }
                Err(ExtractKeyError::Missing { .. } | ExtractKeyError::Invalid { .. }) => {
                    found.refused.push(spelling);
                }
                Err(error) => panic!("{spelling}: {error:?}"),
            }
        }
        found
    }

    /// Checks that the filter is right and needed.
    ///
    /// # Errors
    /// Returns an error if the spellings of the row have two keys with the filter, or have one key without it, so
    /// that the row does not show the need of the filter.
    pub fn check_keys(&self) -> Result<(), String> {
        let told = format!("{} {} {}", self.reader, self.how, self.row);
        if !self.same.contains(&self.row) {
            return Err(format!("{told}: its own spelling is not the row"));
        }
        let with_filter = self.keys(&self.filter).keys;
        if with_filter.len() > 1 {
            return Err(format!("{told}: with `{}` one row has the keys {with_filter:?}", self.filter));
        }
        let without = self.keys("").keys;
        if (without.len() > 1) == self.filter.is_empty() {
            return Err(format!("{told}: without a filter the keys are {without:?}"));
        }
        Ok(())
    }
}

impl SpelledValue {
    /// The value as an SQL literal.
    ///
    /// # Panics
    /// If databases disagree about the escapes in it.
    pub fn to_sql(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => {
                assert!(!text.contains('\\'), "MariaDB takes a backslash for an escape: {text}");
                format!("'{}'", text.replace('\'', "''"))
            }
        }
    }

    /// The value between backticks for a table. A blank becomes `␣`, and other invisible characters become escapes.
    fn to_cell(&self) -> String {
        let mut cell = String::from(if matches!(self, Self::Number(_)) { "the number `" } else { "`" });
        for char in self.to_string().chars() {
            match char {
                ' ' => cell.push('␣'),
                '|' => cell.push_str("\\|"),
                // Letters with accents stay as they are.
                _ if char.is_ascii_graphic() || (char.is_alphabetic() && char < '\u{2000}') => {
                    cell.push(char)
                }
                '\t' | '\n' => cell.extend(char.escape_default()),
                _ => cell.extend(char.escape_unicode()),
            }
        }
        cell + "`"
    }
}

/// The value as the text in a path or a query.
impl fmt::Display for SpelledValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// The table of the reference: the spellings that each reader takes for one row, and the key that is made from them.
pub fn table(rows: &[RowSpellings]) -> String {
    let mut table =
        String::from("| read as | filter | one row, one key | one row, refused |\n|---|---|---|---|\n");
    let cells =
        |values: &[&SpelledValue]| values.iter().map(|value| value.to_cell()).collect::<Vec<_>>().join(", ");
    for row in rows {
        let found = row.keys(&row.filter);
        let filter = match &*row.filter {
            "" => "none".to_owned(),
            filter => format!("`{}`", filter.replace('|', "\\|")),
        };
        let accepted = match &*found.keys {
            [] => "no spelling".to_owned(),
            keys => {
                let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
                format!("{}: {}", keys.join(", "), cells(&found.accepted))
            }
        };
        let RowSpellings { reader, how, .. } = row;
        let refused = cells(&found.refused);
        writeln!(table, "| {reader}: `{how}` | {filter} | {accepted} | {refused} |").expect("a string");
    }
    table
}

/// The same JSON with escapes for characters beyond ASCII, so that every character is visible.
fn escape_beyond_ascii(json: &str) -> String {
    let mut escaped = String::new();
    for char in json.chars() {
        if char.is_ascii() {
            escaped.push(char);
        } else {
            for unit in char.encode_utf16(&mut [0; 2]) {
                write!(escaped, "\\u{unit:04x}").expect("a string");
            }
        }
    }
    escaped
}

fn file() -> PathBuf {
    folder().join("rows.jsonl")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(filter: &str, same: &[&str]) -> RowSpellings {
        let text = |text: &&str| SpelledValue::Text((*text).to_owned());
        RowSpellings {
            reader: "a".into(),
            how: "b".into(),
            row: text(&same[0]),
            filter: filter.into(),
            same: same.iter().map(text).collect(),
            other: vec![SpelledValue::Number(7)],
            refused: Vec::new(),
        }
    }

    /// A row with two keys is reported, and so is a filter that changes nothing.
    #[test]
    fn rows_with_two_keys_are_found() {
        assert_eq!(row("int", &["42", "042", "42x"]).check_keys(), Ok(()));
        assert_eq!(row("", &["42"]).check_keys(), Ok(()));
        for wrong in [row("", &["42", "042"]), row("lower", &["42", "042"]), row("int", &["42"])] {
            assert!(wrong.check_keys().is_err(), "{wrong:?}");
        }
        let mut without_itself = row("int", &["42", "042"]);
        without_itself.row = SpelledValue::Number(43);
        assert!(without_itself.check_keys().is_err());
    }

    /// Each spelling moves to the group of its result.
    #[test]
    fn spellings_move_to_their_groups() {
        let row = row("int", &["42", "042"]);
        let moved =
            row.regrouped(&[RowSpellingMatch::Same, RowSpellingMatch::Refused, RowSpellingMatch::Same]);
        assert_eq!(moved.same, [row.same[0].clone(), SpelledValue::Number(7)]);
        assert_eq!((moved.other.len(), &moved.refused), (0, &vec![row.same[1].clone()]));
    }

    /// Invisible characters become visible in the table and in the file.
    #[test]
    fn invisible_characters_show() {
        let value = SpelledValue::Text(" \u{e9}e\u{301}\u{ad}\u{661}\n|".into());
        assert_eq!(value.to_cell(), "`␣\u{e9}e\\u{301}\\u{ad}\\u{661}\\n\\|`");
        assert_eq!(SpelledValue::Number(42).to_cell(), "the number `42`");
        assert_eq!(escape_beyond_ascii("\"\u{e9}\u{1f600}\""), "\"\\u00e9\\ud83d\\ude00\"");
        let table = table(&[row("int | match('[0-9]{1,3}')", &["42", "042", "42 "])]);
        assert!(
            table.ends_with("| a: `b` | `int \\| match('[0-9]{1,3}')` | `42`: `42`, `042` | `42␣` |\n"),
            "{table}"
        );
    }
}
