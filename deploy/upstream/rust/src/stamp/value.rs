//! Fencing token and number, each with its only valid spelling.

use std::fmt;

/// The token `v1-<epoch>-<sequence>-<dispatch>`, of fixed width: tokens compare as their bytes do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token([u8; 37]);

/// A whole number from 0 to 2^63 - 1, as wide as an SQL `BIGINT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(i64);

impl Token {
    /// Reads exactly the form that gateways write, with an epoch below 2^63.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let bytes: [u8; 37] = value.try_into().ok()?;
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let shaped =
            bytes.iter().zip(b"v1-0000000000000000-00000000-00000000").all(|(byte, form)| match form {
                b'0' => digit(*byte),
                form => byte == form,
            });
        (shaped && bytes[3] < b'8').then_some(Self(bytes))
    }

    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("digits and dashes")
    }

    /// The epoch of the token, which is the value of `Fencing-Number`.
    pub fn number(&self) -> Number {
        Number(i64::from_str_radix(&self.as_str()[3..19], 16).expect("16 digits, the first below 8"))
    }
}

impl Number {
    /// Reads decimal digits without a leading zero, and none of the other forms that libraries accept.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let plain = digits && (value.len() == 1 || value[0] != b'0');
        plain.then(|| str::from_utf8(value).ok()?.parse().ok().map(Self)).flatten()
    }

    pub fn as_i64(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
