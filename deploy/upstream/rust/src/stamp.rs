//! Reads the four fields that a gateway stamps on a request, and refuses values that no gateway writes.

mod value;

use std::time::Duration;

use http::{
    HeaderMap, Method,
    header::{HeaderName, HeaderValue},
};

use crate::answer::Refusal;

pub use value::{Number, Token};

/// The field that is compared with the last executed request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compare {
    /// The token must be greater. This refuses stale requests and duplicates.
    #[default]
    Token,
    /// The number must not be smaller. This refuses stale requests, for services that get several requests of one
    /// tenure.
    Number,
}

/// Whether a request writes or reads the resources of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Exclusive,
    Shared,
}

/// The fields that a gateway has stamped on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// The token; always present if tokens are compared.
    pub token: Option<Token>,
    pub number: Number,
    /// The keys, ascending. Empty only if the handler names the keys itself ([`Settings::keys_from_handler`]).
    pub keys: Vec<String>,
    pub mode: Mode,
}

/// The names of the fields, which of them is compared, and which methods need none.
#[derive(Debug, Clone)]
pub struct Settings {
    compare: Compare,
    token: HeaderName,
    number: HeaderName,
    unfenced: Vec<Method>,
    keys: FenceKeySource,
    clock_error: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FenceKeySource {
    Request,
    Handler,
}

pub(crate) const KEY: HeaderName = HeaderName::from_static("fencing-key");
const MODE: HeaderName = HeaderName::from_static("fencing-mode");
/// The most keys that a gateway takes for one request.
const MOST_KEYS: usize = 64;
/// The most bytes of all keys of one request together.
const MOST_BYTES: usize = 8192;
const LONGEST_KEY: usize = 512;

impl Default for Settings {
    fn default() -> Self {
        Self {
            compare: Compare::Token,
            token: HeaderName::from_static("fencing-token"),
            number: HeaderName::from_static("fencing-number"),
            unfenced: Vec::new(),
            keys: FenceKeySource::Request,
            clock_error: None,
        }
    }
}

impl Settings {
    #[must_use]
    pub fn comparing(self, compare: Compare) -> Self {
        Self { compare, ..self }
    }

    /// Sets the names of the fields, for a gateway whose policy renames them with `fields:`.
    #[must_use]
    pub fn fields(self, token: HeaderName, number: HeaderName) -> Self {
        Self { token, number, ..self }
    }

    /// Lets requests of these methods pass without a fence if they have none of the stamped fields.
    #[must_use]
    pub fn unfenced(self, methods: impl IntoIterator<Item = Method>) -> Self {
        Self { unfenced: methods.into_iter().collect(), ..self }
    }

    /// Makes the handler name the keys itself ([`crate::Fence::claim_keys`]). `Fencing-Key` and `Fencing-Mode` may then
    /// be missing.
    #[must_use]
    pub fn keys_from_handler(self) -> Self {
        Self { keys: FenceKeySource::Handler, ..self }
    }

    /// The former name of [`keys_from_handler`](Self::keys_from_handler).
    #[deprecated(since = "0.1.0", note = "renamed to `keys_from_handler`")]
    #[must_use]
    pub fn keys_named_by_the_service(self) -> Self {
        self.keys_from_handler()
    }

    /// Makes the layer also refuse requests that come after their `Fencing-Not-After`. This is checked before the
    /// token, so a late request is refused as `expired`, also if its token is stale. `clock_error`: the most by which
    /// the wall clocks of sender and service differ. Without this setting the token alone decides.
    #[must_use]
    pub fn clock_error(self, clock_error: Duration) -> Self {
        Self { clock_error: Some(clock_error), ..self }
    }

    pub(crate) fn said_clock_error(&self) -> Option<Duration> {
        self.clock_error
    }

    pub(crate) fn compare(&self) -> Compare {
        self.compare
    }

    /// The stamp of a request; `None` if it passes without a fence.
    ///
    /// # Errors
    /// Returns [`Refusal::TokenMissing`] or [`Refusal::TokenMalformed`].
    pub fn read(&self, method: &Method, headers: &HeaderMap) -> Result<Option<Stamp>, Refusal> {
        let said = |name: &HeaderName| headers.keys().any(|other| are_alike(other, name));
        let ours = [&self.token, &self.number, &KEY, &MODE];
        if self.unfenced.contains(method) && !ours.into_iter().any(said) {
            return Ok(None);
        }
        let compared = match self.compare {
            Compare::Token => &self.token,
            Compare::Number => &self.number,
        };
        if !said(compared) {
            return Err(Refusal::TokenMissing);
        }
        self.stamp(headers).map(Some).ok_or(Refusal::TokenMalformed)
    }

    fn stamp(&self, headers: &HeaderMap) -> Option<Stamp> {
        let token = one(headers, &self.token)?.map(|value| Token::parse(value.as_bytes()));
        let number = one(headers, &self.number)?.map(|value| Number::parse(value.as_bytes()));
        let (token, number) = match (token, number) {
            (Some(token), None) => (Some(token?), token?.number()),
            (Some(token), Some(number)) if token?.number() == number? => (Some(token?), number?),
            (None, Some(number)) => (None, number?),
            _ => return None,
        };
        let keys = match one(headers, &KEY)? {
            Some(keys) => list(keys.as_bytes())?,
            None if self.keys == FenceKeySource::Handler => Vec::new(),
            None => return None,
        };
        let mode = match one(headers, &MODE)?.map(HeaderValue::as_bytes) {
            Some(b"exclusive") => Mode::Exclusive,
            Some(b"shared") => Mode::Shared,
            None if self.keys == FenceKeySource::Handler => Mode::Exclusive,
            _ => return None,
        };
        Some(Stamp { token, number, keys, mode })
    }
}

/// The value of a field; `Some(None)` if the field is absent. `None` if the field is there twice, or in another
/// spelling.
pub(crate) fn one<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<Option<&'h HeaderValue>> {
    let mut found = headers.iter().filter(|(other, _)| are_alike(other, name));
    match (found.next(), found.next()) {
        (None, _) => Some(None),
        (Some((spelled, value)), None) if spelled == name => Some(Some(value)),
        _ => None,
    }
}

/// Whether a server could take one of the names for the other: some servers treat all characters but letters and digits
/// alike.
pub(crate) fn are_alike(one: &HeaderName, other: &HeaderName) -> bool {
    let fold = |byte: u8| if byte.is_ascii_alphanumeric() { byte } else { b'-' };
    one.as_str().bytes().map(fold).eq(other.as_str().bytes().map(fold))
}

/// Reads keys as a gateway lists them: ascending, none twice, separated by a comma and one space.
fn list(value: &[u8]) -> Option<Vec<String>> {
    let text = str::from_utf8(value).ok()?;
    let keys: Vec<String> = text.split(", ").map(str::to_owned).collect();
    let is_key = |key: &String| {
        (1..=LONGEST_KEY).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let fits = keys.len() <= MOST_KEYS && keys.iter().map(String::len).sum::<usize>() <= MOST_BYTES;
    let good = fits && keys.iter().all(is_key) && keys.is_sorted_by(|key, next| key < next);
    good.then_some(keys)
}
