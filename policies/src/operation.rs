//! An operation that happens at most once: its name, and the header field in which a gateway sends it to the store
//! that records it.

use std::fmt;

use crate::key::ResourceKey;

/// The name of an operation: a hash of the scope, the principal and the client's own name for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId([u8; 32]);

/// A hash of method, target and body. Two requests for the same operation must have the same fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestFingerprint([u8; 32]);

/// The content of `Fencing-Operation`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencingOperationHeader {
    pub id: OperationId,
    /// The id that an earlier build gave to this operation, if it is different.
    pub former: Option<OperationId>,
    pub fingerprint: RequestFingerprint,
    /// The seconds for which the operation is stored after its end.
    pub keep: u64,
    /// The statuses that end the operation, in addition to those that always do.
    pub finals: Vec<u16>,
    /// True if the client's `Idempotency-Key` alone names the operation, so that the upstream can be probed by that
    /// key. False for routes with principals, because two principals may use the same key.
    pub askable: bool,
}

impl OperationId {
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads the form that [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        parse_hex(text).map(Self)
    }

    /// A short form for users: long enough to find the operation, and short enough to be read aloud.
    pub fn reference(&self) -> String {
        self.to_string()[..16].to_owned()
    }

    /// The first and the last id that have this reference.
    pub fn ids_with_reference(reference: &str) -> Option<(Self, Self)> {
        let end = |digit: &str| parse_hex(&format!("{reference}{}", digit.repeat(48))).map(Self);
        end("0").zip(end("f"))
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl RequestFingerprint {
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for RequestFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

fn write_hex(bytes: &[u8; 32], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Writes `<id>;fp=<fingerprint>;keep=<seconds>[;was=<id>][;final=<status>,...][;ask=idempotency-key]`.
impl fmt::Display for FencingOperationHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, former, fingerprint, keep, finals, askable } = self;
        write!(f, "{id};fp={fingerprint};keep={keep}")?;
        if let Some(former) = former {
            write!(f, ";was={former}")?;
        }
        for (at, status) in finals.iter().enumerate() {
            write!(f, "{}{status}", if at == 0 { ";final=" } else { "," })?;
        }
        if *askable { f.write_str(";ask=idempotency-key") } else { Ok(()) }
    }
}

/// The parts that may follow the fingerprint, in this order. An earlier build sent `by` in place of `ask`, also for
/// operations with a principal; so `by` is accepted without an effect.
const PARTS: [&str; 5] = ["keep", "was", "final", "ask", "by"];

/// The most statuses that a policy can name.
const MOST_FINALS: usize = 106;

impl FencingOperationHeader {
    /// Reads the form that [`fmt::Display`] writes. `keep`: the value for a text without this part.
    pub fn parse(text: &str, keep: u64) -> Option<Self> {
        let mut parts = text.split(';');
        let id = OperationId::parse(parts.next()?)?;
        let fingerprint = RequestFingerprint(parse_hex(parts.next()?.strip_prefix("fp=")?)?);
        let mut operation = Self { id, former: None, fingerprint, keep, finals: Vec::new(), askable: false };
        let mut next = 0;
        for part in parts {
            let (name, value) = part.split_once('=')?;
            let place = PARTS.iter().position(|known| *known == name).filter(|place| *place >= next)?;
            next = place + 1;
            match name {
                "keep" => operation.keep = parse_digits(value, 8)?,
                "was" => operation.former = Some(OperationId::parse(value)?),
                "final" => operation.finals = parse_final_statuses(value)?,
                _ if value != "idempotency-key" => return None,
                "ask" => operation.askable = true,
                _ => {}
            }
        }
        Some(operation)
    }
}

fn parse_final_statuses(text: &str) -> Option<Vec<u16>> {
    let status = |text: &str| parse_digits(text, 3).and_then(|status| u16::try_from(status).ok());
    let finals: Vec<u16> = text.split(',').take(MOST_FINALS + 1).map(status).collect::<Option<_>>()?;
    (finals.len() <= MOST_FINALS).then_some(finals)
}

/// Reads a decimal number of at most `most` digits. Eight digits are enough for three years in seconds.
fn parse_digits(text: &str, most: usize) -> Option<u64> {
    let plain = !text.is_empty() && text.len() <= most && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

fn parse_hex(text: &str) -> Option<[u8; 32]> {
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

/// Whether the keys of an operation and of its repeat name the same resource. While a lock is migrated, one of the
/// two may have an additional key.
pub fn same_resource(one: &[ResourceKey], other: &[ResourceKey]) -> bool {
    let among = |few: &[ResourceKey], all: &[ResourceKey]| few.iter().all(|key| all.contains(key));
    among(one, other) || among(other, one)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn operation_round_trips(
            id: [u8; 32],
            former: Option<[u8; 32]>,
            fp: [u8; 32],
            keep in 0..100_000_000_u64,
            finals in prop::collection::vec(400..600_u16, 0..MOST_FINALS),
            askable: bool,
        ) {
            let id = OperationId(id);
            let former = former.map(OperationId);
            let operation = FencingOperationHeader { id, former, fingerprint: RequestFingerprint(fp), keep, finals, askable };
            prop_assert_eq!(FencingOperationHeader::parse(&operation.to_string(), 7), Some(operation));
        }

        #[test]
        fn any_text_parses_without_panic(text: String) {
            if let Some(operation) = FencingOperationHeader::parse(&text, 7) {
                prop_assert_eq!(FencingOperationHeader::parse(&operation.to_string(), 9), Some(operation));
            }
        }
    }

    /// Only the written form is accepted.
    #[test]
    fn only_written_form_parses() {
        let id = "ab".repeat(32);
        let fp = "cd".repeat(32);
        assert_eq!(
            FencingOperationHeader::parse(&format!("{id};fp={fp}"), 7).map(|operation| operation.keep),
            Some(7)
        );
        let old = FencingOperationHeader::parse(&format!("{id};fp={fp};keep=5;by=idempotency-key"), 7)
            .expect("it is read");
        assert!(old.keep == 5 && !old.askable, "its principal, if it has one, is not known");
        for bad in [
            id.clone(),
            format!("{id};fp={fp};was={fp};keep=5"),
            format!("{id};fp={fp};keep=5;keep=5"),
            format!("{id};fp={fp};final=403,"),
            format!("{id};fp={fp};final=4033"),
            format!("{id};fp={fp};final={}403", "403,".repeat(106)),
            format!("{id};fp={fp};ask=name"),
            format!("{id};fp={fp};who=me"),
            format!("{id};{fp}"),
            format!("{};fp={fp}", id.to_uppercase()),
            format!("{id};fp={fp};keep="),
            format!("{id};fp={fp};keep=+5"),
            format!("{id};fp={fp};keep=5;"),
            format!("{id};fp={fp};keep=123456789"),
            format!("{};fp={fp}", &id[2..]),
        ] {
            assert_eq!(FencingOperationHeader::parse(&bad, 7), None, "{bad}");
        }
    }
}
