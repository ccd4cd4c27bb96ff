//! `Fencing-Not-After`: the moment after which a request must not be begun any more.

mod item;

use std::{fmt, time::Duration};

use http::{HeaderMap, header::HeaderName};

use crate::{
    answer::Refusal,
    clock::{BootTime, Moment},
    stamp::one,
};
use item::{HeaderParameterValue, bare_item, digits, key};

pub(crate) const NOT_AFTER: HeaderName = HeaderName::from_static("fencing-not-after");

/// The longest value of the field, in bytes.
const LONGEST: usize = 128;

/// The moment after which a request must not be begun, on the clocks of its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAfter(Moment);

/// The value is not of the form `1795727217123;boot="<id>";uptime=<ms>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseNotAfterError;

impl NotAfter {
    /// Reads a value of the field (RFC 9651, an Item): milliseconds since 1970-01-01 UTC, and both parameters or none.
    /// Parameters with other names are ignored.
    ///
    /// # Errors
    /// Returns [`ParseNotAfterError`] for everything else, also for a value of more than 128 bytes.
    pub fn parse(value: &[u8]) -> Result<Self, ParseNotAfterError> {
        let value = (value.len() <= LONGEST).then_some(value).ok_or(ParseNotAfterError)?;
        parsed(value).map(Self).ok_or(ParseNotAfterError)
    }

    pub fn moment(&self) -> &Moment {
        &self.0
    }

    /// Whether a request may be begun now: true only if the deadline has certainly not passed.
    ///
    /// On the machine of the sender the kernel's clock decides, and nothing is subtracted. On another machine the wall
    /// clock decides; `clock_error` is the most by which the two wall clocks differ.
    pub fn is_in_time(&self, now: &Moment, clock_error: Duration) -> bool {
        if let (Some(boot), Some(own)) = (&self.0.boot, &now.boot)
            && boot.id == own.id
            && !own.id.is_empty()
        {
            return own.uptime_ms < boot.uptime_ms;
        }
        let error = u64::try_from(clock_error.as_millis()).unwrap_or(u64::MAX);
        now.wall_ms.saturating_add(error) < self.0.wall_ms
    }
}

/// The `Fencing-Not-After` of a request; `None` if the field is absent in all spellings.
///
/// # Errors
/// Returns [`Refusal::NotAfterMalformed`], also if the field is there twice, or in another spelling.
pub(crate) fn read(headers: &HeaderMap) -> Result<Option<NotAfter>, Refusal> {
    let value = one(headers, &NOT_AFTER).ok_or(Refusal::NotAfterMalformed)?;
    let parse = |value: &http::HeaderValue| NotAfter::parse(value.as_bytes());
    value.map(parse).transpose().map_err(|ParseNotAfterError| Refusal::NotAfterMalformed)
}

fn parsed(value: &[u8]) -> Option<Moment> {
    let (wall_ms, mut rest) = digits(value)?;
    let mut id = None;
    let mut uptime_ms = None;
    while let Some(after) = rest.strip_prefix(b";") {
        let blanks = after.iter().take_while(|byte| **byte == b' ').count();
        let (name, after) = key(&after[blanks..])?;
        let (item, after) = match after.strip_prefix(b"=") {
            Some(after) => bare_item(after)?,
            None => (HeaderParameterValue::Other, after),
        };
        match (name, item) {
            (b"boot", HeaderParameterValue::Text(text)) if id.is_none() => id = Some(text.to_owned()),
            (b"uptime", HeaderParameterValue::Number(number)) if uptime_ms.is_none() => {
                uptime_ms = Some(number)
            }
            (b"boot" | b"uptime", _) => return None,
            _ => {}
        }
        rest = after;
    }
    let boot = match (id, uptime_ms) {
        (Some(id), Some(uptime_ms)) => Some(BootTime { id, uptime_ms }),
        (None, None) => None,
        _ => return None,
    };
    rest.is_empty().then_some(Moment { wall_ms, boot })
}

impl fmt::Display for ParseNotAfterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fencing-Not-After cannot be read")
    }
}

impl std::error::Error for ParseNotAfterError {}
