//! A service that writes one line per executed request into a file, with and without a middleware that checks
//! `Fencing-Not-After`: which requests it begins, and which come too late.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use fencegate_testkit::{child::ChildProcess, scratch, wait::PATIENCE};
use fencegate_tests::freeze;
use rustix::process::geteuid;
use tempfile::TempDir;

/// Whether the service has its middleware. Without it a late request is executed, which shows that the request was
/// late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MiddlewareMode {
    On,
    Off,
}

impl MiddlewareMode {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// A service that writes each executed path into a file, and this file.
pub(crate) struct MiddlewareService {
    home: TempDir,
    pub(crate) port: u16,
    child: ChildProcess,
}

/// The status of an answer, and its whole text.
pub(crate) type StatusAndText = (u16, String);

impl MiddlewareService {
    /// Starts a service. `command`: its command line by mode, file and port. It prints `listening` when it listens.
    ///
    /// # Panics
    /// Panics if the service does not listen in time.
    pub(crate) fn start(
        mode: MiddlewareMode,
        command: impl Fn(MiddlewareMode, &str, u16) -> Vec<String>,
    ) -> Self {
        let home = scratch::temp_dir();
        let port = super::free_port();
        let file = home.path().join("executed").display().to_string();
        let words = command(mode, &file, port);
        let child = ChildProcess::spawn(&words[0], &words[1..]).expect("setpriv");
        let listens = |line: &str| line.contains("listening");
        child.wait_line(listens, PATIENCE).unwrap_or_else(|error| panic!("{error}"));
        Self { home, port, child }
    }

    /// The paths of the requests that the service has begun.
    pub(crate) fn executed_paths(&self) -> Vec<String> {
        let text = fs::read_to_string(self.home.path().join("executed")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until the service has begun this number of requests.
    fn wait_begun(&self, wanted: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.executed_paths().len() < wanted {
            assert!(Instant::now() < deadline, "{:?}\n{}", self.executed_paths(), self.child.log());
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn post(&self, path: &str, fields: &[String]) -> StatusAndText {
        read_answer(send_request(self.port, "POST", path, fields))
    }
}

/// Sends a complete request without waiting for its answer.
pub(crate) fn send_request(port: u16, method: &str, path: &str, fields: &[String]) -> TcpStream {
    let mut line = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    line.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n{fields}\r\n{{}}"
    );
    line.write_all(head.as_bytes()).expect("sent");
    line
}

pub(crate) fn read_answer(mut line: TcpStream) -> StatusAndText {
    let mut text = String::new();
    line.read_to_string(&mut text).expect("an answer");
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    (status.unwrap_or_else(|| panic!("no answer: {text:?}")), text)
}

/// The field as another machine with a correct clock writes it: this number of milliseconds from now.
pub(crate) fn wall_clock_field(in_ms: u64) -> String {
    format!("Fencing-Not-After: {}", wall_ms() + in_ms)
}

/// The field as this machine writes it after its wall clock was set forward by an hour, so that only the boot clock can
/// show that a request is late.
pub(crate) fn boot_clock_field(in_ms: u64) -> String {
    both_clocks_field(wall_ms() + 3_600_000, uptime_ms() + in_ms)
}

fn both_clocks_field(wall_ms: u64, uptime_ms: u64) -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("procfs");
    format!("Fencing-Not-After: {wall_ms};boot=\"{}\";uptime={uptime_ms}", boot.trim())
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    u64::try_from(since.as_millis()).expect("a number")
}

fn uptime_ms() -> u64 {
    let text = fs::read_to_string("/proc/uptime").expect("procfs");
    let digits: String = text.split(' ').next().expect("a number").split('.').collect();
    digits.parse::<u64>().expect("digits") * 10
}

/// # Panics
/// Panics if the answer is not the refusal of a late request.
pub(crate) fn assert_expired((status, text): &StatusAndText) {
    assert_eq!(*status, 412, "{text}");
    let lower = text.to_ascii_lowercase();
    assert!(
        lower.contains("fencing-refusal: expired") && lower.contains("application/problem+json"),
        "{text}"
    );
    assert!(text.contains(r#""expired""#), "{text}");
    assert_tells_its_clock(text);
}

fn assert_tells_its_clock(text: &str) {
    let clock = text.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("fencing-clock").then_some(value)
    });
    let (clock, error) =
        clock.and_then(|value| value.split_once(";error=")).unwrap_or_else(|| panic!("{text}"));
    let clock: u64 = clock.parse().expect("milliseconds");
    assert!(wall_ms().abs_diff(clock) < 60_000 && error.trim() == "500", "{text}");
}

/// Asserts that the service begins a request in time and no late one, whether it was sent late or reached a frozen
/// service in time.
///
/// # Panics
/// Panics otherwise, or if the same service without its middleware does not begin the late requests.
pub(crate) fn assert_keeps_deadlines(command: impl Fn(MiddlewareMode, &str, u16) -> Vec<String> + Sync) {
    let service = MiddlewareService::start(MiddlewareMode::On, &command);
    for (path, field) in [("/elsewhere", wall_clock_field(30_000)), ("/here", boot_clock_field(30_000))] {
        let (status, text) = service.post(path, &[field]);
        assert_eq!(status, 200, "{path}: {text}\n{}", service.child.log());
        assert_tells_its_clock(&text);
    }
    for (path, field) in [("/late-elsewhere", wall_clock_field(0)), ("/late-here", boot_clock_field(0))] {
        assert_expired(&service.post(path, &[field]));
    }
    assert_eq!(service.post("/missing", &[]).0, 403);
    assert_eq!(service.post("/twice", &[boot_clock_field(30_000), boot_clock_field(30_000)]).0, 400);
    assert_eq!(service.post("/malformed", &["Fencing-Not-After: soon".to_owned()]).0, 400);
    assert_eq!(read_answer(send_request(service.port, "GET", "/unfenced", &[])).0, 200);
    assert_eq!(service.executed_paths(), ["/elsewhere", "/here", "/unfenced"]);
    drop(service);
    check_both_modes(|mode| assert_late_after_freeze(&MiddlewareService::start(mode, &command), mode));
    if geteuid().is_root() {
        assert_ignores_covered_uptime(&command);
    }
}

/// Runs a check with and without the middleware at the same time: both wait more than they compute.
fn check_both_modes(check: impl Fn(MiddlewareMode) + Sync) {
    let check = &check;
    thread::scope(|threads| {
        for mode in [MiddlewareMode::Off, MiddlewareMode::On] {
            threads.spawn(move || check(mode));
        }
    });
}

/// Asserts that the service ignores a file that is mounted over `/proc/uptime`. LXCFS mounts one with the age of the
/// container, by which no request would ever be late.
fn assert_ignores_covered_uptime(command: impl Fn(MiddlewareMode, &str, u16) -> Vec<String>) {
    let home = scratch::temp_dir();
    let age = home.path().join("uptime");
    fs::write(&age, "1.00 1.00\n").expect("our own folder");
    let covers = format!("mount --bind '{}' /proc/uptime && exec \"$@\"", age.display());
    let service = MiddlewareService::start(MiddlewareMode::On, |mode, file, port| {
        let before = ["unshare", "-m", "sh", "-c", &covers, "sh"].map(str::to_owned);
        before.into_iter().chain(command(mode, file, port)).collect()
    });
    // This request is late by every clock except the mounted file.
    assert_expired(&service.post("/late", &[both_clocks_field(wall_ms() - 5000, uptime_ms())]));
    assert_eq!(service.post("/in-time", &[wall_clock_field(30_000)]).0, 200);
    assert_eq!(service.executed_paths(), ["/in-time"]);
}

/// Two requests reach a frozen service in time, and are late when it is resumed.
fn assert_late_after_freeze(service: &MiddlewareService, mode: MiddlewareMode) {
    assert_eq!(service.post("/before", &[boot_clock_field(30_000)]).0, 200);
    freeze::stop(service.child.pid());
    let begun = Instant::now();
    let lines = [
        send_request(service.port, "POST", "/frozen-here", &[boot_clock_field(700)]),
        send_request(service.port, "POST", "/frozen-elsewhere", &[wall_clock_field(1200)]),
    ];
    // The kernel has received both requests. The test has to wait until both moments have passed.
    thread::sleep(Duration::from_millis(1300).saturating_sub(begun.elapsed()));
    freeze::resume(service.child.pid());
    let answers = lines.map(read_answer);
    let mut executed = service.executed_paths();
    executed.sort();
    match mode {
        MiddlewareMode::Off => {
            assert!(answers.iter().all(|(status, _)| *status == 200), "not exercised: {answers:?}");
            assert_eq!(executed, ["/before", "/frozen-elsewhere", "/frozen-here"], "not exercised");
        }
        MiddlewareMode::On => {
            answers.iter().for_each(assert_expired);
            assert_eq!(executed, ["/before"]);
            assert_eq!(service.post("/after", &[boot_clock_field(30_000)]).0, 200);
        }
    }
}

/// Asserts that a request which waits for a worker is refused if it is late when a worker takes it. `command`: two
/// workers with one listening socket, each of which serves one request at a time.
///
/// # Panics
/// Panics if the request is begun, or if the same service without its middleware does not begin it.
pub(crate) fn assert_late_while_queued(command: impl Fn(MiddlewareMode, &str, u16) -> Vec<String> + Sync) {
    check_both_modes(|mode| {
        let service = MiddlewareService::start(mode, &command);
        let busy = || send_request(service.port, "POST", "/busy?work_ms=1000", &[boot_clock_field(30_000)]);
        let busy = [busy(), busy()];
        service.wait_begun(2);
        let waits = send_request(service.port, "POST", "/waits", &[boot_clock_field(500)]);
        let in_time = send_request(service.port, "POST", "/waits-and-may", &[boot_clock_field(30_000)]);
        assert!(busy.map(read_answer).iter().all(|(status, _)| *status == 200));
        let waits = read_answer(waits);
        let in_time = read_answer(in_time);
        assert_eq!(in_time.0, 200, "{in_time:?}");
        let is_executed = service.executed_paths().contains(&"/waits".to_owned());
        match mode {
            MiddlewareMode::Off => assert!(waits.0 == 200 && is_executed, "not exercised: {waits:?}"),
            MiddlewareMode::On => {
                assert_expired(&waits);
                assert!(!is_executed, "{:?}", service.executed_paths());
            }
        }
    });
}
