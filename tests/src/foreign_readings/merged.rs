//! The readings of services for one name that occurs in several sources of a request: of real programs, by their
//! documentation, and as data in `readings/sources.jsonl`.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::reading::folder;
use crate::client::TestRequest;

/// One request for the resource 42, from which its key is made, and the value that each reader takes for `id`: `=`
/// and a text, `-` for nothing, `*` for more than one text, `!` if the request is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignParserReadings {
    /// The method and the target.
    pub request: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie: Option<String>,
    /// True if the name has only one value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passes: bool,
    /// The reading of each reader, by the reader's name.
    #[serde(flatten)]
    pub readings: BTreeMap<String, String>,
}

impl ForeignParserReadings {
    /// Reads the stored rows.
    ///
    /// # Panics
    /// If the file is missing or malformed.
    pub fn load() -> Vec<Self> {
        let text = fs::read_to_string(file()).expect("tests/readings");
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|bad| panic!("{line}: {bad}")))
            .collect()
    }

    /// Stores rows.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn store(rows: &[Self]) {
        let line = |row| serde_json::to_string(row).expect("JSON") + "\n";
        fs::write(file(), rows.iter().map(line).collect::<String>()).expect("the repository can be written");
    }

    /// The request of this row.
    ///
    /// # Panics
    /// If the method is unknown.
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
            // A Ruby server requires a length on a request without a body.
            None => ask.field("content-length", "0"),
        }
    }

    /// True if some reader takes another resource than the one that is locked.
    pub fn is_ambiguous(&self) -> bool {
        self.readings.values().any(|reading| is_ambiguous_reading(reading))
    }
}

/// True for a reading that may mean another resource than 42. Spring joins the values of one name with commas.
pub fn is_ambiguous_reading(reading: &str) -> bool {
    match reading.strip_prefix('=') {
        Some(values) => values.split(',').any(|value| value != "42"),
        None => !["-", "!"].contains(&reading),
    }
}

/// The folder of the services that read the requests.
pub fn services() -> PathBuf {
    folder().join("services")
}

fn file() -> PathBuf {
    folder().join("sources.jsonl")
}
