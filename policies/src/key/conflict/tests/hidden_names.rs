//! Tests bodies in which a service finds a name that a plain search does not, and similar bodies that pass.

use std::time::{Duration, Instant};

use super::*;

fn request_with_query_name<'a>(name: &'a str, kind: &'a str, body: &'a [u8]) -> FixedRequestValues<'a> {
    FixedRequestValues { path: Some((name, "42")), kind: Some(kind), body, ..FixedRequestValues::default() }
}

/// Asserts that the request is refused, both for a key from its path and for a key from its query.
#[track_caller]
fn assert_refused(name: &str, kind: &str, body: &[u8]) {
    let text = String::from_utf8_lossy(body);
    assert!(
        request_with_query_name(name, kind, body)
            .default_refusal_reason(&format!("a/{{path.{name}}}"))
            .is_some(),
        "{kind}: {text}"
    );
    let query = format!("{name}=42");
    let request = FixedRequestValues { query: Some(&query), ..request_with_query_id(Some(kind), body) };
    assert!(request.default_refusal_reason(&format!("a/{{query.{name}}}")).is_some(), "{kind}: {text}");
}

#[track_caller]
fn assert_passes(name: &str, kind: &str, body: &[u8]) {
    let refused =
        request_with_query_name(name, kind, body).default_refusal_reason(&format!("a/{{path.{name}}}"));
    assert_eq!(refused, None, "{kind}: {}", String::from_utf8_lossy(body));
}

fn part(head: &str, value: &str) -> String {
    format!("--b\r\n{head}\r\n\r\n{value}\r\n--b--\r\n")
}

/// A boundary that some reader takes from another place does not hide a name.
#[test]
fn foreign_boundary_hides_no_name() {
    let inner = "--EVIL\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\n43\r\n--EVIL--\r\n";
    let body = part("Content-Disposition: form-data; name=\"x\"", inner);
    for kind in [
        "multipart/form-data; xboundary=EVIL; boundary=b",
        "multipart/form-data; x=boundary=EVIL; boundary=b",
        "multipart/form-data; x=\"Boundary=EVIL\"; boundary=b",
        "multipart/form-data; boundary=b; x-BOUNDARY=EVIL",
        "multipart/boundary=EVIL; boundary=b",
    ] {
        assert_refused("id", kind, body.as_bytes());
    }
    let body = body.replace("--b", "--boundary=EVIL");
    assert_refused("id", "multipart/form-data; boundary=boundary=EVIL", body.as_bytes());
    // The boundary as Chrome and Safari write it.
    let own = part("Content-Disposition: form-data; name=\"x\"", "id=43")
        .replace("--b", "------WebKitFormBoundaryX1");
    assert_passes("id", "multipart/form-data; boundary=----WebKitFormBoundaryX1", own.as_bytes());
}

/// A disposition that some reader finds anywhere in a head does not hide a name.
#[test]
fn misplaced_disposition_hides_no_name() {
    for head in [
        "X-Content-Disposition: form-data; name=\"id\"\r\nContent-Disposition: form-data; name=\"x\"",
        "X: content-disposition: form-data; name=\"id\"\r\nContent-Disposition: form-data; name=\"x\"",
        "Content-Disposition: form-data; name=\"x\"\r\nX-Content-Disposition: form-data; name=\"id\"",
        "Content-Disposition: form-data; a=\"Content-Disposition: form-data; name=id\"; name=x",
        // Rack takes the values of these fields for the name of a part without a disposition.
        "Content-ID: id",
        "Content-ID: <id>",
        "X-Content-ID: id",
        "Content-Type: id",
        "Content-Disposition: form-data; filename=\"id\"",
    ] {
        assert_refused("id", "multipart/form-data; boundary=b", part(head, "43").as_bytes());
    }
}

/// A body that readers split in different ways is searched for names, with the rules by which names are compared.
#[test]
fn ambiguous_body_is_searched_for_names() {
    let parts = |name: &str| {
        format!("preamble\r\n{}", part(&format!("Content-Disposition: form-data; name=\"{name}\""), "43"))
    };
    for name in [
        "account.id",
        "account id",
        "account-id",
        "account[id",
        "ACCOUNT[][id]",
        "account[0][id]",
        "%61ccount_id",
        "account%5Bid",
    ] {
        assert_refused("account_id", "multipart/form-data; boundary=b", parts(name).as_bytes());
    }
    let json = |bytes: &[u8]| [&b"{\"\xff\":1,"[..], bytes].concat();
    for name in ["u\u{17f}er_id", "USER_ID", "user-id", "u\u{17f}er.id"] {
        assert_refused("user_id", "application/json", &json(format!("\"{name}\":\"43\"}}").as_bytes()));
    }
    assert_refused("key", "application/json", &json("\"\u{212a}ey\":\"43\"}".as_bytes()));
    assert_refused("id", "application/json", &json(b"\"i\xffd\":\"43\"}"));
    assert_passes("user_id", "application/json", &json(b"\"other\":\"43\"}"));
    assert_passes("user_id", "multipart/form-data; boundary=b", parts("other").as_bytes());
}

/// An XML body that contains the name is refused.
#[test]
fn xml_with_name_is_refused() {
    for kind in ["application/xml", "text/xml; charset=UTF-8", "application/vnd.a+xml", "Application/XML"] {
        for body in [
            "<a><ID>43</ID></a>",
            "<a><n:id>43</n:id></a>",
            "<a Id='43'/>",
            "<a>\n<i\u{17f}/><\u{131}d/><id/></a>",
            "<!DOCTYPE a [<!ENTITY x '&#60;&#105;d>43&#60;/&#105;d>'>]><a>&x;</a>",
            "<?xml version='1.0' encoding='utf-7'?><a>+ADw-i+AGQ-</a>",
            "<a>\0i\0d</a>",
        ] {
            assert_refused("id", kind, body.as_bytes());
        }
        for body in ["<a><width>43</width><aid/></a>", "<?xml version=\"1.0\" encoding=\"UTF-8\"?><a>42</a>"]
        {
            assert_passes("id", kind, body.as_bytes());
        }
    }
    for name in ["accountId", "account-id", "account_id", "Account.ID"] {
        assert_refused("account_id", "text/xml", format!("<a><{name}>43</{name}></a>").as_bytes());
    }
    let request = FixedRequestValues {
        query: Some("a[id]=42"),
        kind: Some("text/xml"),
        body: b"<a><id>43</id></a>",
        ..FixedRequestValues::default()
    };
    assert!(request.default_refusal_reason("a/{query.a[id]}").is_some());
    // Office documents have `xml` in their content type, but are archives.
    assert_passes("id", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", b"PK\0id");
    let zipped =
        FixedRequestValues { coding: Some("gzip"), ..request_with_query_name("id", "text/xml", b"\x1f\x8b") };
    assert!(zipped.default_refusal_reason("a/{path.id}").is_some());
}

/// A body without a clear content type is searched as every format that it may have.
#[test]
fn unclear_body_is_searched_as_any() {
    let form = "id=43&x=\u{e9}".as_bytes();
    let unclear = |unclear, body| {
        FixedRequestValues { unclear: Some(unclear), body, ..request_with_path_id() }
            .default_refusal_reason("a/{path.id}")
    };
    for kind in [HeaderLookup::Several, HeaderLookup::Respelled] {
        assert!(unclear(kind, form).is_some(), "{kind:?}");
        assert_eq!(unclear(kind, b""), None, "{kind:?}");
    }
    assert_eq!(unclear(HeaderLookup::Absent, form), Some(IN_FORM));
    assert_eq!(unclear(HeaderLookup::Absent, b"\xff\0=1&\xffid=43&id=\xff"), Some(IN_FORM));
    assert_eq!(unclear(HeaderLookup::Absent, "x=\u{e9}&id=42".as_bytes()), None);
    // The limit for the fields of a form does not apply to a body that is not declared as one.
    let many = [vec![b"a&".as_slice(); 2 * MOST].concat(), b"id=43".to_vec()].concat();
    assert_eq!(unclear(HeaderLookup::Absent, &many), Some(IN_FORM));
}

/// A body of a megabyte without a content type is searched quickly.
#[test]
fn untyped_megabyte_body_is_searched_quickly() {
    // A xorshift generator makes noise like the bytes of an image.
    let mut state = 88_172_645_463_325_252_u64;
    let noise: Vec<u8> = iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    })
    .take(1 << 20)
    .collect();
    for (body, refusal) in [
        (noise, None),
        (b"a;".repeat(1 << 19), None),
        (b"a&".repeat(1 << 19), None),
        (b"%&".repeat(1 << 19), Some(MANY)),
    ] {
        let begun = Instant::now();
        assert_eq!(
            FixedRequestValues { body: &body, ..request_with_path_id() }
                .default_refusal_reason("a/{path.id}"),
            refusal
        );
        // A generous limit: tests run without optimisation, on a machine that does other work.
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
}

/// A body with more members than the limit is refused, and so are more cookies.
#[test]
fn members_and_cookies_are_limited() {
    let members = |count| format!("{{{}}}", vec!["\"a\":1"; count].join(","));
    assert_eq!(
        request_with_query_name("id", "application/json", members(MOST).as_bytes())
            .default_refusal_reason("a/{path.id}"),
        None
    );
    assert_eq!(
        request_with_query_name("id", "application/json", members(MOST + 1).as_bytes())
            .default_refusal_reason("a/{path.id}"),
        Some(MANY)
    );
    let cookies = |count| vec!["a"; count].join(";");
    let sent = |cookie: &str| {
        FixedRequestValues { cookie: Some(cookie), ..request_with_path_id() }
            .default_refusal_reason("a/{path.id}")
    };
    assert_eq!((sent(&cookies(MOST)), sent(&cookies(MOST + 1))), (None, Some(MANY)));
}

#[test]
fn ordinary_uploads_pass() {
    let image = b"\xff\xd8\xff\xe0\0\x10JFIF\0\\ =?id?= name*=\r\n\r\n\xff\xd9";
    let upload = |heads: [&[u8]; 2]| {
        [
            &b"--b\r\n"[..],
            heads[0],
            b"\r\n\r\n{\"a\":1}\r\n--b\r\n",
            heads[1],
            b"\r\n\r\n",
            image,
            b"\r\n--b--\r\n",
        ]
        .concat()
    };
    let related = upload([b"Content-Type: application/json", b"Content-Type: image/jpeg"]);
    assert_passes("id", "multipart/related; boundary=b", &related);
    let form = upload([
        b"Content-Disposition: form-data; name=\"a\"",
        b"Content-Disposition: form-data; name=\"file\"; filename=\"\xe9id.jpg\"\r\nContent-Type: image/jpeg",
    ]);
    assert_passes("id", "multipart/form-data; boundary=b", &form);
    let odd = upload([
        b"Content-Disposition: form-data; name=\"a\"",
        b"Content-Disposition: attachment; filename=\"a.jpg\"",
    ]);
    assert_passes("id", "multipart/form-data; boundary=b", &odd);
}
