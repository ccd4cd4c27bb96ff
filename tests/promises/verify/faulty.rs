//! A small service on SQLite that compares tokens, each time with another fault. It is in no program that is shipped.

use std::{convert::Infallible, net::SocketAddr, path::Path, sync::Arc};

use bytes::Bytes;
use fencegate_policies::token::FencingToken;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Method, Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::{net::TcpListener, task::AbortHandle};

use super::{
    fault::ServiceFault,
    work::{FaultyServiceState, WorkRequest, WorkResult, create_tables},
};

/// One instance, which ends when it is dropped. `POST /crash` has the effect of `kill -9` and a new start.
pub(super) struct FaultyInstance {
    pub(super) address: SocketAddr,
    accepting: AbortHandle,
}

/// The folder in which the instances of one service keep their database.
pub(super) struct FaultyDatabase {
    home: Arc<TempDir>,
}

type FaultyResponse = Response<Full<Bytes>>;

impl FaultyDatabase {
    pub(super) fn new() -> Self {
        let home = TempDir::new_in(fencegate_testkit::scratch::folder()).expect("a folder");
        create_tables(&home);
        Self { home: Arc::new(home) }
    }

    pub(super) fn path(&self) -> &Path {
        self.home.path()
    }
}

impl FaultyInstance {
    pub(super) async fn start(database: &FaultyDatabase, fault: ServiceFault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(FaultyServiceState::new(fault, database.home.clone()));
        let accepting = tokio::spawn(async move {
            let accepted = state;
            while let Ok((stream, _)) = listener.accept().await {
                let state = accepted.clone();
                let serve = service_fn(move |request| answer(state.clone(), request));
                let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), serve);
                accepted.track_connection(tokio::spawn(serving).abort_handle());
            }
        });
        Self { address, accepting: accepting.abort_handle() }
    }
}

impl Drop for FaultyInstance {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn build_response(status: u16, fields: &[(&'static str, &'static str)], body: String) -> FaultyResponse {
    let mut answer = Response::builder().status(status);
    for (name, value) in fields {
        answer = answer.header(*name, *value);
    }
    answer.body(Full::new(Bytes::from(body))).expect("plain")
}

async fn answer(
    state: Arc<FaultyServiceState>,
    request: Request<Incoming>,
) -> Result<FaultyResponse, Infallible> {
    let path = request.uri().path().trim_start_matches('/');
    let (kind, key) = path.split_once('/').unwrap_or(("debit", path));
    let kind = kind.to_owned();
    let key = key.to_owned();
    if key == "crash" {
        state.crash();
        return Ok(build_response(200, &[], String::new()));
    }
    let name =
        |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    if kind == "operations" {
        let token = name("fencing-token").expect("the question carries it");
        let status = if state.probe_operation(key, token).await { 200 } else { 404 };
        return Ok(build_response(status, &[], String::new()));
    }
    let operation = name("x-operation");
    let is_read = request.method() == Method::GET;
    if is_read && !request.headers().contains_key("fencing-mode") {
        return Ok(build_response(200, &[], format!(r#"{{"effects":{}}}"#, state.effects(key).await)));
    }
    let fault = state.fault();
    let mark = match presented_mark(fault, request.headers()) {
        Ok(mark) => mark,
        Err(()) => return Ok(build_response(400, &[], "no token".to_owned())),
    };
    let shared = request.headers()["fencing-mode"] == "shared";
    let row = match fault {
        ServiceFault::OneMark => "all".to_owned(),
        ServiceFault::MarkPerRoute => format!("{kind} of {key}"),
        _ => key.clone(),
    };
    let ask = WorkRequest { key, row, mark, shared, operation };
    let early = match fault {
        ServiceFault::CheckAtHead => Some(state.clone().check_newer(&ask).await),
        _ => None,
    };
    if request.into_body().collect().await.is_err() {
        return Ok(build_response(400, &[], "the body broke off".to_owned()));
    }
    let word = match early {
        Some(WorkResult::Stale) => WorkResult::Stale,
        _ => state.execute_request(ask).await,
    };
    Ok(match (word, fault) {
        (WorkResult::Done, ServiceFault::Gateway) => {
            build_response(200, &[("fencing-outcome", "done")], "done".to_owned())
        }
        (WorkResult::Done, _) => build_response(200, &[], "done".to_owned()),
        (WorkResult::Closed, _) => build_response(409, &[], "closed".to_owned()),
        (WorkResult::Stale, ServiceFault::Conflict) => build_response(409, &[], "stale".to_owned()),
        (WorkResult::Stale, _) => build_response(412, &[("fencing-refusal", "stale")], "stale".to_owned()),
    })
}

/// The watermark that a request presents, as text that sorts like the watermarks.
fn presented_mark(fault: ServiceFault, headers: &HeaderMap) -> Result<Option<String>, ()> {
    let by_number = matches!(fault, ServiceFault::TextNumbers | ServiceFault::Narrow | ServiceFault::Float);
    let name = if by_number { "fencing-number" } else { "fencing-token" };
    let values: Vec<&str> =
        headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("\u{fffd}")).collect();
    let value = match (&*values, fault) {
        ([], ServiceFault::AcceptsNoToken) => return Ok(None),
        ([value], _) | ([value, ..], ServiceFault::FirstOfTwo) => *value,
        _ => return Err(()),
    };
    let plain = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let number = || if plain { value.parse::<i64>().map_err(drop) } else { Err(()) };
    let mark = match fault {
        ServiceFault::AcceptsAnything => value.to_owned(),
        ServiceFault::TextNumbers => number()?.to_string(),
        ServiceFault::Narrow => format!("{:020}", number()? & 0xffff_ffff),
        #[expect(clippy::cast_precision_loss, reason = "the fault")]
        ServiceFault::Float => format!("{:030.0}", number()? as f64),
        _ => FencingToken::parse(value).map_err(drop)?.to_string(),
    };
    Ok(Some(mark))
}
