//! Reads the fields of a form in a body, where every reader of that form takes the same values for them.
//!
//! An urlencoded form is read as a query is. Of a multipart form only text parts have values; a part that some reader
//! takes for a file, decodes in another way, or calls by another name is refused if it may be the wanted field.

use super::{
    error::{ExtractValueError, ParseBodyError, RESPELLED},
    form::decode_leniently,
    multipart::{self, FormPart, text_content},
    query::{BYTE_ORDER_MARK, MOST, NormalizedParamName, Parameters},
};

/// How a request says that its body is a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FormEncoding<'a> {
    /// `application/x-www-form-urlencoded`.
    Urlencoded,
    /// `multipart/form-data`, with the whole value of `Content-Type`.
    Multipart(&'a str),
}

/// The values of one form that the keys of one fence need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormValues {
    /// By name: its values in their order, or why a reader could take others.
    fields: Vec<(Box<str>, Result<Vec<String>, &'static str>)>,
}

const UNCLEAR: &str = "is in a form with a part in whose head servers may find another name";

/// In this field a browser says in which character set it has written the form (HTML, 4.10.21.5; RFC 7578, 4.6).
const CHARSET: &str = "_charset_";

impl FormValues {
    /// # Errors
    /// Readers could take the whole body for another form.
    pub(crate) fn parse<'n>(
        encoding: FormEncoding<'_>,
        bytes: &[u8],
        names: impl Iterator<Item = &'n str>,
    ) -> Result<Self, ParseBodyError> {
        match encoding {
            FormEncoding::Urlencoded => {
                let text = std::str::from_utf8(bytes).map_err(|_| ParseBodyError::FormNotUtf8)?;
                // Express leaves it out, and others make it a part of the first name.
                if text.starts_with(BYTE_ORDER_MARK) {
                    return Err(ParseBodyError::ByteOrderMark);
                }
                Self::collect(names, |name| Parameters::Form(text).values(name))
            }
            FormEncoding::Multipart(kind) => {
                let parts = multipart::parts(kind, bytes, MOST).ok_or(ParseBodyError::UnclearParts)?;
                Self::collect(names, |name| part_values(&parts, name))
            }
        }
    }

    fn collect<'n>(
        names: impl Iterator<Item = &'n str>,
        values: impl Fn(&str) -> Result<Vec<String>, ExtractValueError>,
    ) -> Result<Self, ParseBodyError> {
        let values = |name: &str| {
            values(name).map_err(|bad| match bad {
                ExtractValueError::Invalid(reason) => reason,
                ExtractValueError::Missing => UNCLEAR,
            })
        };
        let is_utf8 = |charset: &String| {
            let charset = charset.trim();
            charset.eq_ignore_ascii_case("utf-8") || charset.eq_ignore_ascii_case("utf8")
        };
        let has_other_charset = match values(CHARSET) {
            Ok(charsets) => !charsets.iter().all(is_utf8),
            // Other reasons are those of every field of this form.
            Err(reason) => reason == RESPELLED,
        };
        if has_other_charset {
            return Err(ParseBodyError::FormCharset);
        }
        let mut fields: Vec<(Box<str>, _)> = Vec::new();
        for name in names {
            if !fields.iter().any(|(known, _)| **known == *name) {
                fields.push((name.into(), values(name)));
            }
        }
        Ok(Self { fields })
    }

    /// The values of every field with this name, in their order; none where no template named it when the form was
    /// read.
    ///
    /// # Errors
    /// A reader could take other values.
    pub(super) fn values(&self, name: &str) -> Result<Vec<String>, ExtractValueError> {
        match self.fields.iter().find(|(known, _)| **known == *name) {
            None => Ok(Vec::new()),
            Some((_, Ok(values))) => Ok(values.clone()),
            Some((_, Err(reason))) => Err(ExtractValueError::Invalid(reason)),
        }
    }
}

fn part_values(parts: &[FormPart<'_>], name: &str) -> Result<Vec<String>, ExtractValueError> {
    let wanted = NormalizedParamName::new(name.as_bytes());
    let is_confusable = |given: &String| {
        wanted.is_confusable_with(given.as_bytes())
            || wanted.is_confusable_with(&decode_leniently(given.as_bytes()))
    };
    let mut values = Vec::new();
    for part in parts {
        match part {
            FormPart::Named { name: given, head, content } if given == name => {
                values.push(text_content(head, content)?)
            }
            FormPart::Named { name: given, .. } if !is_confusable(given) => {}
            FormPart::Fallback { names, .. }
                if !names.iter().any(|given| given == name || is_confusable(given)) => {}
            FormPart::Named { .. } | FormPart::Fallback { .. } => {
                return Err(ExtractValueError::Invalid(RESPELLED));
            }
            FormPart::Unclear(_) => return Err(ExtractValueError::Invalid(UNCLEAR)),
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARTS: FormEncoding<'_> = FormEncoding::Multipart("multipart/form-data; boundary=b");

    fn parse(encoding: FormEncoding<'_>, body: &[u8]) -> Result<Vec<String>, String> {
        let form = FormValues::parse(encoding, body, ["id"].into_iter()).map_err(|bad| bad.to_string())?;
        form.values("id").map_err(|bad| match bad {
            ExtractValueError::Invalid(reason) => reason.to_owned(),
            ExtractValueError::Missing => "missing".to_owned(),
        })
    }

    fn parts(parts: &[(&str, &str)]) -> String {
        let part = |(head, content): &(&str, &str)| format!("--b\r\n{head}\r\n\r\n{content}\r\n");
        parts.iter().map(part).collect::<String>() + "--b--\r\n"
    }

    fn named(name: &str) -> String {
        format!("Content-Disposition: form-data; name=\"{name}\"")
    }

    /// An urlencoded form is read as a query is.
    #[test]
    fn urlencoded_field_is_read_like_parameter() {
        let texts = |texts: &[&str]| Ok(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        for (body, found) in [
            ("id=42", &["42"][..]),
            ("x=1&id=a+b%20c&y", &["a b c"]),
            ("id=1&id=2", &["1", "2"]),
            ("_charset_=UTF-8&id=%C3%A9", &["\u{e9}"]),
            ("", &[]),
            ("ids=1", &[]),
        ] {
            assert_eq!(parse(FormEncoding::Urlencoded, body.as_bytes()), texts(found), "{body}");
        }
    }

    /// A form that readers take for another one has no value.
    #[test]
    fn ambiguous_form_is_refused() {
        for (body, reason) in [
            (&b"id=1&ID=2"[..], RESPELLED),
            (b"id=1&id[]=2", RESPELLED),
            (b"id[x]=1", RESPELLED),
            (b"id=1&x=2\0&id%00=3", RESPELLED),
            (b"id=1;x=2", "is in a form with a semicolon, which servers read differently"),
            (
                b"id=1&x=%zz",
                "is in a form that has a percent sign without two hexadecimal digits, which servers read differently",
            ),
            (b"id=1&x=\xff", "the form is not UTF-8"),
            (b"\xef\xbb\xbfid=1", "the form begins with a byte order mark, which some servers leave out"),
            (b"x=1&\xef\xbb\xbfid=1", RESPELLED),
            (
                b"id=1&_charset_=utf-7",
                "the form has a field `_charset_`, by which some servers choose another character set than UTF-8",
            ),
            (
                b"id=1&_Charset_=utf-8",
                "the form has a field `_charset_`, by which some servers choose another character set than UTF-8",
            ),
        ] {
            assert_eq!(parse(FormEncoding::Urlencoded, body), Err(reason.into()), "{}", body.escape_ascii());
        }
    }

    /// The text parts of a usual multipart form have values, and its files are no obstacle.
    #[test]
    fn text_part_is_read() {
        let file = format!("{}; filename=\"a;id.txt\"\r\nContent-Type: image/png", named("photo"));
        let body = parts(&[
            (&named("a"), "1"),
            (&file, "\0\u{e9}\r\nx"),
            (&named("id"), "4 2"),
            (&named("_charset_"), "utf-8"),
        ]);
        assert_eq!(parse(PARTS, body.as_bytes()), Ok(vec!["4 2".into()]));
        assert_eq!(parse(PARTS, b"--b--\r\n"), Ok(vec![]));
        let twice = parts(&[(&named("id"), "1"), (&named("id"), "2")]);
        assert_eq!(parse(PARTS, twice.as_bytes()), Ok(vec!["1".into(), "2".into()]));
    }

    /// A part that some reader takes for the wanted field, or reads in another way, is refused.
    #[test]
    fn ambiguous_part_is_refused() {
        let good = (named("id"), "42");
        for other in ["ID", "id[]", "id[x]", " id", "id ", "i%64", "\u{feff}id"] {
            let body = parts(&[(&good.0, good.1), (&named(other), "43")]);
            assert_eq!(parse(PARTS, body.as_bytes()), Err(RESPELLED.into()), "{other}");
        }
        let nameless = parts(&[(&good.0, good.1), ("Content-ID: <id>", "43")]);
        assert_eq!(parse(PARTS, nameless.as_bytes()), Err(RESPELLED.into()));
        let unclear =
            parts(&[(&good.0, good.1), ("Content-Disposition: form-data; name=\"x\"; name=\"id\"", "43")]);
        assert_eq!(parse(PARTS, unclear.as_bytes()), Err(UNCLEAR.into()));
        let file = parts(&[(&format!("{}; filename=\"a\"", good.0), "42")]);
        assert!(parse(PARTS, file.as_bytes()).is_err());
        let charset = parts(&[(&good.0, good.1), (&named("_charset_"), "utf-16")]);
        assert_eq!(parse(PARTS, charset.as_bytes()), Err(ParseBodyError::FormCharset.to_string()));
        let cut = parts(&[(&good.0, good.1)]).replace("\r\n", "\n");
        assert_eq!(parse(PARTS, cut.as_bytes()), Err(ParseBodyError::UnclearParts.to_string()));
        let many = parts(&vec![("Content-Disposition: form-data; name=x", ""); MOST + 1]);
        assert_eq!(parse(PARTS, many.as_bytes()), Err(ParseBodyError::UnclearParts.to_string()));
    }

    proptest! {
        /// A value is read from both encodings as it was written into them.
        #[test]
        fn value_round_trips_in_both_encodings(value in "[ -~\u{e9}]{0,12}") {
            let escaped: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let urlencoded = parse(FormEncoding::Urlencoded, format!("a=1&id={escaped}").as_bytes());
            prop_assert_eq!(urlencoded, Ok(vec![value.clone()]));
            // A content that begins or ends as the boundary does would end the part.
            if !value.contains("--b") {
                let body = parts(&[(&named("id"), &value)]);
                prop_assert_eq!(parse(PARTS, body.as_bytes()), Ok(vec![value]));
            }
        }

        #[test]
        fn any_bytes_parse_without_panic(bytes: Vec<u8>, is_multipart: bool) {
            let encoding = if is_multipart { PARTS } else { FormEncoding::Urlencoded };
            drop(parse(encoding, &bytes));
        }
    }
}
