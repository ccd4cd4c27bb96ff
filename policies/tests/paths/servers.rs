//! Models of three servers: how each of them reads a request path, as plain functions. They show which spellings are
//! the same resource to a server.

/// A function that returns the resource of a path; `None` if the server refuses the path.
pub(crate) type ResourceReader = fn(&str) -> Option<Vec<String>>;

pub(crate) const SERVERS: [(&str, ResourceReader); 3] =
    [("nginx", read_like_nginx), ("express", read_like_express), ("spring", read_like_spring)];

/// Models `ngx_http_parse_complex_uri` with `merge_slashes on`: escapes are decoded once and first, so `%2F` is a
/// slash and `%2e%2e` leads up. A path above the root gets 400.
fn read_like_nginx(target: &str) -> Option<Vec<String>> {
    let bytes = decode_escapes(text_before(target, "?#"), true)?;
    let text = latin1_text(&bytes);
    let mut segments: Vec<String> = Vec::new();
    let mut directory = false;
    for part in text.strip_prefix('/')?.split('/') {
        directory = part.is_empty() || part == "." || part == "..";
        match part {
            "" | "." => {}
            ".." => drop(segments.pop()?),
            name => segments.push(name.to_owned()),
        }
    }
    // For nginx `/a/` and `/a` are different locations, so the trailing slash is kept.
    segments.extend(directory.then(String::new));
    Some(segments)
}

/// Models `new URL(req.url, base).pathname` (WHATWG URL) and an express route: segments are decoded with
/// `decodeURIComponent`, and a trailing slash and the case of literals are ignored.
fn read_like_express(target: &str) -> Option<Vec<String>> {
    let cleaned: String = target.trim_matches(|c: char| c <= ' ').replace(['\t', '\n', '\r'], "");
    let path = text_before(&cleaned, "?#").replace('\\', "/");
    let path = match path.strip_prefix("//") {
        // The text after two slashes is a host.
        Some(host) => host
            .trim_start_matches('/')
            .split_once('/')
            .map_or("/".to_owned(), |(_, path)| format!("/{path}")),
        None => path,
    };
    let mut segments: Vec<&str> = Vec::new();
    let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    for (at, part) in parts.iter().enumerate() {
        let last = at + 1 == parts.len();
        match part.to_ascii_lowercase().replace("%2e", ".").as_str() {
            "." if last => segments.push(""),
            "." => {}
            ".." => {
                segments.pop();
                segments.extend(last.then_some(""));
            }
            _ => segments.push(part),
        }
    }
    if segments.len() > 1 && segments.last() == Some(&"") {
        segments.pop();
    }
    let decode = |segment: &&str| String::from_utf8(decode_escapes(segment, false)?).ok();
    let mut segments = segments.iter().map(decode).collect::<Option<Vec<_>>>()?;
    // Every second segment is a literal of a route in the test, so its case is ignored.
    for literal in segments.iter_mut().step_by(2) {
        literal.make_ascii_lowercase();
    }
    Some(segments)
}

/// Models `StrictHttpFirewall` with its defaults, Tomcat's decoding, and `AntPathMatcher` without regard to a
/// trailing slash.
fn read_like_spring(target: &str) -> Option<Vec<String>> {
    let path = text_before(target, "?#");
    let lower = path.to_ascii_lowercase();
    let forbidden = [";", "%3b", "%2f", "//", "\\", "%5c", "%25", "%2e", "%00", "%0a", "%0d", "%e2%80%a8"];
    let printable = path.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let normal = !path.split('/').any(|segment| segment == "." || segment == "..");
    if !printable || !normal || forbidden.iter().any(|part| lower.contains(part)) {
        return None;
    }
    // Bytes that are not UTF-8 all become the same character.
    let text = String::from_utf8_lossy(&decode_escapes(path, false)?).into_owned();
    let path = text.strip_prefix('/')?;
    Some(path.strip_suffix('/').unwrap_or(path).split('/').map(str::to_owned).collect())
}

fn text_before<'t>(text: &'t str, ends: &str) -> &'t str {
    text.split(|c| ends.contains(c)).next().unwrap_or_default()
}

/// Decodes every escape once; `None` for a malformed one. `no_zero`: also `None` for a zero byte.
fn decode_escapes(text: &str, no_zero: bool) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let mut byte = *first;
        if byte == b'%' {
            let [high, low, after @ ..] = rest else { return None };
            let digit = |byte: u8| char::from(byte).to_digit(16);
            byte = u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?;
            rest = after;
            if byte == 0 && no_zero {
                return None;
            }
        }
        bytes.push(byte);
    }
    Some(bytes)
}

/// Takes each byte for one character, because nginx does not decode character sets.
fn latin1_text(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}
