//! The reading of one text by one program, and its stored form.

use std::{collections::BTreeMap, fmt, fs, path::PathBuf};

use serde_json::{Map, Value};

/// The part of a request from which a key is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestPart {
    /// The whole path.
    Path,
    /// The query parameter `account_id`.
    Query,
    /// The member `id` of a JSON body.
    Body,
    /// A GraphQL document, whose readings are the kinds of its operations.
    Graphql,
}

/// The value that a program reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParserReading {
    /// The value is missing.
    Nothing,
    /// There are several values, or the value is not a text.
    Other,
    /// The program refuses the whole text.
    Unreadable,
    Text(Vec<u8>),
}

/// One text, and the reading of each program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParserReadingRow {
    pub text: String,
    pub readings: BTreeMap<String, ParserReading>,
}

impl RequestPart {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Body => "body",
            Self::Graphql => "graphql",
        }
    }

    /// The name of the parameter or of the member; empty for a path and a document.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Path | Self::Graphql => "",
            Self::Query => "account_id",
            Self::Body => "id",
        }
    }

    /// Reads the stored rows of this part.
    ///
    /// # Panics
    /// If the file is missing or malformed.
    pub fn load(self) -> Vec<ParserReadingRow> {
        let text = fs::read_to_string(self.file()).expect("tests/readings");
        text.lines()
            .map(|line| ParserReadingRow::parse(line).unwrap_or_else(|| panic!("no row: {line}")))
            .collect()
    }

    /// Stores rows of this part.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn store(self, rows: &[ParserReadingRow]) {
        let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
        fs::write(self.file(), text).expect("the repository can be written");
    }

    fn file(self) -> PathBuf {
        folder().join(format!("{}.jsonl", self.as_str()))
    }
}

pub(super) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("readings")
}

impl ParserReading {
    /// Parses a reading as a reader program prints it.
    pub(super) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "-" => Self::Nothing,
            "*" => Self::Other,
            "!" => Self::Unreadable,
            text => Self::Text(parse_hex(text.strip_prefix('=')?)?),
        })
    }

    /// Parses a stored reading. A text in UTF-8 is stored as it is, other bytes in hexadecimal digits.
    fn parse_stored(word: &str) -> Option<Self> {
        match word.strip_prefix("text ") {
            Some(text) => Some(Self::Text(text.into())),
            None => Self::parse(word),
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn parse_hex(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()).collect()
}

impl fmt::Display for ParserReading {
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

impl ParserReadingRow {
    fn parse(line: &str) -> Option<Self> {
        let mut members: Map<String, Value> = serde_json::from_str(line).ok()?;
        let Value::String(text) = members.remove("text")? else { return None };
        let readings = members
            .into_iter()
            .map(|(name, word)| Some((name, ParserReading::parse_stored(word.as_str()?)?)));
        Some(Self { text, readings: readings.collect::<Option<_>>()? })
    }
}

/// The stored line of a row, which a later run parses.
impl fmt::Display for ParserReadingRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{\"text\": {}", Value::from(self.text.as_str()))?;
        for (name, reading) in &self.readings {
            write!(f, ", \"{name}\": {}", Value::from(reading.to_string()))?;
        }
        f.write_str("}")
    }
}
