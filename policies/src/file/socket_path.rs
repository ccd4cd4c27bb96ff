//! Reads the path of a Unix socket, in an address or an endpoint.

use crate::diagnostics::{Diagnostic, DiagnosticCode};

/// The longest path. The kernel allows 107 bytes (`sun_path` in unix(7)), and a gateway that takes over from another
/// one adds four bytes.
const LONGEST: usize = 103;

/// Reads the path that follows `unix:` in `text`. Only one spelling of each path is allowed, because two spellings
/// would count as two services.
pub(super) fn parse_socket_path<'p>(text: &str, path: &'p str) -> Result<&'p str, Diagnostic> {
    let bad = |reason: &str, remedy: &str| {
        let message = format!("`{text}` is not the address of a unix socket: {reason}");
        Err(Diagnostic::new(DiagnosticCode::BadSocketPath, message).with_remedy(remedy))
    };
    let written = "write the whole path, such as `unix:/run/fencegate/guard.sock`";
    let named = |segment: &str| !matches!(segment, "" | "." | "..");
    match path.strip_prefix('/') {
        None if path.starts_with('@') => {
            bad("abstract sockets have no file whose mode says who may connect", written)
        }
        None => bad("its path does not begin with `/`", written),
        Some(_) if path.len() > LONGEST => bad(
            "its path is too long",
            &format!("a path has at most {LONGEST} bytes: take a folder below `/run`"),
        ),
        Some(tail) if !tail.split('/').all(named) => bad(
            "its path has an empty or a dot segment, or a slash at its end",
            "write the shortest spelling",
        ),
        Some(_) if !path.bytes().all(|byte| byte.is_ascii_graphic()) => {
            bad("its path has characters beyond printable ASCII, or a space", written)
        }
        Some(_) => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket has one spelling, and its path fits into the kernel's address.
    #[test]
    fn socket_path_is_normalised_and_short() {
        let longest = format!("/{}", "a".repeat(LONGEST - 1));
        for good in ["/run/fencegate/guard.sock", "/s", &longest] {
            assert_eq!(parse_socket_path("", good), Ok(good));
        }
        let long = format!("{longest}a");
        for bad in [
            "",
            "run/a",
            "./a",
            "@guard",
            "/",
            "//a",
            "/run//a",
            "/run/./a",
            "/run/../a",
            "/run/a/",
            "/a b",
            &long,
        ] {
            let code = parse_socket_path("", bad).expect_err("bad").code;
            assert_eq!(code, DiagnosticCode::BadSocketPath, "{bad}");
        }
    }
}
