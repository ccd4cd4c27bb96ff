//! Runs the contract for requests and handlers (`deploy/upstream/vectors.json`) against the fencing layer.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use fencegate_upstream::{
    AsyncTransaction, ClaimError, Compare, Fence, FenceLayer, Mode, Settings, Stamp, Transaction,
    WatermarkOutcome, WatermarkUpdate,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::{Layer, ServiceExt, service_fn};

type Body = Full<bytes::Bytes>;

/// A transaction whose claims end as the vector demands.
struct ScriptedTransaction(&'static str);

impl Transaction for ScriptedTransaction {
    type Error = &'static str;

    fn raise(&mut self, _: WatermarkUpdate<'_>) -> Result<WatermarkOutcome, &'static str> {
        match self.0 {
            "passes" => Ok(WatermarkOutcome::Passes),
            "stale" => Ok(WatermarkOutcome::Stale),
            error => Err(error),
        }
    }
}

impl AsyncTransaction for ScriptedTransaction {
    type Error = &'static str;

    async fn raise(&mut self, update: WatermarkUpdate<'_>) -> Result<WatermarkOutcome, &'static str> {
        tokio::task::yield_now().await;
        Transaction::raise(self, update)
    }
}

fn vectors(list: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("../../vectors.json")).expect("JSON");
    let list = all[list].as_array().expect("a list").clone();
    assert!(!list.is_empty());
    list
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().expect("a list").clone()
}

/// The header fields of a vector. Each character of a value stands for one byte.
fn headers(fields: &Value) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for field in list(fields) {
        let bytes: Vec<u8> = text(&field[1]).chars().map(|c| u8::try_from(c).expect("a byte")).collect();
        let name = HeaderName::from_bytes(text(&field[0]).as_bytes()).expect("a name");
        headers.append(name, HeaderValue::from_bytes(&bytes).expect("a value"));
    }
    headers
}

fn compare(vector: &Value) -> Compare {
    if vector["compare"] == "number" { Compare::Number } else { Compare::Token }
}

fn assert_says(stamp: &Stamp, accepted: &Value, name: &str) {
    assert_eq!(stamp.token.as_ref().map(|token| token.as_str()), accepted["token"].as_str(), "{name}");
    assert_eq!(stamp.number.to_string(), text(&accepted["number"]), "{name}");
    assert_eq!(stamp.keys, list(&accepted["keys"]).iter().map(text).collect::<Vec<_>>(), "{name}");
    let mode = if accepted["mode"] == "shared" { Mode::Shared } else { Mode::Exclusive };
    assert_eq!(stamp.mode, mode, "{name}");
}

#[test]
fn requests_are_parsed_as_in_vectors() {
    for vector in vectors("requests") {
        let name = text(&vector["name"]);
        let settings = Settings::default().comparing(compare(&vector));
        let read = settings.read(&Method::POST, &headers(&vector["fields"]));
        match read {
            Ok(stamp) => assert_says(&stamp.expect("fenced"), &vector["accepted"], name),
            Err(refusal) => assert_eq!(refusal.reason(), text(&vector["refused"]), "{name}"),
        }
    }
}

/// If the settings rename the fields, requests are read by the new names, and the default names mean nothing.
#[test]
fn fields_can_be_renamed() {
    let settings = Settings::default().fields("x-fence".parse().unwrap(), "x-number".parse().unwrap());
    for vector in vectors("requests") {
        let renamed = vector["fields"].to_string();
        let renamed = renamed.replace("Fencing-Token", "X-Fence").replace("Fencing-Number", "X-Number");
        if renamed.to_lowercase().contains("fencing_") || compare(&vector) == Compare::Number {
            continue;
        }
        let fields = headers(&serde_json::from_str(&renamed).expect("JSON"));
        let read = settings.read(&Method::POST, &fields);
        // Vectors with look-alikes of the default names are skipped: such fields mean nothing when the fields have
        // other names.
        if !renamed.contains("encing.")
            && !renamed.contains("encing~")
            && !renamed.contains("encing!")
            && !renamed.contains("ENCING")
        {
            assert_eq!(read.is_ok(), vector["accepted"].is_object(), "{}", vector["name"]);
        }
    }
}

/// A request with an exempt method passes only if it has none of the fields.
#[test]
fn unfenced_method_passes_only_without_fields() {
    let settings = Settings::default().unfenced([Method::GET]);
    let read = |method: Method, fields: &[(&str, &str)]| {
        let fields: Vec<Value> =
            fields.iter().map(|(name, value)| serde_json::json!([name, value])).collect();
        settings.read(&method, &headers(&Value::Array(fields))).map(|stamp| stamp.is_some())
    };
    assert_eq!(read(Method::GET, &[("accept", "text/plain")]), Ok(false));
    for method in [Method::POST, Method::HEAD] {
        assert_eq!(read(method, &[]).map_err(|refusal| refusal.reason()), Err("token-missing"));
    }
    for field in ["fencing_key", "fencing-mode", "Fencing-Number"] {
        assert!(read(Method::GET, &[(field, "1")]).is_err(), "{field}");
    }
    assert!(read(Method::GET, &[("fencing.token", "1")]).is_err());
}

/// If the handler names the keys, a request needs neither `Fencing-Key` nor `Fencing-Mode`. If the fields are
/// there, they have to be well formed.
#[test]
fn handler_named_keys_need_no_fields() {
    let settings = Settings::default().keys_from_handler();
    let token = ("Fencing-Token", "v1-00000000000000ab-00000007-00000001");
    let read = |more: &[(&str, &str)]| {
        let fields: Vec<Value> =
            more.iter().chain([&token]).map(|(name, value)| serde_json::json!([name, value])).collect();
        settings.read(&Method::POST, &headers(&Value::Array(fields)))
    };
    let stamp = read(&[]).expect("read").expect("fenced");
    assert_eq!((stamp.keys.len(), stamp.mode, stamp.number.as_i64()), (0, Mode::Exclusive, 0xab));
    assert!(read(&[("Fencing-Key", "a b")]).is_err() && read(&[("Fencing-Mode", "both")]).is_err());
}

/// Runs the handler of a vector behind the layer, with the synchronous or the asynchronous claim.
async fn handled(
    vector: &Value,
    waiting: bool,
) -> (Response<Body>, Vec<Result<(), ClaimError<&'static str>>>) {
    let claims = list(&vector["claims"]);
    let status = vector["status"].as_u64().expect("a status");
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let handler = service_fn(move |request: Request<Body>| {
        let fence = request.extensions().get::<Fence>().expect("each has one").clone();
        let claims = claims.clone();
        let tell = tell.clone();
        async move {
            for claim in claims {
                let mut scripted = ScriptedTransaction(match text(&claim) {
                    "passes" => "passes",
                    "stale" => "stale",
                    _ => "error",
                });
                let claimed =
                    if waiting { fence.claim_async(&mut scripted).await } else { fence.claim(&mut scripted) };
                tell.lock().expect("no panic").push(claimed);
            }
            let mut answer = Response::new(Body::from("the handler's"));
            match u16::try_from(status).expect("a status") {
                0 => return Err("it fails by the error of the claim"),
                status => *answer.status_mut() = StatusCode::from_u16(status).expect("a status"),
            }
            Ok(answer)
        }
    });
    let mut request = Request::new(Body::default());
    *request.method_mut() = Method::POST;
    *request.headers_mut() = headers(&vectors("requests")[0]["fields"]);
    let answer =
        FenceLayer::new(Settings::default()).layer(handler).oneshot(request).await.expect("answered");
    let told = told.lock().expect("no panic").clone();
    (answer, told)
}

#[tokio::test]
async fn handlers_are_overruled_as_in_vectors() {
    for (vector, waiting) in vectors("handlers").iter().flat_map(|vector| [(vector, false), (vector, true)]) {
        let (answer, told) = handled(vector, waiting).await;
        let claims = list(&vector["claims"]);
        assert_eq!(told.len(), claims.len());
        for (told, claim) in told.iter().zip(&claims) {
            let expected = match text(claim) {
                "passes" => Ok(()),
                "stale" => Err(ClaimError::Stale),
                _ => Err(ClaimError::Database("error")),
            };
            assert_eq!(*told, expected, "{vector}");
        }
        match vector["sent"].as_u64() {
            Some(own) => {
                assert_eq!(u64::from(answer.status().as_u16()), own, "{vector}");
                let body = answer.into_body().collect().await.expect("in memory").to_bytes();
                assert_eq!(body, "the handler's", "{vector}");
            }
            None => assert_answers(answer, text(&vector["sent"])).await,
        }
    }
}

/// A refused request gets a problem document, and its handler does not run.
#[tokio::test]
async fn refused_request_skips_handler() {
    for vector in vectors("requests").iter().filter(|vector| vector["refused"].is_string()) {
        let handler = service_fn(async |_: Request<Body>| -> Result<Response<Body>, Infallible> {
            panic!("it was refused")
        });
        let mut request = Request::new(Body::default());
        *request.headers_mut() = headers(&vector["fields"]);
        let layer = FenceLayer::new(Settings::default().comparing(compare(vector)));
        let answer = layer.layer(handler).oneshot(request).await.expect("answered");
        assert_answers(answer, text(&vector["refused"])).await;
    }
}

async fn assert_answers(answer: Response<Body>, reason: &str) {
    let answers = vectors("answers");
    let expected = answers.iter().find(|answer| answer["reason"] == reason).expect(reason);
    assert_eq!(u64::from(answer.status().as_u16()), expected["status"].as_u64().expect("a status"));
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    let refusal = answer.headers().get("fencing-refusal").map(|word| word.to_str().expect("text"));
    assert_eq!(refusal, expected["refusal"].as_str(), "{reason}");
    let body = answer.into_body().collect().await.expect("in memory").to_bytes();
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    let members =
        serde_json::json!({"title": expected["title"], "status": expected["status"], "reason": reason});
    assert_eq!(body, members);
}

/// The gateway only reads the header field of a 412, so the service may choose the body.
#[tokio::test]
async fn handler_may_choose_stale_body() {
    let handler = service_fn(async |request: Request<Body>| {
        let fence = request.extensions().get::<Fence>().expect("each has one");
        let _stale = fence.claim(&mut ScriptedTransaction("stale"));
        let mut answer = Response::new(Body::from("somebody was here before"));
        *answer.status_mut() = StatusCode::PRECONDITION_FAILED;
        answer.headers_mut().insert("fencing-refusal", HeaderValue::from_static("stale"));
        Ok::<_, Infallible>(answer)
    });
    let mut request = Request::new(Body::default());
    *request.headers_mut() = headers(&vectors("requests")[0]["fields"]);
    let answer =
        FenceLayer::new(Settings::default()).layer(handler).oneshot(request).await.expect("answered");
    let body = answer.into_body().collect().await.expect("in memory").to_bytes();
    assert_eq!(body, "somebody was here before");
}

/// The watermarks of several keys are raised in order until one is stale. A handler that answers with a success
/// after that gets a 500.
#[test]
fn keys_are_raised_until_stale() {
    struct Keys(Vec<String>);
    impl Transaction for Keys {
        type Error = Infallible;
        fn raise(&mut self, update: WatermarkUpdate<'_>) -> Result<WatermarkOutcome, Infallible> {
            self.0.push(update.key.to_owned());
            Ok(WatermarkOutcome::from_rows_affected(usize::from(update.key != "b")))
        }
    }
    let handler = service_fn(async |request: Request<Body>| {
        let fence = request.extensions().get::<Fence>().expect("each has one");
        let mut keys = Keys(Vec::new());
        assert_eq!(fence.claim(&mut keys), Err(ClaimError::Stale));
        assert_eq!(keys.0, ["a", "b"]);
        Ok::<_, Infallible>(Response::new(Body::default()))
    });
    let mut request = Request::new(Body::default());
    *request.headers_mut() = headers(&serde_json::json!([
        ["Fencing-Token", "v1-00000000000000ab-00000007-00000001"],
        ["Fencing-Key", "a, b, c"],
        ["Fencing-Mode", "exclusive"],
    ]));
    let service = FenceLayer::new(Settings::default()).layer(handler);
    let answer =
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(service.oneshot(request));
    assert_eq!(
        answer.expect("answered").status(),
        StatusCode::INTERNAL_SERVER_ERROR,
        "it went on, and says so"
    );
}

/// A claim error describes the failure, and has the database's error as its source.
#[test]
fn claim_error_has_database_source() {
    use std::error::Error;

    let stale: ClaimError<std::fmt::Error> = ClaimError::Stale;
    assert_eq!(stale.to_string(), "a newer request was executed before");
    assert!(stale.source().is_none());
    let failed = ClaimError::Database(std::fmt::Error);
    assert_eq!(failed.to_string(), "the database failed during the claim");
    assert!(failed.source().is_some_and(|source| source.is::<std::fmt::Error>()));
}

/// The former names still work: types, variants, patterns, and methods.
#[test]
#[expect(deprecated, reason = "the former names are what is tested")]
fn former_names_still_work() {
    use fencegate_upstream::{NotClaimed, Raise, Raised};

    struct FixedRowsTransaction(usize);
    impl Transaction for FixedRowsTransaction {
        type Error = Infallible;
        fn raise(&mut self, Raise { key, .. }: Raise<'_>) -> Result<Raised, Infallible> {
            assert_eq!(key, "a");
            Ok(Raised::by_rows(self.0))
        }
    }
    let handler = service_fn(async |request: Request<Body>| {
        let fence = request.extensions().get::<Fence>().expect("each has one");
        assert!(fence.stamp().keys.is_empty(), "the request names none");
        let claims = [0, 1].map(|rows| fence.claim_keys(&mut FixedRowsTransaction(rows), &["a".to_owned()]));
        assert!(matches!(claims, [Err(NotClaimed::Stale), Ok(())]), "{claims:?}");
        Ok::<_, Infallible>(Response::new(Body::default()))
    });
    let mut request = Request::new(Body::default());
    let token = HeaderValue::from_static("v1-00000000000000ab-00000007-00000001");
    request.headers_mut().insert("fencing-token", token);
    let service = FenceLayer::new(Settings::default().keys_named_by_the_service()).layer(handler);
    let answer =
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(service.oneshot(request));
    // One claim was stale and another one has passed, so it is not known whether anything was committed.
    assert_eq!(answer.expect("answered").status(), StatusCode::INTERNAL_SERVER_ERROR);
}
