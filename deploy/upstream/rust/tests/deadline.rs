//! Runs the contract for `Fencing-Not-After` (`deploy/upstream/vectors.json`) against both layers, with and
//! without a fence.

use std::{
    convert::Infallible,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fencegate_upstream::{BootTime, Clock, Deadline, DeadlineLayer, FenceLayer, Moment, NotAfter, Settings};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

type Body = Full<bytes::Bytes>;

fn vectors(list: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("../../vectors.json")).expect("JSON");
    let list = all[list].as_array().expect("a list").clone();
    assert!(list.len() > 5);
    list
}

/// The header fields of a vector. Each character of a value stands for one byte.
fn headers(fields: &Value) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for field in fields.as_array().expect("a list") {
        let text = |at: usize| field[at].as_str().expect("text");
        let bytes: Vec<u8> = text(1).chars().map(|c| u8::try_from(c).expect("a byte")).collect();
        let name = HeaderName::from_bytes(text(0).as_bytes()).expect("a name");
        headers.append(name, HeaderValue::from_bytes(&bytes).expect("a value"));
    }
    headers
}

fn request(method: Method, fields: &Value) -> Request<Body> {
    let mut request = Request::new(Body::default());
    *request.method_mut() = method;
    *request.headers_mut() = headers(fields);
    request
}

/// Sends a request with these fields through the layer to a service that answers 200, and returns the answer.
async fn answered(layer: &DeadlineLayer, method: Method, fields: &Value) -> Response<Body> {
    let done = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::from("done"))));
    layer.layer(done).oneshot(request(method, fields)).await.expect("answered")
}

async fn assert_answers(answer: Response<Body>, reason: &str, which: &str) {
    let answers = vectors("answers");
    let expected = answers.iter().find(|answer| answer["reason"] == reason).expect(reason);
    assert_eq!(json!(answer.status().as_u16()), expected["status"], "{which}");
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    let refusal = answer.headers().get("fencing-refusal").map(|word| word.to_str().expect("text"));
    assert_eq!(refusal, expected["refusal"].as_str(), "{which}");
    let clock = answer.headers()["fencing-clock"].to_str().expect("text").to_owned();
    assert!(clock.ends_with(";error=500"), "{clock}");
    let body = answer.into_body().collect().await.expect("in memory").to_bytes();
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    let members = json!({"title": expected["title"], "status": expected["status"], "reason": reason});
    assert_eq!(body, members);
}

fn moment(wall: &Value, boot: &Value, uptime: &Value) -> Moment {
    let number = |value: &Value| value.as_u64().expect("a number");
    let boot = boot.as_str().map(|id| BootTime { id: id.to_owned(), uptime_ms: number(uptime) });
    Moment { wall_ms: number(wall), boot }
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    u64::try_from(since.as_millis()).expect("a small number")
}

#[tokio::test]
async fn fields_are_parsed_as_in_vectors() {
    let layer = DeadlineLayer::default();
    for vector in vectors("not_after") {
        let name = vector["name"].as_str().expect("text");
        let fields = headers(&vector["fields"]);
        if let Some(refused) = vector["refused"].as_str() {
            assert_answers(answered(&layer, Method::POST, &vector["fields"]).await, refused, name).await;
            continue;
        }
        let read = NotAfter::parse(fields["fencing-not-after"].as_bytes()).expect(name);
        let said = &vector["read"];
        assert_eq!(*read.moment(), moment(&said["not_after"], &said["boot"], &said["uptime"]), "{name}");
        let answer = answered(&layer, Method::POST, &vector["fields"]).await;
        assert!(matches!(answer.status().as_u16(), 200 | 412), "{name}");
    }
}

#[test]
fn timeliness_is_decided_as_in_vectors() {
    for vector in vectors("in_time") {
        let not_after = NotAfter::parse(vector["value"].as_str().expect("text").as_bytes()).expect("good");
        let now = moment(&vector["now"]["wall"], &vector["now"]["boot"], &vector["now"]["uptime"]);
        let error = Duration::from_millis(vector["clock_error"].as_u64().expect("a number"));
        assert_eq!(json!(not_after.is_in_time(&now, error)), vector["in_time"], "{}", vector["name"]);
    }
}

/// A late request is refused. A timely one is executed, and its answer has the clock of the service.
#[tokio::test]
async fn only_timely_request_is_executed() {
    let layer = DeadlineLayer::default();
    let boot = Clock::default().now().boot.expect("procfs");
    let here = |wall: u64, uptime: u64| format!("{wall};boot=\"{}\";uptime={uptime}", boot.id);
    for (value, in_time) in [
        ((wall_ms() + 5000).to_string(), true),
        (wall_ms().to_string(), false),
        ((wall_ms() + 400).to_string(), false),
        (here(1, boot.uptime_ms + 60_000), true),
        (here(wall_ms() + 60_000, boot.uptime_ms), false),
    ] {
        let answer = answered(&layer, Method::POST, &json!([["Fencing-Not-After", value]])).await;
        if in_time {
            assert_eq!(answer.status(), 200, "{value}");
            let clock = answer.headers()["fencing-clock"].to_str().expect("text");
            let told: u64 = clock.strip_suffix(";error=500").expect("the error").parse().expect("a number");
            assert!(wall_ms() - told < 5000, "{clock}");
        } else {
            assert_answers(answer, "expired", &value).await;
        }
    }
    let near = json!([["Fencing-Not-After", (wall_ms() + 400).to_string()]]);
    let exact = DeadlineLayer::default().clock_error(Duration::ZERO);
    assert_eq!(answered(&exact, Method::POST, &near).await.status(), 200);
}

/// A request with an exempt method passes only if it has none of the fields.
#[tokio::test]
async fn unfenced_method_passes_only_without_fields() {
    let layer = DeadlineLayer::default().unfenced([Method::GET]);
    assert_eq!(answered(&layer, Method::GET, &json!([["Accept", "text/plain"]])).await.status(), 200);
    for (method, fields, reason) in [
        (Method::POST, json!([]), "not-after-missing"),
        (Method::GET, json!([["Fencing_Key", "a"]]), "not-after-missing"),
        (Method::GET, json!([["Fencing-Not-After", "5"]]), "expired"),
        (Method::GET, json!([["Fencing.Not-After", "5"]]), "not-after-malformed"),
    ] {
        assert_answers(answered(&layer, method, &fields).await, reason, reason).await;
    }
}

/// A handler that waits can check the deadline again before it begins.
#[tokio::test]
async fn handler_can_recheck_deadline() {
    let waiting = service_fn(async |request: Request<Body>| {
        let deadline = request.extensions().get::<Deadline>().expect("each has one").clone();
        assert!(!deadline.is_over());
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(deadline.is_over());
        Ok::<_, Infallible>(Response::new(Body::default()))
    });
    let layer = DeadlineLayer::default().clock_error(Duration::ZERO);
    let fields = json!([["Fencing-Not-After", (wall_ms() + 200).to_string()]]);
    let answer = layer.layer(waiting).oneshot(request(Method::POST, &fields)).await;
    assert_eq!(answer.expect("answered").status(), 200);
}

/// Where tokens are compared, `Fencing-Not-After` may be missing. If it is there, it is checked before the
/// token.
#[tokio::test]
async fn fence_checks_deadline_before_token() {
    let good = vectors("requests")[0]["fields"].clone();
    for (value, reason) in [("5", "expired"), ("never", "not-after-malformed")] {
        for mut fields in [good.clone(), json!([])] {
            fields.as_array_mut().expect("a list").push(json!(["Fencing-Not-After", value]));
            let handler = service_fn(async |_: Request<Body>| -> Result<Response<Body>, Infallible> {
                panic!("it was refused")
            });
            let layer = FenceLayer::new(Settings::default().clock_error(Duration::from_millis(500)));
            let answer = layer.layer(handler).oneshot(request(Method::POST, &fields)).await;
            assert_answers(answer.expect("answered"), reason, value).await;
        }
    }
}
