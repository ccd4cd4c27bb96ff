//! What somebody reads of one text, and how that is stored.

use std::{collections::BTreeMap, fmt, fs, path::PathBuf};

use serde_json::{Map, Value};

/// What of a request a key is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Path,
    /// Its parameter `account_id`.
    Query,
    /// Its member `id`.
    Body,
}

/// What somebody reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// It is not there.
    Nothing,
    /// More than one text, or something that is none.
    Other,
    /// It cannot be read at all.
    Unreadable,
    Text(Vec<u8>),
}

/// One text, and how each of the others reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub text: String,
    pub readings: BTreeMap<String, Reading>,
}

impl Part {
    pub fn word(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Body => "body",
        }
    }

    /// Of the parameter, or of the member.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Path => "",
            Self::Query => "account_id",
            Self::Body => "id",
        }
    }

    /// What is stored of it.
    ///
    /// # Panics
    /// If it is not there, or not in its form.
    pub fn stored(self) -> Vec<Row> {
        let text = fs::read_to_string(self.file()).expect("tests/readings");
        text.lines().map(|line| Row::parse(line).unwrap_or_else(|| panic!("no row: {line}"))).collect()
    }

    /// # Panics
    /// If it cannot be written.
    pub fn store(self, rows: &[Row]) {
        let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
        fs::write(self.file(), text).expect("the repository can be written");
    }

    fn file(self) -> PathBuf {
        folder().join(format!("{}.jsonl", self.word()))
    }
}

pub(super) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("readings")
}

impl Reading {
    /// The word of a reader.
    pub(super) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "-" => Self::Nothing,
            "*" => Self::Other,
            "!" => Self::Unreadable,
            text => Self::Text(bytes_of(text.strip_prefix('=')?)?),
        })
    }

    /// As it is stored: text that is UTF-8 can be read.
    fn stored(word: &str) -> Option<Self> {
        match word.strip_prefix("text ") {
            Some(text) => Some(Self::Text(text.into())),
            None => Self::parse(word),
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()).collect()
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("-"),
            Self::Other => f.write_str("*"),
            Self::Unreadable => f.write_str("!"),
            Self::Text(bytes) => match str::from_utf8(bytes) {
                Ok(text) => write!(f, "text {text}"),
                Err(_) => write!(f, "={}", hex(bytes)),
            },
        }
    }
}

impl Row {
    fn parse(line: &str) -> Option<Self> {
        let mut members: Map<String, Value> = serde_json::from_str(line).ok()?;
        let Value::String(text) = members.remove("text")? else { return None };
        let readings = members.into_iter().map(|(name, word)| Some((name, Reading::stored(word.as_str()?)?)));
        Some(Self { text, readings: readings.collect::<Option<_>>()? })
    }
}

/// One line, which the next run reads.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{\"text\": {}", Value::from(self.text.as_str()))?;
        for (name, reading) in &self.readings {
            write!(f, ", \"{name}\": {}", Value::from(reading.to_string()))?;
        }
        f.write_str("}")
    }
}
