//! Finds the fields of a `multipart/form-data` body (RFC 7578), where every reader finds the same ones.
//!
//! Readers disagree about broken bodies: about line ends, repeated boundaries, folded lines and escapes in names. Such a body is
//! given up. Nothing is decoded.

/// The longest boundary (RFC 2046, 5.1.1).
const LONGEST_BOUNDARY: usize = 70;

/// The name and the content of each part; `None` where two readers could find other ones.
///
/// `kind` is the value of `Content-Type`.
pub(super) fn parts<'b>(kind: &str, body: &'b [u8], most: usize) -> Option<Vec<(&'b str, &'b [u8])>> {
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
            Some(start) => parts.push(part(body.get(start..content_end)?)?),
            // What stands before the first delimiter is nothing, or a line end.
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
fn boundary(kind: &str) -> Option<&str> {
    let mut found = None;
    for parameter in kind.split(';').skip(1).map(str::trim).filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=')?;
        if name.to_ascii_lowercase().starts_with("boundary")
            && (name.len() != "boundary".len() || found.replace(value).is_some())
        {
            return None;
        }
    }
    let value = found?;
    let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_-./:=?".contains(&byte);
    (!bare.is_empty() && bare.len() <= LONGEST_BOUNDARY && bare.bytes().all(is_plain)).then_some(bare)
}

fn part(part: &[u8]) -> Option<(&str, &[u8])> {
    let end = part.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&part[..end]).ok()?;
    let mut name = None;
    for line in head.split("\r\n") {
        if line.starts_with([' ', '\t']) || line.contains(['\r', '\n', '\0']) {
            return None;
        }
        let (field, value) = line.split_once(':')?;
        if field.trim().eq_ignore_ascii_case("content-disposition")
            && (field.trim() != field || name.replace(named(value)?).is_some())
        {
            return None;
        }
    }
    Some((name?, &part[end + 4..]))
}

/// The parameter `name` of a `Content-Disposition`.
fn named(disposition: &str) -> Option<&str> {
    const KIND: &str = "form-data";
    let disposition = disposition.trim();
    if !disposition.get(..KIND.len())?.eq_ignore_ascii_case(KIND) {
        return None;
    }
    let mut rest = disposition[KIND.len()..].trim_start();
    let mut name = None;
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
        // `name*` (RFC 8187) has another spelling, which only some readers know.
        if parameter == "name" {
            // Some readers decode words as in mail (RFC 2047).
            if value.contains("=?") || name.replace(value).is_some() {
                return None;
            }
        } else if parameter.trim().starts_with("name") {
            return None;
        }
        rest = after.trim_start();
    }
    name
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KIND: &str = "multipart/form-data; boundary=X-1";

    fn found(kind: &str, body: &str) -> Option<Vec<(String, String)>> {
        let parts = parts(kind, body.as_bytes(), 4)?;
        let text =
            |(name, value): (&str, &[u8])| (name.to_owned(), String::from_utf8_lossy(value).into_owned());
        Some(parts.into_iter().map(text).collect())
    }

    fn one(disposition: &str) -> Option<String> {
        let body = format!("--X-1\r\nContent-Disposition: {disposition}\r\n\r\n7\r\n--X-1--\r\n");
        found(KIND, &body).map(|parts| parts[0].0.clone())
    }

    #[test]
    fn the_bodies_of_usual_clients_are_read() {
        let body = "--X-1\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\n42\r\n\
                    --X-1\r\ncontent-type: text/plain\r\nContent-Disposition: form-data; filename=\"a;b.txt\"; name=file\r\n\r\n\
                    a\r\n\r\nb\n\r\n--X-1--\r\n";
        let wanted =
            [("id", "42"), ("file", "a\r\n\r\nb\n")].map(|(name, value)| (name.into(), value.into()));
        for kind in [KIND, "Multipart/Form-Data; charset=utf-8; Boundary=\"X-1\""] {
            assert_eq!(found(kind, body), Some(wanted.to_vec()), "{kind}");
        }
        assert_eq!(found(KIND, &format!("\r\n{body}")), Some(wanted.to_vec()));
        assert_eq!(found(KIND, "--X-1--\r\n"), Some(Vec::new()));
    }

    #[test]
    fn a_body_that_readers_cut_in_two_ways_is_given_up() {
        let plain = "--X-1\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--X-1--\r\n";
        assert!(found(KIND, plain).is_some());
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
            assert_eq!(found(KIND, &body), None, "{body:?}");
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
            assert_eq!(found(kind, plain), None, "{kind}");
        }
    }

    #[test]
    fn a_name_is_taken_where_every_reader_takes_it() {
        for disposition in [
            "form-data; name=\"id\"",
            "Form-Data;name=id",
            "form-data; name=\"id\"; filename*=utf-8''x",
            "form-data; name=id;",
        ] {
            assert_eq!(one(disposition).as_deref(), Some("id"), "{disposition}");
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
            assert_eq!(one(disposition), None, "{disposition}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_given_up_without_a_panic(
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
