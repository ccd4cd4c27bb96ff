//! Tests which values give which keys, and which values give none.

use proptest::prelude::*;

use super::*;
use crate::{
    client_name::{CertificateNameKind, ClientName},
    header_name::same_field,
    key::{
        content_declaration::ContentDeclaration, form_values::FormValues, json::JsonValues, query::BAD_ESCAPE,
    },
};

/// A request in which every source has the value of `name` for the variable of that name.
#[derive(Default, Clone)]
struct FixedRequestValues {
    path: Vec<(String, String)>,
    query: Option<String>,
    headers: Vec<(String, Vec<u8>)>,
    host: Option<String>,
    body: Option<BodyValues>,
    client_name: Option<ClientName>,
}

impl RequestValues for FixedRequestValues {
    fn path(&self, name: &str) -> Option<&str> {
        self.path.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
    fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }
    fn header<'a>(&'a self, name: &str) -> HeaderLookup<'a> {
        if self.headers.iter().any(|(key, _)| key != name && same_field(key, name)) {
            return HeaderLookup::Respelled;
        }
        let mut lines = self.headers.iter().filter(|(key, _)| key == name);
        match (lines.next(), lines.next()) {
            (None, _) => HeaderLookup::Absent,
            (Some((_, value)), None) => HeaderLookup::One(value),
            (Some(_), Some(_)) => HeaderLookup::Several,
        }
    }
    fn request_host(&self) -> Option<&str> {
        self.host.as_deref()
    }
    fn body(&self) -> Option<&BodyValues> {
        self.body.as_ref()
    }
    fn client_name(&self) -> Option<&ClientName> {
        self.client_name.as_ref()
    }
}

fn path(pairs: &[(&str, &str)]) -> FixedRequestValues {
    let path = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    FixedRequestValues { path, ..FixedRequestValues::default() }
}

fn expand(template: &str, request: &FixedRequestValues) -> Result<String, ExtractKeyError> {
    let template = KeyTemplate::parse(template).expect(template);
    template.expand(request).map(|key| key.as_str().to_owned())
}

/// The same text as the names of different kinds gives two keys, and two owners of operations. Filters get the name as
/// the certificate has it.
#[test]
fn client_name_has_its_kind_in_keys() {
    let of = |kind, name: &str| FixedRequestValues {
        client_name: Some(ClientName::new(kind, name).expect(name)),
        ..FixedRequestValues::default()
    };
    for (template, kind, name, key) in [
        ("{client.name}", CertificateNameKind::Uri, "spiffe://a/7", "spiffe%3A%2F%2Fa%2F7"),
        ("{client.name}", CertificateNameKind::CommonName, "spiffe://a/7", "cn%3Aspiffe%3A%2F%2Fa%2F7"),
        ("{client.name}", CertificateNameKind::Dns, "Till.a", "till.a"),
        ("{client.name}", CertificateNameKind::CommonName, "till.a", "cn%3Atill.a"),
        ("{client.name | int}", CertificateNameKind::CommonName, "007", "cn%3A7"),
        (
            "{client.name | match('till-[0-9]') | lower}",
            CertificateNameKind::CommonName,
            "till-7",
            "cn%3Atill-7",
        ),
        ("{client.name | lower}", CertificateNameKind::CommonName, "TILL", "cn%3Atill"),
    ] {
        let request = of(kind, name);
        assert_eq!(expand(template, &request), Ok(key.to_owned()), "{template}");
        let template = KeyTemplate::parse(template).expect(template);
        assert_eq!(template.expand_operation_name(&request), Ok(key.to_owned()), "{key}");
    }
    assert_eq!(expand("{client.name}", &FixedRequestValues::default()), Err(ExtractKeyError::NoClientName));
}

/// Values are escaped so that no value looks like a separator.
#[test]
fn escaped_value_is_no_separator() {
    let two = "sku/{path.a}/{path.b}";
    assert_eq!(expand(two, &path(&[("a", "x/y"), ("b", "z")])).as_deref(), Ok("sku/x%2Fy/z"));
    assert_eq!(expand(two, &path(&[("a", "x"), ("b", "y/z")])).as_deref(), Ok("sku/x/y%2Fz"));
    assert_eq!(expand("{path.a}", &path(&[("a", "é %")])).as_deref(), Ok("%C3%A9%20%25"));
    assert_eq!(expand("{path.a}", &path(&[("a", "A-b_c.d~9")])).as_deref(), Ok("A-b_c.d~9"));
    assert_eq!(expand("the-one-lock", &FixedRequestValues::default()).as_deref(), Ok("the-one-lock"));
}

/// Filters give one form to different spellings of a resource.
#[test]
fn filters_unify_spellings() {
    for (template, value, key) in [
        ("{path.a | lower}", "ABC-É", Ok("abc-%C3%89")),
        ("{path.a | trim}", "  x y ", Ok("x%20y")),
        ("{path.a | int}", "007", Ok("7")),
        ("{path.a | int}", "000", Ok("0")),
        ("{path.a | trim | int}", " 42 ", Ok("42")),
        ("{path.a | int}", "+7", Err("is not a whole number of at most 39 digits")),
        ("{path.a | int}", "-7", Err("is not a whole number of at most 39 digits")),
        ("{path.a | int}", "٧", Err("is not a whole number of at most 39 digits")),
        ("{path.a | int}", "1e3", Err("is not a whole number of at most 39 digits")),
        ("{path.a | int}", &"9".repeat(40), Err("is not a whole number of at most 39 digits")),
    ] {
        let key =
            key.map(str::to_owned).map_err(|why| ExtractKeyError::Invalid { variable: "path.a".into(), why });
        assert_eq!(expand(template, &path(&[("a", value)])), key, "{template} {value}");
    }
}

#[test]
fn empty_value_counts_as_missing() {
    let missing = Err(ExtractKeyError::Missing { variable: "path.a".into() });
    assert_eq!(expand("{path.a}", &FixedRequestValues::default()), missing);
    assert_eq!(expand("{path.a}", &path(&[("a", "")])), missing);
    assert_eq!(expand("{path.a | trim}", &path(&[("a", "  ")])), missing);
    assert_eq!(expand("{path.a | trim | int}", &path(&[("a", "  ")])), missing);
}

/// A query parameter is decoded as forms are.
#[test]
fn query_parameter_parses_as_form() {
    for (query, outcome) in [
        ("id=42", Ok("42")),
        ("x=1&id=a+b%20c&y", Ok("a%20b%20c")),
        ("i%64=4%32", Ok("42")),
        ("id==", Ok("%3D")),
        ("&&id=1&&", Ok("1")),
        ("id=%C3%A9", Ok("%C3%A9")),
        ("", Err(None)),
        ("id", Err(None)),
        ("id=", Err(None)),
        ("ID=1", Err(Some(RESPELLED))),
        ("ID=2&id=1", Err(Some(RESPELLED))),
        ("id=1&id[]=2", Err(Some(RESPELLED))),
        ("id=1&x=%zz", Err(Some(BAD_ESCAPE))),
        ("id=1&id=1", Err(Some(TWICE))),
        ("id=&id=1", Err(Some(TWICE))),
        ("id=1&%69d=2", Err(Some(TWICE))),
        ("id=%zz", Err(Some(BAD_ESCAPE))),
        ("i%=1&id=1", Err(Some(BAD_ESCAPE))),
        ("id=%ff", Err(Some(NOT_UTF8))),
        ("id=\u{e9}", Err(Some(NOT_ASCII))),
        ("id=1&id\u{e9}=2&x=\u{e9}", Ok("1")),
        ("id=a%00", Err(Some("has a control character"))),
        ("id=1;id=2", Err(Some("is in a query with a semicolon, which servers read differently"))),
    ] {
        let request = FixedRequestValues { query: Some(query.into()), ..FixedRequestValues::default() };
        let variable = || "query.id".to_owned();
        let outcome = outcome.map(str::to_owned).map_err(|why| match why {
            None => ExtractKeyError::Missing { variable: variable() },
            Some(why) => ExtractKeyError::Invalid { variable: variable(), why },
        });
        assert_eq!(expand("{query.id}", &request), outcome, "{query}");
    }
}

/// A header field that is repeated, or in another spelling, has no single value.
#[test]
fn repeated_or_respelled_header_is_invalid() {
    let line = |value: &[u8]| ("x-account".to_owned(), value.to_vec());
    let with = |headers| {
        expand("{header.X-Account}", &FixedRequestValues { headers, ..FixedRequestValues::default() })
    };
    let invalid = |why| Err(ExtractKeyError::Invalid { variable: "header.x-account".into(), why });
    assert_eq!(with(vec![line(b"a, b")]).as_deref(), Ok("a%2C%20b"));
    assert_eq!(with(vec![]), Err(ExtractKeyError::Missing { variable: "header.x-account".into() }));
    assert_eq!(with(vec![line(b"a"), line(b"a")]), invalid(TWICE));
    let other = || ("x_account".to_owned(), b"a".to_vec());
    assert_eq!(with(vec![other()]), invalid(RESPELLED), "alone, too");
    assert_eq!(with(vec![line(b"a"), other()]), invalid(RESPELLED));
    assert_eq!(with(vec![line(b"\xff")]), invalid(NOT_UTF8));
    assert_eq!(with(vec![line("\u{e9}".as_bytes())]), invalid(NOT_ASCII));
    assert_eq!(with(vec![line(b"a\tb")]), invalid("has a control character"));
}

fn expand_from_body(template: &str, json: &str) -> Result<String, ExtractKeyError> {
    let key = KeyTemplate::parse(template).expect(template);
    let largest = JsonValues::LARGEST_IN_DOUBLE;
    let body = JsonValues::parse(json.as_bytes(), key.pointers(), std::iter::empty(), largest).expect(json);
    let body = Some(BodyValues::Json(body));
    expand(template, &FixedRequestValues { body, ..FixedRequestValues::default() })
}

fn request_with_form(template: &KeyTemplate, kind: &str, form: &str) -> FixedRequestValues {
    let said = ContentDeclaration { kind: HeaderLookup::One(kind.as_bytes()), coding: HeaderLookup::Absent };
    let encoding = said.require_form().expect(kind);
    let form = FormValues::parse(encoding, form.as_bytes(), template.form_fields()).expect(form);
    FixedRequestValues { body: Some(BodyValues::Form(form)), ..FixedRequestValues::default() }
}

/// A field of a form is a value, in both encodings, and repeated fields are the values of a list.
#[test]
fn form_field_is_value_or_list() {
    let keys = |template: &str, kind: &str, form: &str| {
        let template = KeyTemplate::parse(template).expect(template);
        let expanded = template.expand_all(&request_with_form(&template, kind, form))?;
        Ok(expanded.keys.iter().map(|key| key.as_str().to_owned()).collect::<Vec<_>>())
    };
    let variable = |name: &str| name.to_owned();
    let one = |key: &str| Ok(vec![key.to_owned()]);
    const FORM: &str = "application/x-www-form-urlencoded";
    const PARTS: &str = "multipart/form-data; boundary=b";
    for (form, outcome) in [
        ("id=a+b", one("a%20b")),
        ("x=1&i%64=42&y", one("42")),
        ("", Err(ExtractKeyError::Missing { variable: variable("form.id") })),
        ("id=", Err(ExtractKeyError::Missing { variable: variable("form.id") })),
        ("id=1&id=1", Err(ExtractKeyError::Invalid { variable: variable("form.id"), why: TWICE })),
        ("id=1&id[]=2", Err(ExtractKeyError::Invalid { variable: variable("form.id"), why: RESPELLED })),
        (
            "id=a%00",
            Err(ExtractKeyError::Invalid { variable: variable("form.id"), why: "has a control character" }),
        ),
    ] {
        assert_eq!(keys("{form.id}", FORM, form), outcome, "{form}");
    }
    let part = |value: &str| format!("--b\r\nContent-Disposition: form-data; name=id\r\n\r\n{value}\r\n");
    let parts = format!("{}{}--b--\r\n", part("b"), part("a"));
    assert_eq!(keys("{form.id*}", PARTS, &parts), Ok(vec!["a".into(), "b".into()]));
    assert_eq!(
        keys("{form.id}", PARTS, &parts),
        Err(ExtractKeyError::Invalid { variable: variable("form.id"), why: TWICE })
    );
    assert_eq!(
        keys("s/{form.sku[]*}", FORM, "sku[]=b&sku%5B%5D=a&sku[]=a"),
        Ok(vec!["s/a".into(), "s/b".into()])
    );
    // A comma in a form means the same as in a query. In a part of a multipart form a comma is never escaped.
    let parts = format!("{}--b--\r\n", part("b,a"));
    for (template, form, outcome) in [
        ("{form.id* | split(',')}", "id=b,a", Some(vec!["a".to_owned(), "b".to_owned()])),
        ("{form.id* | split(',')}", "id=b%2Ca", None),
        ("{form.id* | split(',')}", "id=b,a&id=c", None),
        ("{form.id* | whole}", "id=b%2Ca", Some(vec!["b%2Ca".to_owned()])),
        ("{form.id*}", "id=b,a", None),
    ] {
        assert_eq!(keys(template, FORM, form).ok(), outcome, "{template} {form}");
    }
    assert_eq!(keys("{form.id* | split(',')}", PARTS, &parts), Ok(vec!["a".into(), "b".into()]));
    assert!(keys("{form.id*}", PARTS, &parts).is_err());
    assert_eq!(
        keys("{form.id*}", FORM, "x=1"),
        Err(ExtractKeyError::EmptyList { variable: variable("form.id*") })
    );
    // A body that was read as JSON has no form fields, and a form has no members.
    let json = FixedRequestValues {
        body: Some(BodyValues::Json(JsonValues::default())),
        ..FixedRequestValues::default()
    };
    assert_eq!(expand("{form.id}", &json), Err(ExtractKeyError::Missing { variable: variable("form.id") }));
    let template = KeyTemplate::parse("{form.id}").expect("a template");
    let form = request_with_form(&template, FORM, "id=1");
    assert_eq!(expand("{body:/id}", &form), Err(ExtractKeyError::Missing { variable: variable("body:/id") }));
}

#[test]
fn body_value_is_string_or_integer() {
    for (json, outcome) in [
        (r#"{"id": "a/b"}"#, Ok("a%2Fb")),
        (r#"{"id": "ABC"}"#, Ok("abc")),
        (r#"{"id": 42}"#, Ok("42")),
        (r#"{"id": "42"}"#, Ok("42")),
        (r#"{"id": -1}"#, Ok("-1")),
        (
            r#"{"id": true}"#,
            Err(Some("is a boolean, which some readers take for 1 or 0, and others for a word")),
        ),
        (r#"{"id": null}"#, Err(None)),
        (r#"{"id": ""}"#, Err(None)),
        ("{}", Err(None)),
        ("[1]", Err(None)),
        ("7", Err(None)),
        (r#"{"id": 1.0}"#, Err(Some("is a number that not every reader of JSON takes for the same integer"))),
        (r#"{"id": {}}"#, Err(Some("is an object or a list"))),
        (r#"{"id": [1]}"#, Err(Some("is an object or a list"))),
        (r#"{"id": "a\u0000"}"#, Err(Some("has a control character"))),
    ] {
        let variable = || "body:/id".to_owned();
        let outcome = outcome.map(str::to_owned).map_err(|why| match why {
            None => ExtractKeyError::Missing { variable: variable() },
            Some(why) => ExtractKeyError::Invalid { variable: variable(), why },
        });
        assert_eq!(expand_from_body("{body:/id | lower}", json), outcome, "{json}");
    }
    let missing = ExtractKeyError::Missing { variable: "body:/id".into() };
    assert_eq!(expand("{body:/id}", &FixedRequestValues::default()), Err(missing));
}

/// A key that is too long is refused.
#[test]
fn oversized_key_is_refused() {
    assert_eq!(expand("{path.a}", &path(&[("a", &"é".repeat(200))])), Err(ExtractKeyError::TooLong));
    assert_eq!(
        expand("{host}", &FixedRequestValues { host: Some("a.b".into()), ..FixedRequestValues::default() })
            .as_deref(),
        Ok("a.b")
    );
}

prop_compose! {
    /// A template of the variables `{path.v0}`, `{path.v1}` and so on, between random literals that a policy could
    /// contain.
    fn any_template()(literals in proptest::collection::vec("[a-c/:.@-]{0,3}", 1..5)) -> KeyTemplate {
        let (last, rest) = literals.split_last().expect("at least one");
        let mut text = String::from("k");
        for (index, literal) in rest.iter().enumerate() {
            let separator = if index > 0 && literal.bytes().all(is_unreserved) { "/" } else { "" };
            text.push_str(&format!("{literal}{separator}{{path.v{index}}}"));
        }
        text.push_str(last);
        KeyTemplate::parse(&text).expect("separated")
    }
}

fn expand_all(template: &str, request: &FixedRequestValues) -> Result<String, ExtractKeyError> {
    let template = KeyTemplate::parse(template).expect(template);
    template.expand_all(request).map(|expanded| crate::key::join_keys(&expanded.keys))
}

/// A repeated parameter, and a header field that is a list, give a key for each value.
#[test]
fn query_and_header_lists_give_each_value() {
    let query =
        |query: &str| FixedRequestValues { query: Some(query.into()), ..FixedRequestValues::default() };
    let sku = "sku/{query.sku*}";
    assert_eq!(expand_all(sku, &query("sku=b&x=1&sku=a&s%6Bu=b")).as_deref(), Ok("sku/a, sku/b"));
    assert!(matches!(expand_all(sku, &query("sku=a,b")), Err(ExtractKeyError::Invalid { .. })));
    assert_eq!(expand_all("sku/{query.sku* | split(',')}", &query("sku=b,a")).as_deref(), Ok("sku/a, sku/b"));
    let gap = expand_all("sku/{query.sku* | split(',')}", &query("sku=b,,a"));
    assert!(matches!(gap, Err(ExtractKeyError::Missing { .. })), "{gap:?}");
    assert_eq!(
        expand_all("sku/{query.sku* | whole}", &query("sku=a%2Cb&sku=a,b")).as_deref(),
        Ok("sku/a%2Cb")
    );
    assert_eq!(expand_all("s/{query.sku[]*}", &query("sku[]=a&sku%5B%5D=b")).as_deref(), Ok("s/a, s/b"));
    assert_eq!(expand_all("s/{query.sku* | int}", &query("sku=07&sku=7")).as_deref(), Ok("s/7"));
    for empty in ["", "x=1"] {
        assert!(matches!(expand_all(sku, &query(empty)), Err(ExtractKeyError::EmptyList { .. })), "{empty}");
    }
    for bad in ["sku=a&SKU=b", "sku=a&sku[]=b", "sku=a&sku[0]=b", "sku=a;sku=b", "sku=%zz", "sku=a&sku=%ff"] {
        assert!(matches!(expand_all(sku, &query(bad)), Err(ExtractKeyError::Invalid { .. })), "{bad}");
    }
    // PHP and qs put the parameters of each of these queries into one list.
    for (template, bad) in [
        ("s/{query.sku[]*}", "sku[]=a&sku[0]=b"),
        ("s/{query.sku[]*}", "sku[x]=b"),
        ("s/{query.sku[]*}", "sku[]=a&sku[1][y]=b"),
        ("s/{query.items[][sku]*}", "items[][sku]=a&items[0][sku]=b"),
    ] {
        assert!(matches!(expand_all(template, &query(bad)), Err(ExtractKeyError::Invalid { .. })), "{bad}");
    }
    for missing in ["sku=a&sku=", "sku", "sku=a&sku"] {
        assert!(
            matches!(expand_all(sku, &query(missing)), Err(ExtractKeyError::Missing { .. })),
            "{missing}"
        );
    }
    assert!(matches!(expand_all("{query.sku}", &query("sku=a&sku=b")), Err(ExtractKeyError::Invalid { .. })));

    let fields = |lines: &[(&str, &str)]| FixedRequestValues {
        headers: lines.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect(),
        ..FixedRequestValues::default()
    };
    let skus = "sku/{header.x-skus*}";
    assert_eq!(expand_all(skus, &fields(&[("x-skus", "b, \"a\",")])).as_deref(), Ok("sku/a, sku/b"));
    assert!(matches!(
        expand_all(skus, &fields(&[("x-skus", "b, \u{e9}")])),
        Err(ExtractKeyError::Invalid { why: NOT_ASCII, .. })
    ));
    assert!(matches!(expand_all(skus, &fields(&[])), Err(ExtractKeyError::EmptyList { .. })));
    assert!(matches!(
        expand_all(skus, &fields(&[("x-skus", "a"), ("x_skus", "b")])),
        Err(ExtractKeyError::Invalid { why: RESPELLED, .. })
    ));
}

proptest! {
    /// Two different sets of values never give one key.
    #[test]
    fn different_values_give_different_keys(
        template in any_template(),
        a in proptest::collection::vec("[ab/:%.@é-]{1,4}", 4),
        b in proptest::collection::vec("[ab/:%.@é-]{1,4}", 4),
    ) {
        let request = |values: &[String]| {
            let pairs = values.iter().enumerate().map(|(index, value)| (format!("v{index}"), value.clone()));
            FixedRequestValues { path: pairs.collect(), ..FixedRequestValues::default() }
        };
        let used = template.variables().count();
        let one = template.expand(&request(&a));
        let other = template.expand(&request(&b));
        prop_assert!(one.is_ok() && other.is_ok());
        prop_assert_eq!(one == other, a[..used] == b[..used], "{}", template);
    }

    /// The key does not depend on the spelling of a JSON body, nor on its other members.
    #[test]
    fn equal_body_values_give_one_key(
        (from, to) in ("[aB1/\"\\\\é]{1,4}", -99_i32..99),
        rest in prop::collection::btree_map("[g-z]{1,3}", any::<Option<i8>>(), 0..4),
        (first, pretty) in any::<(bool, bool)>(),
    ) {
        let mut members = vec![format!("\"from\": {}", serde_json::Value::from(from.as_str()))];
        members.push(format!("\"to\": {to}"));
        let plain = format!("{{{}}}", members.join(","));
        let escaped: String = from.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
        members[0] = format!("\"fr\\u006fm\" : \"{escaped}\"");
        let extra = rest.iter().filter(|(name, _)| *name != "to").map(|(name, value)| {
            format!("\"{name}\": [{{}}, {}]", value.map_or("null".into(), |value| value.to_string()))
        });
        let at = if first { 0 } else { members.len() };
        members.splice(at..at, extra);
        let other = format!("{{{}}}", members.join(if pretty { ",\r\n\t" } else { "," }));
        let template = "{body:/from}/{body:/to}";
        let key = expand_from_body(template, &plain);
        prop_assert!(key.is_ok());
        prop_assert_eq!(key, expand_from_body(template, &other), "{}", other);
    }

    #[test]
    fn any_request_expands_without_panic(query in "\\PC{0,40}|([a-z%=&;+]|%[0-9a-f]{2}){0,20}", header: Vec<u8>) {
        let request = FixedRequestValues { query: Some(query), headers: vec![("h".into(), header)], ..FixedRequestValues::default() };
        for template in ["{query.a}", "{header.h | trim | int}"] {
            if let Ok(key) = expand(template, &request) {
                prop_assert!(key.bytes().all(|byte| byte.is_ascii_graphic()));
            }
        }
    }
}
