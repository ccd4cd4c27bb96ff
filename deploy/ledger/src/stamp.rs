//! Reads the stamp of a request: the fencing token and number that the gateway put on it.

use axum::http::{HeaderMap, HeaderName};
use fencegate_policies::token::{BadToken, Token};

/// What is compared with the last execution on the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Compare {
    /// The token must be greater: refuses the past and duplicates.
    Token,
    /// The number must not be smaller: refuses the past; for services that see one tenure several times.
    Number,
    /// Nothing: the service that most people have.
    Off,
}

/// The names of the header fields.
#[derive(Debug, Clone)]
pub(crate) struct Fields {
    pub(crate) token: HeaderName,
    pub(crate) number: HeaderName,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) token: Option<Token>,
    pub(crate) number: Option<Number>,
}

/// The value of `Fencing-Number`, not negative, as wide as an SQL BIGINT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Number(i64);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadStamp {
    #[error("`{0}` is missing: this service is to be reached through its gateway only")]
    Missing(HeaderName),
    #[error("`{0}` stands there more than once")]
    Repeated(HeaderName),
    #[error("`{0}` is no fencing token: {1}")]
    Token(HeaderName, BadToken),
    #[error("`{0}` is not a whole number from 0 to 2^63 - 1")]
    Number(HeaderName),
}

impl Stamp {
    /// The stamp that `compare` needs.
    ///
    /// # Errors
    /// [`BadStamp`] when the field to compare is not there exactly once or cannot be read.
    pub(crate) fn required(headers: &HeaderMap, fields: &Fields, compare: Compare) -> Result<Self, BadStamp> {
        match compare {
            Compare::Token => {
                let token = one(headers, &fields.token)?;
                let token = Token::parse(token).map_err(|bad| BadStamp::Token(fields.token.clone(), bad))?;
                Ok(Self { token: Some(token), number: Number::of(token) })
            }
            Compare::Number => {
                let number = Number::parse(one(headers, &fields.number)?);
                let number = number.ok_or_else(|| BadStamp::Number(fields.number.clone()))?;
                Ok(Self { number: Some(number), ..Self::offered(headers, fields) })
            }
            Compare::Off => Ok(Self::offered(headers, fields)),
        }
    }

    /// The request says something of a token, so it is fenced also where others need none.
    pub(crate) fn presented(headers: &HeaderMap, fields: &Fields) -> bool {
        headers.contains_key(&fields.token) || headers.contains_key(&fields.number)
    }

    /// Whatever can be read, for the record.
    fn offered(headers: &HeaderMap, fields: &Fields) -> Self {
        Self {
            token: one(headers, &fields.token).ok().and_then(|text| Token::parse(text).ok()),
            number: one(headers, &fields.number).ok().and_then(Number::parse),
        }
    }
}

impl Number {
    pub(crate) fn as_i64(self) -> i64 {
        self.0
    }

    fn of(token: Token) -> Option<Self> {
        i64::try_from(token.number()).ok().map(Self)
    }

    /// Digits only: `+5` and ` 5` are nobody's number.
    fn parse(text: &str) -> Option<Self> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok().map(Self)).flatten()
    }
}

fn one<'a>(headers: &'a HeaderMap, field: &HeaderName) -> Result<&'a str, BadStamp> {
    let mut values = headers.get_all(field).iter();
    let value = values.next().ok_or_else(|| BadStamp::Missing(field.clone()))?;
    if values.next().is_some() {
        return Err(BadStamp::Repeated(field.clone()));
    }
    // Bytes that are no text are read as nothing, which has the wrong form.
    Ok(value.to_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "v1-00000000000000ab-00000007-00000001";

    fn read(compare: Compare, headers: &[(&str, &str)]) -> Result<Stamp, BadStamp> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let fields =
            Fields { token: "fencing-token".parse().unwrap(), number: "fencing-number".parse().unwrap() };
        Stamp::required(&map, &fields, compare)
    }

    #[test]
    fn the_field_that_is_compared_must_be_there_once_and_readable() {
        for (compare, headers) in [
            (Compare::Token, &[][..]),
            (Compare::Token, &[("fencing-number", "171")]),
            (Compare::Token, &[("fencing-token", "171")]),
            (Compare::Token, &[("fencing-token", TOKEN), ("fencing-token", TOKEN)]),
            (Compare::Number, &[("fencing-token", TOKEN)]),
            (Compare::Number, &[("fencing-number", "")]),
            (Compare::Number, &[("fencing-number", "-1")]),
            (Compare::Number, &[("fencing-number", "+1")]),
            (Compare::Number, &[("fencing-number", "1e9")]),
            (Compare::Number, &[("fencing-number", "9223372036854775808")]),
        ] {
            assert!(read(compare, headers).is_err(), "{compare:?} {headers:?}");
        }
    }

    #[test]
    fn the_number_of_a_token_is_its_own_and_not_the_one_beside_it() {
        let stamp = read(Compare::Token, &[("fencing-token", TOKEN), ("fencing-number", "9")]).unwrap();
        assert_eq!(stamp.number, Some(Number(0xab)));
    }

    #[test]
    fn who_compares_nothing_takes_what_comes() {
        assert_eq!(read(Compare::Off, &[("fencing-token", "nonsense")]), Ok(Stamp::default()));
        assert_eq!(read(Compare::Off, &[("fencing-number", "5")]).unwrap().number, Some(Number(5)));
    }
}
