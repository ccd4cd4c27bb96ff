//! Parameters of a query or of a form, with one of them in another spelling.

use fencegate_policies::key::SourceValue;

use super::{
    target::{percent_decode_lossy, percent_encode, percent_encode_first},
    texts::{other_value, spellings, swap_case},
};

/// The text of a query, or of a form in a body (`application/x-www-form-urlencoded`).
pub(super) struct ParameterList<'t> {
    pub(super) text: &'t str,
    /// The word for one parameter: `parameter` or `field`.
    pub(super) noun: &'static str,
}

/// The name of a spelling, and the text with it.
pub(super) type RespelledParameters = (String, String);

impl ParameterList<'_> {
    /// The parameters as they were written, each with its name and its value.
    fn pairs(&self) -> Vec<(&str, &str)> {
        let pairs = self.text.split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect()
    }

    /// The position of the first parameter with that name.
    fn position(&self, name: &str) -> Option<usize> {
        self.pairs().iter().position(|(written, _)| percent_decode_lossy(&written.replace('+', " ")) == name)
    }

    /// The text with one more parameter.
    fn with_parameter(&self, name: &str, value: &str) -> String {
        let separator = if self.text.is_empty() { "" } else { "&" };
        format!("{}{separator}{name}={value}", self.text)
    }

    /// The text with another parameter in the place of the one at `at`.
    fn with_parameter_replaced(&self, at: usize, name: &str, value: &str) -> String {
        let pairs = self.pairs().into_iter().enumerate();
        let written = pairs.map(|(other, pair)| if other == at { (name, value) } else { pair });
        written.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
    }

    /// The spellings of a parameter of which a key is made.
    pub(super) fn respelled_parameters(
        &self,
        name: &str,
        value: &SourceValue,
        is_list: bool,
    ) -> Vec<RespelledParameters> {
        let Some(at) = self.position(name) else { return Vec::new() };
        let (written, text) = self.pairs()[at];
        let raw = value.raw.as_deref().unwrap_or_default();
        let other = encode_value(&other_value(raw));
        let [twice, other_twice] = repeat_labels(self.noun, is_list);
        let mut found = vec![
            (format!("{twice} `{name}`"), self.with_parameter(written, text)),
            (format!("{other_twice} `{name}`"), self.with_parameter(written, &other)),
            (
                format!("other case of the name `{name}`"),
                self.with_parameter_replaced(at, &swap_case(written), text),
            ),
            (
                format!("brackets behind the name `{name}`"),
                self.with_parameter_replaced(at, &format!("{written}[]"), text),
            ),
        ];
        if let Some((escaped, _)) = percent_encode_first(written) {
            found.push((
                format!("name `{name}` percent-encoded"),
                self.with_parameter_replaced(at, &escaped, text),
            ));
        }
        if let Some((escaped, _)) = percent_encode_first(text) {
            found.push((
                format!("`{raw}` percent-encoded"),
                self.with_parameter_replaced(at, written, &escaped),
            ));
        }
        found.extend(spellings(raw).into_iter().map(|spelling| {
            let text = self.with_parameter_replaced(at, written, &encode_value(&spelling.text));
            (format!("{} of `{raw}`", spelling.name), text)
        }));
        found
    }

    /// The spellings with a parameter that has the name of a value elsewhere in the request.
    pub(super) fn with_parameter_added(&self, name: &str, value: &SourceValue) -> Vec<RespelledParameters> {
        let Some(raw) = value.raw.as_deref().filter(|_| self.position(name).is_none()) else {
            return Vec::new();
        };
        let written = encode_value(name);
        vec![
            (format!("`{name}` also in the query"), self.with_parameter(&written, &encode_value(raw))),
            (
                format!("`{name}` also in the query, with another value"),
                self.with_parameter(&written, &encode_value(&other_value(raw))),
            ),
        ]
    }
}

/// The names of two spellings: of a value that is there twice, and of a value beside which there is another one.
pub(super) fn repeat_labels(noun: &str, is_list: bool) -> [String; 2] {
    if is_list {
        ["item twice in".to_owned(), "list longer by one,".to_owned()]
    } else {
        [format!("{noun} twice,"), format!("{noun} twice with another value,")]
    }
}

/// The text as the name or value of a parameter.
fn encode_value(text: &str) -> String {
    percent_encode(text, b"-._~")
}
