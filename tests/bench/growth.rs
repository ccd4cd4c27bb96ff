//! The cost of a request as an installation grows: in keys, clients, bodies and gateways, and for each version of
//! HTTP.

mod idle;
mod table;

use std::{net::SocketAddr, time::Duration};

use fencegate_testkit::zookeeper::{PrivateZooKeeper, ZooKeeperServerConfig};
use serde_json::json;

use self::table::{GrowthRow, GrowthTable};
use crate::{
    gateway::{BenchGateway, UpstreamKind, policy},
    h2load::{H2load, HttpVersion},
    locks::ZOOKEEPER,
    nginx::{Nginx, NginxProxyWork},
    report::BenchRow,
    result::BenchResult,
    run::BenchRun,
    wrk::WrkLoad,
};

/// A ZooKeeper whose heap suffices for the nodes of a hundred thousand keys and of their parents.
const LARGE: ZooKeeperServerConfig = ZooKeeperServerConfig { heap_mib: 768, ..ZOOKEEPER };

/// The load of every measurement, apart from the one number that grows.
const USUAL: WrkLoad = WrkLoad { method: "GET", prefix: "/warm/", keys: 1000, threads: 2, clients: 64 };

/// One dimension of growth, and its sizes.
struct GrowthAxis {
    grows: &'static str,
    sizes: Vec<GrowthSize>,
}

struct GrowthSize {
    called: &'static str,
    gateways: u32,
    asks: LoadTool,
}

#[derive(Clone, Copy)]
enum LoadTool {
    Wrk(WrkLoad),
    H2load(H2load),
}

struct BenchSite<'a> {
    run: &'a BenchRun,
    zookeeper: PrivateZooKeeper,
    service: Nginx,
    /// A service that reads a body to its end before it answers.
    reader: Nginx,
}

pub(crate) fn measure(run: &BenchRun) -> BenchResult<Vec<BenchRow>> {
    let service = Nginx::service(run)?;
    let reader = Nginx::proxy(run, service.address, NginxProxyWork::ReadBody)?;
    let mut site = BenchSite { run, zookeeper: zookeeper(run, "idle")?, service, reader };
    let idle = idle::measure(run, site.zookeeper.address(), site.service.address)?;
    let mut table = GrowthTable::new(run.window);
    for axis in axes() {
        // Start a new ZooKeeper for each axis, because many keys leave nodes that are removed only minutes later.
        site.zookeeper = zookeeper(run, axis.grows)?;
        for size in axis.sizes {
            let row = site.measure_row(axis.grows, &size)?;
            run.print(&row.to_markdown());
            table.push(row);
        }
    }
    table.write(&run.results("growth.md"))?;
    println!("{table}");
    Ok(idle)
}

fn zookeeper(run: &BenchRun, grows: &str) -> BenchResult<PrivateZooKeeper> {
    Ok(PrivateZooKeeper::start(&run.folder().join("zookeeper").join(grows), LARGE)?)
}

/// The axes that are measured. Many keys come last, because they leave nodes that are removed only minutes later.
fn axes() -> [GrowthAxis; 5] {
    [
        with_one_gateway(
            "clients",
            [("1", 1), ("10", 10), ("100", 100), ("300", 300), ("1,000", 1000)]
                .map(|(called, clients)| (called, WrkLoad { clients, threads: clients.min(2), ..USUAL })),
        ),
        with_one_gateway(
            "body of the request",
            [
                ("64 B", "POST:64"),
                ("1 KiB", "POST:1024"),
                ("16 KiB", "POST:16384"),
                ("128 KiB", "POST:131072"),
                ("1 MiB", "POST:1048576"),
            ]
            .map(|(called, method)| (called, WrkLoad { method, keys: 64, ..USUAL })),
        ),
        GrowthAxis {
            grows: "gateways on this machine",
            sizes: [("1", 1), ("2", 2), ("3", 3)]
                .map(|(called, gateways)| GrowthSize { called, gateways, asks: LoadTool::Wrk(USUAL) })
                .into(),
        },
        versions(),
        with_one_gateway(
            "keys",
            [("1", 1), ("100", 100), ("1,000", 1000), ("10,000", 10_000), ("100,000", 100_000)]
                .map(|(called, keys)| (called, WrkLoad { keys, ..USUAL })),
        ),
    ]
}

fn with_one_gateway(grows: &'static str, loads: [(&'static str, WrkLoad); 5]) -> GrowthAxis {
    let sizes = loads.map(|(called, load)| GrowthSize { called, gateways: 1, asks: LoadTool::Wrk(load) });
    GrowthAxis { grows, sizes: sizes.into() }
}

fn versions() -> GrowthAxis {
    let sizes = [
        ("HTTP/1.1, 64 connections", HttpVersion::Http1, 64, 1),
        ("HTTP/2, 64 connections", HttpVersion::Http2, 64, 1),
        ("HTTP/2, 8 connections, 8 requests at once on each", HttpVersion::Http2, 8, 8),
    ];
    let size = |(called, spoken, connections, at_once)| GrowthSize {
        called,
        gateways: 1,
        asks: LoadTool::H2load(H2load { spoken, connections, at_once }),
    };
    GrowthAxis { grows: "version of HTTP, without a lock", sizes: sizes.map(size).into() }
}

impl BenchSite<'_> {
    fn measure_row(&self, grows: &'static str, size: &GrowthSize) -> BenchResult<GrowthRow> {
        let start = |number| self.gateway(&format!("gw-{number}"), size);
        let gateways: Vec<BenchGateway> = (0..size.gateways).map(start).collect::<BenchResult<_>>()?;
        self.run_load(size, &gateways, size.warm_up())?;
        let before = GatewayTotals::usage_of(&gateways)?;
        let (requests, per_second) = self.run_load(size, &gateways, self.run.window)?;
        let after = GatewayTotals::usage_of(&gateways)?;
        for gateway in gateways {
            gateway.stop()?;
        }
        let asked = after.asked - before.asked;
        Ok(GrowthRow {
            grows,
            size: size.called,
            per_second,
            cpu_us: (after.cpu_seconds - before.cpu_seconds) * 1e6 / requests,
            warm: (asked > 0.0).then(|| (after.warm - before.warm) / asked),
        })
    }

    /// Starts a gateway that keeps its keys for the whole measurement, with enough sessions for the paths of all
    /// keys.
    fn gateway(&self, name: &str, size: &GrowthSize) -> BenchResult<BenchGateway> {
        const KEYS_OF_A_SESSION: u32 = 3000;
        let service = if size.has_body() { self.reader.address } else { self.service.address };
        let mut policy = policy(name, self.zookeeper.address(), service, UpstreamKind::Service);
        policy["zookeeper"]["sessions"] = size.keys().div_ceil(KEYS_OF_A_SESSION).max(4).into();
        let routes = policy["routes"].as_array_mut().ok_or("a policy has routes")?;
        let warm = routes.iter_mut().find(|route| route["name"] == "warm").ok_or("there is a warm route")?;
        warm["fence"]["hold"]["linger"] = json!("2m");
        BenchGateway::start_with(self.run, &policy)
    }

    /// Returns the number of responses of all gateways together, and their number per second.
    fn run_load(
        &self,
        size: &GrowthSize,
        gateways: &[BenchGateway],
        window: Duration,
    ) -> BenchResult<(f64, f64)> {
        match size.asks {
            LoadTool::H2load(load) => {
                let gateway: SocketAddr = gateways.first().ok_or("one at least")?.public;
                load.run(&format!("http://{gateway}/unfenced/1"), window)
            }
            LoadTool::Wrk(load) => {
                let clients = load.clients / size.gateways;
                // The prefixes differ, so that no key is requested at two gateways.
                let begin = |(gateway, prefix): (&BenchGateway, _)| {
                    WrkLoad { prefix, clients, ..load }.start(self.run, gateway.public, window)
                };
                let prefixes = ["/warm/", "/warm/b", "/warm/c"];
                let asking: Vec<_> = gateways.iter().zip(prefixes).map(begin).collect::<BenchResult<_>>()?;
                let mut requests = 0.0;
                let mut per_second = 0.0;
                for one in asking {
                    let answered = one.finish()?;
                    (requests, per_second) = (requests + answered.requests, per_second + answered.per_second);
                }
                Ok((requests, per_second))
            }
        }
    }
}

impl GrowthSize {
    fn keys(&self) -> u32 {
        match self.asks {
            LoadTool::Wrk(load) => load.keys,
            LoadTool::H2load(_) => 0,
        }
    }

    fn has_body(&self) -> bool {
        matches!(self.asks, LoadTool::Wrk(load) if load.method.starts_with("POST:"))
    }

    /// Long enough to take every key once.
    fn warm_up(&self) -> Duration {
        const LOCKS_A_SECOND: u32 = 2500;
        Duration::from_secs((2 + self.keys() / LOCKS_A_SECOND).into())
    }
}

/// The processor time of all gateways since their start, and the number of their lock requests.
#[derive(Default)]
struct GatewayTotals {
    cpu_seconds: f64,
    asked: f64,
    warm: f64,
}

impl GatewayTotals {
    fn usage_of(gateways: &[BenchGateway]) -> BenchResult<Self> {
        let mut counted = Self::default();
        for gateway in gateways {
            counted.cpu_seconds += gateway.cpu_seconds()?;
            counted.asked += gateway.acquisitions("warm", "")?;
            counted.warm += gateway.warm_requests("warm")?;
        }
        Ok(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_run_takes_below_six_minutes() {
        const WINDOW: u64 = 5;
        const TO_START_AND_STOP: u64 = 3;
        let of = |size: &GrowthSize| {
            size.warm_up().as_secs() + WINDOW + TO_START_AND_STOP * u64::from(size.gateways)
        };
        let seconds: u64 = axes().iter().flat_map(|axis| &axis.sizes).map(of).sum();
        assert!(seconds + idle::SECONDS < 6 * 60, "{seconds} seconds and {}", idle::SECONDS);
    }
}
