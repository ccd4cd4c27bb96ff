//! Generated requests: each value that a service reads is locked under one key, or the request is refused.

use std::{collections::BTreeSet, fmt};

use fencegate_policies::key::KeyTemplate;
use fencegate_tests::{
    client::RawClient, effort::effort, gateway::Gateway, path_values::OnePathValue, peers::ProxyProcess,
    site::TestSite, wire::HttpWireMessage,
};
use futures_util::future::join_all;
use proptest::{
    prelude::*,
    sample::select,
    strategy::ValueTree,
    test_runner::{RngSeed, TestRunner},
};
use serde_json::{Value, json};

use super::{routes, start_programs};
use crate::storm::seed;

/// The place in a request where a service reads the values. Each place has its own route and its own requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValuePlace {
    Path,
    /// A segment of the path that ends in `:cancel`.
    Action,
    Query,
    QueryList,
    Field,
    FieldList,
    Form,
    Member,
    MemberList,
    /// Whichever source the service reads first.
    Merged,
}

/// A request in which services read the value of `id`.
#[derive(Debug, Clone)]
struct GeneratedRequest {
    place: ValuePlace,
    method: &'static str,
    target: String,
    fields: Vec<(String, String)>,
    body: String,
    /// The values of parameters, fields of forms and cookies that are called `id`, or that are a list of this name.
    named_alike: Vec<&'static str>,
}

/// The outcome of a request at one service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestOutcome {
    /// The service reads what is locked.
    Locked,
    /// The gateway refuses the request.
    Refused,
    /// The service refuses the request, or finds no value in it.
    Unread,
}

#[derive(Debug, Default)]
struct OutcomeCounts {
    locked: usize,
    refused: usize,
    unread: usize,
}

/// nginx, which returns the value that it reads from the path or from a header field.
const NGINX: &str = "default_type text/plain; add_header x-key $http_fencing_key;\n\
    server {\n\
        listen LISTEN;\n\
        location ~ ^/from/path/(?<id>.*)$ { return 200 \"=$id\"; }\n\
        location = /from/field { return 200 \"=$http_x_id\"; }\n\
    }";

impl ValuePlace {
    const ALL: [Self; 10] = [
        Self::Path,
        Self::Action,
        Self::Query,
        Self::QueryList,
        Self::Field,
        Self::FieldList,
        Self::Form,
        Self::Member,
        Self::MemberList,
        Self::Merged,
    ];

    /// The path and the variable of the route before this service. `None` if the service does not read this place, or
    /// has separate routes for it.
    fn route(self, service: &str) -> Option<(&'static str, &'static str)> {
        let is_proxy = service == "nginx";
        let is_wrapped = service == "rails-wrapped";
        match self {
            // Rails and Spring 4 remove a suffix from the path.
            Self::Path if matches!(service, "rails" | "spring") => {
                Some(("/from/path/{id}{.format?}", "path.id"))
            }
            Self::Path => (!is_wrapped).then_some(("/from/path/{id}", "path.id")),
            Self::Action => (!is_proxy && !is_wrapped && service != "echo")
                .then_some(("/from/action/{id}:cancel", "path.id")),
            Self::Query => (!is_proxy && !is_wrapped).then_some(("/from/query", "query.id")),
            Self::QueryList => match service {
                "rails" | "php" => Some(("/from/queries", "query.id[]* | whole")),
                "spring" => Some(("/from/queries", "query.id* | split(',')")),
                "nginx" | "rails-wrapped" => None,
                _ => Some(("/from/queries", "query.id* | whole")),
            },
            Self::Field => (!is_wrapped).then_some(("/from/field", "header.x-id")),
            // Werkzeug reads the lists of RFC 9110. The other services get one text, or split it in their own way.
            Self::FieldList => (service == "flask").then_some(("/from/fields", "header.x-ids*")),
            Self::Member => (!is_proxy).then_some(("/from/member", "body:/id")),
            Self::MemberList => (!is_proxy && !is_wrapped).then_some(("/from/members", "body:/items/*/id")),
            Self::Form | Self::Merged => None,
        }
    }

    /// False for requests from which the service reads no such value.
    fn asks(self, service: &str, request: &GeneratedRequest) -> bool {
        match (self, service) {
            (Self::Form | Self::Merged, "nginx") | (Self::Form, "rails-wrapped") => false,
            // This service reads the members that Rails wraps from a JSON body.
            (Self::Merged, "rails-wrapped") => {
                request.method == "PUT" && !request.target.starts_with("/accounts/")
            }
            (Self::Form | Self::Merged, _) => true,
            _ => self.route(service).is_some(),
        }
    }

    fn requests(self) -> BoxedStrategy<GeneratedRequest> {
        let to = move |target: String, fields: Vec<(String, String)>, body: String| GeneratedRequest {
            place: self,
            method: "POST",
            target,
            fields,
            body,
            named_alike: Vec::new(),
        };
        let with_type = |body: String, kind: &str| (vec![("Content-Type".to_owned(), kind.to_owned())], body);
        match self {
            Self::Path => {
                path_value().prop_map(move |id| to(format!("/from/path/{id}"), vec![], String::new())).boxed()
            }
            Self::Action => {
                let ending = prop_oneof![3 => ":cancel", 2 => "%3Acancel|:CANCEL|:cancel\\.json|:cancel/|:cancel:cancel|:cance%6c|"];
                (path_value(), ending)
                    .prop_map(move |(id, ending)| {
                        to(format!("/from/action/{id}{ending}"), vec![], String::new())
                    })
                    .boxed()
            }
            Self::Query => query("id")
                .prop_map(move |query| to(format!("/from/query?{query}"), vec![], String::new()))
                .boxed(),
            Self::QueryList => prop_oneof![query("id"), query("id[]")]
                .prop_map(move |query| to(format!("/from/queries?{query}"), vec![], String::new()))
                .boxed(),
            Self::Field => {
                fields().prop_map(move |fields| to("/from/field".into(), fields, String::new())).boxed()
            }
            Self::FieldList => {
                list_fields().prop_map(move |fields| to("/from/fields".into(), fields, String::new())).boxed()
            }
            Self::Form => form()
                .prop_map(move |(kind, body)| {
                    let (fields, body) = with_type(body, kind);
                    to("/forms".into(), fields, body)
                })
                .boxed(),
            Self::Member => {
                let query = prop_oneof![4 => "", 1 => "\\?(reading\\[id\\]=7|id=4|reading=x)"];
                (json_object(true), content_type(), query)
                    .prop_map(move |(body, kind, query)| {
                        let (fields, body) = with_type(body, kind);
                        to(format!("/from/member{query}"), fields, body)
                    })
                    .boxed()
            }
            Self::MemberList => (json_list(), content_type())
                .prop_map(move |(body, kind)| {
                    let (fields, body) = with_type(body, kind);
                    to("/from/members".into(), fields, body)
                })
                .boxed(),
            Self::Merged => merged_request().boxed(),
        }
    }
}

/// Generates mostly ordinary texts, and an odd one in one of five cases.
fn mostly(
    ordinary: impl Strategy<Value = String> + 'static,
    odd: impl Strategy<Value = String> + 'static,
) -> impl Strategy<Value = String> {
    prop_oneof![4 => ordinary, 1 => odd]
}

fn path_value() -> impl Strategy<Value = String> {
    mostly(
        "([ab42.é-]|%34|%20|%C3%A9){1,3}",
        "([abc42.é~!$&'(*+,=:@_|\\[\\\\-]|%34|%61|%2[0-9]|%[0-9a-f]{2}|\\.json|;v=1|%2e){0,5}",
    )
}

fn query(name: &'static str) -> impl Strategy<Value = String> {
    let odd = "ID|Id|i%64|id\\[\\]|id%5B%5D|\\+id|id\\+|id%20|id\\[0\\]|id\\[x\\]|id%00|id%00x|\\?id|ids|i\\.d|id=|id\\[|\\[id\\]|é|";
    let name = prop_oneof![15 => Just(name.to_owned()), 4 => "x|account|y\\[z\\]", 1 => odd];
    let value = mostly(
        "([ab42]|%31|%20|\\+|%C3%A9|%2B){1,3}",
        "([ab421é=;?/,+]|%3[0-9]|%2[0-9A-F]|%C3|%00|%0a|%ff|%|%z1){0,4}",
    );
    let equals = prop_oneof![4 => Just("="), 1 => Just("")];
    let pair = (name, equals, value).prop_map(|(name, equals, value)| format!("{name}{equals}{value}"));
    let between = select(vec!["&", "&", "&", "&", "&", "&", "&", "&", "&&", ";"]);
    (prop::collection::vec(pair, 0..4), between).prop_map(|(pairs, between)| pairs.join(between))
}

fn fields() -> impl Strategy<Value = Vec<(String, String)>> {
    let field = || {
        let name = prop_oneof![12 => "X-Id", 6 => "x-id|X_Id|X\\.Id|X-ID|X-Ids|X~Id|X--Id"];
        (name, mostly("[ab42 ,]{1,3}", "([ab421é= \t,\"\\\\';.\u{a0}]|%31){0,4}"))
    };
    prop_oneof![
        6 => prop::collection::vec(field(), 1),
        1 => prop::collection::vec(field(), 0..3),
    ]
}

fn list_fields() -> impl Strategy<Value = Vec<(String, String)>> {
    let name = prop_oneof![12 => "X-Ids", 1 => "x-ids|X_Ids"];
    let element =
        mostly("a|b|42|\"a\"|\"a b\"|c d", "|\"a,b\"|\"a\\\\b\"|a;q=1|é|'a'|\"|%61|a\"b\"|=|a=b|\"a\";q=1");
    let between = mostly(", ?", " ,|,,|,\t|, ,");
    let value = (prop::collection::vec(element, 1..4), between)
        .prop_map(|(elements, between)| elements.join(&between));
    prop::collection::vec((name, value), 1..3)
}

/// The media type and the bytes of a form.
fn form() -> impl Strategy<Value = (&'static str, String)> {
    const URL_ENCODED: &str = "application/x-www-form-urlencoded";
    const PARTS: &str = "multipart/form-data; boundary=b";
    let kinds = |kind| {
        let others = vec![
            "application/x-www-form-urlencoded; charset=utf-8",
            "multipart/form-data; boundary=\"b\"",
            "multipart/form-data; boundary=c",
            "application/x-www-form-urlencoded; charset=utf-16",
        ];
        prop_oneof![9 => Just(kind), 1 => select(others)]
    };
    let name = prop_oneof![15 => Just("id"), 1 => select(vec!["ID", "i%64", "id[]", " id", "id\\", "id ", "\u{feff}id", "ids"])];
    let head = select(vec![
        "Content-Disposition: form-data; name=\"NAME\"",
        "Content-Disposition: form-data; name=\"NAME\"",
        "Content-Disposition: form-data; name=\"NAME\"",
        "Content-Disposition: form-data; name=\"NAME\"",
        "Content-Disposition: form-data; name=\"NAME\"",
        "Content-Disposition: form-data; name=\"x\"",
        "Content-Disposition: form-data; name=\"x\"; filename=\"NAME\"",
        "Content-Disposition: form-data; name=\"NAME\"; filename=\"a\"",
        "content-disposition: form-data; name=NAME",
        "Content-Disposition: form-data;name=\"NAME\"",
        "Content-Disposition: form-data; name=\"NAME\"; name=\"x\"",
        "Content-Disposition: form-data; name*=utf-8''NAME",
        "Content-Disposition: form-data; name=\"NAME\"\r\nContent-Type: text/plain; charset=utf-8",
        "Content-Disposition: form-data; name=\"NAME\"\r\nContent-Transfer-Encoding: base64",
    ]);
    let value = mostly("([ab42é +]|%31){1,3}", "([ab42,;&=\"\\\\\r\n -]|--b){0,4}");
    let part = (head, name, value)
        .prop_map(|(head, name, value)| format!("--b\r\n{}\r\n\r\n{value}\r\n", head.replace("NAME", name)));
    let end =
        select(vec!["--b--\r\n", "--b--\r\n", "--b--\r\n", "--b--\r\n", "--b--", "", "--b\r\n", "--b--x"]);
    let parts = (prop::collection::vec(part, 1..3), end).prop_map(|(parts, end)| parts.concat() + end);
    prop_oneof![(kinds(URL_ENCODED), query("id")), (kinds(PARTS), parts)]
}

fn content_type() -> impl Strategy<Value = &'static str> {
    let others = vec![
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/json; charset=utf-16",
        "application/x-www-form-urlencoded",
        "text/plain",
    ];
    prop_oneof![9 => Just("application/json"), 1 => select(others)]
}

fn json_text() -> impl Strategy<Value = String> {
    let odd = "\"([ab42/é€😀 ,.]|\\\\u0061|\\\\u00e9|\\\\n|\\\\\\\\|\\\\\"|\\\\ud83d\\\\ude00|\\\\ud83d|\\\\x){0,4}\"";
    mostly("\"[ab4é ]{1,3}\"", odd)
}

fn json_value() -> impl Strategy<Value = String> {
    let number = "-?(0|42|042|9007199254740991|9007199254740992|9007199254740993|18446744073709551616|[1-9][0-9]{18,24})(\\.0|\\.5|)(e0|e2|E-1|)";
    let other = "true|false|null|\\[\\]|\\{\\}|\\[1\\]|\\{\"id\":2\\}|NaN|'a'|0x10|True|";
    prop_oneof![4 => json_text(), 4 => "[1-9][0-9]{0,3}", 1 => number, 1 => other]
}

fn json_member(name: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (name, " ?: ?", json_value()).prop_map(|(name, colon, value)| format!("{name}{colon}{value}"))
}

/// Generates an object, mostly with a member `id`. An outermost object may contain another object, in which Rails reads
/// members as well.
fn json_object(is_outermost: bool) -> BoxedStrategy<String> {
    let odd = "\"(ID|i\\\\u0064|Id|id |id\\\\u0000|__proto__|)\"";
    let id = json_member(prop_oneof![15 => Just("\"id\"".to_owned()), 1 => odd]);
    let plain = json_member(prop_oneof![8 => "\"(x|y|items|account_id)\"", 1 => "\"id\""]).boxed();
    let other = if is_outermost {
        let inner = json_object(false).prop_map(|inner| format!("\"reading\":{inner}"));
        prop_oneof![4 => plain, 1 => inner].boxed()
    } else {
        plain
    };
    let others = || prop::collection::vec(other.clone(), 0..2);
    let between = select(vec![",", ",", ",", ",", ",", ", ", ",\n", ",,"]);
    let around = || select(vec!["", "", "", "", "", "", "", "", " ", "\n"]);
    let behind = select(vec!["", "", "", "", "", "", "", "", "x", "}", "\0"]);
    let object = (others(), prop::collection::vec(id, 0..=1), others(), between);
    (around(), object, around(), behind)
        .prop_map(move |(before, (first, id, last, between), after, behind)| {
            let members = [first, id, last].concat().join(between);
            if is_outermost {
                format!("{before}{{{members}}}{after}{behind}")
            } else {
                format!("{{{members}}}")
            }
        })
        .boxed()
}

fn json_list() -> impl Strategy<Value = String> {
    let item = mostly(
        "\\{\"id\":(\"[abc]\"|[1-9])\\}",
        prop_oneof![json_object(false), json_value(), json_text().prop_map(|id| format!("{{\"id\":{id}}}"))],
    );
    let behind = select(vec!["", "", "", "", "", "", "", ",\"x\":1", ",\"id\":\"7\"", ",\"items\":[]"]);
    (prop::collection::vec(item, 0..4), behind)
        .prop_map(|(items, behind)| format!("{{\"items\":[{}]{behind}}}", items.join(",")))
}

type NamedValue = (&'static str, &'static str);

/// A body that may also contain `id`.
#[derive(Debug, Clone)]
enum MergedBody {
    Empty,
    Form(Vec<NamedValue>),
    /// Members of an object, or items of a list.
    Json(Vec<NamedValue>),
    Parts(Vec<NamedValue>),
    Xml(NamedValue),
}

impl MergedBody {
    /// The media type, and the bytes of the body of a request to this path.
    fn content(&self, method: &str, path: &str) -> (Option<&'static str>, String) {
        match self {
            Self::Empty => (None, String::new()),
            Self::Form(pairs) => (Some("application/x-www-form-urlencoded"), join_pairs(pairs)),
            Self::Json(members) => {
                let members = members.iter().map(|(name, value)| match *name {
                    "reading" | "other" => format!("\"{name}\":{{\"id\":\"{value}\"}}"),
                    "numbers" => format!("\"id\":{value}"),
                    _ => format!("\"{name}\":\"{value}\""),
                });
                let members: Vec<String> = members.collect();
                let text = match (method, path) {
                    ("PUT", "/lists") => {
                        let items = self.pairs().iter().map(|(_, id)| format!("{{\"id\":\"{id}\"}}"));
                        format!("[{}]", items.collect::<Vec<_>>().join(","))
                    }
                    ("PUT", "/accounts") => {
                        format!("{{{}}}", [vec!["\"id\":\"42\"".to_owned()], members].concat().join(","))
                    }
                    _ => format!("{{{}}}", members.join(",")),
                };
                (Some("application/json"), text)
            }
            Self::Parts(parts) => {
                let part = |(name, value): &NamedValue| {
                    format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
                };
                let parts: String = parts.iter().map(part).collect();
                (Some("multipart/form-data; boundary=b"), format!("{parts}--b--\r\n"))
            }
            Self::Xml((name, value)) => (Some("application/xml"), format!("<a><{name}>{value}</{name}></a>")),
        }
    }

    fn pairs(&self) -> &[NamedValue] {
        match self {
            Self::Form(pairs) | Self::Json(pairs) | Self::Parts(pairs) => pairs,
            Self::Empty | Self::Xml(_) => &[],
        }
    }
}

fn join_pairs(pairs: &[NamedValue]) -> String {
    let pairs = pairs.iter().map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join("&")
}

/// Generates a request whose resource 42 is named by one source. Other sources may name another resource.
fn merged_request() -> impl Strategy<Value = GeneratedRequest> {
    const NAMES: [&str; 10] =
        ["id", "id", "id", "ID", "id[]", "x", "reading[id]", "_json", "_json[][id]", "other[id]"];
    let value = || prop_oneof![3 => Just("42"), 1 => Just("43")];
    let pairs = |least| prop::collection::vec((select(NAMES.to_vec()), value()), least..3);
    let members = || {
        let names = select(vec!["id", "ID", "numbers", "x", "reading", "other"]);
        prop::collection::vec((names, value()), 0..3)
    };
    let resource = select(vec![
        ("POST", "/accounts/42"),
        ("PUT", "/accounts/42"),
        ("DELETE", "/accounts/42"),
        ("POST", "/accounts"),
        ("PUT", "/accounts"),
        ("PUT", "/lists"),
    ]);
    let body = prop_oneof![
        2 => Just(MergedBody::Empty),
        2 => pairs(0).prop_map(MergedBody::Form),
        1 => pairs(1).prop_map(MergedBody::Parts),
        1 => (select(vec!["id", "ID", "x"]), value()).prop_map(MergedBody::Xml),
    ];
    let cookie = prop::option::weighted(0.2, (select(vec!["id", "ID", "x"]), value()));
    let sources = (pairs(0), body, members(), any::<bool>(), cookie);
    (resource, sources).prop_map(|((method, path), (mut query, other, members, is_json, cookie))| {
        if (method, path) == ("POST", "/accounts") {
            query.insert(0, ("id", "42"));
        }
        // The key comes from the JSON body for these requests.
        let is_json = is_json || method == "PUT" && path != "/accounts/42";
        let body = if is_json { MergedBody::Json(members) } else { other };
        let (kind, text) = body.content(method, path);
        let mut fields = Vec::new();
        fields.extend(kind.map(|kind| ("Content-Type".to_owned(), kind.to_owned())));
        fields.extend(cookie.map(|(name, value)| ("Cookie".to_owned(), format!("{name}={value}"))));
        let form = if is_json { &[] } else { body.pairs() };
        let pairs = query.iter().chain(form).chain(&cookie);
        let alike = pairs.filter(|(name, _)| name.trim_end_matches("[]").eq_ignore_ascii_case("id"));
        GeneratedRequest {
            place: ValuePlace::Merged,
            method,
            target: format!("{path}?{}", join_pairs(&query)),
            fields,
            body: text,
            named_alike: alike.map(|(_, value)| *value).collect(),
        }
    })
}

impl GeneratedRequest {
    fn to_bytes(&self, service: &str) -> Vec<u8> {
        let Self { method, target, fields, body, .. } = self;
        let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        format!(
            "{method} {target} HTTP/1.1\r\nHost: service\r\nX-Service: {service}\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
        )
        .into()
    }

    /// # Errors
    /// Returns an error if the service reads a value that is not locked, or if neither gateway nor service has refused
    /// a request without a value.
    fn judge(&self, service: &str, answer: &HttpWireMessage) -> Result<RequestOutcome, String> {
        let read = String::from_utf8_lossy(&answer.body);
        let wrong =
            |locked: &str| Err(format!("{service} {self}: it reads {read:?}, and {locked:?} is locked"));
        // Flask also sends the key with an answer that refuses the request.
        let Some(locked) = answer.field("x-key").filter(|_| answer.word(1) == "200") else {
            return match answer.word(1) {
                // On such a query PHP's own server closes the connection, and WEBrick answers without calling the
                // service.
                "502" if service == "php" && !self.target.is_ascii() => Ok(RequestOutcome::Unread),
                "200" if service.starts_with("rails") && !self.target.is_ascii() && read.is_empty() => {
                    Ok(RequestOutcome::Unread)
                }
                status if status.starts_with('4') || status == "500" => {
                    let is_ours = answer.field("content-type") == Some("application/problem+json");
                    Ok(if is_ours { RequestOutcome::Refused } else { RequestOutcome::Unread })
                }
                _ => Err(format!("{service} {self}: {answer:?}")),
            };
        };
        if read == "!" {
            return Ok(RequestOutcome::Unread);
        }
        let keys: BTreeSet<String> = locked.split(", ").map(str::to_owned).collect();
        let key = |value: &str| resource_key(service, value);
        let is_merged = self.place == ValuePlace::Merged;
        let is_locked = match &*read {
            // The service finds no value: it does not read this source, or a parameter replaces the wrapper.
            "-" if is_merged || service == "rails-wrapped" => return Ok(RequestOutcome::Unread),
            "*" if is_merged => {
                self.named_alike.iter().all(|value| key(value).is_some_and(|key| keys.contains(&key)))
            }
            read => {
                let mut values = Vec::new();
                for line in read.split('\n') {
                    let Some(value) = line.strip_prefix('=') else { return wrong(locked) };
                    match service {
                        // Spring joins the values of one name.
                        "spring" if is_merged => values.extend(value.split(',')),
                        _ => values.push(value),
                    }
                }
                let wanted: Option<BTreeSet<String>> = values.into_iter().map(key).collect();
                // From a merged source a service may read only a part of a list.
                wanted.is_some_and(|wanted| if is_merged { wanted.is_subset(&keys) } else { wanted == keys })
            }
        };
        if is_locked { Ok(RequestOutcome::Locked) } else { wrong(locked) }
    }
}

impl fmt::Display for GeneratedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, target, fields, body, .. } = self;
        write!(f, "{method} {target:?} {fields:?} {body:?}")
    }
}

/// The key of a resource that a service reads; `None` where no key can be made of it.
fn resource_key(service: &str, value: &str) -> Option<String> {
    let template = KeyTemplate::parse(&format!("{service}/{{path.id}}")).expect("a template");
    template.expand(&OnePathValue(value.to_owned())).ok().map(|key| key.to_string())
}

fn generate(each: usize) -> Vec<GeneratedRequest> {
    let config = ProptestConfig { rng_seed: RngSeed::Fixed(seed()), ..ProptestConfig::default() };
    let mut runner = TestRunner::new(config);
    let mut requests = Vec::new();
    for place in ValuePlace::ALL {
        let strategy = place.requests();
        for _ in 0..each {
            requests.push(strategy.new_tree(&mut runner).expect("nothing is filtered out").current());
        }
    }
    requests
}

fn routes_of_places(service: &str) -> Vec<Value> {
    let route = |place: &ValuePlace| {
        let (path, variable) = place.route(service)?;
        Some(json!({
            "name": format!("from-{place:?}-{service}").to_lowercase(),
            "upstream": service,
            "match": {"methods": ["POST"], "path": path, "headers": {"x-service": service}},
            "fence": {"key": format!("{service}/{{{variable}}}")},
        }))
    };
    ValuePlace::ALL.iter().filter_map(route).collect()
}

/// Sends each request through the gateway to this service, and returns the outcomes.
async fn ask_all(
    gateway: &Gateway,
    service: &str,
    requests: &[GeneratedRequest],
) -> Vec<(ValuePlace, Result<RequestOutcome, String>)> {
    let mut client = None;
    let mut outcomes = Vec::new();
    for request in requests.iter().filter(|request| request.place.asks(service, request)) {
        let mut connected = match client.take() {
            Some(connected) => connected,
            None => RawClient::connect(gateway.public).await.expect("listens"),
        };
        connected.send(request.to_bytes(service)).await.expect("it reads");
        let answer = connected.read_response().await;
        let answer = answer.unwrap_or_else(|error| panic!("{service} {request}: {error}"));
        if !answer.field("connection").is_some_and(|said| said.eq_ignore_ascii_case("close")) {
            client = Some(connected);
        }
        outcomes.push((request.place, request.judge(service, &answer)));
    }
    outcomes
}

/// Whatever path, query, field or body is generated: each value that a service reads is locked, or the request is
/// refused.
#[tokio::test]
async fn generated_value_is_locked_or_refused() {
    /// Connections to each service.
    const CONNECTIONS: usize = 3;
    let each = effort(60, 60_000 / ValuePlace::ALL.len());
    let requests = generate(each);
    let mut programs = start_programs().await;
    programs.push(("nginx", ProxyProcess::nginx_with(NGINX, "LISTEN", &[])));
    let site = TestSite::fresh().await;
    // The session timeout is long enough that a busy machine does not end the session.
    let mut policy = site.policy("gw-1").with_cached_hold().with("/zookeeper/session_timeout", "10s");
    for (name, program) in &programs {
        let upstream = json!({"endpoints": [format!("http://{}", program.address)], "fencing": "upstream"});
        policy = policy.with(&format!("/upstreams/{name}"), upstream);
        let merged = if *name == "nginx" { Vec::new() } else { routes(name).into() };
        for route in merged.into_iter().chain(routes_of_places(name)) {
            policy = policy.with_route(route);
        }
    }
    let gateway = Gateway::start(&policy).await;
    let chunks: Vec<&[GeneratedRequest]> = requests.chunks(requests.len().div_ceil(CONNECTIONS)).collect();
    let mut asks = Vec::new();
    for (name, _) in &programs {
        asks.extend(chunks.iter().map(|chunk| ask_all(&gateway, name, chunk)));
    }
    let outcomes = join_all(asks).await.concat();
    let wrong: Vec<_> = outcomes.iter().filter_map(|(_, outcome)| outcome.as_ref().err()).collect();
    assert!(wrong.is_empty(), "{} of {}: {:#?}", wrong.len(), outcomes.len(), &wrong[..wrong.len().min(20)]);
    for place in ValuePlace::ALL {
        let mut seen = OutcomeCounts::default();
        for (_, outcome) in outcomes.iter().filter(|(of, _)| *of == place) {
            match outcome {
                Ok(RequestOutcome::Locked) => seen.locked += 1,
                Ok(RequestOutcome::Refused) => seen.refused += 1,
                Ok(RequestOutcome::Unread) => seen.unread += 1,
                Err(_) => {}
            }
        }
        println!("{place:?}: {seen:?}");
        assert!(
            seen.locked >= each / 5 && seen.refused >= each / 5,
            "{place:?}: {seen:?}: the requests prove little"
        );
    }
}
