//! An operation that happens at most once: its name, what is remembered of it, and what a repeat of it is told.

use std::fmt;

use bytes::Bytes;
use fencegate_policies::{key::ResourceKey, token::Token};
use serde::{Deserialize, Serialize};

/// Names an operation: a hash over upstream, principal and the client's own name for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId([u8; 32]);

/// What two requests with the same name have to have in common: a hash over method, target and body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

/// What a gateway says of a request that is an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    pub id: OperationId,
    pub fingerprint: Fingerprint,
    /// Seconds that it is remembered after its end.
    pub keep: u64,
    /// The client's `Idempotency-Key`, and nothing else, names it: then the upstream can be asked by it.
    pub by_header: bool,
}

/// An operation as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Of the written form.
    pub format: u32,
    pub fingerprint: String,
    pub keys: Vec<ResourceKey>,
    pub token: Token,
    pub method: String,
    /// Path and query, for the operator who has to find out.
    pub target: String,
    /// The client's own name for it, to ask the upstream with.
    pub name: Option<String>,
    /// Seconds of the wall clock, for people.
    pub admitted: u64,
    /// Seconds of the store's time; a build that knew only the wall clock has written none.
    #[serde(default)]
    pub began: Option<u64>,
    pub keep: u64,
    pub state: State,
}

/// How far an operation is known to have come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum State {
    /// Let through. Unless it is running now, nobody knows what came of it.
    Admitted,
    /// Over, and this was the answer. `at` is in seconds of the store's time, here as below.
    Done { at: u64, answer: Option<Kept> },
    /// Over; by the word of the upstream or an operator, and nobody saw the answer.
    Resolved { at: u64, how: Resolution },
}

/// Who said that it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resolution {
    Probe,
    Operator,
}

/// An answer, kept to be given again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    /// `None` where it was larger than what is kept. Stored beside the rest: it may be any bytes.
    #[serde(skip)]
    pub body: Option<Bytes>,
}

impl OperationId {
    pub fn of(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// For people: enough to find it, short enough to read out.
    pub fn reference(&self) -> String {
        self.to_string()[..16].to_owned()
    }

    /// The first and the last id that [`OperationId::reference`] calls so.
    pub fn range(reference: &str) -> Option<(Self, Self)> {
        let end = |digit: &str| unhex(&format!("{reference}{}", digit.repeat(48))).map(Self);
        end("0").zip(end("f"))
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl Fingerprint {
    pub fn of(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

fn hex(bytes: &[u8; 32], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

const BY_HEADER: &str = ";by=idempotency-key";

/// `Fencing-Operation: <id>;fp=<fingerprint>;keep=<seconds>[;by=idempotency-key]`.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{};fp={};keep={}", self.id, self.fingerprint, self.keep)?;
        if self.by_header { f.write_str(BY_HEADER) } else { Ok(()) }
    }
}

impl Operation {
    /// Reads what [`fmt::Display`] writes; `keep` may be missing, and is then `keep`.
    pub fn parse(text: &str, keep: u64) -> Option<Self> {
        let (text, by_header) = text.strip_suffix(BY_HEADER).map_or((text, false), |text| (text, true));
        let mut parts = text.split(';');
        let id = OperationId(unhex(parts.next()?)?);
        let fingerprint = Fingerprint(unhex(parts.next()?.strip_prefix("fp=")?)?);
        let keep = match parts.next() {
            None => keep,
            Some(part) => digits(part.strip_prefix("keep=")?)?,
        };
        parts.next().is_none().then_some(Self { id, fingerprint, keep, by_header })
    }
}

/// A year at most.
fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.len() <= 8 && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let digits = text.as_bytes();
    if digits.len() != 64 || digits.iter().any(|digit| !matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

impl Entry {
    /// A repeat asks for the same thing.
    pub fn is_of(&self, operation: &Operation) -> bool {
        self.fingerprint == operation.fingerprint.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_back(id: [u8; 32], fp: [u8; 32], keep in 0..100_000_000_u64, by_header: bool) {
            let operation = Operation { id: OperationId(id), fingerprint: Fingerprint(fp), keep, by_header };
            prop_assert_eq!(Operation::parse(&operation.to_string(), 7), Some(operation));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text: String) {
            if let Some(operation) = Operation::parse(&text, 7) {
                let by = operation.by_header;
                let text = text.strip_suffix(BY_HEADER).filter(|_| by).unwrap_or(&text);
                prop_assert!(operation.to_string().starts_with(text));
            }
        }
    }

    #[test]
    fn nothing_but_the_written_form_is_read() {
        let (id, fp) = ("ab".repeat(32), "cd".repeat(32));
        assert_eq!(Operation::parse(&format!("{id};fp={fp}"), 7).map(|operation| operation.keep), Some(7));
        for bad in [
            id.clone(),
            format!("{id};{fp}"),
            format!("{};fp={fp}", id.to_uppercase()),
            format!("{id};fp={fp};keep="),
            format!("{id};fp={fp};keep=+5"),
            format!("{id};fp={fp};keep=5;"),
            format!("{id};fp={fp};keep=123456789"),
            format!("{};fp={fp}", &id[2..]),
        ] {
            assert_eq!(Operation::parse(&bad, 7), None, "{bad}");
        }
    }
}
