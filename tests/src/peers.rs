//! nginx, HAProxy, Caddy, Envoy and Traefik as proxies beside us: children on free loopback ports, gone with their test.

use std::{
    ffi::OsStr,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use fencegate_testkit::{
    child::{ChildProcess, Signal},
    scratch,
};
use tempfile::TempDir;

use crate::ensemble::free_ports;

/// A proxy in front of one service. Dropping it ends it.
pub struct ProxyProcess {
    pub address: SocketAddr,
    child: ChildProcess,
    _home: TempDir,
}

/// How often another process may take the port that was free a moment ago.
const TRIES: usize = 5;

impl ProxyProcess {
    /// As one would write it for this service: kept connections, the limits and times of the gateway beside it, bodies
    /// taken in full on `/fenced/` and streamed elsewhere.
    ///
    /// # Panics
    /// If it does not start; Debian has it as `nginx-light`.
    pub fn nginx(service: SocketAddr) -> Self {
        Self::start("nginx", nginx_command, |listen| nginx(listen, service))
    }

    /// nginx with the shipped files, to be included in its `http`; the first text of each pair is replaced by the
    /// second.
    ///
    /// # Panics
    /// As [`Self::nginx`].
    pub fn nginx_with(shipped: &str, listens: &str, instead: &[(&str, String)]) -> Self {
        Self::nginx_after("", shipped, listens, instead)
    }

    /// The same with one of Debian's modules: `http_js` of `libnginx-mod-http-js`.
    ///
    /// # Panics
    /// As [`Self::nginx`], also if the module is not there.
    pub fn nginx_with_module(module: &str, shipped: &str, listens: &str, instead: &[(&str, String)]) -> Self {
        let load = format!("load_module /usr/lib/nginx/modules/ngx_{module}_module.so;\n");
        Self::nginx_after(&load, shipped, listens, instead)
    }

    /// `first`: what stands before everything else.
    fn nginx_after(first: &str, shipped: &str, listens: &str, instead: &[(&str, String)]) -> Self {
        Self::start("nginx", nginx_command, |listen| {
            let written = replace_all(shipped, listens, listen, instead);
            format!(
                "{first}user root; daemon off; pid nginx.pid; worker_processes 1;\n\
                 events {{ worker_connections 256; }}\n\
                 http {{\n\
                     access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;\n\
                     uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n{written}\n}}\n"
            )
        })
    }

    /// The same of HAProxy, whose file is whole.
    ///
    /// # Panics
    /// As [`Self::haproxy`].
    pub fn haproxy_with(shipped: &str, listens: &str, instead: &[(&str, String)]) -> Self {
        Self::start("haproxy", haproxy_command, |listen| replace_all(shipped, listens, listen, instead))
    }

    /// The same with HAProxy.
    ///
    /// # Panics
    /// If it does not start; Debian has it as `haproxy`.
    pub fn haproxy(service: SocketAddr) -> Self {
        Self::start("haproxy", haproxy_command, |listen| haproxy(listen, service))
    }

    /// The group of its processes, with the workers of nginx.
    pub fn group(&self) -> u32 {
        self.child.pid()
    }

    /// Caddy with the shipped files; the first text of each pair is replaced by the second. `port` is the end of the
    /// address at which it listens.
    ///
    /// # Panics
    /// If it does not start; Debian has it as `caddy`.
    pub fn caddy_with(shipped: &str, port: &str, instead: &[(&str, String)]) -> Self {
        Self::caddy_with_program("caddy", shipped, port, instead)
    }

    /// The same with another program than Debian's.
    ///
    /// # Panics
    /// If it does not start.
    pub fn caddy_with_program(program: &str, shipped: &str, port: &str, instead: &[(&str, String)]) -> Self {
        Self::start(
            "caddy",
            |home, _| caddy_command(program, home),
            |listen| {
                let instead: Vec<_> =
                    instead.iter().cloned().chain([(port, format!(":{}", listen.port()))]).collect();
                substitute(shipped, &instead)
            },
        )
    }

    /// The same of Envoy, whose program is `binary`.
    ///
    /// # Panics
    /// If it does not start.
    pub fn envoy_with(binary: &Path, shipped: &str, port: &str, instead: &[(&str, String)]) -> Self {
        let command = |home: &Path, _| {
            // It goes by the ending of the name.
            let file = home.join("peer.yaml");
            fs::copy(home.join("peer.conf"), &file).expect("a folder of our own");
            let file = file.display().to_string();
            let words =
                ["--disable-hot-restart", "--concurrency", "1", "-l", "warning", "--config-path", &file];
            (binary.display().to_string(), words.map(str::to_owned).into())
        };
        Self::start("envoy", command, |listen| {
            let ours = format!("port_value: {}", listen.port());
            let instead: Vec<_> = instead.iter().cloned().chain([(port, ours)]).collect();
            substitute(shipped, &instead)
        })
    }

    /// The same of Traefik, whose program is `binary` and whose files are two: what it starts with, at `port`, and its routes.
    ///
    /// # Panics
    /// If it does not start.
    pub fn traefik_with(
        binary: &Path,
        starts: &str,
        routes: &str,
        port: &str,
        instead: &[(&str, String)],
    ) -> Self {
        let command = |home: &Path, _| {
            // It goes by the ending of the name.
            let file = home.join("traefik.yaml");
            let named = home.join("fence.yaml").display().to_string();
            let starts = fs::read_to_string(home.join("peer.conf")).expect("a folder of our own");
            fs::write(&named, substitute(routes, instead)).expect("a folder of our own");
            let starts = substitute(&starts, &[("/etc/traefik/fence.yaml", named)]);
            fs::write(&file, starts).expect("a folder of our own");
            (binary.display().to_string(), vec![format!("--configFile={}", file.display())])
        };
        Self::start("traefik", command, |listen| substitute(starts, &[(port, listen.to_string())]))
    }

    /// A service that another language has made: `command` has its program and arguments, for the port of 127.0.0.1 at which
    /// it is to listen.
    ///
    /// # Panics
    /// If it does not start.
    pub fn service(name: &str, command: impl Fn(u16) -> Vec<String>) -> Self {
        let words = |_: &Path, address: SocketAddr| ("env", command(address.port()));
        Self::start(name, words, |_| String::new())
    }

    fn start<P: AsRef<OsStr>>(
        name: &str,
        command: impl Fn(&Path, SocketAddr) -> (P, Vec<String>),
        configuration: impl Fn(SocketAddr) -> String,
    ) -> Self {
        let mut said = String::new();
        for _ in 0..TRIES {
            let home = scratch::temp_dir();
            // A slow start must not find its port taken by a listener of another test, which would be taken for the program.
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_ports(1)[0]));
            fs::write(home.path().join("peer.conf"), configuration(address)).expect("a folder of our own");
            let (program, arguments) = command(home.path(), address);
            let child = ChildProcess::spawn(program, arguments).expect("setpriv");
            let peer = Self { address, child, _home: home };
            if peer.wait_listening() {
                return peer;
            }
            said = peer.child.log();
        }
        panic!("{name} does not listen; it said:\n{said}");
    }

    /// Polls, because it sends no event.
    fn wait_listening(&self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.child.is_running() && Instant::now() < deadline {
            if TcpStream::connect(self.address).is_ok() {
                return true;
            }
            thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        if self.child.signal(Signal::TERM).is_ok() {
            self.child.wait(Duration::from_secs(5));
        }
    }
}

/// Killed, a master leaves its workers behind; terminated, it takes them along.
fn nginx_command(home: &Path, _: SocketAddr) -> (&'static str, Vec<String>) {
    let home = home.display().to_string();
    let words = ["--pdeathsig", "TERM", "--", "/usr/sbin/nginx", "-e", "stderr", "-p"];
    let mut words: Vec<String> = words.map(str::to_owned).into();
    words.extend([home, "-c".to_owned(), "peer.conf".to_owned()]);
    ("setpriv", words)
}

/// What it keeps stays in its home.
fn caddy_command(program: &str, home: &Path) -> (&'static str, Vec<String>) {
    let at = home.display();
    let file = format!("{at}/peer.conf");
    let kept = ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"].map(|name| format!("{name}={at}"));
    let words = [program, "run", "--adapter", "caddyfile", "--config", &file].map(str::to_owned);
    ("env", kept.into_iter().chain(words).collect())
}

fn haproxy_command(home: &Path, _: SocketAddr) -> (&'static str, Vec<String>) {
    let file = home.join("peer.conf").display().to_string();
    ("/usr/sbin/haproxy", vec!["-db".to_owned(), "-q".to_owned(), "-f".to_owned(), file])
}

/// # Panics
/// If something is not there that is to be replaced.
fn replace_all(shipped: &str, listens: &str, listen: SocketAddr, instead: &[(&str, String)]) -> String {
    let instead: Vec<_> = instead.iter().cloned().chain([(listens, listen.to_string())]).collect();
    substitute(shipped, &instead)
}

/// # Panics
/// If something is not there that is to be replaced.
fn substitute(shipped: &str, instead: &[(&str, String)]) -> String {
    let mut written = shipped.to_owned();
    for (old, new) in instead {
        assert!(written.contains(old), "`{old}` is not there");
        written = written.replace(old, new);
    }
    written
}

/// Its workers keep our user: as another user they would not reach its folders below a closed one. Without root they
/// keep it anyway.
fn nginx(listen: SocketAddr, service: SocketAddr) -> String {
    format!(
        "user root; daemon off; pid nginx.pid; worker_processes 1;\n\
         events {{ worker_connections 256; }}\n\
         http {{\n\
             access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;\n\
             uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
             client_header_timeout 2s; client_body_timeout 2s; keepalive_timeout 2s; lingering_close off;\n\
             large_client_header_buffers 4 64k; client_max_body_size 1m;\n\
             proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_set_header Host $host;\n\
             proxy_read_timeout 2s; proxy_next_upstream off;\n\
             upstream service {{ server {service}; keepalive 8; }}\n\
             server {{\n\
                 listen {listen};\n\
                 location /fenced/ {{ proxy_pass http://service; }}\n\
                 location /mixed/ {{ proxy_pass http://service; proxy_request_buffering off; }}\n\
                 location /shared/ {{ proxy_pass http://service; proxy_request_buffering off; }}\n\
                 location /open/ {{\n\
                     proxy_pass http://service; proxy_request_buffering off; client_max_body_size 0;\n\
                 }}\n\
                 location / {{ return 404; }}\n\
             }}\n\
         }}\n"
    )
}

fn haproxy(listen: SocketAddr, service: SocketAddr) -> String {
    format!(
        "global\n maxconn 256\n tune.bufsize 1100000\n\
         defaults\n mode http\n retries 0\n timeout connect 1s\n timeout client 2s\n timeout server 2s\n\
         \x20timeout http-request 2s\n timeout http-keep-alive 2s\n\
         frontend door\n bind {listen}\n\
         \x20use_backend fenced if {{ path_beg /fenced/ }}\n\
         \x20use_backend open if {{ path_beg /open/ }} || {{ path_beg /mixed/ }} || {{ path_beg /shared/ }}\n\
         \x20default_backend nowhere\n\
         backend fenced\n option http-buffer-request\n server service {service}\n\
         backend open\n server service {service}\n\
         backend nowhere\n http-request deny deny_status 404\n"
    )
}
