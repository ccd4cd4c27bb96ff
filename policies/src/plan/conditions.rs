//! The conditions of a route beside method and path.

use std::fmt;

use crate::{
    host::{HostMatcher, HostPattern},
    key::{self, ExtractKeyError, RequestValues},
};

/// All conditions have to hold. An empty list holds for every request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MatchConditions {
    pub hosts: HostMatcher,
    /// Names in lower case, and the one value that counts.
    pub headers: Vec<(String, String)>,
    /// Names and values, decoded as a form would be.
    pub query: Vec<(String, String)>,
}

impl MatchConditions {
    pub fn is_empty(&self) -> bool {
        self.hosts == HostMatcher::Any && self.headers.is_empty() && self.query.is_empty()
    }

    /// True if the request meets all conditions.
    ///
    /// # Errors
    /// A value that another reader could take for a different one, such as a field that stands there twice. Then it
    /// is not known whether the route takes the request.
    pub fn matches(&self, values: &dyn RequestValues) -> Result<bool, ExtractKeyError> {
        if !values
            .request_host()
            .map_or(self.hosts == HostMatcher::Any, |host| self.hosts.contains_name(host))
        {
            return Ok(false);
        }
        for (name, wanted) in &self.headers {
            if key::header_value(values, name)?.as_ref() != Some(wanted) {
                return Ok(false);
            }
        }
        for (name, wanted) in &self.query {
            if key::query_value(values, name)?.as_ref() != Some(wanted) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// True if these conditions hold wherever `other` hold.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let among = |ours: &[(String, String)], theirs: &[(String, String)]| {
            ours.iter().all(|condition| theirs.contains(condition))
        };
        self.hosts.covers(&other.hosts)
            && among(&self.headers, &other.headers)
            && among(&self.query, &other.query)
    }

    /// True if some request can meet both.
    pub(crate) fn has_common_request(&self, other: &Self) -> bool {
        let unlike = |ours: &[(String, String)], theirs: &[(String, String)]| {
            ours.iter()
                .any(|(name, value)| theirs.iter().any(|(other, wanted)| name == other && value != wanted))
        };
        self.hosts.has_common_host(&other.hosts)
            && !unlike(&self.headers, &other.headers)
            && !unlike(&self.query, &other.query)
    }
}

/// The form in the fingerprint of a plan; empty where there are no conditions. Gateways of two versions compare their
/// fingerprints: the words are written out here, so that no name of a type can change them.
impl fmt::Display for MatchConditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return Ok(());
        }
        match &self.hosts {
            HostMatcher::Any => f.write_str(" Any")?,
            HostMatcher::Only(patterns) => {
                let patterns = patterns.iter().map(|pattern| match pattern {
                    HostPattern::Host(name) => format!("Host({name:?})"),
                    HostPattern::Below(suffix) => format!("Below({suffix:?})"),
                });
                write!(f, " Only([{}])", patterns.collect::<Vec<_>>().join(", "))?;
            }
        }
        write!(f, " {:?} {:?}", self.headers, self.query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{file::load, key::HeaderLookup, path::CanonicalPath, plan::RouteId};

    /// A request: its host, the values of `x-tenant`, its query.
    struct FixedRequestValues(&'static str, &'static [&'static str], &'static str);

    impl RequestValues for FixedRequestValues {
        fn query(&self) -> Option<&str> {
            Some(self.2)
        }

        fn header<'a>(&'a self, name: &str) -> HeaderLookup<'a> {
            match self.1 {
                ["in another spelling"] if name == "x-tenant" => HeaderLookup::Respelled,
                [one] if name == "x-tenant" => HeaderLookup::One(one.as_bytes()),
                [_, _, ..] if name == "x-tenant" => HeaderLookup::Several,
                _ => HeaderLookup::Absent,
            }
        }

        fn request_host(&self) -> Option<&str> {
            Some(self.0)
        }
    }

    fn conditions(hosts: &[&str], headers: &[&str], query: &[&str]) -> MatchConditions {
        let pairs = |name: &str, values: &[&str]| {
            values.iter().map(|value| (name.to_owned(), (*value).to_owned())).collect()
        };
        let hosts = hosts.iter().map(|host| HostPattern::parse(host).expect(host)).collect::<Vec<_>>();
        MatchConditions {
            hosts: if hosts.is_empty() { HostMatcher::Any } else { HostMatcher::Only(hosts) },
            headers: pairs("x-tenant", headers),
            query: pairs("dry", query),
        }
    }

    /// Fingerprints are compared between versions, so their form never changes.
    #[test]
    fn fingerprint_form_is_fixed() {
        let hosts = conditions(&["a.example", "*.b.example"], &["acme"], &[]);
        let wanted = r#" Only([Host("a.example"), Below(".b.example")]) [("x-tenant", "acme")] []"#;
        assert_eq!(hosts.to_string(), wanted);
        let query = conditions(&[], &[], &["yes"]);
        assert_eq!(query.to_string(), r#" Any [] [("dry", "yes")]"#);
        assert_eq!(MatchConditions::default().to_string(), "");
    }

    /// A request matches only if all conditions hold.
    #[test]
    fn all_conditions_must_hold() {
        let all = conditions(&["*.shop.example"], &["acme"], &["a b"]);
        for (request, holds) in [
            (FixedRequestValues("a.shop.example", &["acme"], "x=1&dry=a+b"), Some(true)),
            (FixedRequestValues("a.shop.example", &["acme"], "%64ry=a%20b"), Some(true)),
            (FixedRequestValues("shop.example", &["acme"], "dry=a+b"), Some(false)),
            (FixedRequestValues("a.shop.example", &["Acme"], "dry=a+b"), Some(false)),
            (FixedRequestValues("a.shop.example", &[], "dry=a+b"), Some(false)),
            (FixedRequestValues("a.shop.example", &["acme"], ""), Some(false)),
            (FixedRequestValues("a.shop.example", &["acme", "acme"], "dry=a+b"), None),
            (FixedRequestValues("a.shop.example", &["in another spelling"], "dry=a+b"), None),
            (FixedRequestValues("a.shop.example", &["acme"], "dry=a+b&dry=c"), None),
            (FixedRequestValues("a.shop.example", &["acme"], "dry=a+b;dry=c"), None),
            (FixedRequestValues("a.shop.example", &["acme"], "dry=%zz"), None),
        ] {
            assert_eq!(all.matches(&request).ok(), holds, "{:?} {}", request.1, request.2);
            assert_eq!(MatchConditions::default().matches(&request), Ok(true));
        }
    }

    /// Fewer conditions cover more requests, and conditions that exclude each other never overlap.
    #[test]
    fn fewer_conditions_cover_more() {
        let none = MatchConditions::default();
        let acme = conditions(&[], &["acme"], &[]);
        let other = conditions(&[], &["other"], &[]);
        let shop = conditions(&["*.shop.example"], &[], &[]);
        let narrow = conditions(&["a.shop.example"], &["acme"], &["yes"]);
        for (wide, narrow) in [(&none, &acme), (&acme, &narrow), (&shop, &narrow), (&shop, &shop)] {
            assert!(
                wide.covers(narrow) && wide.has_common_request(narrow) && narrow.has_common_request(wide),
                "{wide:?} {narrow:?}"
            );
        }
        assert!(!acme.covers(&none) && !narrow.covers(&shop) && !shop.covers(&none));
        assert!(!acme.has_common_request(&other) && !narrow.has_common_request(&other));
        assert!(!shop.has_common_request(&conditions(&["shop.example", "b.example"], &[], &[])));
    }

    /// A request that may match an earlier route does not go on to a later one.
    #[test]
    fn ambiguous_request_skips_no_route() {
        let text = r#"version: 1
listeners: {public: {address: 127.0.0.1:8080}}
zookeeper: {servers: [zk1:2181]}
upstreams: {a: {endpoints: ["http://a:80"], fencing: upstream}}
routes:
  - {name: first, upstream: a, match: {path: "/{x}"}, fence: none}
  - {name: acme, upstream: a, match: {path: "/a/{x}", headers: {X-Tenant: acme}}, fence: none}
  - {name: rest, upstream: a, match: {path: "/{x...}"}, fence: none}
"#;
        let routes = load(text).plan.expect("sound").serving.routes;
        let found = |path: &str, carried: FixedRequestValues| {
            let path = CanonicalPath::parse(path);
            routes.find("POST", &path, &carried).map(|found| found.map(|found| found.route.id))
        };
        assert_eq!(found("/a/1", FixedRequestValues("h", &["acme"], "")), Ok(Some(RouteId(1))));
        assert_eq!(found("/a/1", FixedRequestValues("h", &["other"], "")), Ok(Some(RouteId(2))));
        assert!(found("/a/1", FixedRequestValues("h", &["acme", "other"], "")).is_err());
        assert_eq!(found("/a", FixedRequestValues("h", &["acme", "other"], "")), Ok(Some(RouteId(0))));
        assert_eq!(found("/b/1", FixedRequestValues("h", &["acme", "other"], "")), Ok(Some(RouteId(2))));
    }
}
