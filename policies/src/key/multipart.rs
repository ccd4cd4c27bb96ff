//! Finds the fields of a `multipart/form-data` body (RFC 7578), where every reader finds the same ones.
//!
//! Readers disagree about broken bodies: about line ends, repeated boundaries, folded lines and escapes in names.
//! Such a body, or such a part of it, is rejected. Nothing is decoded.
//!
//! The crate `multer` (3.1) answers another question. It gives one reading of a stream, and of two names or of two
//! dispositions it takes one without a word; here a body with two readings must not pass.

use super::error::{ExtractValueError, NOT_UTF8};

/// The longest boundary (RFC 2046, 5.1.1).
const LONGEST_BOUNDARY: usize = 70;

/// A part of a body.
#[derive(Debug)]
pub(super) enum FormPart<'b> {
    /// Every reader gives it this name.
    Named { name: String, head: &'b [u8], content: &'b [u8] },
    /// Without a disposition: every name that some reader gives to the part.
    Fallback { names: Vec<String>, content: &'b [u8] },
    /// The head of a part in which two readers could find two names.
    Unclear(&'b [u8]),
}

/// The parts; `None` where two readers could find other ones.
///
/// `kind` is the value of `Content-Type`.
pub(super) fn parts<'b>(kind: &str, body: &'b [u8], most: usize) -> Option<Vec<FormPart<'b>>> {
    let delimiter = format!("--{}", boundary(kind)?);
    let delimiter = delimiter.as_bytes();
    let mut parts = Vec::new();
    // Where the part before the next delimiter begins; `None` before the first one.
    let mut begun: Option<usize> = None;
    let mut closed = false;
    let mut at = 0;
    while let Some(found) = find(body, delimiter, at) {
        let behind = &body[found + delimiter.len()..];
        let content_end = match (begun, found) {
            (None, 0) => 0,
            (_, found) => body[..found].strip_suffix(b"\r\n")?.len(),
        };
        if closed || parts.len() == most {
            return None;
        }
        match begun {
            Some(start) => parts.push(part(body.get(start..content_end)?)),
            // Nothing stands before the first delimiter, or a line end.
            None if content_end == 0 => {}
            None => return None,
        }
        at = found + delimiter.len() + 2;
        match behind {
            [b'\r', b'\n', ..] => begun = Some(at),
            [b'-', b'-', ..] => closed = true,
            _ => return None,
        }
    }
    closed.then_some(parts)
}

fn find(body: &[u8], wanted: &[u8], from: usize) -> Option<usize> {
    (from..body.len()).find(|&at| body[at] == b'-' && body[at..].starts_with(wanted))
}

/// The boundary, where it is there once and needs no unquoting in which readers differ.
///
/// Some readers take the text behind the first or the last `boundary`, wherever that is.
fn boundary(kind: &str) -> Option<&str> {
    let has = |text: &str, word| text.to_ascii_lowercase().contains(word);
    let mut found = None;
    let mut pieces = kind.split(';');
    if pieces.next().is_some_and(|kind| has(kind, "boundary")) {
        return None;
    }
    for parameter in pieces.map(str::trim).filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=')?;
        if name.eq_ignore_ascii_case("boundary") {
            // Browsers have the word in the value as well, without a sign behind it.
            if has(value, "boundary=") || found.replace(value).is_some() {
                return None;
            }
        } else if has(parameter, "boundary") {
            return None;
        }
    }
    let value = found?;
    let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_-./:=?".contains(&byte);
    (!bare.is_empty() && bare.len() <= LONGEST_BOUNDARY && bare.bytes().all(is_plain)).then_some(bare)
}

fn part(part: &[u8]) -> FormPart<'_> {
    let Some(end) = part.windows(4).position(|window| window == b"\r\n\r\n") else {
        return FormPart::Unclear(part);
    };
    let head = &part[..end];
    let content = &part[end + 4..];
    match part_name(&String::from_utf8_lossy(head)) {
        Some(PartName::Disposed(name)) => FormPart::Named { name, head, content },
        Some(PartName::Fallback(names)) => FormPart::Fallback { names, content },
        None => FormPart::Unclear(head),
    }
}

/// What the head of a part calls it.
enum PartName {
    Disposed(String),
    /// Without a disposition: every name that some reader gives to the part.
    Fallback(Vec<String>),
}

/// `None` where two readers could find two names.
fn part_name(head: &str) -> Option<PartName> {
    const NAMING: [&str; 3] = ["content-disposition", "content-id", "content-type"];
    let mut disposed = None;
    // Some readers take one of these for the name of a part without a disposition.
    let mut others = Vec::new();
    // Some readers look for a disposition anywhere in the head.
    if head.to_ascii_lowercase().matches(NAMING[0]).count() > 1 {
        return None;
    }
    for line in head.split("\r\n") {
        if line.starts_with([' ', '\t']) || line.contains(['\r', '\n', '\0']) {
            return None;
        }
        let (field, value) = line.split_once(':')?;
        match &*field.to_ascii_lowercase() {
            "content-disposition" => disposed = Some(parse_disposition(value)?.name),
            "content-id" | "content-type" => others.push(value.trim()),
            _ if NAMING.iter().any(|naming| line.to_ascii_lowercase().contains(naming)) => return None,
            _ => {}
        }
    }
    if let Some(name) = disposed {
        return Some(PartName::Disposed(name.to_owned()));
    }
    let spelt = |value: &&str| {
        let bare = value.split(';').next().unwrap_or_default().trim();
        [(*value).to_owned(), bare.trim_start_matches('<').trim_end_matches('>').to_owned()]
    };
    Some(PartName::Fallback(others.iter().flat_map(spelt).collect()))
}

const FILE: &str = "is in a part of a form that has a file name, which some servers take for no value";
const UNUSUAL: &str =
    "is in a part of a form that is not said to be plain text in UTF-8, which servers read differently";

/// The content of a part with this head, where every reader takes it for the same text.
///
/// Readers decode by the part's own `Content-Type`, some also by `Content-Transfer-Encoding`, and aiohttp reads as many bytes
/// as the part's `Content-Length` says.
///
/// # Errors
/// A reader could take another text, or a file.
pub(super) fn text_content(head: &[u8], content: &[u8]) -> Result<String, ExtractValueError> {
    let head = std::str::from_utf8(head).map_err(|_| ExtractValueError::Invalid(UNUSUAL))?;
    let mut seen = Vec::new();
    for line in head.split("\r\n") {
        let (field, value) = line.split_once(':').ok_or(ExtractValueError::Invalid(UNUSUAL))?;
        let field = field.to_ascii_lowercase();
        let value = value.trim();
        let is_plain = match &*field {
            "content-disposition" if parse_disposition(value).is_none_or(|disposed| disposed.has_more) => {
                return Err(ExtractValueError::Invalid(FILE));
            }
            "content-disposition" => true,
            "content-type" => is_utf8_text(value),
            "content-length" => value == content.len().to_string(),
            "content-transfer-encoding" => {
                ["binary", "8bit", "7bit"].iter().any(|plain| value.eq_ignore_ascii_case(plain))
            }
            _ => false,
        };
        if !is_plain || seen.contains(&field) {
            return Err(ExtractValueError::Invalid(UNUSUAL));
        }
        seen.push(field);
    }
    String::from_utf8(content.to_vec()).map_err(|_| ExtractValueError::Invalid(NOT_UTF8))
}

/// `text/plain`, in no other character set than UTF-8.
fn is_utf8_text(kind: &str) -> bool {
    let mut parts = kind.split(';').map(str::trim);
    let is_text = parts.next().is_some_and(|named| named.eq_ignore_ascii_case("text/plain"));
    let is_utf8 = |parameter: &str| {
        let charset = parameter.split_once('=').filter(|(name, _)| name.eq_ignore_ascii_case("charset"));
        charset.is_some_and(|(_, value)| {
            let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
            bare.eq_ignore_ascii_case("utf-8") || bare.eq_ignore_ascii_case("utf8")
        })
    };
    is_text && parts.all(is_utf8)
}

/// A `Content-Disposition` in which every reader finds one name.
struct PartDisposition<'h> {
    name: &'h str,
    /// There is a further parameter, such as `filename`.
    has_more: bool,
}

fn parse_disposition(disposition: &str) -> Option<PartDisposition<'_>> {
    const KIND: &str = "form-data";
    let disposition = disposition.trim();
    if !disposition.get(..KIND.len())?.eq_ignore_ascii_case(KIND) {
        return None;
    }
    let mut rest = disposition[KIND.len()..].trim_start();
    let mut name = None;
    let mut has_more = false;
    while !rest.is_empty() {
        rest = rest.strip_prefix(';')?.trim_start();
        if rest.is_empty() {
            break;
        }
        let (parameter, after) = rest.split_once('=')?;
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_at(after.find(';').unwrap_or(after.len())),
        };
        if value.contains('\\') {
            return None;
        }
        let parameter = parameter.to_ascii_lowercase();
        // `name*` (RFC 8187) has another spelling, which only some readers support.
        if parameter == "name" {
            // Some readers decode words as in mail (RFC 2047).
            if value.contains("=?") || name.replace(value).is_some() {
                return None;
            }
        } else if parameter.trim().starts_with("name") {
            return None;
        } else {
            has_more = true;
        }
        rest = after.trim_start();
    }
    name.map(|name| PartDisposition { name, has_more })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KIND: &str = "multipart/form-data; boundary=X-1";

    fn parsed_parts(kind: &str, body: &str) -> Option<Vec<(String, String)>> {
        let mut found = Vec::new();
        for part in parts(kind, body.as_bytes(), 4)? {
            let (names, content) = match part {
                FormPart::Named { name, head: _, content } => (vec![name], content),
                FormPart::Fallback { names, content } => (names, content),
                FormPart::Unclear(_) => return None,
            };
            let content = String::from_utf8_lossy(content);
            found.extend(names.into_iter().map(|name| (name, content.clone().into_owned())));
        }
        Some(found)
    }

    fn disposition_name_of(disposition: &str) -> Option<String> {
        let body = format!("--X-1\r\nContent-Disposition: {disposition}\r\n\r\n7\r\n--X-1--\r\n");
        parsed_parts(KIND, &body).map(|parts| parts[0].0.clone())
    }

    /// The bodies that usual clients send are read.
    #[test]
    fn usual_bodies_are_read() {
        let body = "--X-1\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\n42\r\n\
                    --X-1\r\ncontent-type: text/plain\r\nContent-Disposition: form-data; filename=\"a;b.txt\"; name=file\r\n\r\n\
                    a\r\n\r\nb\n\r\n--X-1--\r\n";
        let wanted =
            [("id", "42"), ("file", "a\r\n\r\nb\n")].map(|(name, value)| (name.into(), value.into()));
        for kind in [KIND, "Multipart/Form-Data; charset=utf-8; Boundary=\"X-1\""] {
            assert_eq!(parsed_parts(kind, body), Some(wanted.to_vec()), "{kind}");
        }
        assert_eq!(parsed_parts(KIND, &format!("\r\n{body}")), Some(wanted.to_vec()));
        assert_eq!(parsed_parts(KIND, "--X-1--\r\n"), Some(Vec::new()));
    }

    /// A part without a disposition has the names that some readers give it.
    #[test]
    fn part_without_disposition_has_fallback_names() {
        let names = |head: &str| {
            let body = format!("--X-1\r\n{head}\r\n\r\n7\r\n--X-1--\r\n");
            parsed_parts(KIND, &body).map(|parts| parts.into_iter().map(|(name, _)| name).collect::<Vec<_>>())
        };
        assert_eq!(names("Content-Length: 1"), Some(Vec::new()));
        assert_eq!(names("content-id: <id>"), Some(vec!["<id>".into(), "id".into()]));
        assert_eq!(names("Content-Type: a/b; c=d"), Some(vec!["a/b; c=d".into(), "a/b".into()]));
        assert_eq!(names("X-Content-ID: id"), None);
    }

    /// A body that readers split in two ways is rejected.
    #[test]
    fn ambiguously_split_body_is_rejected() {
        let plain = "--X-1\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--X-1--\r\n";
        assert!(parsed_parts(KIND, plain).is_some());
        for body in [
            plain.replace("--X-1--\r\n", ""),
            plain.replace("\r\n", "\n"),
            plain.replace("1\r\n", "1\n--X-1\nx\r\n"),
            format!("{plain}--X-1\r\n"),
            format!("before\r\n{plain}"),
            plain.replace("--X-1\r\n", "--X-1 \r\n"),
            plain.replace("Content-Disposition", "Content-Disposition "),
            plain.replace("; name", ";\r\n name"),
            plain.replace(
                "form-data; name=\"a\"",
                "form-data; name=\"a\"\r\nContent-Disposition: form-data; name=\"b\"",
            ),
            plain.replace(
                "form-data; name=\"a\"",
                "form-data; name=\"a\"\nContent-Disposition: form-data; name=\"b\"",
            ),
            plain.replacen(
                "--X-1\r\n",
                &"--X-1\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n".repeat(5),
                1,
            ),
        ] {
            assert_eq!(parsed_parts(KIND, &body), None, "{body:?}");
        }
        for kind in [
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=X-1; boundary=Y",
            "multipart/form-data; boundary*=X-1",
            "multipart/form-data; boundary=X-1, x",
            "multipart/form-data; boundary=\"X\\-1\"",
            "multipart/form-data; x; boundary=X-1",
        ] {
            assert_eq!(parsed_parts(kind, plain), None, "{kind}");
        }
    }

    /// A name is taken only where every reader takes it.
    #[test]
    fn name_requires_agreement_of_readers() {
        for disposition in [
            "form-data; name=\"id\"",
            "Form-Data;name=id",
            "form-data; name=\"id\"; filename*=utf-8''x",
            "form-data; name=id;",
        ] {
            assert_eq!(disposition_name_of(disposition).as_deref(), Some("id"), "{disposition}");
        }
        for disposition in [
            "form-data",
            "attachment; name=id",
            "form-data; name=\"id",
            "form-data; name=\"i\\d\"",
            "form-data; name*=utf-8''id",
            "form-data; name=a; name=id",
            "form-data; name=\"a\"b; name=id",
            "form-data; name=\"=?utf-8?q?id?=\"",
            "form-data; filename=\"\\\"; name=a; x=\"; name=id",
        ] {
            assert_eq!(disposition_name_of(disposition), None, "{disposition}");
        }
    }

    fn text_of(head: &str, content: &str) -> Result<String, &'static str> {
        match text_content(head.as_bytes(), content.as_bytes()) {
            Ok(text) => Ok(text),
            Err(ExtractValueError::Invalid(reason)) => Err(reason),
            Err(ExtractValueError::Missing) => Err("missing"),
        }
    }

    /// A text is taken from a part whose head leaves no other reading.
    #[test]
    fn plain_part_has_text() {
        const NAMED: &str = "Content-Disposition: form-data; name=\"id\"";
        for more in [
            "",
            "\r\nContent-Type: text/plain",
            "\r\ncontent-type: Text/Plain; charset=UTF-8",
            "\r\nContent-Type: text/plain;charset=\"utf8\"",
            "\r\nContent-Length: 2",
            "\r\nContent-Transfer-Encoding: 8bit",
        ] {
            assert_eq!(text_of(&format!("{NAMED}{more}"), "42").as_deref(), Ok("42"), "{more}");
        }
        for more in [
            "\r\nContent-Type: text/plain; charset=utf-16",
            "\r\nContent-Type: text/plain; charset=utf-8; charset=utf-16",
            "\r\nContent-Type: text/plain; format=flowed",
            "\r\nContent-Type: application/json",
            "\r\nContent-Type: text/plain\r\nContent-Type: text/plain",
            "\r\nContent-Length: 1",
            "\r\nContent-Transfer-Encoding: base64",
            "\r\nContent-Transfer-Encoding: quoted-printable",
            "\r\nContent-Encoding: gzip",
            "\r\nX-Other: 1",
        ] {
            assert_eq!(text_of(&format!("{NAMED}{more}"), "42"), Err(UNUSUAL), "{more}");
        }
        for more in ["; filename=\"a\"", "; filename=\"\"", "; filename*=utf-8''a", "; size=2"] {
            assert_eq!(text_of(&format!("{NAMED}{more}"), "42"), Err(FILE), "{more}");
        }
        assert_eq!(
            text_content(NAMED.as_bytes(), b"\xff")
                .err()
                .map(|bad| matches!(bad, ExtractValueError::Invalid(NOT_UTF8))),
            Some(true)
        );
    }

    proptest! {
        #[test]
        fn any_head_has_text_or_reason(
            head in prop::collection::vec(
                prop::sample::select(vec!["Content-Disposition: form-data; name=a", "Content-Type: ", "\r\n", ";", "\"", ":", "\u{e9}"]),
                0..8,
            ),
            content: Vec<u8>,
        ) {
            if let Ok(text) = text_content(head.concat().as_bytes(), &content) {
                prop_assert_eq!(text.into_bytes(), content);
            }
        }

        #[test]
        fn any_text_parses_without_panic(
            kind in "\\PC{0,20}|multipart/form-data; boundary=-{0,3}",
            body in prop::collection::vec(
                prop::sample::select(vec![
                    "--", "-", "\r\n", "\n", ":", "\u{e9}", "\"", "Content-Disposition: form-data; name=a",
                ]),
                0..24,
            ),
        ) {
            let body = body.concat();
            if let Some(parts) = parts(&kind, body.as_bytes(), 4) {
                prop_assert!(parts.len() <= 4);
            }
        }
    }
}
