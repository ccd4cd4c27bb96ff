//! One file has values of `Fencing-Not-After`, and whether each can be read and when it is late. The middlewares run
//! it in their own tests (`middleware`). Here it is run by our own parser, and by a filter, nginx and HAProxy as
//! processes before a service.
//!
//! The file is `deploy/upstream/vectors.json`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fencegate_policies::not_after::{BootId, NotAfter};
use fencegate_process::clock::{BootInstant, Clock};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    middleware::in_time::{read_answer, send_request},
    not_after, not_after_proxies,
};

/// The deadline in most vectors.
const MOMENT: &str = "1795727217123";
const FIELD: &str = "fencing-not-after";

fn vectors(list: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("../../deploy/upstream/vectors.json")).expect("JSON");
    let list = all[list].as_array().expect("a list").clone();
    assert!(list.len() > 5);
    list
}

/// The fields of a vector. Each character is one byte.
fn fields(vector: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let fields = vector["fields"].as_array().expect("a list").iter();
    fields.map(|field| (text(&field[0]), text(&field[1]))).collect()
}

/// True if a field has another spelling of the name, which some proxies do not see as the same field.
fn has_field_lookalike(fields: &[(String, String)]) -> bool {
    let plain = |name: &str| name.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    fields.iter().any(|(name, _)| plain(name) == FIELD && !name.eq_ignore_ascii_case(FIELD))
}

#[test]
fn gateway_parser_matches_middlewares() {
    let mut read = 0;
    for vector in vectors("not_after") {
        let fields = fields(&vector);
        let own: Vec<_> = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(FIELD)).collect();
        // Vectors without the field, or with several, do not test its value.
        let [(_, value)] = own[..] else { continue };
        if has_field_lookalike(&fields) {
            continue;
        }
        let bytes: Vec<u8> = value.chars().map(|c| u8::try_from(c).expect("a byte")).collect();
        let found = NotAfter::parse(&bytes);
        let said = &vector["read"];
        if said.is_null() {
            assert!(found.is_err(), "{}: {found:?}", vector["name"]);
            continue;
        }
        let found = found.unwrap_or_else(|error| panic!("{}: {error}", vector["name"]));
        assert_eq!(json!(found.unix_ms()), said["not_after"], "{}", vector["name"]);
        // A boot ID that no kernel has counts as absent.
        if let Some(boot) = said["boot"].as_str().and_then(|id| BootId::parse(id.as_bytes())) {
            assert_eq!(json!(found.uptime_ms(boot)), said["uptime"], "{}", vector["name"]);
        }
        read += 1;
    }
    assert!(read > 10, "not exercised");
}

proptest! {
    /// The parsers of the gateway and of the Rust middleware accept the same values.
    #[test]
    fn not_after_parsers_agree(
        text in "[-0-9 ]{1,4}(;( )?(boot|uptime|[ab*])(=(\"[\"\\\\ %x]{0,3}\"|%\"[%cC3x]{0,4}\"|[-@0-9.x:?]{1,4}))?){0,4}[; ]?",
    ) {
        let ours = NotAfter::parse(text.as_bytes());
        let theirs = fencegate_upstream::NotAfter::parse(text.as_bytes());
        prop_assert_eq!(
            ours.map(|moment| moment.unix_ms()).ok(),
            theirs.map(|moment| moment.moment().wall_ms).ok(),
            "{}", text
        );
    }
}

/// The clocks that a vector describes.
#[derive(Debug)]
struct TestVectorClock {
    wall_ms: u64,
    boot: Option<BootId>,
    uptime_ms: u64,
}

impl Clock for TestVectorClock {
    fn now(&self) -> BootInstant {
        BootInstant::from_nanos(0) + Duration::from_millis(self.uptime_ms)
    }

    fn unix_ms(&self) -> u64 {
        self.wall_ms
    }

    fn boot_id(&self) -> Option<BootId> {
        self.boot
    }
}

/// The clock of this workspace finds the same vectors late as the middlewares do.
#[test]
fn lateness_matches_middlewares() {
    for vector in vectors("in_time") {
        let value = vector["value"].as_str().expect("text");
        let not_after = NotAfter::parse(value.as_bytes()).expect("good");
        let now = &vector["now"];
        let told = TestVectorClock {
            wall_ms: now["wall"].as_u64().expect("a number"),
            boot: now["boot"].as_str().and_then(|id| BootId::parse(id.as_bytes())),
            // A vector without an uptime allows any, such as 5 ms.
            uptime_ms: now["uptime"].as_u64().unwrap_or(5),
        };
        let clock_error = Duration::from_millis(vector["clock_error"].as_u64().expect("a number"));
        let clock: &dyn Clock = &told;
        let in_time = clock.now() < clock.deadline_of(&not_after, clock_error);
        assert_eq!(json!(in_time), vector["in_time"], "{}", vector["name"]);
    }
}

/// Sends each vector to the proxy at this port, before a service that answers 200: unchanged, and with a deadline in
/// the future. A field with another spelling may be refused as missing or malformed, or be dropped, and is never read.
fn assert_answers_match_vectors(port: u16) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    let now = u64::try_from(since.as_millis()).expect("a number");
    let future = (now + 3_600_000).to_string();
    assert_eq!(future.len(), MOMENT.len(), "as many bytes");
    let mut differ = Vec::new();
    for vector in vectors("not_after") {
        let fields = fields(&vector);
        let beside =
            has_field_lookalike(&fields) && fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(FIELD));
        for moment in [MOMENT, &future] {
            let lines: Vec<_> = fields
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.replace(MOMENT, moment)))
                .collect();
            let (status, _) = read_answer(send_request(port, "POST", "/vector", &lines));
            let expected: &[u16] = match (vector["refused"].as_str(), vector["read"]["not_after"].as_u64()) {
                (Some("not-after-missing"), _) => &[403],
                (Some(_), _) if beside => continue,
                (Some(_), _) if has_field_lookalike(&fields) => &[400, 403],
                (Some(_), _) => &[400],
                (None, Some(said)) if said.to_string() == MOMENT && moment == future => &[200],
                (None, Some(said)) if said > now => &[200],
                (None, _) => &[412],
            };
            if !expected.contains(&status) {
                differ.push(format!("{}: {lines:?} gets {status}, not {expected:?}", vector["name"]));
            }
        }
    }
    assert_eq!(differ, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn filter_matches_middlewares() {
    let service = not_after_proxies::service(1);
    let filter = not_after::filter(([127, 0, 0, 1], service.port).into()).start().await;
    let port = filter.public.port();
    tokio::task::spawn_blocking(move || assert_answers_match_vectors(port)).await.expect("no panic");
}

#[test]
fn nginx_matches_middlewares() {
    let service = not_after_proxies::service(1);
    assert_answers_match_vectors(not_after_proxies::nginx(&service).address.port());
}

#[test]
fn haproxy_matches_middlewares() {
    let service = not_after_proxies::service(1);
    assert_answers_match_vectors(not_after_proxies::haproxy(&service, &[]).address.port());
}
