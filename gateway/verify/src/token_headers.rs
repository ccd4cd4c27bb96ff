//! The token fields of one request: as a gateway stamps them, or malformed in many ways.

use std::time::{SystemTime, UNIX_EPOCH};

use fencegate_protocol::headers::{FENCING_NUMBER, FENCING_TOKEN};
use hyper::header::{HeaderName, HeaderValue};

/// The field that a service compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComparedHeaderKind {
    /// The token: a new one must be greater.
    Token,
    /// The number: a new one must not be smaller.
    Number,
}

/// The service's names for both fields, and which of them it compares.
#[derive(Debug, Clone)]
pub struct ComparedTokenHeaders {
    pub form: ComparedHeaderKind,
    pub token: HeaderName,
    pub number: HeaderName,
}

/// A token that no gateway has granted. The derived order of the fields is the order of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SyntheticToken {
    pub epoch: u64,
    pub sequence: u32,
    pub dispatch: u32,
}

/// Another spelling of a field's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderNameSpelling {
    /// `fencing_token`. CGI and WSGI make the same variable of it as of `fencing-token`.
    Underscore,
    /// `fencing.token`
    Dot,
}

/// The moment after which a request must not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyntheticDeadline {
    /// An hour from now.
    InTime,
    /// Ten seconds ago: more than clocks should differ.
    Late,
    /// This text.
    Text(&'static str),
    /// Two fields, both an hour from now.
    Twice,
}

/// The token fields of a request.
#[derive(Debug, Clone, Copy)]
pub enum SyntheticTokenHeaders {
    /// Token and number, as a gateway writes them.
    Whole(SyntheticToken),
    /// Token and number, as a gateway writes them, with this deadline.
    Until(SyntheticToken, SyntheticDeadline),
    /// Neither field.
    Absent,
    /// Only the field that is compared.
    Alone(SyntheticToken),
    /// Only the field that is not compared.
    Other(SyntheticToken),
    /// The compared field with this text.
    Text(&'static str),
    /// The compared field twice.
    Twice(SyntheticToken, SyntheticToken),
    /// The compared field once, with two values.
    Joined(SyntheticToken, SyntheticToken),
    /// A field with another spelling in place of the compared one.
    Alias(HeaderNameSpelling, SyntheticToken),
    /// The compared field, and one with another spelling and another value.
    Beside(SyntheticToken, HeaderNameSpelling, SyntheticToken),
}

/// The first dispatch of a tenure.
pub const fn epoch(epoch: u64) -> SyntheticToken {
    SyntheticToken { epoch, sequence: 7, dispatch: 1 }
}

impl SyntheticToken {
    #[must_use]
    pub const fn with_dispatch(self, dispatch: u32) -> Self {
        Self { dispatch, ..self }
    }

    #[must_use]
    pub(crate) const fn with_sequence(self, sequence: u32) -> Self {
        Self { sequence, ..self }
    }

    fn token(self) -> String {
        format!("v1-{:016x}-{:08x}-{:08x}", self.epoch, self.sequence, self.dispatch)
    }

    fn value_in(self, form: ComparedHeaderKind) -> String {
        match form {
            ComparedHeaderKind::Token => self.token(),
            ComparedHeaderKind::Number => self.epoch.to_string(),
        }
    }
}

impl ComparedHeaderKind {
    /// True if `one` is stale once `other` was executed.
    pub fn is_stale(self, one: SyntheticToken, other: SyntheticToken) -> bool {
        match self {
            Self::Token => one <= other,
            Self::Number => one.epoch < other.epoch,
        }
    }
}

impl Default for ComparedTokenHeaders {
    fn default() -> Self {
        Self { form: ComparedHeaderKind::Token, token: FENCING_TOKEN, number: FENCING_NUMBER }
    }
}

impl ComparedTokenHeaders {
    pub(crate) fn compared_token_header(&self) -> &HeaderName {
        match self.form {
            ComparedHeaderKind::Token => &self.token,
            ComparedHeaderKind::Number => &self.number,
        }
    }
}

impl SyntheticTokenHeaders {
    /// The token, if the fields have the form of a gateway.
    pub(crate) fn synthetic_token(self) -> Option<SyntheticToken> {
        match self {
            Self::Whole(mint) | Self::Alone(mint) | Self::Until(mint, _) => Some(mint),
            _ => None,
        }
    }

    /// The deadline of the request.
    pub(crate) fn deadline_field(self) -> SyntheticDeadline {
        match self {
            Self::Until(_, not_after) => not_after,
            _ => SyntheticDeadline::InTime,
        }
    }

    /// The fields in the order in which they are sent.
    pub fn headers(self, names: &ComparedTokenHeaders) -> Vec<(HeaderName, HeaderValue)> {
        let form = names.form;
        let ours = names.compared_token_header();
        let (other, other_form) = match form {
            ComparedHeaderKind::Token => (&names.number, ComparedHeaderKind::Number),
            ComparedHeaderKind::Number => (&names.token, ComparedHeaderKind::Token),
        };
        let compared = |token: SyntheticToken| (ours.clone(), token.value_in(form));
        let beside = |token: SyntheticToken| (other.clone(), token.value_in(other_form));
        let alias = |spelling: HeaderNameSpelling, token: SyntheticToken| {
            (spelling.respell_header_name(ours), token.value_in(form))
        };
        let texts = match self {
            Self::Whole(token) | Self::Until(token, _) => vec![compared(token), beside(token)],
            Self::Absent => Vec::new(),
            Self::Alone(token) => vec![compared(token)],
            Self::Other(token) => vec![beside(token)],
            Self::Text(text) => vec![(ours.clone(), text.to_owned())],
            Self::Twice(one, two) => vec![compared(one), compared(two)],
            Self::Joined(one, two) => {
                vec![(ours.clone(), format!("{}, {}", one.value_in(form), two.value_in(form)))]
            }
            Self::Alias(spelling, token) => vec![alias(spelling, token)],
            Self::Beside(token, spelling, other) => vec![compared(token), alias(spelling, other)],
        };
        let value = |text: String| HeaderValue::from_bytes(text.as_bytes()).expect("no control characters");
        texts.into_iter().map(|(name, text)| (name, value(text))).collect()
    }
}

impl SyntheticDeadline {
    /// The texts of the fields, as of now.
    pub fn deadline_header_values(self) -> Vec<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let in_time = || (now + 3_600_000).to_string();
        match self {
            Self::InTime => vec![in_time()],
            Self::Late => vec![now.saturating_sub(10_000).to_string()],
            Self::Text(text) => vec![text.to_owned()],
            Self::Twice => vec![in_time(), in_time()],
        }
    }
}

impl HeaderNameSpelling {
    fn respell_header_name(self, name: &HeaderName) -> HeaderName {
        let spelled = match self {
            Self::Underscore => name.as_str().replace('-', "_"),
            Self::Dot => name.as_str().replace('-', "."),
        };
        HeaderName::from_bytes(spelled.as_bytes()).expect("RFC 9110 allows both in a name")
    }
}

#[cfg(test)]
mod tests {
    use fencegate_policies::token::FencingToken;

    use super::*;

    fn sent_values(stamp: SyntheticTokenHeaders, form: ComparedHeaderKind) -> Vec<String> {
        let fields = stamp.headers(&ComparedTokenHeaders { form, ..ComparedTokenHeaders::default() });
        fields.iter().map(|(name, value)| format!("{name}: {}", value.to_str().expect("ASCII"))).collect()
    }

    /// A synthetic token is spelled and ordered as a real one.
    #[test]
    fn synthetic_token_matches_real_token() {
        let mint = epoch(0xAB).with_dispatch(3);
        let token = FencingToken::new(0xAB, 7, 3).expect("small");
        assert_eq!(mint.token(), token.to_string());
        assert_eq!(
            sent_values(SyntheticTokenHeaders::Whole(mint), ComparedHeaderKind::Number)[0],
            format!("fencing-number: {}", token.number())
        );
        assert!(epoch(1).with_dispatch(9) < epoch(2) && epoch(1) < epoch(1).with_dispatch(2));
        assert!(epoch(1).with_sequence(8) > epoch(1).with_dispatch(9));
    }

    /// The malformed field is the one that the service compares.
    #[test]
    fn compared_field_decides_spoiled_field() {
        for (form, name) in
            [(ComparedHeaderKind::Token, "fencing_token"), (ComparedHeaderKind::Number, "fencing_number")]
        {
            assert!(
                sent_values(SyntheticTokenHeaders::Alias(HeaderNameSpelling::Underscore, epoch(5)), form)[0]
                    .starts_with(name)
            );
        }
        assert_eq!(
            sent_values(SyntheticTokenHeaders::Other(epoch(5)), ComparedHeaderKind::Token),
            ["fencing-number: 5"]
        );
        assert_eq!(
            sent_values(SyntheticTokenHeaders::Joined(epoch(5), epoch(6)), ComparedHeaderKind::Number),
            ["fencing-number: 5, 6"]
        );
        assert!(sent_values(SyntheticTokenHeaders::Absent, ComparedHeaderKind::Token).is_empty());
    }

    /// A deadline changes no token, and only a late one is over.
    #[test]
    fn deadline_leaves_token_unchanged() {
        let late = SyntheticTokenHeaders::Until(epoch(5), SyntheticDeadline::Late);
        assert_eq!(
            sent_values(late, ComparedHeaderKind::Token),
            sent_values(SyntheticTokenHeaders::Whole(epoch(5)), ComparedHeaderKind::Token)
        );
        assert_eq!(late.synthetic_token(), Some(epoch(5)));
        assert_eq!(SyntheticTokenHeaders::Whole(epoch(5)).deadline_field(), SyntheticDeadline::InTime);
        let read = |not_after: SyntheticDeadline| -> Vec<u64> {
            not_after.deadline_header_values().iter().map(|text| text.parse().expect("digits")).collect()
        };
        let late = read(SyntheticDeadline::Late)[0];
        let in_time = read(SyntheticDeadline::InTime)[0];
        assert!((3_600_000..3_700_000).contains(&(in_time - late)), "{late} {in_time}");
        assert_eq!(read(SyntheticDeadline::Twice).len(), 2);
    }

    /// The dispatches of one grant have equal numbers and different tokens.
    #[test]
    fn grant_shares_number_not_token() {
        let first = epoch(5);
        let second = epoch(5).with_dispatch(2);
        assert!(
            ComparedHeaderKind::Token.is_stale(first, second)
                && !ComparedHeaderKind::Number.is_stale(first, second)
        );
        assert!(
            ComparedHeaderKind::Token.is_stale(first, first)
                && ComparedHeaderKind::Number.is_stale(epoch(4), first)
        );
    }
}
