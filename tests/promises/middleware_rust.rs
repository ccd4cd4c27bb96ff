//! The layer for services in Rust reads the fields that gateways write, its README shows the code that runs, and a
//! service with it passes `fencegate verify`.
//!
//! The layer takes for a token what gateways and guards take for one. The tests of the contract, case by case of
//! `vectors.json`, are in its crate.

use std::fs;

use fencegate_policies::{key::ResourceKey, plan::LockMode, token};
use fencegate_testkit::scratch;
use fencegate_tests::prometheus::deploy;
use fencegate_upstream::{Settings, Token};
use hyper::{
    HeaderMap, Method,
    header::{HeaderName, HeaderValue},
};
use proptest::prelude::*;
use serde_json::Value;
use tempfile::TempDir;

use super::middleware::{SampleRequests, SampleService, check_both_forms, in_time::assert_keeps_deadlines};

fn upstream(file: &str) -> String {
    fs::read_to_string(deploy().join("upstream").join(file)).expect("shipped")
}

/// The values of a field in a request of the vectors, as bytes.
fn field_values(vector: &Value, name: &str) -> Vec<Vec<u8>> {
    let fields = vector["fields"].as_array().expect("a list").iter();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let named = fields.filter(|field| text(&field[0]).eq_ignore_ascii_case(name));
    let bytes = |value: String| value.chars().map(|one| u8::try_from(one).expect("a byte")).collect();
    named.map(|field| bytes(text(&field[1]))).collect()
}

/// The layer accepts the same vectors as the parsers of gateways and guards.
#[test]
fn vectors_match_gateway_parsers() {
    let vectors: Value = serde_json::from_str(&upstream("vectors.json")).expect("JSON");
    let mut good = 0;
    for vector in vectors["requests"].as_array().expect("a list") {
        let read = |name, read: &dyn Fn(&str) -> bool| {
            let sent = field_values(vector, name);
            sent.len() == 1 && str::from_utf8(&sent[0]).is_ok_and(read)
        };
        let is_token = |text: &str| token::FencingToken::parse(text).is_ok();
        let token = read("fencing-token", &is_token);
        let keys = read("fencing-key", &|text| ResourceKey::parse_list(text).is_ok());
        let mode = read("fencing-mode", &|text| LockMode::parse(text).is_some());
        if vector["accepted"].is_object() {
            // One key of the vectors is too long for a lock. The layer may accept a key that no gateway would stamp.
            let long = field_values(vector, "fencing-key")[0].len() > 90;
            let number_alone = vector["accepted"]["token"].is_null();
            assert!((token || number_alone) && (keys || long) && mode, "{vector}");
            good += 1;
        } else if token && keys && mode && vector["compare"].is_null() {
            // The other rejected vectors have a wrong number or look-alike fields, which these parsers do not see.
            let fields = vector["fields"].as_array().expect("a list").len();
            assert!(fields > 3, "{vector}");
        }
    }
    assert!(good > 10, "{good}");
}

proptest! {
    /// The token parsers of the layer and of the gateway accept the same.
    ///
    /// The texts are valid tokens, texts that differ a little from tokens, and others.
    #[test]
    fn token_parsers_agree(
        text in "v1-[0-9a-gA-F]{15,17}[-_][0-9a-f]{8}-[0-9a-f]{7,9}|v[12]-[0-9a-f]{16}-[0-9a-f]{8}-[0-9a-f]{8}|[ -~]{0,40}",
    ) {
        let here = token::FencingToken::parse(&text);
        let there = Token::parse(text.as_bytes());
        prop_assert_eq!(here.is_ok(), there.is_some());
        if let (Ok(here), Some(there)) = (here, there) {
            prop_assert_eq!(here.to_string(), there.to_string());
            prop_assert_eq!(here.number(), u64::try_from(there.number().as_i64()).expect("not negative"));
        }
    }

    /// The key parsers of the layer and of the gateway accept the same.
    #[test]
    fn key_parsers_agree(text in "([a-d!/]{1,3}(, ?| ,|,)){0,3}[a-d ~]{0,3}") {
        let mut fields = HeaderMap::new();
        for (name, value) in [
            ("fencing-token", "v1-00000000000000ab-00000007-00000001"),
            ("fencing-key", text.as_str()),
            ("fencing-mode", "exclusive"),
        ] {
            let value = HeaderValue::from_str(value).expect("printable");
            fields.append(HeaderName::from_static(name), value);
        }
        let read = Settings::default().read(&Method::POST, &fields).map(|stamp| stamp.expect("fenced").keys);
        let keys = ResourceKey::parse_list(&text);
        let keys = keys.map(|keys| keys.iter().map(|key| key.as_str().to_owned()).collect::<Vec<_>>());
        prop_assert_eq!(read.ok(), keys.ok());
    }
}

/// The README shows the examples as they run.
#[test]
fn readme_shows_running_examples() {
    let page = upstream("rust/README.md");
    let mut blocks = page.split("```rust\n").skip(1).map(|rest| rest.split("```").next().expect("it ends"));
    for file in ["account", "deadline"] {
        let example = upstream(&format!("rust/examples/{file}.rs"));
        let runs = example.split("// --- page\n").nth(1).expect("a part of it");
        assert_eq!(blocks.next().expect("a block"), runs);
    }
    assert_eq!(blocks.next(), None);
}

/// The path of an example program of the crate.
fn example_path(name: &str) -> String {
    let example = scratch::binaries().join("examples").join(name);
    assert!(
        example.exists(),
        "{} is missing: run `cargo build -p fencegate-upstream --examples` first",
        example.display()
    );
    example.display().to_string()
}

#[test]
fn sample_service_passes_verify() {
    let program = example_path("account");
    check_both_forms(|form| {
        let home = TempDir::new_in(scratch::folder()).expect("a folder");
        let bank = home.path().join("bank.sqlite").display().to_string();
        let words = |port: u16| vec![program.clone(), form.to_owned(), bank.clone(), port.to_string()];
        SampleService::start(words).assert_verified(form, SampleRequests::Debits);
    });
}

/// A service with the layer begins no request after its `Fencing-Not-After`.
#[test]
fn late_request_is_refused() {
    let program = example_path("deadline");
    assert_keeps_deadlines(|mode, file, port| {
        [&program, mode.word(), file, &port.to_string()].map(str::to_owned).into()
    });
}
