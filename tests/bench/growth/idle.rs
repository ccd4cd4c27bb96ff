//! The memory of an idle cached key, and of an idle connection of a client.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::json;

use crate::{
    gateway::{BenchGateway, UpstreamKind, policy},
    report::{BenchRound, BenchRow, RatioGoal},
    result::BenchResult,
    run::BenchRun,
    wrk::WrkLoad,
};

/// An upper bound for the time of both measurements together.
#[cfg(test)]
pub(super) const SECONDS: u64 = 30;

const FEW: WrkLoad = WrkLoad { method: "GET", prefix: "/warm/first", keys: 64, threads: 2, clients: 64 };
const KEYS: u32 = 10_000;
/// The duration of one load on all keys. It is repeated until every key is taken.
const TURN: Duration = Duration::from_secs(6);
const TURNS: u32 = 10;
const CONNECTIONS: usize = 2000;

/// The goals in bytes: for each key and for each connection.
const KEY: f64 = 1024.0;
const CONNECTION: f64 = 16.0 * 1024.0;

/// Measures only once, because memory varies less than time.
pub(super) fn measure(
    run: &BenchRun,
    zookeeper: SocketAddr,
    service: SocketAddr,
) -> BenchResult<Vec<BenchRow>> {
    let mut policy = policy("gw-idle", zookeeper, service, UpstreamKind::Service);
    let routes = policy["routes"].as_array_mut().ok_or("a policy has routes")?;
    let warm = routes.iter_mut().find(|route| route["name"] == "warm").ok_or("there is a warm route")?;
    warm["fence"]["hold"]["linger"] = json!("5m");
    let gateway = BenchGateway::start_with(run, &policy)?;
    let connection = connection_memory(&gateway)?;
    let key = key_memory(run, &gateway)?;
    run.print(&format!("idle: {key:.0} bytes for a key, {connection:.0} for a connection"));
    gateway.stop()?;
    let bench = |name, peer, ours, theirs| BenchRow {
        name,
        peer,
        unit: "bytes",
        goal: RatioGoal::AtMost(1.0),
        rounds: vec![BenchRound { ours, theirs }],
    };
    Ok(vec![
        bench("idle-key-memory", "1 KiB", key, KEY),
        bench("idle-connection-memory", "16 KiB", connection, CONNECTION),
    ])
}

/// Bytes for each key. The first load fills pools and caches, so that the increase after it is that of the keys.
fn key_memory(run: &BenchRun, gateway: &BenchGateway) -> BenchResult<f64> {
    FEW.run(run, gateway.public, Duration::from_secs(2))?;
    let before = resident_bytes(gateway.pid())?;
    let taken = new_key_count(gateway)?;
    for _ in 0..TURNS {
        WrkLoad { prefix: "/warm/", keys: KEYS, ..FEW }.run(run, gateway.public, TURN)?;
        let taken = new_key_count(gateway)? - taken;
        // Allow a hundredth less: a key that was taken at the very end of a load may not be counted.
        if taken >= 0.99 * f64::from(KEYS) {
            return Ok((resident_bytes(gateway.pid())? - before) / taken);
        }
    }
    let taken = new_key_count(gateway)? - taken;
    Err(format!("{taken} of {KEYS} keys were taken in {:?}", TURN * TURNS).into())
}

/// The number of requests whose key was not cached, each of which has made a tenure.
fn new_key_count(gateway: &BenchGateway) -> BenchResult<f64> {
    gateway.acquisitions("warm", "result=\"granted\"")
}

/// Bytes of the gateway for each idle connection that has sent one request. The kernel's buffers are not included.
fn connection_memory(gateway: &BenchGateway) -> BenchResult<f64> {
    drop(open_used_connection(gateway.public)?);
    let before = resident_bytes(gateway.pid())?;
    let open: Vec<_> =
        (0..CONNECTIONS).map(|_| open_used_connection(gateway.public)).collect::<BenchResult<_>>()?;
    Ok((resident_bytes(gateway.pid())? - before) / open.len() as f64)
}

fn open_used_connection(server: SocketAddr) -> BenchResult<TcpStream> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("GET /unfenced/1 HTTP/1.1\r\nHost: {server}\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    let mut part = [0; 1024];
    // The response of the service ends with this text.
    while !answer.ends_with(b"ok\n") {
        match stream.read(&mut part)? {
            0 => return Err(format!("closed after {}", String::from_utf8_lossy(&answer)).into()),
            read => answer.extend_from_slice(&part[..read]),
        }
    }
    Ok(stream)
}

/// The resident memory of the process in bytes, see proc(5).
fn resident_bytes(pid: u32) -> BenchResult<f64> {
    resident_in(&fs::read_to_string(format!("/proc/{pid}/status"))?)
}

fn resident_in(status: &str) -> BenchResult<f64> {
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("a process without memory")?;
    let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The resident memory is read from `/proc/PID/status`, and a process without it is an error.
    #[test]
    fn resident_memory_is_read_from_status() {
        assert_eq!(resident_in("VmPeak:\t 20 kB\nVmRSS:\t    12 kB\n").expect("it stands there"), 12288.0);
        resident_in("Name:\tkthreadd\n").expect_err("a kernel thread has none");
    }
}
