//! Reads single values: durations and sizes with their units, counts, addresses, names, methods.

use std::{net::SocketAddr, ops::RangeInclusive, path::PathBuf, time::Duration};

use super::socket_path;
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    header_name::is_http_token,
    host::CanonicalHost,
    plan::UNIX,
};

type ParseResult<T> = Result<T, Diagnostic>;

/// The longest duration; a longer one is a mistake. With this bound, no sum of a few durations overflows a clock.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest time for which an operation is stored. No client repeats a request after a month.
const LONGEST_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The largest size in bytes that one request may take up in memory.
const LARGEST: u64 = 1 << 30;
const MOST_MEMORY: u64 = 1 << 40;

/// Reads a duration from zero to a day, with a unit.
pub(super) fn duration(text: &str) -> ParseResult<Duration> {
    bounded_duration(text, LONGEST, "a duration is at most a day, `24h`")
}

/// Reads the time for which a record is kept: up to 30 days, and not zero.
pub(super) fn keep(text: &str) -> ParseResult<Duration> {
    nonzero(text, bounded_duration(text, LONGEST_KEPT, "`30days` is the most")?)
}

/// Reads a duration from more than zero to a day.
pub(super) fn time_limit(text: &str) -> ParseResult<Duration> {
    nonzero(text, duration(text)?)
}

fn bounded_duration(text: &str, longest: Duration, remedy: &str) -> ParseResult<Duration> {
    let bad = |remedy: String| {
        Diagnostic::new(DiagnosticCode::BadDuration, format!("`{text}` is not a duration"))
            .with_remedy(remedy)
    };
    if is_bare_number(text) {
        return Err(bad(format!("add a unit: `{text}s` or `{text}ms`")));
    }
    let duration = humantime::parse_duration(text)
        .map_err(|_| bad("write a number and its unit, such as `250ms`, `5s` or `2m`".into()))?;
    if duration > longest {
        return Err(out_of_range(text, remedy));
    }
    Ok(duration)
}

fn nonzero(text: &str, duration: Duration) -> ParseResult<Duration> {
    match duration {
        Duration::ZERO => Err(out_of_range(text, "with no time at all, nothing ever succeeds")),
        duration => Ok(duration),
    }
}

/// Reads a number of bytes with a unit, up to 1 GiB.
pub(super) fn size(text: &str) -> ParseResult<usize> {
    parse_size(text, LARGEST, "a size is at most `1GiB`")
}

/// Reads an amount of memory of a process, up to 1 TiB.
pub(super) fn memory(text: &str) -> ParseResult<usize> {
    match parse_size(text, MOST_MEMORY, "memory is at most `1TiB`")? {
        0 => Err(out_of_range(text, "with no memory at all, no body is taken")),
        bytes => Ok(bytes),
    }
}

fn parse_size(text: &str, largest: u64, remedy: &str) -> ParseResult<usize> {
    let bad = |remedy: String| {
        Diagnostic::new(DiagnosticCode::BadSize, format!("`{text}` is not a size")).with_remedy(remedy)
    };
    if is_bare_number(text) {
        return Err(bad(format!("add a unit: `{text}B` or `{text}KiB`")));
    }
    let size: bytesize::ByteSize =
        text.parse().map_err(|_| bad("write a number and its unit, such as `64KiB` or `1MiB`".into()))?;
    usize::try_from(size.as_u64())
        .ok()
        .filter(|_| size.as_u64() <= largest)
        .ok_or_else(|| out_of_range(text, remedy))
}

/// Reads the largest size of a request head. It is at least 8 KiB, which the HTTP library reads at once.
pub(super) fn head_size(text: &str) -> ParseResult<usize> {
    match size(text)? {
        size if size < 8 << 10 => Err(out_of_range(text, "the head of a request may need `8KiB`")),
        size => Ok(size),
    }
}

/// Reads a whole number up to 4294967295.
pub(super) fn count(text: &str) -> ParseResult<usize> {
    if !is_bare_number(text) {
        let fault = Diagnostic::new(DiagnosticCode::BadCount, format!("`{text}` is not a whole number"));
        return Err(fault.with_remedy("write digits only, such as `100`"));
    }
    text.parse::<u32>()
        .ok()
        .and_then(|count| usize::try_from(count).ok())
        .ok_or_else(|| out_of_range(text, "a count is at most 4294967295"))
}

/// Reads a limit of at least 1.
pub(super) fn limit(text: &str) -> ParseResult<usize> {
    match count(text)? {
        0 => Err(out_of_range(text, "a limit of 0 refuses everything")),
        limit => Ok(limit),
    }
}

/// Reads an IP address and a port. With port 0 the system chooses the port.
pub(super) fn address(text: &str) -> ParseResult<SocketAddr> {
    text.parse().map_err(|_| {
        let message = format!("`{text}` is not an IP address and a port");
        let fault = Diagnostic::new(DiagnosticCode::BadAddress, message);
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        match (host, port.parse::<u16>()) {
            ("localhost", Ok(port)) => fault.with_remedy(format!("write `127.0.0.1:{port}`")),
            ("" | "*", Ok(port)) => {
                fault.with_remedy(format!("write `127.0.0.1:{port}`, or `0.0.0.0:{port}` for all addresses"))
            }
            _ => fault.with_remedy("write both, such as `127.0.0.1:8080` or `[::1]:8080`"),
        }
    })
}

/// The scheme of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

/// Reads an endpoint: the scheme and `host:port` of `https://host:port`. An absent port is the default port of the
/// scheme. A Unix socket keeps its written form, `unix:/path`.
pub(super) fn endpoint(text: &str) -> ParseResult<(Scheme, String)> {
    if let Some(path) = text.strip_prefix(UNIX) {
        socket_path::parse_socket_path(text, path)?;
        return Ok((Scheme::Http, text.to_owned()));
    }
    let (scheme, authority) = match text.split_once("://") {
        Some(("http", authority)) => (Scheme::Http, Some(authority)),
        Some(("https", authority)) => (Scheme::Https, Some(authority)),
        _ => (Scheme::Http, None),
    };
    let host = authority.and_then(|authority| CanonicalHost::parse(authority).ok());
    let bad = || {
        let message = format!("`{text}` is not an endpoint");
        Diagnostic::new(DiagnosticCode::BadEndpoint, message).with_remedy(
            "write `http://host:port` or `https://host:port`, without a path, or `unix:/path/of/socket`",
        )
    };
    match host.ok_or_else(bad)? {
        host if host.port() == Some(0) => Err(bad()),
        host if host.port().is_none() && scheme == Scheme::Https => {
            Ok((scheme, format!("{}:443", host.name())))
        }
        host if host.port().is_none() => Ok((scheme, format!("{}:80", host.name()))),
        host => Ok((scheme, host.as_str().to_owned())),
    }
}

/// Reads `host:port` of a ZooKeeper server.
pub(super) fn server(text: &str) -> ParseResult<String> {
    CanonicalHost::parse(text)
        .ok()
        .filter(|host| host.port().is_some_and(|port| port != 0))
        .map(|host| host.as_str().to_owned())
        .ok_or_else(|| {
            let message = format!("`{text}` is not the address of a ZooKeeper server");
            let fault = Diagnostic::new(DiagnosticCode::BadServer, message);
            // The text may be the connect string of other ZooKeeper clients: all servers, and at its end the path
            // below which their nodes are.
            let (servers, root) = text.split_once('/').unwrap_or((text, ""));
            let servers = servers.replace(',', ", ");
            match (servers.contains(','), root) {
                _ if servers.is_empty() || servers.ends_with(':') => fault.with_remedy("write `host:2181`"),
                (false, "") => fault.with_remedy("write `host:2181`"),
                (true, "") => fault.with_remedy(format!("write each by itself: `servers: [{servers}]`")),
                (false, root) => {
                    let root = root.trim_end_matches('/');
                    fault.with_remedy(format!("write `{servers}`, and `root: /{root}` beside `servers`"))
                }
                (true, root) => {
                    let root = root.trim_end_matches('/');
                    fault.with_remedy(format!("write `servers: [{servers}]`, and beside it `root: /{root}`"))
                }
            }
        })
}

/// Reads an absolute ZooKeeper path, below which all nodes of this installation are.
pub(super) fn root(text: &str) -> ParseResult<String> {
    let bad = |reason| {
        Err(Diagnostic::new(DiagnosticCode::BadRoot, format!("`{text}` cannot be the root: {reason}"))
            .with_remedy("write a path such as `/fencegate/payments`"))
    };
    let Some(tail) = text.strip_prefix('/') else { return bad("it does not begin with `/`") };
    let named = |segment: &str| !matches!(segment, "" | "." | "..");
    match tail {
        "" => bad("it would share the top of the tree with everything else"),
        _ if !tail.split('/').all(named) => bad("it has an empty or a dot segment, or a slash at its end"),
        _ if !tail.bytes().all(|byte| byte.is_ascii_graphic()) => {
            bad("it has characters beyond printable ASCII")
        }
        _ if tail.split('/').next() == Some("zookeeper") => bad("`/zookeeper` belongs to ZooKeeper"),
        _ => Ok(text.to_owned()),
    }
}

/// Reads the absolute path of a file or folder. A relative path would depend on the working directory of the process.
pub(super) fn file(text: &str) -> ParseResult<PathBuf> {
    if text.starts_with('/') && !text.contains(char::is_control) {
        return Ok(text.into());
    }
    Err(Diagnostic::new(DiagnosticCode::BadFile, format!("`{text}` is not an absolute path"))
        .with_remedy("write the whole path, from the first `/` on"))
}

/// Reads an HTTP status within `range`.
pub(super) fn status(text: &str, range: RangeInclusive<u16>, remedy: &str) -> ParseResult<u16> {
    let status = if is_bare_number(text) && text.len() == 3 { text.parse().ok() } else { None };
    status.filter(|status| range.contains(status)).ok_or_else(|| {
        Diagnostic::new(DiagnosticCode::BadStatus, format!("`{text}` is not a status that can stand here"))
            .with_remedy(remedy)
    })
}

/// Reads a name that the file gives to something, for logs, metrics and node names.
pub(super) fn name(text: &str) -> ParseResult<String> {
    let good = text.len() <= 64
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if good {
        return Ok(text.to_owned());
    }
    Err(Diagnostic::new(DiagnosticCode::BadName, format!("`{text}` is not a name"))
        .with_remedy("a name is a letter, then letters, digits, `-`, `_` and `.`, at most 64 in all"))
}

/// Reads a method. Methods are case-sensitive, and all registered ones are in upper case.
pub(super) fn method(text: &str) -> ParseResult<String> {
    let upper = text.to_ascii_uppercase();
    // The grammar of HTTP allows `1` as a method, but it is a mistake here.
    let begins = text.starts_with(|first: char| first.is_ascii_alphabetic());
    if is_http_token(text) && text == upper && begins {
        return Ok(upper);
    }
    let fault = Diagnostic::new(DiagnosticCode::BadMethod, format!("`{text}` is not a method"));
    Err(match METHODS.contains(&&*upper) {
        true => fault.with_remedy(format!("did you mean `{upper}`?")),
        false => fault.with_remedy("a method is one upper-case word, such as `GET` or `POST`"),
    })
}

/// Methods that a user may write in lower case by mistake. In lower case, no other method is meant.
const METHODS: [&str; 12] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "QUERY",
    "PURGE",
];

/// A duration as a user would write it, rounded to milliseconds.
pub(super) fn format_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    humantime::format_duration(Duration::from_millis(millis)).to_string()
}

fn is_bare_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

pub(super) fn out_of_range(text: &str, remedy: &str) -> Diagnostic {
    Diagnostic::new(DiagnosticCode::OutOfRange, format!("`{text}` is out of range")).with_remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code<T: std::fmt::Debug>(parsed: ParseResult<T>) -> DiagnosticCode {
        parsed.expect_err("bad").code
    }

    /// A duration has a unit and is not longer than its limit.
    #[test]
    fn durations_need_unit_and_bound() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        for text in ["", "0", "5", "5 x", "-5s", "s", "1.5.s", "99999999999999999999s"] {
            assert_eq!(code(duration(text)), DiagnosticCode::BadDuration, "{text}");
        }
        assert_eq!(code(duration("25h")), DiagnosticCode::OutOfRange);
        assert_eq!(code(time_limit("0ms")), DiagnosticCode::OutOfRange);
    }

    /// Records are kept for at most 30 days.
    #[test]
    fn retention_ends_after_month() {
        assert_eq!(keep("30days"), Ok(LONGEST_KEPT));
        for text in ["0s", "31days", "2years"] {
            assert_eq!(code(keep(text)), DiagnosticCode::OutOfRange, "{text}");
        }
        assert_eq!(code(keep("30")), DiagnosticCode::BadDuration);
    }

    #[test]
    fn status_has_three_digits_in_range() {
        assert_eq!(status("503", 500..=599, ""), Ok(503));
        for text in ["499", "600", "0503", "5xx", "+503", "", "99999999"] {
            assert_eq!(code(status(text, 500..=599, "")), DiagnosticCode::BadStatus, "{text}");
        }
    }

    /// A file is named by its path from the root on.
    #[test]
    fn file_path_is_absolute() {
        assert_eq!(file("/run/a b"), Ok("/run/a b".into()));
        for text in ["", "a", "./a", "~/a", "/a\n"] {
            assert_eq!(code(file(text)), DiagnosticCode::BadFile, "{text}");
        }
    }

    /// A size has a unit and is not larger than its limit.
    #[test]
    fn sizes_need_unit_and_bound() {
        assert_eq!(size("64KiB"), Ok(65_536));
        assert_eq!(size("1 MB"), Ok(1_000_000));
        assert_eq!(size("0B"), Ok(0));
        for text in ["", "64", "KiB", "-1KiB", "64 blocks"] {
            assert_eq!(code(size(text)), DiagnosticCode::BadSize, "{text}");
        }
        assert_eq!(code(size("2GiB")), DiagnosticCode::OutOfRange);
        assert_eq!(code(head_size("8191B")), DiagnosticCode::OutOfRange);
    }

    #[test]
    fn counts_are_whole_numbers() {
        assert_eq!(count("0"), Ok(0));
        assert_eq!(limit("4000"), Ok(4000));
        for text in ["", "-1", "+1", "1e3", "1_000", "many"] {
            assert_eq!(code(count(text)), DiagnosticCode::BadCount, "{text}");
        }
        assert_eq!(code(limit("0")), DiagnosticCode::OutOfRange);
        assert_eq!(code(count("4294967296")), DiagnosticCode::OutOfRange);
    }

    /// An endpoint is a URL with a scheme, a host and a port, or a Unix socket.
    #[test]
    fn endpoint_has_host_and_port() {
        for (text, endpoint_) in [
            ("http://a.example", (Scheme::Http, "a.example:80")),
            ("https://a.example", (Scheme::Https, "a.example:443")),
            ("http://A.example:8080", (Scheme::Http, "a.example:8080")),
            ("https://[::1]:1", (Scheme::Https, "[::1]:1")),
            ("unix:/run/ledger.sock", (Scheme::Http, "unix:/run/ledger.sock")),
        ] {
            let (scheme, authority) = endpoint_;
            assert_eq!(endpoint(text), Ok((scheme, authority.to_owned())));
        }
        for text in
            ["a:80", "ftp://a:80", "http://", "http://a:80/", "http://a/x", "http://u@a", "http://a:0"]
        {
            assert_eq!(code(endpoint(text)), DiagnosticCode::BadEndpoint, "{text}");
        }
        assert_eq!(server("zk1:2181").as_deref(), Ok("zk1:2181"));
        for text in ["zk1", "zk1:0", "zk1:x", "http://zk1:2181", "zk1:2181/root"] {
            assert_eq!(code(server(text)), DiagnosticCode::BadServer, "{text}");
        }
    }

    #[test]
    fn root_is_absolute_and_normalised() {
        assert_eq!(root("/fencegate/payments").as_deref(), Ok("/fencegate/payments"));
        for text in ["", "fencegate", "/", "/a/", "/a//b", "/a/../b", "/zookeeper/x", "/a b", "/é"] {
            assert_eq!(code(root(text)), DiagnosticCode::BadRoot, "{text}");
        }
    }
}
