//! Counts the effects of a key, as the service itself shows them.

use std::{fs, path::PathBuf};

use regex::Regex;
use serde_json::Value;

use super::{
    connection::ServiceResponse,
    template::{RequestTemplate, RequestTemplateValues},
};

/// The source in which effects can be seen.
#[derive(Debug, Clone)]
pub enum EffectSource {
    /// No source: only the answers of the service are visible.
    Answers,
    /// The answer to this request.
    Observe { ask: RequestTemplate, pick: EffectSelector },
    /// A file with a line per effect, which contains the key.
    File(PathBuf),
}

/// The part of an answer that shows effects.
#[derive(Debug, Clone)]
pub enum EffectSelector {
    /// The whole answer. It shows whether there was an effect, but not how many there were.
    Whole,
    /// The value at a JSON pointer. A number changes by the same amount with each effect.
    Pointer(String),
    /// The number of matches of this expression. Placeholders of the template are filled in first.
    Count(String),
}

/// The reading at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedEffectValue {
    /// The service does not have the key yet.
    Nothing,
    /// A level, such as a balance, in millionths.
    Level(i128),
    Count(i128),
    Text(String),
}

/// The change of the level by one effect, learned from accepted requests that came one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectCalibration {
    unit: i128,
    /// The level before the first effect.
    origin: i128,
}

/// The change between two readings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectReadingDiff {
    Effects(i128),
    /// At least one effect.
    AtLeastOne,
    /// No number of effects explains the change.
    Inconsistent(String),
}

impl EffectSource {
    pub(crate) fn is_observable(&self) -> bool {
        !matches!(self, Self::Answers)
    }
}

impl EffectSelector {
    /// Counts the matches of this expression.
    ///
    /// # Errors
    /// Returns an error if the expression is malformed.
    pub fn count(expression: &str) -> Result<Self, regex::Error> {
        Regex::new(&RequestTemplateValues { key: "k", other: "o", operation: "" }.fill(expression))?;
        Ok(Self::Count(expression.to_owned()))
    }

    /// Reads the effects from an answer.
    ///
    /// # Errors
    /// Returns an error if the answer cannot be read in this way.
    pub fn read(
        &self,
        answer: &ServiceResponse,
        places: &RequestTemplateValues<'_>,
    ) -> Result<ObservedEffectValue, String> {
        match answer.status.as_u16() {
            200..=299 => {}
            404 => return Ok(ObservedEffectValue::Nothing),
            other => return Err(format!("the observation is answered {other}")),
        }
        match self {
            Self::Whole => Ok(ObservedEffectValue::Text(String::from_utf8_lossy(&answer.body).into_owned())),
            Self::Count(expression) => {
                let regex = Regex::new(&places.fill(expression)).map_err(|error| error.to_string())?;
                Ok(ObservedEffectValue::Count(
                    regex.find_iter(&String::from_utf8_lossy(&answer.body)).count() as i128,
                ))
            }
            Self::Pointer(pointer) => {
                let value: Value = serde_json::from_slice(&answer.body)
                    .map_err(|error| format!("the observation is no JSON: {error}"))?;
                match value.pointer(pointer) {
                    None | Some(Value::Null) => Ok(ObservedEffectValue::Nothing),
                    Some(Value::String(text)) => {
                        Ok(parse_level(text).unwrap_or(ObservedEffectValue::Text(text.clone())))
                    }
                    Some(other) => {
                        let text = other.to_string();
                        Ok(parse_level(&text).unwrap_or(ObservedEffectValue::Text(text)))
                    }
                }
            }
        }
    }
}

/// The lines of a file that contain the key.
///
/// # Errors
/// Returns an error if the file cannot be read. A missing file has no lines.
pub(crate) fn count_lines(file: &PathBuf, key: &str) -> Result<ObservedEffectValue, String> {
    match fs::read_to_string(file) {
        Ok(text) => {
            Ok(ObservedEffectValue::Count(text.lines().filter(|line| line.contains(key)).count() as i128))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(ObservedEffectValue::Count(0)),
        Err(error) => Err(format!("cannot read {}: {error}", file.display())),
    }
}

/// A decimal number with at most six digits behind the point.
fn parse_level(text: &str) -> Option<ObservedEffectValue> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 24 || part.len() > 6 || !plain(whole) || !plain(part) {
        return None;
    }
    let millionths: i128 = format!("{whole}{part:0<6}").parse().ok()?;
    Some(ObservedEffectValue::Level(if negative { -millionths } else { millionths }))
}

impl EffectCalibration {
    /// Learns the change by one effect from the readings before any effect, after one and after two. `None` if
    /// the two effects differ.
    pub fn learn(
        before: &ObservedEffectValue,
        one: &ObservedEffectValue,
        two: &ObservedEffectValue,
    ) -> Option<Self> {
        let (ObservedEffectValue::Level(one), ObservedEffectValue::Level(two)) = (one, two) else {
            return None;
        };
        let unit = two - one;
        let alike = match before {
            ObservedEffectValue::Level(before) => one - before == unit,
            other => *other == ObservedEffectValue::Nothing,
        };
        (unit != 0 && alike).then_some(Self { unit, origin: one - unit })
    }
}

impl ObservedEffectValue {
    pub(crate) fn change_to(&self, later: &Self, scale: Option<EffectCalibration>) -> EffectReadingDiff {
        if self == later {
            return EffectReadingDiff::Effects(0);
        }
        match (self, later, scale) {
            (Self::Count(before), Self::Count(after), _) => EffectReadingDiff::Effects(after - before),
            (Self::Level(before), Self::Level(after), Some(scale)) => scale.effects(*before, *after),
            (Self::Nothing, Self::Level(after), Some(scale)) => scale.effects(scale.origin, *after),
            _ => EffectReadingDiff::AtLeastOne,
        }
    }
}

impl EffectCalibration {
    fn effects(self, before: i128, after: i128) -> EffectReadingDiff {
        let change = after - before;
        if change % self.unit == 0 {
            // Both sides of a transfer change by the same amount, one up and one down.
            EffectReadingDiff::Effects((change / self.unit).abs())
        } else {
            let decimal = |millionths: i128| millionths as f64 / 1e6;
            EffectReadingDiff::Inconsistent(format!("from {} to {}", decimal(before), decimal(after)))
        }
    }
}

impl std::fmt::Display for EffectReadingDiff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Effects(0) => f.write_str("no effect"),
            Self::Effects(1) => f.write_str("one effect"),
            Self::Effects(many) => write!(f, "{many} effects"),
            Self::AtLeastOne => f.write_str("an effect"),
            Self::Inconsistent(how) => write!(f, "a change that is no multiple of one effect, {how}"),
        }
    }
}

impl std::fmt::Display for EffectSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Answers => {
                f.write_str("effects are not seen: what the service answers is all that is judged")
            }
            Self::Observe { ask, pick: EffectSelector::Whole } => write!(f, "effects are seen by {ask}"),
            Self::Observe { ask, pick: EffectSelector::Pointer(at) } => {
                write!(f, "effects are seen by {ask} at {at}")
            }
            Self::Observe { ask, pick: EffectSelector::Count(what) } => {
                write!(f, "effects are counted by {ask}, matches of {what}")
            }
            Self::File(file) => write!(f, "effects are counted in {}", file.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hyper::{HeaderMap, StatusCode};

    use super::*;

    fn read(pick: &EffectSelector, status: u16, body: &'static str) -> Result<ObservedEffectValue, String> {
        let status = StatusCode::from_u16(status).expect("a status");
        let answer =
            ServiceResponse { status, fields: HeaderMap::new(), body: Bytes::from_static(body.as_bytes()) };
        pick.read(&answer, &RequestTemplateValues { key: "k-1", other: "", operation: "" })
    }

    /// A pointer finds numbers also in a string; a 404 is no value, and other failures are errors.
    #[test]
    fn pointer_reads_numbers_from_text() {
        let pick = EffectSelector::Pointer("/balance".to_owned());
        for body in [r#"{"balance":99.5}"#, r#"{"balance":"99.50"}"#] {
            assert_eq!(read(&pick, 200, body), Ok(ObservedEffectValue::Level(99_500_000)));
        }
        assert_eq!(read(&pick, 200, r#"{"balance":-3}"#), Ok(ObservedEffectValue::Level(-3_000_000)));
        assert_eq!(read(&pick, 200, r#"{"balance":"open"}"#), Ok(ObservedEffectValue::Text("open".into())));
        assert_eq!(read(&pick, 404, "nothing"), Ok(ObservedEffectValue::Nothing));
        assert!(read(&pick, 500, "").is_err() && read(&pick, 200, "no JSON").is_err());
    }

    #[test]
    fn only_matches_of_key_are_counted() {
        let pick = EffectSelector::count(r#""key":"{key}""#).expect("an expression");
        let body = r#"[{"key":"k-1"},{"key":"k-2"},{"key":"k-1"}]"#;
        assert_eq!(read(&pick, 200, body), Ok(ObservedEffectValue::Count(2)));
        assert!(EffectSelector::count("(").is_err());
    }

    /// Once the unit of a level is known, effects are computed from its changes; other changes are inconsistent.
    #[test]
    fn effects_are_computed_from_levels() {
        let at = ObservedEffectValue::Level;
        let scale = EffectCalibration::learn(&at(1000), &at(900), &at(800));
        assert_eq!(at(800).change_to(&at(600), scale), EffectReadingDiff::Effects(2));
        assert_eq!(at(800).change_to(&at(900), scale), EffectReadingDiff::Effects(1));
        assert!(matches!(at(800).change_to(&at(750), scale), EffectReadingDiff::Inconsistent(_)));
        assert_eq!(ObservedEffectValue::Nothing.change_to(&at(900), scale), EffectReadingDiff::Effects(1));
        assert_eq!(at(800).change_to(&at(600), None), EffectReadingDiff::AtLeastOne);
        assert_eq!(EffectCalibration::learn(&at(1000), &at(900), &at(850)), None);
        assert_eq!(EffectCalibration::learn(&at(1000), &at(1000), &at(1000)), None);
    }
}
