//! Reads the fields of a form in a body, if every reader of the form finds the same values.
//!
//! An urlencoded form is read like a query. In a multipart form only text parts have values. A part that some reader
//! takes for a file, decodes in another way, or finds under another name is refused if it may be the wanted field.

use super::{
    error::{ExtractValueError, ParseBodyError, RESPELLED},
    form::decode_leniently,
    ignored_characters::BYTE_ORDER_MARK,
    multipart::{self, FormPart, text_content},
    query::{self, MOST, NormalizedParamName, ParameterText, UrlencodedParameters},
};

/// The encoding of a form, as the request declares it.
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
    fields: Vec<FormField>,
}

/// All fields with one name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FormField {
    name: Box<str>,
    /// The values in their order; an error if some reader could find others.
    values: Result<Vec<ParameterText>, &'static str>,
}

const UNCLEAR: &str = "is in a form with a part in whose head servers may find another name";

/// The field in which a browser declares the character set of a form (HTML, section 4.10.21.5; RFC 7578, section 4.6).
/// Some readers decode the other fields by it.
pub(super) const CHARSET_FIELD: &str = "_charset_";

impl FormValues {
    /// Reads the fields of a form that have one of `names`.
    ///
    /// # Errors
    /// Returns an error if readers could take the whole body for different forms.
    pub(crate) fn parse<'n>(
        encoding: FormEncoding<'_>,
        bytes: &[u8],
        names: impl Iterator<Item = &'n str>,
    ) -> Result<Self, ParseBodyError> {
        match encoding {
            FormEncoding::Urlencoded => {
                let text = std::str::from_utf8(bytes).map_err(|_| ParseBodyError::FormNotUtf8)?;
                // Express leaves a byte order mark out, and other readers make it a part of the first name.
                if text.starts_with(BYTE_ORDER_MARK) {
                    return Err(ParseBodyError::ByteOrderMark);
                }
                // Beyond this limit the search stops, but then every wanted field is refused for the number of fields.
                if query::has_name_like(bytes, CHARSET_FIELD, MOST) {
                    return Err(ParseBodyError::FormCharset);
                }
                Ok(Self::collect(names, |name| UrlencodedParameters::Form(text).values(name)))
            }
            FormEncoding::Multipart(kind) => {
                let parts = multipart::parts(kind, bytes, MOST).ok_or(ParseBodyError::UnclearParts)?;
                if has_part_like(&parts, CHARSET_FIELD) {
                    return Err(ParseBodyError::FormCharset);
                }
                Ok(Self::collect(names, |name| part_values(&parts, name)))
            }
        }
    }

    fn collect<'n>(
        names: impl Iterator<Item = &'n str>,
        values: impl Fn(&str) -> Result<Vec<ParameterText>, ExtractValueError>,
    ) -> Self {
        let mut fields: Vec<FormField> = Vec::new();
        for name in names {
            if fields.iter().any(|known| *known.name == *name) {
                continue;
            }
            let values = values(name).map_err(|bad| match bad {
                ExtractValueError::Invalid(reason) => reason,
                ExtractValueError::Missing | ExtractValueError::NoClientName | ExtractValueError::NoToken => {
                    UNCLEAR
                }
            });
            fields.push(FormField { name: name.into(), values });
        }
        Self { fields }
    }

    /// The values of every field with this name, in their order; empty if the form was not read for this name.
    ///
    /// # Errors
    /// Returns an error if some reader could find other values.
    pub(super) fn values(&self, name: &str) -> Result<Vec<ParameterText>, ExtractValueError> {
        match self.fields.iter().find(|known| *known.name == *name) {
            None => Ok(Vec::new()),
            Some(field) => field.values.clone().map_err(ExtractValueError::Invalid),
        }
    }
}

/// Whether some reader could take a part for the field with this name.
pub(super) fn has_part_like(parts: &[FormPart<'_>], name: &str) -> bool {
    let wanted = NormalizedParamName::new(name.as_bytes());
    let is_like = |given: &String| given == name || is_confusable(&wanted, given);
    parts.iter().any(|part| match part {
        FormPart::Named { name: given, .. } => is_like(given),
        FormPart::Fallback { names, .. } => names.iter().any(is_like),
        FormPart::Unclear(_) => false,
    })
}

/// Whether some reader could take `given`, undecoded or decoded, for the wanted name.
fn is_confusable(wanted: &NormalizedParamName, given: &str) -> bool {
    wanted.is_confusable_with(given.as_bytes())
        || wanted.is_confusable_with(&decode_leniently(given.as_bytes()))
}

fn part_values(parts: &[FormPart<'_>], name: &str) -> Result<Vec<ParameterText>, ExtractValueError> {
    let wanted = NormalizedParamName::new(name.as_bytes());
    let mut values = Vec::new();
    for part in parts {
        match part {
            // Every part of a form has a disposition (RFC 7578, section 4.2), and only a head in UTF-8 is split in the
            // same way in each character set. So the whole form is refused.
            FormPart::Fallback { .. } | FormPart::Unclear(_) => {
                return Err(ExtractValueError::Invalid(UNCLEAR));
            }
            FormPart::Named { head, .. } if std::str::from_utf8(head).is_err() => {
                return Err(ExtractValueError::Invalid(UNCLEAR));
            }
            FormPart::Named { name: given, head, content } if given == name => {
                values.push(ParameterText { text: text_content(head, content)?, has_escaped_comma: false });
            }
            FormPart::Named { name: given, .. } if is_confusable(&wanted, given) => {
                return Err(ExtractValueError::Invalid(RESPELLED));
            }
            FormPart::Named { .. } => {}
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
        let texts = form.values("id").map_err(|bad| match bad {
            ExtractValueError::Invalid(reason) => reason.to_owned(),
            _ => "missing".to_owned(),
        })?;
        Ok(texts.into_iter().map(|value| value.text).collect())
    }

    fn parts(parts: &[(&str, &str)]) -> String {
        let part = |(head, content): &(&str, &str)| format!("--b\r\n{head}\r\n\r\n{content}\r\n");
        parts.iter().map(part).collect::<String>() + "--b--\r\n"
    }

    fn named(name: &str) -> String {
        format!("Content-Disposition: form-data; name=\"{name}\"")
    }

    /// An urlencoded form is read like a query.
    #[test]
    fn urlencoded_field_is_read_like_parameter() {
        let texts = |texts: &[&str]| Ok(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        for (body, found) in [
            ("id=42", &["42"][..]),
            ("x=1&id=a+b%20c&y", &["a b c"]),
            ("id=1&id=2", &["1", "2"]),
            ("x=1&id=%C3%A9", &["\u{e9}"]),
            ("", &[]),
            ("ids=1", &[]),
        ] {
            assert_eq!(parse(FormEncoding::Urlencoded, body.as_bytes()), texts(found), "{body}");
        }
    }

    /// A form that some reader takes for another form has no values.
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
            (b"\xef\xbb\xbfx=1&id=1", "the form begins with a byte order mark, which some servers leave out"),
            (b"x=1&%EF%BB%BFid=1", RESPELLED),
        ] {
            assert_eq!(parse(FormEncoding::Urlencoded, body), Err(reason.into()), "{}", body.escape_ascii());
        }
    }

    /// The text parts of a common multipart form have values, and its files do not prevent that.
    #[test]
    fn text_part_is_read() {
        let file = format!("{}; filename=\"a;id.txt\"\r\nContent-Type: image/png", named("photo"));
        let body = parts(&[(&named("a"), "1"), (&file, "\0\u{e9}\r\nx"), (&named("id"), "4 2")]);
        assert_eq!(parse(PARTS, body.as_bytes()), Ok(vec!["4 2".into()]));
        assert_eq!(parse(PARTS, b"--b--\r\n"), Ok(vec![]));
        let twice = parts(&[(&named("id"), "1"), (&named("id"), "2")]);
        assert_eq!(parse(PARTS, twice.as_bytes()), Ok(vec!["1".into(), "2".into()]));
    }

    /// A part is refused if some reader takes it for the wanted field, or reads it in another way.
    #[test]
    fn ambiguous_part_is_refused() {
        let good = (named("id"), "42");
        for other in ["ID", "id[]", "id[x]", " id", "id ", "id+", "]id", "?id"] {
            let body = parts(&[(&good.0, good.1), (&named(other), "43")]);
            assert_eq!(parse(PARTS, body.as_bytes()), Err(RESPELLED.into()), "{other}");
        }
        for head in [
            "Content-ID: <id>",
            "Content-Type: text/plain",
            "Content-Disposition: form-data; name=\"x\"; name=\"id\"",
            "Content-Disposition: form-data; name=\"a\"; foo; name=\"id\"",
            "Content-Disposition: form-data; name='id'",
            "Content-Disposition: form-data; name*=utf-8''id",
            "Content-Disposition: form-data; name=\"i%64\"",
            "Content-Disposition: form-data; name=\"i\\d\"",
            "Content-Disposition: form-data; name=\"a\"; filename=\"x; name=id\"",
            "Content-Disposition: form-data; name=\"\u{feff}id\"",
            "Content-Disposition: form-data; name=\"a\"\r\nX; name=id: 1",
            "Content-Disposition: form-data; name=\"a\"\r\nX: \u{1}",
            "Content-Disposition: form-data; name=\"a\"\r\nContent-Type: multipart/mixed; boundary=c",
        ] {
            let body = parts(&[(&good.0, good.1), (head, "43")]);
            assert_eq!(parse(PARTS, body.as_bytes()), Err(UNCLEAR.into()), "{head}");
        }
        let latin = parts(&[(&good.0, good.1), (&format!("{}; filename=\"FILE\"", named("a")), "43")]);
        let split: Vec<&[u8]> = latin.as_bytes().split(|byte| *byte == b'F').collect();
        assert_eq!(parse(PARTS, &split.join(&b"\xe9"[..])), Err(UNCLEAR.into()));
        let file = parts(&[(&format!("{}; filename=\"a\"", good.0), "42")]);
        assert!(parse(PARTS, file.as_bytes()).is_err());
        let marked = parts(&[(&good.0, "\u{feff}42")]);
        assert!(parse(PARTS, marked.as_bytes()).is_err());
        let cut = parts(&[(&good.0, good.1)]).replace("\r\n", "\n");
        assert_eq!(parse(PARTS, cut.as_bytes()), Err(ParseBodyError::UnclearParts.to_string()));
        let many = parts(&vec![("Content-Disposition: form-data; name=x", ""); MOST + 1]);
        assert_eq!(parse(PARTS, many.as_bytes()), Err(ParseBodyError::UnclearParts.to_string()));
    }

    /// A form with a field by which some reader chooses a character set is refused, whatever the value of the field is.
    #[test]
    fn field_with_charset_is_refused() {
        let refused = Err(ParseBodyError::FormCharset.to_string());
        for name in ["_charset_", "_Charset_", "_charset_[]", "+_charset_", "%5Fcharset_", ".charset."] {
            for value in ["utf-8", "utf-7", "", "%zz"] {
                for form in [format!("id=1&{name}={value}"), format!("{name}={value}&id=1")] {
                    assert_eq!(parse(FormEncoding::Urlencoded, form.as_bytes()), refused, "{form}");
                }
            }
        }
        assert_eq!(parse(FormEncoding::Urlencoded, b"id=1;_charset_=utf-7"), refused);
        for (head, value) in [
            (named("_charset_"), "utf-8"),
            (named("_CHARSET_"), "utf-16"),
            (named("_charset_[]"), "utf-8"),
            (format!("{}; filename=\"a\"", named("_charset_")), "utf-8"),
            (format!("{}\r\nContent-Type: application/json", named("_charset_")), "\"utf-8\""),
        ] {
            let body = parts(&[(&named("id"), "42"), (&head, value)]);
            assert_eq!(parse(PARTS, body.as_bytes()), refused, "{head}");
        }
        let body = parts(&[(&named("id"), "42"), (&named("charset"), "utf-16")]);
        assert_eq!(parse(PARTS, body.as_bytes()), Ok(vec!["42".into()]));
    }

    proptest! {
        /// A value is read unchanged from both encodings.
        #[test]
        fn value_round_trips_in_both_encodings(value in "[ -~\u{e9}]{0,12}") {
            let escaped: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let urlencoded = parse(FormEncoding::Urlencoded, format!("a=1&id={escaped}").as_bytes());
            prop_assert_eq!(urlencoded, Ok(vec![value.clone()]));
            // A value with the boundary in it would end the part.
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
