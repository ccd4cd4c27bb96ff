//! The header fields of CORS (Fetch standard, "CORS protocol"): they let pages of other origins read an answer.

use fencegate_http::header_list::list_entries;
use fencegate_policies::plan::{AllowedOrigins, CorsSettings};
use hyper::{
    HeaderMap, Method, Request,
    header::{
        ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
        ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
        ACCESS_CONTROL_REQUEST_METHOD, HeaderValue, ORIGIN, VARY,
    },
};

/// The CORS settings of a listener, as values of fields.
#[derive(Debug)]
pub struct CorsHeaders {
    origins: AllowedOrigins,
    /// `None` if the list in the policy is empty. The same holds for `headers` and `exposed`.
    methods: Option<HeaderValue>,
    headers: Option<HeaderValue>,
    exposed: Option<HeaderValue>,
    allows_credentials: bool,
    max_age: HeaderValue,
}

impl CorsHeaders {
    pub fn new(settings: &CorsSettings) -> Self {
        let CorsSettings {
            allow_origins,
            allow_methods,
            allow_headers,
            expose_headers,
            allow_credentials,
            max_age,
        } = settings;
        Self {
            origins: allow_origins.clone(),
            methods: list_value(allow_methods),
            headers: list_value(allow_headers),
            exposed: list_value(expose_headers),
            allows_credentials: *allow_credentials,
            max_age: HeaderValue::from(max_age.as_secs()),
        }
    }

    /// The value of `Access-Control-Allow-Origin` for a request with these fields. `None` for a request that no page of another
    /// origin has made, and for a page that may not read the answer.
    pub fn allowed_origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let mut origins = headers.get_all(ORIGIN).iter();
        let (origin, None) = (origins.next()?, origins.next()) else { return None };
        self.origins.contains(origin.to_str().ok()?).then(|| match self.origins {
            AllowedOrigins::Any => HeaderValue::from_static("*"),
            AllowedOrigins::Listed(_) => origin.clone(),
        })
    }

    /// Adds the fields that only the answer to a preflight has.
    pub(crate) fn add_preflight_headers(&self, headers: &mut HeaderMap) {
        let Self { methods, headers: fields, max_age, .. } = self;
        let values = [
            (ACCESS_CONTROL_ALLOW_METHODS, methods.as_ref()),
            (ACCESS_CONTROL_ALLOW_HEADERS, fields.as_ref()),
            (ACCESS_CONTROL_MAX_AGE, Some(max_age)),
        ];
        headers.extend(values.into_iter().filter_map(|(name, value)| Some((name, value?.clone()))));
    }

    /// Adds the fields that every answer has. `origin` is the result of [`Self::allowed_origin`] for the request.
    ///
    /// An `Access-Control-Allow-Origin` that the service has set stays as it is: a second value would make browsers
    /// refuse both.
    pub(crate) fn add_cors_headers(&self, headers: &mut HeaderMap, origin: Option<HeaderValue>) {
        // `Vary` is set even if no page has sent this request: a cache may give the answer to a page later.
        if self.origins != AllowedOrigins::Any && !varies_by_origin(headers) {
            headers.append(VARY, HeaderValue::from_static("Origin"));
        }
        let Some(origin) = origin else { return };
        if !headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            if self.allows_credentials {
                headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
            }
        }
        // Several lines of this field form one list (Fetch, 3.2.3), so what the service exposes stays exposed.
        if let Some(exposed) = &self.exposed {
            headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, exposed.clone());
        }
    }
}

/// True for a request by which a browser asks whether a page may make another one (Fetch, 4.8).
pub(crate) fn is_preflight<B>(http: &Request<B>) -> bool {
    *http.method() == Method::OPTIONS
        && http.headers().contains_key(ORIGIN)
        && http.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

fn list_value(words: &[String]) -> Option<HeaderValue> {
    let list =
        HeaderValue::try_from(words.join(", ")).expect("methods and names of fields are visible ASCII");
    (!words.is_empty()).then_some(list)
}

fn varies_by_origin(headers: &HeaderMap) -> bool {
    list_entries(headers, &VARY).any(|entry| entry == b"*" || entry.eq_ignore_ascii_case(b"origin"))
}

#[cfg(test)]
mod tests {
    use fencegate_policies::file::load;

    use super::*;

    fn cors(settings: &str) -> CorsHeaders {
        let policy = format!(
            r#"version: 1
listeners: {{public: {{address: 127.0.0.1:8080, cors: {settings}}}}}
zookeeper: {{servers: [zk1:2181]}}
upstreams: {{a: {{endpoints: ["http://a:80"], fencing: upstream}}}}
routes: [{{name: all, upstream: a, match: {{path: "/{{rest...}}"}}, fence: none}}]
"#
        );
        let plan = load(&policy).plan.expect("sound").serving;
        CorsHeaders::new(&plan.listener.cors.expect("written"))
    }

    fn fields(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    /// Returns the fields of an answer to a request from `origin`, if the answer had the fields `said` before it was
    /// stamped.
    fn stamped(
        cors: &CorsHeaders,
        origin: &[&'static str],
        said: &[(&'static str, &'static str)],
    ) -> HeaderMap {
        let asked: Vec<_> = origin.iter().map(|origin| ("origin", *origin)).collect();
        let mut answer = fields(said);
        cors.add_cors_headers(&mut answer, cors.allowed_origin(&fields(&asked)));
        answer
    }

    const ONE: &str =
        r#"{allow_origins: ["https://app.example"], expose_headers: [Retry-After], allow_credentials: true}"#;

    #[test]
    fn listed_origin_is_named_with_credentials() {
        assert_eq!(
            stamped(&cors(ONE), &["https://app.example"], &[]),
            fields(&[
                ("vary", "Origin"),
                ("access-control-allow-origin", "https://app.example"),
                ("access-control-allow-credentials", "true"),
                ("access-control-expose-headers", "Retry-After"),
            ])
        );
    }

    /// An answer to a page that may not read it gets no CORS field, and says by `Vary` that answers differ by origin.
    #[test]
    fn other_origin_is_told_nothing() {
        for origins in [
            &[][..],
            &["https://evil.example"],
            &["null"],
            &["https://app.example", "https://app.example"],
            &["https://app.example, https://app.example"],
        ] {
            assert_eq!(stamped(&cors(ONE), origins, &[]), fields(&[("vary", "Origin")]), "{origins:?}");
        }
    }

    #[test]
    fn word_of_service_is_kept() {
        let said = [
            ("access-control-allow-origin", "https://other.example"),
            ("access-control-expose-headers", "X-Total"),
            ("vary", "Accept, origin"),
        ];
        let answer = stamped(&cors(ONE), &["https://app.example"], &said);
        let exposed = [("access-control-expose-headers", "Retry-After")];
        assert_eq!(answer, fields(&[&said[..], &exposed].concat()));
    }

    #[test]
    fn any_origin_gets_star_without_vary() {
        let any = cors(r#"{allow_origins: ["*"], expose_headers: []}"#);
        for origin in ["https://app.example", "null"] {
            assert_eq!(stamped(&any, &[origin], &[]), fields(&[("access-control-allow-origin", "*")]));
        }
        assert_eq!(stamped(&any, &[], &[]), HeaderMap::new());
    }

    #[test]
    fn preflight_lists_what_is_allowed() {
        let mut answer = HeaderMap::new();
        cors(r#"{allow_origins: ["*"], allow_headers: []}"#).add_preflight_headers(&mut answer);
        assert_eq!(
            answer,
            fields(&[
                ("access-control-allow-methods", "GET, HEAD, POST, PUT, PATCH, DELETE"),
                ("access-control-max-age", "600"),
            ])
        );
    }
}
