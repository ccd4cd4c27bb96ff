//! How services read one name that stands in several sources of a request: as real programs, as their documentation
//! says, and as data in `readings/sources.jsonl`.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::reading::folder;
use crate::client::TestRequest;

/// One request for the resource 42, which its key is made of, and what each reader takes for `id`: `=` and a text, `-`
/// for nothing, `*` for more than one text, `!` where the request is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignParserReadings {
    /// Method and target.
    pub request: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie: Option<String>,
    /// There is one value of the name only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passes: bool,
    /// By the name of the reader.
    #[serde(flatten)]
    pub readings: BTreeMap<String, String>,
}

impl ForeignParserReadings {
    /// # Panics
    /// If the file is missing or malformed.
    pub fn load() -> Vec<Self> {
        let text = fs::read_to_string(file()).expect("tests/readings");
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|bad| panic!("{line}: {bad}")))
            .collect()
    }

    /// # Panics
    /// If it cannot be written.
    pub fn store(rows: &[Self]) {
        let line = |row| serde_json::to_string(row).expect("JSON") + "\n";
        fs::write(file(), rows.iter().map(line).collect::<String>()).expect("the repository can be written");
    }

    /// # Panics
    /// If the row has no method that is known.
    pub fn ask(&self) -> TestRequest {
        let (method, target) = self.request.split_once(' ').expect("a method and a target");
        let known = ["POST", "PUT", "DELETE"].into_iter().find(|known| *known == method);
        let mut ask = TestRequest::with_method(known.expect("a method"), target);
        for (name, value) in [("content-type", &self.kind), ("cookie", &self.cookie)] {
            if let Some(value) = value {
                ask = ask.field(name, value);
            }
        }
        match &self.body {
            Some(body) => ask.body(body.clone()),
            // A server of Ruby wants a length.
            None => ask.field("content-length", "0"),
        }
    }

    /// True if some reader takes another resource than the one that is locked.
    pub fn is_ambiguous(&self) -> bool {
        self.readings.values().any(|reading| is_ambiguous_reading(reading))
    }
}

/// True for a reading that may be of another resource than 42. Spring joins the values of one name with commas.
pub fn is_ambiguous_reading(reading: &str) -> bool {
    match reading.strip_prefix('=') {
        Some(values) => values.split(',').any(|value| value != "42"),
        None => !["-", "!"].contains(&reading),
    }
}

/// The folder with the services.
pub fn services() -> PathBuf {
    folder().join("services")
}

fn file() -> PathBuf {
    folder().join("sources.jsonl")
}
