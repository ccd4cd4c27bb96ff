//! nginx and HAProxy right before a service, with the shipped files: a request that comes too late to be begun does
//! not reach the service.
//!
//! A request is late, malformed, doubled, without its field, or late by its body. HAProxy lets no request wait after
//! its check.

use std::{fs, io::Write, net::TcpStream, thread, time::Duration};

use fencegate_tests::{freeze, peers::ProxyProcess, prometheus::deploy};

use super::{
    artefacts::shipped,
    middleware::in_time::{
        MiddlewareMode, MiddlewareService, assert_expired, boot_clock_field, read_answer, send_request,
        wall_clock_field,
    },
};

/// The addresses of the proxy and of the service in the shipped files.
const DOOR: &str = "127.0.0.1:8080";
const SERVICE: &str = "127.0.0.1:8000";

fn shipped_config(file: &str) -> String {
    fs::read_to_string(shipped(&format!("proxies/not-after/{file}"))).expect("a file of the repository")
}

/// A service that does not check the deadline itself.
pub(super) fn service(workers: u16) -> MiddlewareService {
    let folder = deploy().join("upstream/python");
    let path = format!("PYTHONPATH={}", folder.join("src").display());
    let program = folder.join("sample/deadline.py").display().to_string();
    MiddlewareService::start(MiddlewareMode::Off, |mode, file, port| {
        let port = port.to_string();
        let workers = workers.to_string();
        let words =
            ["env", "PYTHONDONTWRITEBYTECODE=1", &path, "python3", &program, "wsgi", mode.word(), file];
        words.into_iter().chain([port.as_str(), &workers]).map(str::to_owned).collect()
    })
}

pub(super) fn nginx(service: &MiddlewareService) -> ProxyProcess {
    let script = shipped("proxies/not-after/not_after.js");
    let instead =
        [("from not_after.js", format!("from {script}")), (SERVICE, format!("127.0.0.1:{}", service.port))];
    ProxyProcess::nginx_with_module("http_js", &shipped_config("nginx.conf"), DOOR, &instead)
}

pub(super) fn haproxy(service: &MiddlewareService, instead: &[(&str, String)]) -> ProxyProcess {
    let own = [(SERVICE, format!("127.0.0.1:{}", service.port))];
    ProxyProcess::haproxy_with(&shipped_config("haproxy.cfg"), DOOR, &[&own, instead].concat())
}

fn assert_late_refused(peer: &ProxyProcess, service: &MiddlewareService) {
    let port = peer.address.port();
    let asked = |path: &str, fields: &[String]| read_answer(send_request(port, "POST", path, fields));
    for (path, field) in [("/elsewhere", wall_clock_field(30_000)), ("/here", boot_clock_field(30_000))] {
        let (status, text) = asked(path, &[field]);
        assert_eq!(status, 200, "{path}: {text}");
        assert!(text.to_ascii_lowercase().contains("fencing-clock: "), "{text}");
    }
    assert_expired(&asked("/late", &[wall_clock_field(0)]));
    // The time that may pass after the check is subtracted, as the clock error is.
    assert_expired(&asked("/nearly-late", &[wall_clock_field(1400)]));
    assert_eq!(asked("/missing", &[]).0, 403);
    assert_eq!(asked("/twice", &[wall_clock_field(30_000), wall_clock_field(30_000)]).0, 400);
    for value in ["", "soon", "-5", "1795727217123.5", "5;", "5, 6", "1795727217123;a=\u{e9}"] {
        let field = format!("Fencing-Not-After: {value}");
        assert_eq!(asked("/malformed", &[field]).0, 400, "{value:?}");
    }
    assert_eq!(
        asked("/spelled-otherwise", &[wall_clock_field(30_000).replace("Not-After", "Not_After")]).0,
        403
    );
    assert_eq!(read_answer(send_request(port, "GET", "/unfenced", &[])).0, 200);
    assert_eq!(
        read_answer(send_request(port, "GET", "/of-a-fenced-route", &["Fencing-Key: a".to_owned()])).0,
        403
    );
    // The request is in time when its head arrives, and late when its body is complete.
    let mut slow = TcpStream::connect(peer.address).expect("it listens");
    let field = wall_clock_field(2200);
    write!(
        slow,
        "POST /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n{field}\r\n\r\n{{"
    )
    .expect("sent");
    thread::sleep(Duration::from_millis(1000));
    slow.write_all(b"}").expect("sent");
    assert_expired(&read_answer(slow));
    // The request is in time when it is sent, and late when the frozen proxy is resumed.
    freeze::stop(peer.group());
    let waits = send_request(port, "POST", "/frozen", &[wall_clock_field(2000)]);
    thread::sleep(Duration::from_millis(600));
    freeze::resume(peer.group());
    assert_expired(&read_answer(waits));
    assert_eq!(service.executed_paths(), ["/elsewhere", "/here", "/unfenced"]);
    // Without the proxy the service executes a late request.
    assert_eq!(read_answer(send_request(service.port, "POST", "/around", &[wall_clock_field(0)])).0, 200);
    assert_eq!(service.executed_paths().len(), 4, "not exercised");
}

#[test]
fn nginx_refuses_late_request() {
    let service = service(1);
    let peer = nginx(&service);
    assert_late_refused(&peer, &service);
    // For a request of the same machine the boot clock decides.
    assert_expired(&read_answer(send_request(
        peer.address.port(),
        "POST",
        "/late-here",
        &[boot_clock_field(0)],
    )));
    assert_eq!(service.executed_paths().len(), 4);
}

#[test]
fn haproxy_refuses_late_request() {
    let service = service(1);
    assert_late_refused(&haproxy(&service, &[]), &service);
}

/// HAProxy lets no request wait after its check of `Fencing-Not-After`.
///
/// With `maxconn` equal to the number of workers, requests wait in HAProxy before the check, and not at the service.
#[test]
fn haproxy_queues_nothing_after_check() {
    let service = service(1);
    let peer = haproxy(&service, &[("maxconn 8", "maxconn 1".to_owned())]);
    let port = peer.address.port();
    let busy = send_request(port, "POST", "/busy?work_ms=1500", &[wall_clock_field(30_000)]);
    while service.executed_paths().is_empty() {
        thread::sleep(Duration::from_millis(5));
    }
    let (status, text) = read_answer(send_request(port, "POST", "/waits", &[wall_clock_field(2000)]));
    assert_eq!(status, 503, "{text}");
    assert_eq!(read_answer(busy).0, 200);
    assert_eq!(service.executed_paths(), ["/busy"]);
}
