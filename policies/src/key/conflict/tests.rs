//! Tests values that are in two sources of a request: equal ones pass, and different ones are refused. Nothing panics.

use proptest::prelude::*;

use super::*;
use crate::key::{BodyValues, FormValues, JsonValues};

mod hidden_names;

/// A request whose resource has the id 42.
#[derive(Default)]
struct FixedRequestValues<'a> {
    query: Option<&'a str>,
    path: Option<(&'a str, &'a str)>,
    cookie: Option<&'a str>,
    kind: Option<&'a str>,
    /// Replaces `kind`, for a request with a respelled or a repeated content type.
    unclear: Option<HeaderLookup<'a>>,
    coding: Option<&'a str>,
    body: &'a [u8],
    read: Option<BodyValues>,
}

impl RequestValues for FixedRequestValues<'_> {
    fn path(&self, name: &str) -> Option<&str> {
        self.path.filter(|(known, _)| *known == name).map(|(_, value)| value)
    }

    fn query(&self) -> Option<&str> {
        self.query
    }

    fn body(&self) -> Option<&BodyValues> {
        self.read.as_ref()
    }
}

fn field(text: Option<&str>) -> HeaderLookup<'_> {
    text.map_or(HeaderLookup::Absent, |text| HeaderLookup::One(text.as_bytes()))
}

impl FixedRequestValues<'_> {
    /// The reason for which the key is refused; `None` if it is not.
    fn refusal_reason(mut self, key: &str, conflicts: &SourceConflictPolicy) -> Option<&'static str> {
        let key = KeyTemplate::parse(key).expect("a template");
        if key.pointers().next().is_some() {
            let joined = iter::once(key.joined_pointers());
            let json = JsonValues::parse(self.body, key.pointers(), joined, JsonValues::LARGEST_IN_DOUBLE);
            self.read = Some(BodyValues::Json(json.expect("JSON")));
        }
        if key.form_fields().next().is_some() {
            let said = ContentDeclaration { kind: field(self.kind), coding: field(self.coding) };
            let encoding = said.require_form().expect("a form");
            let form = FormValues::parse(encoding, self.body, key.form_fields());
            self.read = Some(BodyValues::Form(form.expect("a form")));
        }
        assert!(!key.expand_all(&self).expect("keys").keys.is_empty());
        let declaration = ContentDeclaration {
            kind: self.unclear.unwrap_or_else(|| field(self.kind)),
            coding: field(self.coding),
        };
        let path = self.path.as_slice();
        let cookie = self.cookie.map(str::as_bytes);
        let content = Some(CompleteBody { said: declaration, bytes: self.body });
        let sent = RequestParameterSources { path, cookies: cookie.as_slice(), content };
        match compare_with_other_sources([&key].into_iter(), conflicts, &self, &sent) {
            Ok(()) => None,
            Err(ExtractKeyError::Invalid { why, .. }) => Some(why),
            Err(other) => panic!("{other}"),
        }
    }

    fn default_refusal_reason(self, key: &str) -> Option<&'static str> {
        self.refusal_reason(key, &SourceConflictPolicy::default())
    }
}

const FORM: Option<&str> = Some("application/x-www-form-urlencoded");
const JSON: Option<&str> = Some("application/json");
const PARTS: Option<&str> = Some("multipart/form-data; boundary=b");

fn request_with_path_id<'a>() -> FixedRequestValues<'a> {
    FixedRequestValues { path: Some(("id", "42")), ..FixedRequestValues::default() }
}

fn request_with_query_id<'a>(kind: Option<&'a str>, body: &'a [u8]) -> FixedRequestValues<'a> {
    FixedRequestValues { query: Some("id=42"), kind, body, ..FixedRequestValues::default() }
}

/// Another source may have some of the items of a list under its name, and no other values.
#[test]
fn list_elsewhere_is_part_of_list() {
    let body = |query| FixedRequestValues {
        query: Some(query),
        body: br#"{"items": [{"sku": "a"}, {"sku": "b"}]}"#,
        kind: JSON,
        ..FixedRequestValues::default()
    };
    for query in ["items[][sku]=a", "items%5B0%5D%5Bsku%5D=b&items[1][sku]=a", "sku=c", "items[][qty]=9"] {
        assert_eq!(body(query).default_refusal_reason("sku/{body:/items/*/sku}"), None, "{query}");
    }
    for query in ["items[][sku]=c", "items[][sku]=a&ITEMS[7][SKU]=c", "items=c", "items.sku=c", "items_sku=c"]
    {
        assert_eq!(body(query).default_refusal_reason("sku/{body:/items/*/sku}"), Some(IN_QUERY), "{query}");
    }
    let query = |body| FixedRequestValues { query: Some("sku=a&sku=b"), ..request_with_query_id(JSON, body) };
    for json in [&br#"{"sku": "b"}"#[..], b"{}", br#"{"SKU": null}"#] {
        assert_eq!(query(json).default_refusal_reason("sku/{query.sku*}"), None);
    }
    for json in [&br#"{"sku": "c"}"#[..], br#"{"sku": ["a"]}"#] {
        assert_eq!(query(json).default_refusal_reason("sku/{query.sku*}"), Some(IN_JSON));
    }
}

/// A query with the name of a path or body value is refused unless the values are equal.
#[test]
fn unequal_query_is_refused() {
    for query in
        ["id=43", "ID=43", "id[]=43", "a=1&%69d=43", "a=1;id=43", "?id=43", "id", "id=42&id=43", "id=%ff"]
    {
        assert_eq!(
            FixedRequestValues { query: Some(query), ..request_with_path_id() }
                .default_refusal_reason("a/{path.id}"),
            Some(IN_QUERY),
            "{query}"
        );
        let body = FixedRequestValues {
            query: Some(query),
            body: br#"{"id":42}"#,
            kind: JSON,
            ..FixedRequestValues::default()
        };
        assert_eq!(body.default_refusal_reason("a/{body:/id}"), Some(IN_QUERY), "{query}");
    }
    for query in ["id=42", "id=%342&x=%zz", "ids=43", "x[id]=43", "", "&&"] {
        assert_eq!(
            FixedRequestValues { query: Some(query), ..request_with_path_id() }
                .default_refusal_reason("a/{path.id}"),
            None,
            "{query}"
        );
    }
    assert_eq!(
        FixedRequestValues { query: Some("id=0042"), ..request_with_path_id() }
            .default_refusal_reason("a/{path.id | int}"),
        None
    );
    assert_eq!(
        FixedRequestValues { query: Some("id=x"), ..request_with_path_id() }
            .default_refusal_reason("a/{path.id | int}"),
        Some(IN_QUERY)
    );
    for (query, reason) in
        [("id=%C3%A9&x=\u{e9}", None), ("id=\u{e9}", Some(IN_QUERY)), ("id=%C3%A9&ID=\u{e9}", Some(IN_QUERY))]
    {
        let request = FixedRequestValues {
            path: Some(("id", "\u{e9}")),
            query: Some(query),
            ..FixedRequestValues::default()
        };
        assert_eq!(request.default_refusal_reason("a/{path.id}"), reason, "{query}");
    }
}

/// A nested member is compared under every name that a query can have for it.
#[test]
fn query_may_name_nested_member() {
    let request = |query| FixedRequestValues {
        query: Some(query),
        body: br#"{"a":{"id":42},"l":[{"id":42}]}"#,
        kind: JSON,
        ..FixedRequestValues::default()
    };
    for query in ["a[id]=43", "a.id=43", "a=43"] {
        assert_eq!(request(query).default_refusal_reason("a/{body:/a/id}"), Some(IN_QUERY), "{query}");
    }
    for query in ["l[][id]=43", "l[0][id]=43", "l[1][id]=43"] {
        assert_eq!(request(query).default_refusal_reason("a/{body:/l/0/id}"), Some(IN_QUERY), "{query}");
    }
    for query in ["a[id]=42", "id=43", "a[x]=43"] {
        assert_eq!(request(query).default_refusal_reason("a/{body:/a/id}"), None, "{query}");
    }
}

/// If a key joins several values of an item, no other source may have such a value, because a service could combine the
/// values in another way.
#[test]
fn joined_list_elsewhere_is_refused() {
    let body = |query, body| FixedRequestValues {
        query: Some(query),
        body,
        kind: JSON,
        ..FixedRequestValues::default()
    };
    let two = br#"{"lines":[{"house":"w1","sku":"a"},{"house":"w2","sku":"b"}]}"#;
    for query in ["lines[][house]=w1&lines[][sku]=b", "lines[][sku]=a", "lines[0][house]=w1"] {
        let refused = body(query, two).default_refusal_reason("{body:/lines/*/house}:{body:/lines/*/sku}");
        assert_eq!(refused, Some(IN_QUERY), "{query}");
    }
    let one = br#"{"lines":[{"house":"w1","sku":"a"},{"house":"w1","sku":"a"}]}"#;
    for (query, refusal) in [
        ("lines[][house]=w1&lines[][sku]=a", None),
        ("lines[][sku]=b", Some(IN_QUERY)),
        ("lines[][qty]=1", None),
    ] {
        let refused = body(query, one).default_refusal_reason("{body:/lines/*/house}:{body:/lines/*/sku}");
        assert_eq!(refused, refusal, "{query}");
    }
}

/// Rails also finds the members of a JSON body in an object with another name, unless the request has that object.
#[test]
fn unequal_wrapped_member_is_refused() {
    for (key, body, refusal) in [
        ("{body:/sku}", r#"{"sku":"a","order":{"sku":"b"}}"#, Some(IN_MEMBER)),
        ("{body:/sku}", r#"{"order":{"SKU":"b"},"sku":"a"}"#, Some(IN_MEMBER)),
        ("{body:/sku}", r#"{"sku":"a","order":{"sku":["a"]}}"#, Some(IN_MEMBER)),
        ("{body:/sku}", r#"{"sku":"a","order":{"sku":"a","id":2},"x":{"y":{"sku":"b"}}}"#, None),
        ("{body:/sku}", r#"{"sku":"a","order":{"sku":null},"list":[{"sku":"b"}]}"#, None),
        ("{body:/sku | lower}", r#"{"sku":"a","order":{"sku":"A"}}"#, None),
        ("{body:/a/sku}", r#"{"a":{"sku":"a","a":{"sku":"b"}},"sku":"b"}"#, None),
        ("{body:/a/sku}", r#"{"a":{"sku":"a"},"o":{"a":{"sku":"b"}}}"#, Some(IN_MEMBER)),
        ("{body:/l/*/sku}", r#"{"l":[{"sku":"a"},{"sku":"b"}],"o":{"l":[{"sku":"b"}]}}"#, None),
        ("{body:/l/*/sku}", r#"{"l":[{"sku":"a"}],"o":{"l":[{"sku":"a"},{"sku":"b"}]}}"#, Some(IN_MEMBER)),
        ("{query.id}", r#"{"order":{"id":43}}"#, None),
    ] {
        let request = || request_with_query_id(JSON, body.as_bytes());
        assert_eq!(request().default_refusal_reason(key), refusal, "{key} {body}");
        let unread = SourceConflictPolicy::Refuse(vec![ParameterLocation::Query, ParameterLocation::Json]);
        assert_eq!(request().refusal_reason(key, &unread), None, "{key} {body}");
    }
    let request = |query| FixedRequestValues {
        query: Some(query),
        body: br#"{"sku":"a","l":[{"sku":"a"}]}"#,
        kind: JSON,
        ..FixedRequestValues::default()
    };
    for query in ["order[sku]=b", "order%5bSKU%5d=b", "order[sku][]=b", "x[sku]"] {
        assert_eq!(request(query).default_refusal_reason("{body:/sku}"), Some(IN_QUERY), "{query}");
        let unread = SourceConflictPolicy::Refuse(vec![ParameterLocation::Query]);
        assert_eq!(request(query).refusal_reason("{body:/sku}", &unread), None, "{query}");
    }
    for query in
        ["order[sku]=a", "order[x]=b", "order[x][sku]=b", "order_sku=b", "order[]=b", "order[skus]=b"]
    {
        assert_eq!(request(query).default_refusal_reason("{body:/sku}"), None, "{query}");
    }
    assert_eq!(request("order[l][][sku]=b").default_refusal_reason("{body:/l/*/sku}"), Some(IN_QUERY));
    let path = FixedRequestValues { query: Some("order[id]=43"), ..request_with_path_id() };
    assert_eq!(path.default_refusal_reason("{path.id}"), None);
}

/// Rails finds a JSON body that is no object under the name `_json`.
#[test]
fn root_of_json_body_has_name() {
    let list = |query| FixedRequestValues {
        query: Some(query),
        body: br#"[{"sku":"a"},{"sku":"b"}]"#,
        kind: JSON,
        ..FixedRequestValues::default()
    };
    for query in ["_json[][sku]=c", "_json%5B0%5D[sku]=c", "_json=c", "_JSON[][sku]=a&_json[][sku]=c"] {
        for key in ["{body:/*/sku}", "{body:/0/sku}/{body:/1/sku}"] {
            assert_eq!(list(query).default_refusal_reason(key), Some(IN_QUERY), "{key} {query}");
        }
    }
    for query in ["_json[][sku]=a", "_json[][n]=1", "json[][n]=c", "_jsons=c", "order[_json][][sku]=b"] {
        assert_eq!(list(query).default_refusal_reason("{body:/*/sku}"), None, "{query}");
    }
    let query = |body| FixedRequestValues {
        query: Some("_json=42"),
        body,
        kind: JSON,
        ..FixedRequestValues::default()
    };
    for (body, refusal) in
        [(&b"43"[..], Some(IN_JSON)), (b"[42]", Some(IN_JSON)), (b"42", None), (b"null", None), (b"{}", None)]
    {
        assert_eq!(query(body).default_refusal_reason("{query._json}"), refusal);
    }
}

/// A form or cookie with the name of a query or path value is refused unless the values are equal.
#[test]
fn unequal_form_or_cookie_is_refused() {
    let parts = |head: &str, value: &str| {
        format!("--b\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n--b--\r\n")
    };
    for (kind, body, refusal) in [
        (FORM, "id=43".to_owned(), Some(IN_FORM)),
        (FORM, "id=42".into(), None),
        (None, "id=43".into(), Some(IN_FORM)),
        (PARTS, parts("name=\"id\"", "43"), Some(IN_FORM)),
        (PARTS, parts("name=\"%69d[]\"", "43"), Some(BROKEN)),
        (PARTS, parts("name=\"id\"", "42"), None),
        (PARTS, parts("name=\"file\"; filename=\"id\"", "id=43"), None),
        (PARTS, parts("name=\"i\\d\"", "43").replace("--b--", "--b"), Some(BROKEN)),
        (PARTS, parts("name=\"x\"; name=\"id\"", "43"), Some(BROKEN)),
        (PARTS, parts("name*=utf-8''%69d", "43"), Some(BROKEN)),
        (Some("text/plain"), "id=43".into(), None),
        (None, "id=43\0".into(), Some(IN_FORM)),
    ] {
        assert_eq!(
            request_with_query_id(kind, body.as_bytes()).default_refusal_reason("a/{query.id}"),
            refusal,
            "{body}"
        );
        assert_eq!(
            FixedRequestValues { kind, body: body.as_bytes(), ..request_with_path_id() }
                .default_refusal_reason("a/{path.id}"),
            refusal,
            "{body}"
        );
    }
    for (cookie, refusal) in [
        ("id=43", Some(IN_COOKIE)),
        ("a=1; Id=43", Some(IN_COOKIE)),
        ("id=%342", Some(IN_COOKIE)),
        ("id=42,x", Some(IN_COOKIE)),
        ("id=\"42\"", Some(IN_COOKIE)),
        ("sid=43; id=42", None),
    ] {
        assert_eq!(
            FixedRequestValues { cookie: Some(cookie), ..request_with_path_id() }
                .default_refusal_reason("a/{path.id}"),
            refusal,
            "{cookie}"
        );
        assert_eq!(
            FixedRequestValues { cookie: Some(cookie), ..request_with_query_id(None, b"") }
                .default_refusal_reason("a/{query.id}"),
            refusal,
            "{cookie}"
        );
    }
}

/// A JSON member with the name of a query or path value is refused unless the values are equal, or the service does not
/// read JSON.
#[test]
fn unequal_json_member_is_refused() {
    for (body, refusal) in [
        (r#"{"id":43}"#, Some(IN_JSON)),
        (r#"{"ID":"43"}"#, Some(IN_JSON)),
        (r#"{"id":42,"\u0069d":43}"#, Some(IN_JSON)),
        (r#"{"id":["42"]}"#, Some(IN_JSON)),
        (r#"{"id":42.0}"#, Some(IN_JSON)),
        (r#"{"id":42}"#, None),
        (r#"{"id":"42","x":{"id":43}}"#, None),
        (r#"{"id":null}"#, None),
        (r#"{"id":43,}"#, Some(IN_JSON)),
        (r#"{x:{},"id":43}"#, Some(BROKEN)),
        (r#"{x:{},"\u0069\u0064":43}"#, Some(BROKEN)),
        (r#"{x:{}}"#, None),
    ] {
        for kind in [JSON, None, Some("text/plain")] {
            assert_eq!(
                request_with_query_id(kind, body.as_bytes()).default_refusal_reason("a/{query.id}"),
                refusal,
                "{body}"
            );
        }
        let beside = || FixedRequestValues { kind: JSON, body: body.as_bytes(), ..request_with_path_id() };
        assert_eq!(beside().default_refusal_reason("a/{path.id}"), refusal, "{body}");
        let unread = SourceConflictPolicy::Refuse(vec![ParameterLocation::Query, ParameterLocation::Form]);
        assert_eq!(beside().refusal_reason("a/{path.id}", &unread), None, "{body}");
    }
    let wide: Vec<u8> = "{\"id\":43}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(
        request_with_query_id(Some("application/json; charset=utf-16"), &wide)
            .default_refusal_reason("a/{query.id}"),
        Some(CHARSET)
    );
    assert_eq!(request_with_query_id(JSON, &wide).default_refusal_reason("a/{query.id}"), Some(BROKEN));
}

/// A value of a form is compared with the other sources as one of a query is. It is not compared with its own form.
#[test]
fn unequal_source_beside_form_is_refused() {
    let parts = "--b\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\n42\r\n--b--\r\n";
    for (kind, body) in [(FORM, "id=42&a=1"), (PARTS, parts)] {
        let request = || FixedRequestValues { kind, body: body.as_bytes(), ..FixedRequestValues::default() };
        let refused = |request: FixedRequestValues<'_>| request.default_refusal_reason("a/{form.id}");
        assert_eq!(refused(request()), None);
        for (query, reason) in
            [("id=42", None), ("ids=43", None), ("id=43", Some(IN_QUERY)), ("ID[]=43", Some(IN_QUERY))]
        {
            assert_eq!(refused(FixedRequestValues { query: Some(query), ..request() }), reason, "{query}");
        }
        assert_eq!(refused(FixedRequestValues { cookie: Some("id=43"), ..request() }), Some(IN_COOKIE));
        assert_eq!(refused(FixedRequestValues { path: Some(("id", "43")), ..request() }), Some(IN_PATH));
    }
    // The service may read the body as JSON, whatever its content type is, and then finds another `id`.
    let both = FixedRequestValues {
        kind: FORM,
        body: br#"{"x":"&id=42&y=","id":43}"#,
        ..FixedRequestValues::default()
    };
    assert_eq!(both.default_refusal_reason("a/{form.id}"), Some(IN_JSON));
    let list = |query| FixedRequestValues {
        query: Some(query),
        kind: FORM,
        body: b"sku=a&sku=b",
        ..FixedRequestValues::default()
    };
    assert_eq!(list("sku=b").default_refusal_reason("a/{form.sku*}"), None);
    assert_eq!(list("sku=c").default_refusal_reason("a/{form.sku*}"), Some(IN_QUERY));
}

/// A byte order mark does not hide a name: Express leaves it out at the beginning of a form or of JSON, and other
/// readers do so elsewhere.
#[test]
fn byte_order_mark_hides_no_name() {
    let refused = |kind, body: &str| {
        let request = FixedRequestValues { kind, body: body.as_bytes(), ..request_with_path_id() };
        request.default_refusal_reason("a/{path.id}")
    };
    for body in ["a=1&\u{feff}id=43", "%EF%BB%BFid=43", "a=1&?\u{feff}id=43"] {
        assert_eq!(refused(FORM, body), Some(IN_FORM), "{body}");
    }
    for body in ["\u{feff}id=43", "\u{feff}a=1", "\u{feff}{\"id\": 43}"] {
        assert_eq!(refused(FORM, body), Some(MARKED), "{body}");
    }
    for body in ["\u{feff}{\"id\": 43}", "\u{feff} {\"\\u0069d\": 43}", "\u{feff}{\"a\": 43}"] {
        assert_eq!(refused(JSON, body), Some(MARKED), "{body}");
        assert_eq!(refused(Some("text/plain"), body), Some(MARKED), "{body}");
    }
    // Without a content type only the first name could change, and it is compared.
    assert_eq!(refused(None, "\u{feff}id=43"), Some(IN_FORM));
    assert_eq!(refused(None, "\u{feff}a=1&id=42"), None);
    let member =
        FixedRequestValues { kind: JSON, body: "{\"\u{feff}id\": 43}".as_bytes(), ..request_with_path_id() };
    assert_eq!(member.default_refusal_reason("a/{path.id}"), Some(IN_JSON));
}

/// A form with a `_charset_` field is refused, because some services decode the form by it.
#[test]
fn form_with_charset_field_is_refused() {
    let refused = |kind, body: &str| {
        let request = FixedRequestValues { kind, body: body.as_bytes(), ..request_with_path_id() };
        request.default_refusal_reason("a/{path.id}")
    };
    for body in ["_charset_=utf-16&id=42", "a=1&_Charset_=utf-8", "a=1&_charset%5F"] {
        assert_eq!(refused(FORM, body), Some(CHARSET), "{body}");
    }
    assert_eq!(refused(FORM, "charset=utf-16&id=42"), None);
    let part = |name: &str| {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\nutf-16\r\n--b--\r\n")
    };
    assert_eq!(refused(PARTS, &part("_charset_")), Some(CHARSET));
    assert_eq!(refused(PARTS, &part("charset")), None);
}

#[test]
fn path_variable_of_same_name_counts() {
    let request =
        |value| FixedRequestValues { path: Some(("ID", value)), ..request_with_query_id(None, b"") };
    assert_eq!(request("43").default_refusal_reason("a/{query.id}"), Some(IN_PATH));
    assert_eq!(request("42").default_refusal_reason("a/{query.id}"), None);
}

/// A form that cannot be searched, because it is compressed or has too many fields, is refused.
#[test]
fn unreadable_form_is_refused() {
    for coding in ["gzip", "identity, gzip"] {
        for (kind, refusal) in
            [(FORM, Some(ENCODED)), (PARTS, Some(ENCODED)), (Some("image/png"), None), (JSON, Some(ENCODED))]
        {
            let request = FixedRequestValues {
                kind,
                coding: Some(coding),
                body: b"\x1f\x8b",
                ..request_with_path_id()
            };
            assert_eq!(request.default_refusal_reason("a/{path.id}"), refusal, "{kind:?}");
        }
    }
    let request =
        FixedRequestValues { kind: FORM, coding: Some("identity"), body: b"id=42", ..request_with_path_id() };
    assert_eq!(request.default_refusal_reason("a/{path.id}"), None);
    let many = vec!["a"; MOST + 1].join("&");
    assert_eq!(
        request_with_query_id(FORM, many.as_bytes()).default_refusal_reason("a/{query.id}"),
        Some(MANY)
    );
    for (charset, refusal) in [("UTF-8", None), ("\"utf-8\"", None), ("utf-7", Some(CHARSET))] {
        let kind = format!("application/x-www-form-urlencoded; charset={charset}");
        assert_eq!(
            request_with_query_id(Some(&kind), b"a=1").default_refusal_reason("a/{query.id}"),
            refusal,
            "{charset}"
        );
    }
}

/// A source that the service does not read is not compared.
#[test]
fn unread_sources_are_not_compared() {
    let conflicting =
        || FixedRequestValues { query: Some("id=43"), cookie: Some("id=43"), ..request_with_path_id() };
    let listed = |sources: &[ParameterLocation]| SourceConflictPolicy::Refuse(sources.to_vec());
    assert_eq!(conflicting().refusal_reason("a/{path.id}", &SourceConflictPolicy::Pass), None);
    assert_eq!(conflicting().refusal_reason("a/{path.id}", &listed(&[ParameterLocation::Form])), None);
    assert_eq!(
        conflicting().refusal_reason("a/{path.id}", &listed(&[ParameterLocation::Cookie])),
        Some(IN_COOKIE)
    );
    assert_eq!(conflicting().default_refusal_reason("a/1"), None);
}

proptest! {
    /// A different value is refused in every source, and an equal one passes.
    #[test]
    fn unequal_value_is_refused_anywhere(
        value in "[a-z0-9]{1,6}",
        before in prop::collection::vec("[b-h]{1,3}=[a-z0-9]{0,3}", 0..4),
        behind in prop::collection::vec("[b-h]{1,3}=[a-z0-9]{0,3}", 0..4),
    ) {
        let form = [before, vec![format!("id={value}")], behind].concat().join("&");
        let refused = request_with_query_id(FORM, form.as_bytes()).default_refusal_reason("a/{query.id}");
        prop_assert_eq!(refused, (value != "42").then_some(IN_FORM));
        let query = FixedRequestValues { query: Some(&form), ..request_with_path_id() }.default_refusal_reason("a/{path.id}");
        prop_assert_eq!(query, (value != "42").then_some(IN_QUERY));
    }

    #[test]
    fn any_bytes_compare_without_panic(
        kind in "\\PC{0,30}|multipart/form-data; ?boundary=b|application/(json|x-www-form-urlencoded); charset=.{0,4}",
        body in prop::collection::vec(any::<u8>(), 0..60),
        text in "[-a-z{}=&;%\"\\[\\],:\\r\\n]{0,60}",
        cookie in "\\PC{0,30}",
    ) {
        for body in [&body[..], text.as_bytes()] {
            let request = FixedRequestValues { cookie: Some(&cookie), ..request_with_query_id(Some(&kind), body) };
            request.default_refusal_reason("a/{query.id}");
        }
    }
}
