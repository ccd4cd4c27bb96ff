//! Recognises a response that a proxy in front of the service has passed on, or has produced itself.

use hyper::{
    HeaderMap,
    header::{HeaderName, SERVER, VIA},
};

/// Names in `Server` of programs that are usually proxies, in lower case. A service can also run in one of these
/// programs.
const PROXIES: [&str; 11] = [
    "nginx",
    "openresty",
    "caddy",
    "envoy",
    "istio-envoy",
    "awselb",
    "haproxy",
    "traefik",
    "varnish",
    "cloudflare",
    "ats",
];

/// Fields that only caches and balancers add.
const FIELDS: [&str; 3] = ["x-cache", "x-varnish", "x-amz-cf-id"];

/// The field of a response that shows an intermediary, such as `Server: nginx`; `None` if no field does.
///
/// Not every intermediary is visible, and a service may have one of these fields of its own.
pub fn find_intermediary_field(headers: &HeaderMap) -> Option<String> {
    let said = |name: &HeaderName| {
        let value = headers.get(name)?.as_bytes();
        Some(format!("{name}: {}", value.escape_ascii()))
    };
    let server = || {
        let value = headers.get(SERVER)?.to_str().ok()?;
        let product = value.split(['/', ' ']).next()?.to_ascii_lowercase();
        PROXIES.contains(&product.as_str()).then(|| said(&SERVER))?
    };
    let other = || {
        let name = headers
            .keys()
            .find(|name| FIELDS.contains(&name.as_str()) || name.as_str().starts_with("x-envoy-"))?;
        said(name)
    };
    said(&VIA).or_else(server).or_else(other)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn describe(name: &'static str, value: &'static str) -> Option<String> {
        find_intermediary_field(&HeaderMap::from_iter([(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )]))
    }

    #[test]
    fn proxies_are_recognized_by_header() {
        for (name, value) in [
            ("via", "1.1 varnish"),
            ("server", "nginx"),
            ("server", "nginx/1.22.1 (Debian)"),
            ("server", "Caddy"),
            ("server", "envoy"),
            ("server", "istio-envoy"),
            ("server", "awselb/2.0"),
            ("x-envoy-upstream-service-time", "3"),
            ("x-cache", "MISS"),
        ] {
            assert_eq!(describe(name, value).as_deref(), Some(&*format!("{name}: {value}")));
        }
    }

    #[test]
    fn application_servers_are_not_proxies() {
        for (name, value) in [
            ("server", "gunicorn"),
            ("server", "uvicorn"),
            ("server", "Apache-Coyote/1.1"),
            ("server", "Kestrel"),
            ("server", "SimpleHTTP/0.6 Python/3.11"),
            ("x-powered-by", "Express"),
            ("x-cached-by", "us"),
        ] {
            assert_eq!(describe(name, value), None, "{name}: {value}");
        }
    }
}
