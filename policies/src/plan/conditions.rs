//! The conditions of a route other than method and path.

use std::fmt;

use super::body_conditions::{BodyCondition, ConditionValue};
use crate::{
    graphql::GraphqlOperation,
    host::{HostMatcher, HostPattern},
    key::{self, ExtractKeyError, RequestValues, RouteConditionBody},
};

/// The conditions, all of which have to hold. An empty list holds for every request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MatchConditions {
    pub hosts: HostMatcher,
    /// Header fields: each name in lower case, with the value that it must have.
    pub headers: Vec<(String, String)>,
    /// Query parameters: each name with the value that it must have, decoded like a form.
    pub query: Vec<(String, String)>,
    /// The conditions on members of a JSON body.
    pub body: Vec<BodyCondition>,
    /// The effect that the request must have as a GraphQL request in a JSON body.
    pub graphql: Option<GraphqlOperation>,
}

/// The reason for which it is not known whether a request meets the conditions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MatchConditionsError {
    /// Some reader could read a value in another way.
    #[error(transparent)]
    Unclear(#[from] ExtractKeyError),
    /// The conditions depend on the body, which was not read for them.
    #[error("whether the route matches depends on the body")]
    BodyNeeded,
}

impl MatchConditions {
    pub fn is_empty(&self) -> bool {
        self.hosts == HostMatcher::Any
            && self.headers.is_empty()
            && self.query.is_empty()
            && !self.reads_body()
    }

    /// Whether the conditions depend on the body.
    pub fn reads_body(&self) -> bool {
        !self.body.is_empty() || self.graphql.is_some()
    }

    /// Whether the request meets all conditions. The body is checked last, so that it need not be read for a request
    /// that fails another condition.
    ///
    /// # Errors
    /// Returns an error if some reader could read a value in another way, such as a repeated field, or if the body is
    /// needed. Then it is not known whether the route takes the request.
    pub fn matches(&self, values: &dyn RequestValues) -> Result<bool, MatchConditionsError> {
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
        if !self.reads_body() {
            return Ok(true);
        }
        let body = values.condition_body().filter(|body| self.are_decided_by(body));
        let body = body.ok_or(MatchConditionsError::BodyNeeded)?;
        for member in &self.body {
            if !member.matches(body)? {
                return Ok(false);
            }
        }
        Ok(self.graphql.is_none() || self.graphql == body.graphql())
    }

    /// Whether the body was read for these conditions. A body that was read only for other routes does not decide them.
    fn are_decided_by(&self, body: &RouteConditionBody) -> bool {
        self.body.iter().all(|member| body.is_read_for(&member.pointer))
            && (self.graphql.is_none() || body.graphql().is_some())
    }

    /// Whether these conditions hold for every request that meets `other`.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let among = |ours: &[(String, String)], theirs: &[(String, String)]| {
            ours.iter().all(|condition| theirs.contains(condition))
        };
        self.hosts.covers(&other.hosts)
            && among(&self.headers, &other.headers)
            && among(&self.query, &other.query)
            && self.body.iter().all(|ours| other.body.iter().any(|theirs| ours.covers(theirs)))
            && (self.graphql.is_none() || self.graphql == other.graphql)
    }

    /// The condition on the name of a GraphQL operation. The name does not tell what the operation does.
    pub(crate) fn graphql_operation_name_condition(&self) -> Option<&BodyCondition> {
        self.body.iter().find(|member| member.pointer.first_json_member() == Some(GraphqlOperation::NAME))
    }

    /// Whether some request can meet both conditions.
    pub(crate) fn has_common_request(&self, other: &Self) -> bool {
        self.has_common_head(other)
            && !self.body.iter().any(|ours| other.body.iter().any(|theirs| ours.excludes(theirs)))
            && (self.graphql.is_none() || other.graphql.is_none() || self.graphql == other.graphql)
    }

    /// Whether some request can meet both conditions, apart from those on the body.
    pub(crate) fn has_common_head(&self, other: &Self) -> bool {
        let unlike = |ours: &[(String, String)], theirs: &[(String, String)]| {
            ours.iter()
                .any(|(name, value)| theirs.iter().any(|(other, wanted)| name == other && value != wanted))
        };
        self.hosts.has_common_host(&other.hosts)
            && !unlike(&self.headers, &other.headers)
            && !unlike(&self.query, &other.query)
    }
}

/// Writes the conditions for the fingerprint of a plan; nothing if there are none. Gateways of different versions
/// compare fingerprints, so the words are written out here and do not depend on the names of types.
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
        write!(f, " {:?} {:?}", self.headers, self.query)?;
        for BodyCondition { pointer, values } in &self.body {
            let values: Vec<String> = values.iter().map(ConditionValue::to_string).collect();
            write!(f, " body:{pointer} [{}]", values.join(", "))?;
        }
        self.graphql.map_or(Ok(()), |graphql| write!(f, " graphql:{}", graphql.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        file::load,
        key::{CompleteBody, ContentDeclaration, HeaderLookup, JsonPointer},
        path::CanonicalPath,
        plan::{FindRouteError, RouteId},
    };

    /// A request with its host, its values of `x-tenant`, and its query.
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
            ..MatchConditions::default()
        }
    }

    fn member(pointer: &str, values: &[&str]) -> BodyCondition {
        let values = values.iter().map(|text| ConditionValue::Text((*text).to_owned())).collect();
        BodyCondition { pointer: JsonPointer::parse(pointer).expect(pointer), values }
    }

    /// The form of the conditions in a fingerprint never changes, because gateways of different versions compare it.
    #[test]
    fn fingerprint_form_is_fixed() {
        let hosts = conditions(&["a.example", "*.b.example"], &["acme"], &[]);
        let wanted = r#" Only([Host("a.example"), Below(".b.example")]) [("x-tenant", "acme")] []"#;
        assert_eq!(hosts.to_string(), wanted);
        let query = conditions(&[], &[], &["yes"]);
        assert_eq!(query.to_string(), r#" Any [] [("dry", "yes")]"#);
        assert_eq!(MatchConditions::default().to_string(), "");
        let body = MatchConditions {
            body: vec![member("/kind", &["a", "b"])],
            graphql: Some(GraphqlOperation::Query),
            ..MatchConditions::default()
        };
        assert_eq!(body.to_string(), r#" Any [] [] body:/kind ["a", "b"] graphql:query"#);
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

    /// Fewer conditions cover more requests. Conditions that exclude each other have no request in common.
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

    /// A condition with fewer values of a member takes fewer requests. Two conditions on a member without a common
    /// value exclude each other.
    #[test]
    fn fewer_members_cover_more() {
        let body = |members: &[BodyCondition], graphql| MatchConditions {
            body: members.to_vec(),
            graphql,
            ..MatchConditions::default()
        };
        let none = MatchConditions::default();
        let one = body(&[member("/kind", &["a"])], None);
        let two = body(&[member("/kind", &["a", "b"])], None);
        let narrow = body(&[member("/x", &["c"]), member("/kind", &["a"])], None);
        for (wide, narrow) in [(&none, &one), (&two, &one), (&one, &narrow), (&one, &one)] {
            assert!(
                wide.covers(narrow) && wide.has_common_request(narrow) && narrow.has_common_request(wide)
            );
        }
        assert!(!one.covers(&two) && !one.covers(&none) && !narrow.covers(&one));
        assert!(!one.has_common_request(&body(&[member("/kind", &["c"])], None)));
        assert!(one.has_common_request(&body(&[member("/x", &["c"])], None)));
        let query = body(&[], Some(GraphqlOperation::Query));
        let mutation = body(&[], Some(GraphqlOperation::Mutation));
        assert!(none.covers(&query) && !query.covers(&none) && query.covers(&query));
        assert!(
            !query.covers(&mutation)
                && !query.has_common_request(&mutation)
                && query.has_common_request(&one)
        );
    }

    const BY_BODY: &str = r#"version: 1
listeners: {public: {address: 127.0.0.1:8080}}
zookeeper: {servers: [zk1:2181]}
upstreams: {a: {endpoints: ["http://a:80"], fencing: upstream}}
routes:
  - {name: get, upstream: a, match: {methods: [GET], path: "/{x}"}, fence: none}
  - {name: acme, upstream: a, match: {path: "/a", headers: {X-Tenant: acme}, body: {/kind: pay}}, fence: {key: pay}}
  - {name: refund, upstream: a, match: {path: "/a", body: {/kind: [refund, void]}}, fence: {key: refund}}
  - {name: rest, upstream: a, match: {path: "/{x...}"}, fence: {key: rest}}
"#;

    /// Without the body, a lookup returns the routes between which the body decides. With the body, it finds one of
    /// them.
    #[test]
    fn body_decides_between_routes() {
        let routes = load(BY_BODY).plan.expect("sound").serving.routes;
        let path = |path: &str| CanonicalPath::parse(path);
        let undecided = |method: &str, at: &str, tenants: &'static [&'static str]| match routes.find(
            method,
            &path(at),
            &FixedRequestValues("h", tenants, ""),
        ) {
            Err(FindRouteError::BodyNeeded(candidates)) => candidates.iter().map(|id| id.0).collect(),
            Err(FindRouteError::Unclear(_)) => vec![usize::MAX],
            Ok(_) => Vec::new(),
        };
        assert_eq!(undecided("POST", "/a", &[]), [2, 3]);
        assert_eq!(undecided("POST", "/a", &["acme"]), [1, 2, 3]);
        // Two values of the header field leave open whether route 1 takes the request, so the body cannot decide.
        assert_eq!(undecided("POST", "/a", &["acme", "other"]), [usize::MAX]);
        assert!(undecided("GET", "/a", &["acme"]).is_empty());
        assert!(undecided("POST", "/b", &["acme"]).is_empty());

        let said =
            ContentDeclaration { kind: HeaderLookup::One(b"application/json"), coding: HeaderLookup::Absent };
        let found = |body: &str, tenants: &'static [&'static str]| {
            let candidates: Vec<RouteId> = (1..4).map(RouteId).collect();
            let read = routes.read_body(&candidates, &said, body.as_bytes(), None).expect(body);
            let request = RequestWithBody(FixedRequestValues("h", tenants, ""), read);
            routes.find("POST", &path("/a"), &request).map(|found| found.map(|found| found.route.id.0))
        };
        assert_eq!(found(r#"{"kind": "pay"}"#, &["acme"]), Ok(Some(1)));
        assert_eq!(found(r#"{"kind": "pay"}"#, &["other"]), Ok(Some(3)));
        assert_eq!(found(r#"{"kind": "void"}"#, &["acme"]), Ok(Some(2)));
        assert_eq!(found("{}", &["acme"]), Ok(Some(3)));
        assert!(matches!(found(r#"{"kind": "PAY"}"#, &["acme"]), Err(FindRouteError::Unclear(_))));
        assert!(matches!(found(r#"{"kind": "other\u0000"}"#, &["acme"]), Err(FindRouteError::Unclear(_))));
        // A body that was read for other routes does not decide between these.
        let read = routes.read_body(&[RouteId(0), RouteId(3)], &said, b"{}", None).expect("an object");
        let request = RequestWithBody(FixedRequestValues("h", &[], ""), read);
        let undecided =
            routes.find("POST", &path("/a"), &request).map(|found| found.map(|found| found.route.id));
        assert_eq!(undecided, Err(FindRouteError::BodyNeeded(vec![RouteId(2), RouteId(3)])));
    }

    /// A member by which a route is found is compared with the sources that the fences of the routes compare.
    #[test]
    fn deciding_member_is_compared_as_fences_say() {
        let policy = |sources: &str| {
            format!(
                r#"version: 1
listeners: {{public: {{address: 127.0.0.1:8080}}}}
zookeeper: {{servers: [zk1:2181]}}
upstreams: {{a: {{endpoints: ["http://a:80"], fencing: upstream}}}}
routes:
  - {{name: quote, upstream: a, match: {{path: "/a", body: {{/kind: quote}}}}, fence: none}}
  - {{name: rest, upstream: a, match: {{path: "/a"}}, fence: {{key: "order/{{body:/id | int}}"{sources}}}}}
"#
            )
        };
        let said =
            ContentDeclaration { kind: HeaderLookup::One(b"application/json"), coding: HeaderLookup::Absent };
        let is_refused = |sources: &str, query: &'static str, body: &str| {
            let routes = load(&policy(sources)).plan.expect("sound").serving.routes;
            let candidates = [RouteId(0), RouteId(1)];
            let read = routes.read_body(&candidates, &said, body.as_bytes(), Some(query)).expect(body);
            let content = CompleteBody { said, bytes: body.as_bytes() };
            let request = FixedRequestValues("h", &[], query);
            let path = CanonicalPath::parse("/a");
            routes.compare_body_sources(&candidates, &read, content, &path, &[], &request).is_err()
        };
        let any = "";
        let some = ", sources: [query, form, json, cookie]";
        for (query, body, refused_by_any, refused_by_some) in [
            ("", r#"{"kind": "quote", "id": 1}"#, false, false),
            ("kind=quote", r#"{"kind": "quote", "id": 1}"#, false, false),
            ("kind=sale", r#"{"kind": "quote", "id": 1}"#, true, true),
            ("Kind=sale", r#"{"id": 1}"#, true, true),
            ("order[kind]=sale", r#"{"kind": "quote", "id": 1}"#, true, false),
            ("", r#"{"kind": "quote", "id": 1, "order": {"kind": "sale"}}"#, true, false),
            ("", r#"{"kind": "quote", "id": 1, "order": {"kind": "quote"}}"#, false, false),
            ("", r#"{"id": 1, "order": {"kind": "sale"}}"#, true, false),
        ] {
            assert_eq!(is_refused(any, query, body), refused_by_any, "{query} {body}");
            assert_eq!(is_refused(some, query, body), refused_by_some, "{query} {body}");
        }
    }

    struct RequestWithBody(FixedRequestValues, RouteConditionBody);

    impl RequestValues for RequestWithBody {
        fn query(&self) -> Option<&str> {
            self.0.query()
        }

        fn header<'a>(&'a self, name: &str) -> HeaderLookup<'a> {
            self.0.header(name)
        }

        fn request_host(&self) -> Option<&str> {
            self.0.request_host()
        }

        fn condition_body(&self) -> Option<&RouteConditionBody> {
            Some(&self.1)
        }
    }

    /// If an earlier route may take a request, no later route is found for it.
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
