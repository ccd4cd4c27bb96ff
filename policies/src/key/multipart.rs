//! Finds the fields of a `multipart/form-data` body (RFC 7578), if every reader finds the same ones.
//!
//! Readers disagree about everything that browsers do not write: line ends, preambles, folded lines, escapes, and the
//! ends of parameters. So only the form that browsers write is accepted (RFC 7578, section 4); any other body or part
//! is rejected. Nothing is decoded.
//!
//! The crate `multer` (3.1) is not used: it returns a single reading of a stream, and silently takes one of two names
//! or dispositions. Here a body with two readings must not pass.

use super::{
    error::{ExtractValueError, NOT_UTF8},
    form::decode_leniently,
    ignored_characters::BYTE_ORDER_MARK,
};
use crate::header_name::is_http_token;

/// The longest boundary in bytes (RFC 2046, section 5.1.1).
const LONGEST_BOUNDARY: usize = 70;

/// A part of a body.
#[derive(Debug)]
pub(super) enum FormPart<'b> {
    /// A part to which every reader gives this name.
    Named { name: String, head: &'b [u8], content: &'b [u8] },
    /// A part without a disposition, with every name that some reader gives to it.
    Fallback { names: Vec<String>, content: &'b [u8] },
    /// A part in whose head two readers could find different names. Contains the head.
    Unclear(&'b [u8]),
}

/// The parts of a body; `None` if two readers could find different ones, or if there are more than `most`.
///
/// `kind`: the value of `Content-Type`.
pub(super) fn parts<'b>(kind: &str, body: &'b [u8], most: usize) -> Option<Vec<FormPart<'b>>> {
    let delimiter = format!("--{}", boundary(kind)?);
    let delimiter = delimiter.as_bytes();
    let mut parts = Vec::new();
    // The body must begin with the delimiter and end after the last one: some readers take a preamble or an epilogue
    // for a part.
    let mut rest = body.strip_prefix(delimiter)?;
    loop {
        if let Some(epilogue) = rest.strip_prefix(b"--") {
            return matches!(epilogue, b"" | b"\r\n").then_some(parts);
        }
        rest = rest.strip_prefix(b"\r\n")?;
        // A delimiter within a line, or after another line end, is refused, because some readers accept it.
        let at = find_delimiter(rest, delimiter)?;
        let part = rest[..at].strip_suffix(b"\r\n")?;
        if parts.len() == most {
            return None;
        }
        parts.push(parse_part(part));
        rest = &rest[at + delimiter.len()..];
    }
}

fn find_delimiter(body: &[u8], wanted: &[u8]) -> Option<usize> {
    (0..body.len()).find(|&at| body[at] == b'-' && body[at..].starts_with(wanted))
}

/// The boundary, if it occurs once and every reader finds the same beginning and end.
///
/// Some readers take the text after the first or the last `boundary`, wherever it is, and some treat single quotes like
/// double quotes.
fn boundary(kind: &str) -> Option<&str> {
    const NAME: &str = "boundary";
    let has = |text: &str, word| text.to_ascii_lowercase().contains(word);
    if kind.contains(|character: char| !matches!(character, ' '..='~') || matches!(character, '\'' | '\\')) {
        return None;
    }
    let mut pieces = kind.split(';');
    let (main, sub) = pieces.next()?.trim().split_once('/')?;
    if !is_http_token(main) || !is_http_token(sub) || has(main, NAME) || has(sub, NAME) {
        return None;
    }
    let mut found = None;
    for parameter in pieces.map(str::trim) {
        let (name, value) = parameter.split_once('=')?;
        let (text, is_quoted) = match value.strip_prefix('"') {
            Some(open) => (open.strip_suffix('"')?, true),
            None => (value, false),
        };
        if name == NAME {
            // The word alone is allowed in the value, because the boundaries of browsers contain it. Followed by `=` it
            // could start another parameter.
            if has(text, "boundary=") || !is_plain_boundary(text, is_quoted) || found.replace(text).is_some()
            {
                return None;
            }
        } else {
            let is_plain = is_http_token(text) || is_quoted && !text.contains(['"', ',']);
            if !is_http_token(name) || !is_plain || has(parameter, NAME) {
                return None;
            }
        }
    }
    found
}

/// Whether a boundary consists of characters at which no reader ends a token, out of those that a boundary may have
/// (RFC 2046, section 5.1.1). In quotes also `=`, which mail programs use.
fn is_plain_boundary(text: &str, is_quoted: bool) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"+_-.".contains(&byte) || is_quoted && byte == b'=';
    !text.is_empty() && text.len() <= LONGEST_BOUNDARY && text.bytes().all(is_plain)
}

fn parse_part(part: &[u8]) -> FormPart<'_> {
    let Some(end) = part.windows(4).position(|window| window == b"\r\n\r\n") else {
        return FormPart::Unclear(part);
    };
    let head = &part[..end];
    let content = &part[end + 4..];
    match part_name(&String::from_utf8_lossy(head)) {
        Some(FormPartName::Disposed(name)) => FormPart::Named { name, head, content },
        Some(FormPartName::Fallback(names)) => FormPart::Fallback { names, content },
        None => FormPart::Unclear(head),
    }
}

/// The name that the head of a part gives to it.
enum FormPartName {
    Disposed(String),
    /// Without a disposition: every name that some reader gives to the part.
    Fallback(Vec<String>),
}

/// The fields of a head: names in lower case, and values. `None` if some reader could find other fields.
///
/// Every character that some reader takes for a line end is refused, and so is any other control character. A line that
/// begins with a space is refused, because its name is no token.
fn head_fields(head: &str) -> Option<Vec<(String, &str)>> {
    let mut fields: Vec<(String, &str)> = Vec::new();
    for line in head.split("\r\n") {
        let is_line_end = |character: char| {
            character.is_control() || matches!(character, '\u{2028}' | '\u{2029}' | BYTE_ORDER_MARK)
        };
        let (name, value) = line.split_once(':')?;
        let name = name.to_ascii_lowercase();
        if line.contains(is_line_end)
            || !is_http_token(&name)
            || fields.iter().any(|(known, _)| *known == name)
        {
            return None;
        }
        fields.push((name, value.trim_matches(' ')));
    }
    Some(fields)
}

/// The name of a part by its head; `None` if two readers could find different names.
fn part_name(head: &str) -> Option<FormPartName> {
    const DISPOSITION: &str = "content-disposition";
    const NAMING: [&str; 3] = [DISPOSITION, "content-id", "content-type"];
    // Some readers look for a disposition anywhere in the head, so it may occur only once.
    if head.to_ascii_lowercase().matches(DISPOSITION).count() > 1 {
        return None;
    }
    let mut disposed = None;
    // The fields that some readers take for the name of a part without a disposition.
    let mut others = Vec::new();
    for (field, value) in head_fields(head)? {
        let is_naming = |text: &str| {
            let spelt = text.to_ascii_lowercase().replace('_', "-");
            NAMING.iter().any(|naming| spelt.contains(naming))
        };
        match &*field {
            DISPOSITION => disposed = Some(parse_disposition(value)?.name),
            // Some readers look for further parts, with names of their own, inside of such a part.
            "content-type" if is_nested_multipart(value) => return None,
            "content-id" | "content-type" => others.push(value),
            _ if is_naming(&field) || is_naming(value) => return None,
            _ => {}
        }
    }
    if let Some(name) = disposed {
        return Some(FormPartName::Disposed(name.to_owned()));
    }
    let spelt = |value: &&str| {
        let bare = value.split(';').next().unwrap_or_default().trim();
        [(*value).to_owned(), bare.trim_start_matches('<').trim_end_matches('>').to_owned()]
    };
    Some(FormPartName::Fallback(others.iter().flat_map(spelt).collect()))
}

/// Whether the content of a part with this content type has heads of its own.
fn is_nested_multipart(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    ["multipart", "message"].iter().any(|main| kind.starts_with(main))
}

const FILE: &str = "is in a part of a form that has a file name, which some servers take for no value";
const UNUSUAL: &str =
    "is in a part of a form that is not said to be plain text in UTF-8, which servers read differently";
const MARKED: &str =
    "is in a part of a form that begins with a byte order mark, which some servers leave out";

/// The content of a part with this head, if every reader decodes it to the same text.
///
/// Readers decode by the part's own `Content-Type`, some also by `Content-Transfer-Encoding`, and aiohttp reads as many bytes
/// as the part's `Content-Length` says.
///
/// # Errors
/// Returns an error if some reader could find another text, or a file.
pub(super) fn text_content(head: &[u8], content: &[u8]) -> Result<String, ExtractValueError> {
    let unusual = || ExtractValueError::Invalid(UNUSUAL);
    let head = std::str::from_utf8(head).map_err(|_| unusual())?;
    for (field, value) in head_fields(head).ok_or_else(unusual)? {
        let is_plain = match &*field {
            "content-disposition" => {
                if parse_disposition(value).ok_or_else(unusual)?.is_file {
                    return Err(ExtractValueError::Invalid(FILE));
                }
                true
            }
            "content-type" => is_utf8_text(value),
            "content-length" => value == content.len().to_string(),
            "content-transfer-encoding" => {
                ["binary", "8bit", "7bit"].iter().any(|plain| value.eq_ignore_ascii_case(plain))
            }
            _ => false,
        };
        if !is_plain {
            return Err(unusual());
        }
    }
    let text = std::str::from_utf8(content).map_err(|_| ExtractValueError::Invalid(NOT_UTF8))?;
    match text.starts_with(BYTE_ORDER_MARK) {
        true => Err(ExtractValueError::Invalid(MARKED)),
        false => Ok(text.to_owned()),
    }
}

/// Whether a content type is `text/plain` in UTF-8.
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
struct FormPartDisposition<'h> {
    name: &'h str,
    /// True if the disposition has a file name.
    is_file: bool,
}

/// Reads a disposition. `None` unless it is written as browsers do: `form-data; name="a"; filename="b"`, in any order,
/// or with tokens without quotes. PHP and Jetty treat single quotes like double quotes, some readers resolve escapes
/// with a backslash or a percent sign, some end a value at a semicolon within its quotes, and Rack's first pattern
/// takes the last `name=`, wherever it is.
fn parse_disposition(disposition: &str) -> Option<FormPartDisposition<'_>> {
    let mut rest = disposition.strip_prefix("form-data")?;
    let mut name = None;
    let mut files = Vec::new();
    while !rest.is_empty() {
        let (parameter, after) = rest.strip_prefix("; ")?.split_once('=')?;
        let (text, behind) = match after.strip_prefix('"') {
            Some(open) => open.split_once('"').filter(|(text, _)| is_unambiguous_quoted_text(text))?,
            None => after.split_at(after.find(';').unwrap_or(after.len())),
        };
        let is_quoted = after.starts_with('"');
        let is_clear = is_quoted || is_http_token(text) && !text.contains(['\'', '%', '*']);
        match parameter {
            "name" if is_clear && is_unambiguous_part_name(text) && name.is_none() => name = Some(text),
            "filename" if is_clear && !files.contains(&parameter) => files.push(parameter),
            // Some clients send it for a file name that is not ASCII (RFC 8187). Its two single quotes enclose an empty
            // language.
            "filename*" if !is_quoted && is_extended_text(text) && !files.contains(&parameter) => {
                files.push(parameter)
            }
            _ => return None,
        }
        rest = behind;
    }
    name.map(|name| FormPartDisposition { name, is_file: !files.is_empty() })
}

/// Whether no reader ends the value within a quoted text, or finds another parameter in it.
fn is_unambiguous_quoted_text(text: &str) -> bool {
    let names_parameter = |text: &str| {
        let lower = text.to_ascii_lowercase();
        lower.split_once("name").is_some_and(|(_, behind)| behind.contains('='))
    };
    !text.contains('\\')
        && !names_parameter(text)
        && !names_parameter(&String::from_utf8_lossy(&decode_leniently(text.as_bytes())))
}

/// Whether no reader decodes, unquotes or cuts a name. An equals sign is refused because some readers decode encoded
/// words of mail (RFC 2047).
fn is_unambiguous_part_name(name: &str) -> bool {
    !name.is_empty()
        && !name.contains(['\'', '%', ';', ',', '=', '<', '>', '\\', char::REPLACEMENT_CHARACTER])
}

/// Whether a text is an extended value in UTF-8 without a language (RFC 8187, section 3.2.1).
fn is_extended_text(text: &str) -> bool {
    const CHARSET: &str = "utf-8''";
    let Some((charset, value)) = text.split_at_checked(CHARSET.len()) else { return false };
    charset.eq_ignore_ascii_case(CHARSET)
        && is_unambiguous_quoted_text(value)
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&+-.^_`|~".contains(&byte))
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

    /// The bodies that common clients send are read.
    #[test]
    fn usual_bodies_are_read() {
        let body = "--X-1\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\n42\r\n\
                    --X-1\r\ncontent-type: text/plain\r\nContent-Disposition: form-data; filename=\"a;b.txt\"; name=file\r\n\r\n\
                    a\r\n\r\nb\n\r\n--X-1--\r\n";
        let wanted =
            [("id", "42"), ("file", "a\r\n\r\nb\n")].map(|(name, value)| (name.into(), value.into()));
        for kind in [
            KIND,
            "multipart/form-data;boundary=X-1",
            "Multipart/Form-Data; charset=utf-8; boundary=\"X-1\"",
            "multipart/form-data; boundary=X-1; a=\"b c\"",
        ] {
            assert_eq!(parsed_parts(kind, body), Some(wanted.to_vec()), "{kind}");
        }
        assert_eq!(parsed_parts(KIND, body.strip_suffix("\r\n").expect("a line")), Some(wanted.to_vec()));
        assert_eq!(parsed_parts(KIND, "--X-1--\r\n"), Some(Vec::new()));
        let quoted = "multipart/form-data; boundary=\"----=_Part_1_2.3\"";
        assert_eq!(parsed_parts(quoted, &body.replace("--X-1", "------=_Part_1_2.3")), Some(wanted.to_vec()));
    }

    /// A part without a disposition has all names that some reader gives to it.
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
        assert_eq!(names("X_Content_ID: id"), None);
        assert_eq!(names("X: content_disposition: form-data; name=id"), None);
        assert_eq!(names("Content-Type: multipart/mixed; boundary=c"), None);
        assert_eq!(names("Content-Type: message/http"), None);
    }

    /// A body that readers split in different ways is rejected.
    #[test]
    fn ambiguously_split_body_is_rejected() {
        let plain = "--X-1\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--X-1--\r\n";
        assert!(parsed_parts(KIND, plain).is_some());
        for body in [
            plain.replace("--X-1--\r\n", ""),
            plain.replace("\r\n", "\n"),
            plain.replace("\n1\r\n", "\n1\n--X-1\nx\r\n"),
            format!("{plain}--X-1\r\n"),
            format!("before\r\n{plain}"),
            format!("\r\n{plain}"),
            format!("--X-1\r\n\r\n{plain}"),
            format!("{plain}behind"),
            format!("{plain}\r\n"),
            plain.replace("--X-1--\r\n", "--X-1--\n"),
            plain.replace("--X-1--\r\n", "--X-1-- \r\n"),
            plain.replace("--X-1--\r\n", "--X-1\r\n"),
            plain.replace("1\r\n--X-1--", "1\n--X-1--"),
            plain.replace("1\r\n--X-1--", "1--X-1--"),
            plain.replace("1\r\n--X-1--", "1\r\n--X-10\r\n--X-1--"),
            plain.replace("\n1\r\n", "\n1\r--X-1\r\n"),
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
            "multipart/form-data; boundary=X-1; boundary=X-1",
            "multipart/form-data; boundary=X-1; Boundary=Y",
            "multipart/form-data; Boundary=X-1",
            "multipart/form-data; boundary =X-1",
            "multipart/form-data; boundary= X-1",
            "multipart/form-data; boundary='X-1'",
            "multipart/form-data; boundary=\"X-1",
            "multipart/form-data; boundary=X-1\"",
            "multipart/form-data; boundary=X-1;",
            "multipart/form-data; a='x; boundary=X-1; b='",
            "multipart/form-data; a=\"x; boundary=Y\"; boundary=X-1",
            "multipart/form-data; a=b c; boundary=X-1",
            "multipart/form-data; a b=c; boundary=X-1",
            "multipart/form-data;\tboundary=X-1",
            "multipart/form-data, multipart/form-data; boundary=X-1",
            "multipart; boundary=X-1",
        ] {
            assert_eq!(parsed_parts(kind, plain), None, "{kind}");
        }
    }

    /// A boundary may contain only characters at which no reader ends it, in quotes or without.
    #[test]
    fn boundary_is_plain() {
        let empty = |boundary: &str| format!("--{boundary}--");
        for boundary in ["a", "----WebKitFormBoundaryX1", "0_a.b+c", &"x".repeat(70)] {
            for kind in [format!("a/b; boundary={boundary}"), format!("a/b; boundary=\"{boundary}\"")] {
                assert_eq!(parsed_parts(&kind, &empty(boundary)), Some(Vec::new()), "{kind}");
            }
        }
        assert!(parsed_parts("a/b; boundary=\"a=b\"", &empty("a=b")).is_some());
        assert_eq!(parsed_parts("a/b; boundary=a=b", &empty("a=b")), None);
        for boundary in
            ["a'b", "a b", "a(b)", "a/b", "a:b", "a?b", "a,b", "a%41", "a*b", "a&b", &"x".repeat(71)]
        {
            for kind in [format!("a/b; boundary={boundary}"), format!("a/b; boundary=\"{boundary}\"")] {
                assert_eq!(parsed_parts(&kind, &empty(boundary)), None, "{kind}");
            }
        }
    }

    /// A head in which some reader finds another line, another field or another end of a field gives no name.
    #[test]
    fn head_requires_agreement_of_readers() {
        const NAMED: &str = "Content-Disposition: form-data; name=\"a\"";
        let names = |head: &str| {
            let body = format!("--X-1\r\n{head}\r\n\r\n7\r\n--X-1--\r\n");
            parsed_parts(KIND, &body).map(|parts| parts.into_iter().map(|(name, _)| name).collect::<Vec<_>>())
        };
        for head in [
            NAMED.to_owned(),
            NAMED.replace(": ", ":"),
            NAMED.replace("Content-Disposition", "CONTENT-DISPOSITION"),
            format!("{NAMED}\r\nX-Other: 1"),
            format!("Content-Type: text/plain\r\n{NAMED} "),
        ] {
            assert_eq!(names(&head), Some(vec!["a".into()]), "{head:?}");
        }
        for head in [
            // Rack's first pattern matches across lines.
            format!("{NAMED}\r\nX; name=id: 1"),
            format!("{NAMED}\r\nX y: 1"),
            format!("{NAMED}\r\n: 1"),
            format!("{NAMED}\r\nX"),
            format!("\r\n{NAMED}"),
            format!("{NAMED};\r\n name=id"),
            format!("{NAMED}\r\n\tX: 1"),
            format!("{NAMED}\rX: 1"),
            format!("{NAMED}\nX: 1"),
            format!("{NAMED}\r\nX: 1\t"),
            format!("{NAMED}\r\nX: \0"),
            format!("{NAMED}\r\nX: \u{7f}"),
            format!("{NAMED}\r\nX: \u{b}1"),
            format!("{NAMED}\r\nX: \u{1c}Content-ID: id"),
            format!("{NAMED}\r\nX: \u{85}Y: 1"),
            format!("{NAMED}\r\nX: \u{2028}Y: 1"),
            format!("{NAMED}\r\nX: \u{feff}"),
            format!("\u{feff}{NAMED}"),
            format!("{NAMED}\r\n{NAMED}"),
            format!("{NAMED}\r\nContent-Disposition: form-data; name=\"id\""),
            format!("{NAMED}\r\nX: 1\r\nx: 2"),
            NAMED.replace(": ", " : "),
            NAMED.replace("; ", ";"),
            NAMED.replace("; ", "; \t"),
            NAMED.replace("Content-Disposition", "Content_Disposition"),
        ] {
            assert_eq!(names(&head), None, "{head:?}");
        }
    }

    /// A name is accepted only if every reader finds it.
    #[test]
    fn name_requires_agreement_of_readers() {
        for disposition in [
            "form-data; name=\"id\"",
            "form-data; name=id",
            "form-data; name=\"id\"; filename=\"a;b's 100% (1).txt\"",
            "form-data; filename=a.txt; name=\"id\"",
            "form-data; name=\"id\"; filename*=utf-8''%e2%82%ac.txt",
            "form-data; name=\"id\"; filename=\"a\"; filename*=UTF-8''a",
        ] {
            assert_eq!(disposition_name_of(disposition).as_deref(), Some("id"), "{disposition}");
        }
        for name in ["a[b][]", "ctl00$x:y", "a b", "a.b-c", "caf\u{e9}", "user_name", "q (1)"] {
            let disposition = format!("form-data; name=\"{name}\"");
            assert_eq!(disposition_name_of(&disposition).as_deref(), Some(name), "{disposition}");
        }
        for disposition in [
            "form-data",
            "attachment; name=id",
            "Form-Data; name=id",
            "form-data;name=id",
            "form-data; name=id;",
            "form-data ; name=id",
            "form-data; Name=id",
            "form-data; name =id",
            "form-data; name= id",
            "form-data; name=",
            "form-data; name=\"\"",
            "form-data; filename=\"id\"",
            "form-data; name=\"id",
            "form-data; name=id\"",
            "form-data; name=\"i\\d\"",
            "form-data; name=\"i%64\"",
            "form-data; name=i%64",
            "form-data; name='id'",
            "form-data; name=i'd",
            "form-data; name=\"'id'\"",
            "form-data; name=\"id;x\"",
            "form-data; name=\"id,x\"",
            "form-data; name=\"a=b\"",
            "form-data; name=a/b",
            "form-data; name=a b",
            "form-data; name*=utf-8''id",
            "form-data; name*0=id",
            "form-data; name=a; name=id",
            "form-data; name=\"a\"; foo; name=\"id\"",
            "form-data; name=\"a\"; foo bar=\"; name=\"id\"",
            "form-data; name=\"a\"b; name=id",
            "form-data; name=\"a\"; size=2",
            "form-data; name=\"a\"; filename=x; filename=y",
            "form-data; name=\"=?utf-8?q?id?=\"",
            "form-data; name=\"a\"; filename=\"x; name=id\"",
            "form-data; name=\"a\"; filename=\"x NAME = id\"",
            "form-data; name=\"a\"; filename=\"x; name%3Did\"",
            "form-data; name=\"a\"; filename=\"x%22; n%61me=%22id\"",
            "form-data; filename=\"\\\"; name=a; x=\"; name=id",
            "form-data; name=\"a\"; filename=\"x\\\"",
            "form-data; name=a; filename='; name=id; x='",
            "form-data; name=\"a\"; filename*=\"utf-8''x\"",
            "form-data; name=\"a\"; filename*=utf-8'en'x",
            "form-data; name=\"a\"; filename*=utf-8''x'",
            "form-data; name=\"a\"; filename*=utf-8''name%3Did",
            "form-data; name=\"a\"; filename*=latin1''x",
        ] {
            assert_eq!(disposition_name_of(disposition), None, "{disposition}");
        }
    }

    fn text_of(head: &str, content: &str) -> Result<String, &'static str> {
        match text_content(head.as_bytes(), content.as_bytes()) {
            Ok(text) => Ok(text),
            Err(ExtractValueError::Invalid(reason)) => Err(reason),
            Err(_) => Err("missing"),
        }
    }

    /// A part has a text only if its head allows no other reading.
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
            "\r\nContent-Type: 'text/plain'",
            "\r\nContent-Type: text/plain; charset='utf-8'",
            "; size=2",
            "; name=\"x\"",
            "\r\n Content-Type: text/plain",
        ] {
            assert_eq!(text_of(&format!("{NAMED}{more}"), "42"), Err(UNUSUAL), "{more}");
        }
        for more in ["; filename=\"a\"", "; filename=\"\"", "; filename*=utf-8''a"] {
            assert_eq!(text_of(&format!("{NAMED}{more}"), "42"), Err(FILE), "{more}");
        }
        assert_eq!(text_of(NAMED, "\u{feff}42"), Err(MARKED));
        assert_eq!(text_of(NAMED, "4\u{feff}2").as_deref(), Ok("4\u{feff}2"));
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
