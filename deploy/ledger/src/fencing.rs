//! The stamp of a request: the fencing token and number that the gateway wrote on it.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, Method};
use fencegate_upstream::{self as upstream, Fence, Number, Settings, Token};

/// What is compared with the last execution on the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TokenComparison {
    /// The token must be greater. This refuses stale requests and duplicates.
    Token,
    /// The number must not be smaller. This refuses stale requests, for services that get several requests of one
    /// tenure.
    Number,
    /// Compare nothing, like a service without fencing.
    Off,
}

/// The names of the header fields, and how `Fencing-Not-After` is read.
#[derive(Debug, Clone)]
pub(crate) struct FieldSettings {
    pub(crate) token: HeaderName,
    pub(crate) number: HeaderName,
    /// The clock error that `Fencing-Not-After` is read with; `None`: the field is ignored.
    pub(crate) clock_error: Option<Duration>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct FencingStamp {
    pub(crate) token: Option<Token>,
    pub(crate) number: Option<Number>,
    /// The fence that the order has to claim in its transaction; `None` if nothing is compared.
    pub(crate) fence: Option<Fence>,
}

impl TokenComparison {
    /// The settings of the fencing layer; `None` if nothing is compared. The order names the keys.
    pub(crate) fn settings(self, fields: &FieldSettings) -> Option<Settings> {
        let compare = match self {
            Self::Token => upstream::Compare::Token,
            Self::Number => upstream::Compare::Number,
            Self::Off => return None,
        };
        let settings = Settings::default().fields(fields.token.clone(), fields.number.clone());
        // A read may come without a token, and is then not compared.
        let settings = settings.unfenced([Method::GET, Method::HEAD]);
        let settings = match fields.clock_error {
            Some(clock_error) => settings.clock_error(clock_error),
            None => settings,
        };
        Some(settings.comparing(compare).keys_from_handler())
    }
}

impl FencingStamp {
    pub(crate) fn from_fence(fence: Fence) -> Self {
        let stamp = fence.stamp();
        Self { token: stamp.token, number: Some(stamp.number), fence: Some(fence) }
    }

    /// Reads the fields as far as they are valid, for the record of a service that compares nothing.
    pub(crate) fn from_headers(headers: &HeaderMap, fields: &FieldSettings) -> Self {
        let one = |field| {
            let mut values = headers.get_all(field).iter();
            values.next().filter(|_| values.next().is_none())
        };
        Self {
            token: one(&fields.token).and_then(|value| Token::parse(value.as_bytes())),
            number: one(&fields.number).and_then(|value| Number::parse(value.as_bytes())),
            fence: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service that compares nothing accepts a request with any stamp or none.
    #[test]
    fn service_without_comparison_accepts_any_stamp() {
        let fields = FieldSettings {
            token: "fencing-token".parse().unwrap(),
            number: "fencing-number".parse().unwrap(),
            clock_error: None,
        };
        let offered = |name: &'static str, value: &str| {
            let mut map = HeaderMap::new();
            map.append(name, value.parse().unwrap());
            let stamp = FencingStamp::from_headers(&map, &fields);
            (stamp.token.is_some(), stamp.number.map(Number::as_i64))
        };
        assert_eq!(offered("fencing-token", "nonsense"), (false, None));
        assert_eq!(offered("fencing-number", "5"), (false, Some(5)));
        assert_eq!(offered("fencing-token", "v1-00000000000000ab-00000007-00000001"), (true, None));
        assert!(TokenComparison::Off.settings(&fields).is_none());
    }
}
