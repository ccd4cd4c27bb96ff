//! Other proxies that a user could choose. Each passes every request on, over kept connections.

use std::{fs, net::SocketAddr, time::Duration};

use fencegate_testkit::child::ChildProcess;

use crate::{
    nginx::{Nginx, NginxProxyWork},
    process,
    result::BenchResult,
    run::BenchRun,
};

const PATIENCE: Duration = Duration::from_secs(10);

/// The proxies that the gateway is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProxyKind {
    /// nginx, which only passes requests on.
    Nginx,
    /// nginx, which reads and writes as many fields as the gateway.
    NginxWithFields,
    HaProxy,
    Caddy,
    /// A minimal proxy on hyper, the HTTP library of the gateway.
    BareHyper,
    /// A minimal proxy on Pingora, a library for proxies.
    Pingora,
}

impl ProxyKind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Nginx, Self::NginxWithFields, Self::HaProxy, Self::Caddy, Self::BareHyper, Self::Pingora];

    /// Starts the proxy. Dropping the result ends it.
    pub(crate) fn start(self, run: &BenchRun, upstream: SocketAddr) -> BenchResult<RunningProxy> {
        let nginx = |work| Nginx::proxy(run, upstream, work).map(RunningProxy::Nginx);
        match self {
            Self::Nginx => nginx(NginxProxyWork::PassOn),
            Self::NginxWithFields => nginx(NginxProxyWork::Fields),
            Self::HaProxy => start_configured(run, &["/usr/sbin/haproxy", "-db", "-f"], &haproxy(upstream)?),
            Self::Caddy => {
                // Without these variables Debian's Caddy would write into the user's home folder.
                let homes = ["XDG_CONFIG_HOME", "XDG_DATA_HOME"]
                    .map(|variable| format!("{variable}={}", run.folder().display()));
                let program = ["/usr/bin/caddy", "run", "--adapter", "caddyfile", "--config"];
                let words = [&["env", homes[0].as_str(), homes[1].as_str()][..], &program].concat();
                start_configured(run, &words, &caddy(upstream)?)
            }
            Self::BareHyper => {
                start_with_arguments(&[run.bare().display().to_string()], upstream).map(RunningProxy::Single)
            }
            Self::Pingora => pingora(run, upstream).map(RunningProxy::Single),
        }
    }
}

/// A proxy that accepts connections.
pub(crate) enum RunningProxy {
    Nginx(Nginx),
    Single(ProxyProcess),
}

/// A proxy that is one process.
pub(crate) struct ProxyProcess {
    child: ChildProcess,
    address: SocketAddr,
}

impl ProxyProcess {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }
}

impl RunningProxy {
    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Self::Nginx(nginx) => nginx.address,
            Self::Single(single) => single.address,
        }
    }

    pub(crate) fn cpu_seconds(&self) -> BenchResult<f64> {
        match self {
            Self::Nginx(nginx) => nginx.cpu_seconds(),
            Self::Single(single) => process::cpu_seconds(single.pid()),
        }
    }
}

/// A configuration, and the address at which its proxy listens.
struct ProxyConfig {
    file: &'static str,
    text: String,
    address: SocketAddr,
}

/// HAProxy with one thread per core, which is its default:
/// <https://docs.haproxy.org/2.6/configuration.html#3.1-nbthread>. All connections to the service are kept, and the
/// next request may use any of them: <https://docs.haproxy.org/2.6/configuration.html#4.2-http-reuse>.
fn haproxy(upstream: SocketAddr) -> BenchResult<ProxyConfig> {
    let address = process::free_address()?;
    let text = format!(
        "global\n  maxconn 4096\n\
         defaults\n  mode http\n  timeout connect 10s\n  timeout client 60s\n  timeout server 60s\n  http-reuse always\n\
         frontend public\n  bind {address}\n  default_backend service\n\
         backend service\n  server service {upstream} pool-max-conn -1\n"
    );
    Ok(ProxyConfig { file: "haproxy.cfg", text, address })
}

/// Caddy with its default settings, except that it keeps as many connections to the service as there are clients:
/// <https://caddyserver.com/docs/caddyfile/directives/reverse_proxy#the-http-transport>.
fn caddy(upstream: SocketAddr) -> BenchResult<ProxyConfig> {
    let address = process::free_address()?;
    let text = format!(
        "{{\n\tadmin off\n\tauto_https off\n}}\n\
         http://{address} {{\n\tbind {ip}\n\treverse_proxy {upstream} {{\n\t\ttransport http {{\n\
         \t\t\tkeepalive_idle_conns_per_host 128\n\t\t}}\n\t}}\n}}\n",
        ip = address.ip()
    );
    Ok(ProxyConfig { file: "Caddyfile", text, address })
}

/// Starts a proxy by these words, followed by the path of its configuration file.
fn start_configured(
    run: &BenchRun,
    words: &[&str],
    configuration: &ProxyConfig,
) -> BenchResult<RunningProxy> {
    let ProxyConfig { file, text, address } = configuration;
    let file = run.folder().join(file);
    fs::write(&file, text)?;
    let (program, before) = words.split_first().ok_or("a program is one word at least")?;
    let arguments = before.iter().map(|word| word.as_ref()).chain([file.as_os_str()]);
    let child = ChildProcess::spawn(program, arguments)?;
    process::wait_listening(*address, &child)?;
    Ok(RunningProxy::Single(ProxyProcess { child, address: *address }))
}

/// Starts a proxy by these words, followed by the address of the upstream. The proxy prints the address at which it
/// listens.
pub(crate) fn start_with_arguments(words: &[String], upstream: SocketAddr) -> BenchResult<ProxyProcess> {
    let (program, before) = words.split_first().ok_or("a program is one word at least")?;
    let child = ChildProcess::spawn(program, before.iter().cloned().chain([upstream.to_string()]))?;
    let line = child.wait_line(|line| line.starts_with("listening "), PATIENCE)?;
    let address = line["listening ".len()..].parse()?;
    Ok(ProxyProcess { child, address })
}

fn pingora(run: &BenchRun, upstream: SocketAddr) -> BenchResult<ProxyProcess> {
    let address = process::free_address()?;
    let child = ChildProcess::spawn(run.pingora(), [address.to_string(), upstream.to_string()])?;
    process::wait_listening(address, &child)?;
    Ok(ProxyProcess { child, address })
}
