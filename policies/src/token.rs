//! The fencing token: its order, its form in a header field, and the check whether it is stale.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A fencing token. Tokens of one key grow in the order in which the lock was granted; the derived order of the
/// fields, first to last, is the order of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FencingToken {
    /// The base of the era plus the czxid of the lock node; below 2^63.
    epoch: u64,
    /// The sequence number of the lock node; 0 if the node has none.
    sequence: u32,
    /// The number of the dispatch within its tenure, from 1; 0 announces the tenure without a dispatch.
    dispatch: u32,
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for FencingToken {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .pattern(Some("^v1-[0-9a-f]{16}-[0-9a-f]{8}-[0-9a-f]{8}$"))
            .description(Some(
                "Tokens of one key grow in the order in which the lock was granted; as texts, too.",
            ))
            .into()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for FencingToken {
    fn name() -> std::borrow::Cow<'static, str> {
        "Token".into()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFencingTokenError {
    #[error("the epoch is beyond 2^63 - 1")]
    Epoch,
    #[error("the token is not of the form v1-<16 hex>-<8 hex>-<8 hex>, lower case")]
    Form,
}

impl FencingToken {
    /// Makes a token.
    ///
    /// # Errors
    /// Returns an error for an epoch of 2^63 or more: it does not fit a signed 64-bit column and would compare as
    /// negative there.
    pub fn new(epoch: u64, sequence: u32, dispatch: u32) -> Result<Self, InvalidFencingTokenError> {
        if epoch > i64::MAX as u64 {
            return Err(InvalidFencingTokenError::Epoch);
        }
        Ok(Self { epoch, sequence, dispatch })
    }

    /// Reads the value of a `Fencing-Token` field, in exactly the form that [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Result<Self, InvalidFencingTokenError> {
        let bytes = text.as_bytes();
        let shaped = bytes.len() == 37 && text.starts_with("v1-") && bytes[19] == b'-' && bytes[28] == b'-';
        if !shaped {
            return Err(InvalidFencingTokenError::Form);
        }
        let epoch = hex(&bytes[3..19])?;
        let sequence = hex(&bytes[20..28])?;
        let dispatch = hex(&bytes[29..37])?;
        let narrow = |wide: u64| u32::try_from(wide).map_err(|_| InvalidFencingTokenError::Form);
        Self::new(epoch, narrow(sequence)?, narrow(dispatch)?)
    }

    /// The value of a `Fencing-Token` field, in ASCII.
    pub fn to_ascii(self) -> [u8; 37] {
        let mut text = *b"v1-0000000000000000-00000000-00000000";
        crate::hex::write_digits(&self.epoch.to_be_bytes(), &mut text[3..19]);
        crate::hex::write_digits(&self.sequence.to_be_bytes(), &mut text[20..28]);
        crate::hex::write_digits(&self.dispatch.to_be_bytes(), &mut text[29..]);
        text
    }

    /// The value of `Fencing-Number`. It is the same for all requests of a tenure, so an upstream compares it with
    /// `>=`.
    pub fn number(self) -> u64 {
        self.epoch
    }

    pub fn sequence(self) -> u32 {
        self.sequence
    }

    pub fn dispatch(self) -> u32 {
        self.dispatch
    }

    /// Whether both tokens are of the same lock node. The number of the dispatch is ignored.
    pub fn same_grant(self, other: Self) -> bool {
        (self.epoch, self.sequence) == (other.epoch, other.sequence)
    }
}

/// Reads lower-case hexadecimal digits. Upper-case digits are refused, because two spellings of a token would
/// compare differently as bytes.
fn hex(digits: &[u8]) -> Result<u64, InvalidFencingTokenError> {
    digits.iter().try_fold(0_u64, |value, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return Err(InvalidFencingTokenError::Form),
        };
        Ok(value << 4 | u64::from(digit))
    })
}

impl TryFrom<String> for FencingToken {
    type Error = InvalidFencingTokenError;

    fn try_from(text: String) -> Result<Self, InvalidFencingTokenError> {
        Self::parse(&text)
    }
}

impl From<FencingToken> for String {
    fn from(token: FencingToken) -> Self {
        token.to_string()
    }
}

/// Writes `v1-<epoch>-<sequence>-<dispatch>` with a fixed width, in lower case, so that tokens compare as their
/// bytes do.
impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.to_ascii()).expect("digits and dashes"))
    }
}

/// The newest tokens seen for one key, by kind of access.
///
/// Exclusive access needs one watermark. With shared access a second one has the newest token of a reader: a write
/// must be newer than it, while readers do not invalidate each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadWriteWatermarks {
    write: Option<FencingToken>,
    read: Option<FencingToken>,
}

/// The token is not newer than the watermarks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaleTokenError;

impl ReadWriteWatermarks {
    /// Admits an exclusive dispatch, if its token is newer than those of all writes and reads before it.
    pub fn admit_write(&mut self, token: FencingToken) -> Result<(), StaleTokenError> {
        if Some(token) <= self.write || Some(token) <= self.read {
            return Err(StaleTokenError);
        }
        self.write = Some(token);
        Ok(())
    }

    /// Admits a shared dispatch, if its token is newer than those of all writes. Readers need no order among
    /// themselves.
    pub fn admit_read(&mut self, token: FencingToken) -> Result<(), StaleTokenError> {
        if Some(token) <= self.write {
            return Err(StaleTokenError);
        }
        self.read = self.read.max(Some(token));
        Ok(())
    }
}

/// The largest accepted distance of a token from the largest known one. A token beyond it is forged, or of another
/// installation: ZooKeeper adds 2^32 at every election, so this distance is 65,536 elections that the guard has not
/// seen.
pub const LARGEST_JUMP: u64 = 1 << 48;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token(epoch: u64, sequence: u32, dispatch: u32) -> FencingToken {
        FencingToken::new(epoch, sequence, dispatch).expect("small epoch")
    }

    #[test]
    fn header_is_fixed_width_lowercase_hex() {
        assert_eq!(token(0xAB, 7, 1).to_string(), "v1-00000000000000ab-00000007-00000001");
    }

    /// A token is serialised in its header form.
    #[test]
    fn token_serializes_as_header() {
        let written = serde_json::to_string(&token(0xAB, 7, 1)).expect("a text");
        assert_eq!(written, "\"v1-00000000000000ab-00000007-00000001\"");
        assert_eq!(serde_json::from_str::<FencingToken>(&written).ok(), Some(token(0xAB, 7, 1)));
        assert!(serde_json::from_str::<FencingToken>("\"5\"").is_err());
    }

    /// Only the written form is accepted.
    #[test]
    fn only_written_form_parses() {
        let good = token(0xAB, 7, 1).to_string();
        for bad in [
            "",
            "5",
            "+5",
            "007",
            "1e30",
            "-1",
            "9223372036854775807",
            &good.to_uppercase(),
            &good.replace("ab", "AB"),
            &good.replacen("v1", "v2", 1),
            &format!("{good} "),
            &good[..36],
            "v1-00000000000000ab-00000007_00000001",
            "v1-00000000000000ab_00000007-00000001",
            "v1-+0000000000000ab-00000007-00000001",
        ] {
            assert_eq!(FencingToken::parse(bad), Err(InvalidFencingTokenError::Form), "{bad:?}");
        }
        assert_eq!(
            FencingToken::parse("v1-8000000000000000-00000000-00000001"),
            Err(InvalidFencingTokenError::Epoch)
        );
    }

    /// A late reader is admitted after a newer reader, and a stale writer is refused.
    #[test]
    fn late_reader_passes_stale_writer_fails() {
        let mut watermarks = ReadWriteWatermarks::default();
        watermarks.admit_read(token(5, 0, 1)).expect("first reader");
        watermarks.admit_read(token(3, 0, 1)).expect("older reader");
        assert_eq!(watermarks.admit_write(token(4, 0, 1)), Err(StaleTokenError));
        watermarks.admit_write(token(6, 0, 1)).expect("newer writer");
        assert_eq!(watermarks.admit_read(token(5, 0, 2)), Err(StaleTokenError));
        assert_eq!(watermarks.admit_write(token(6, 0, 1)), Err(StaleTokenError), "a duplicate is not newer");
    }

    /// A token that was used for a write is refused for a read, and one that was used for a read is refused for a
    /// write.
    #[test]
    fn token_serves_read_or_write_once() {
        let mut watermarks = ReadWriteWatermarks::default();
        watermarks.admit_read(token(5, 0, 1)).expect("the first one");
        assert_eq!(watermarks.admit_write(token(5, 0, 1)), Err(StaleTokenError));
        watermarks.admit_write(token(5, 0, 2)).expect("newer");
        assert_eq!(watermarks.admit_read(token(5, 0, 2)), Err(StaleTokenError));
    }

    /// A signed column of 64 bits holds the largest epoch, and no larger one.
    #[test]
    fn largest_epoch_fits_signed_column() {
        let largest = token(i64::MAX as u64, u32::MAX, u32::MAX);
        assert_eq!(FencingToken::parse("v1-7fffffffffffffff-ffffffff-ffffffff"), Ok(largest));
        assert_eq!(FencingToken::new(1 << 63, 0, 1), Err(InvalidFencingTokenError::Epoch));
    }

    /// The largest accepted jump is 65,536 elections, each of which adds 2^32 to ZooKeeper's transaction ids.
    #[test]
    fn largest_jump_is_65536_elections() {
        assert_eq!(LARGEST_JUMP / (1 << 32), 65_536);
    }

    /// Two tokens are of the same grant if their epoch and sequence are equal, whatever their dispatches are.
    #[test]
    fn grant_is_epoch_and_sequence() {
        let one = token(7, 8, 9);
        assert_eq!((one.number(), one.sequence(), one.dispatch()), (7, 8, 9));
        assert!(one.same_grant(token(7, 8, 10)));
        assert!(!one.same_grant(token(7, 9, 9)) && !one.same_grant(token(8, 8, 9)));
    }

    proptest! {
        #[test]
        fn byte_order_is_token_order(a in 0..=i64::MAX as u64, b in 0..=i64::MAX as u64, s: u32, t: u32, g: u32, h: u32) {
            let x = token(a, s, g);
            let y = token(b, t, h);
            prop_assert_eq!(x.cmp(&y), x.to_string().cmp(&y.to_string()));
            prop_assert_eq!(FencingToken::parse(&x.to_string()), Ok(x));
        }

        #[test]
        fn arbitrary_text_parses_without_panic(text: String) {
            if let Ok(token) = FencingToken::parse(&text) {
                prop_assert_eq!(token.to_string(), text);
            }
        }

        /// A text similar to a token is accepted only in exactly the written form.
        #[test]
        fn token_like_text_parses_as_written(
            text in "v[12]-[0-9a-f]{15,17}[-_][0-9a-fA-F]{7,9}-[0-9a-fg+]{7,9}|v1-[0-9a-f]{16}-[0-9a-f]{8}-[0-9a-f]{8}",
        ) {
            let parts: Vec<&str> = text.split('-').collect();
            let in_form = parts.iter().map(|part| part.len()).eq([2, 16, 8, 8])
                && parts[0] == "v1"
                && parts[1..].iter().all(|part| part.bytes().all(|digit| b"0123456789abcdef".contains(&digit)));
            match FencingToken::parse(&text) {
                Ok(token) => prop_assert_eq!(token.to_string(), text),
                Err(InvalidFencingTokenError::Epoch) => prop_assert!(in_form && text.as_bytes()[3] >= b'8'),
                Err(InvalidFencingTokenError::Form) => prop_assert!(!in_form),
            }
        }

        #[test]
        fn admitted_writes_only_grow(tokens in proptest::collection::vec((0_u64..20, 0_u32..3, 0_u32..3), 0..40)) {
            let mut watermarks = ReadWriteWatermarks::default();
            let mut last = None;
            for (e, s, g) in tokens {
                let t = token(e, s, g);
                if watermarks.admit_write(t).is_ok() {
                    prop_assert!(Some(t) > last);
                    last = Some(t);
                }
            }
        }
    }
}
