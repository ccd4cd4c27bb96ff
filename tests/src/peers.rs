//! nginx, HAProxy, Caddy, Envoy and Traefik as proxies: child processes on free loopback ports, which end with their
//! test.

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

/// A proxy in front of one service. Dropping the value ends the process.
pub struct ProxyProcess {
    pub address: SocketAddr,
    child: ChildProcess,
    _home: TempDir,
}

/// The number of tries to start a proxy: another process may take a free port before the proxy listens there.
const TRIES: usize = 5;

impl ProxyProcess {
    /// Starts nginx with a usual configuration for this service: kept connections, the gateway's limits and times,
    /// bodies read in full on `/fenced/` and streamed elsewhere.
    ///
    /// # Panics
    /// If nginx does not start. The Debian package is `nginx-light`.
    pub fn nginx(service: SocketAddr) -> Self {
        Self::start("nginx", nginx_command, |listen| nginx(listen, service))
    }

    /// Starts nginx with the shipped files inside its `http` block. The first text of each pair is replaced by the
    /// second.
    ///
    /// # Panics
    /// If nginx does not start, as in [`Self::nginx`].
    pub fn nginx_with(shipped: &str, listens: &str, instead: &[(&str, String)]) -> Self {
        Self::nginx_after("", shipped, listens, instead)
    }

    /// Starts nginx like [`Self::nginx_with`], with one of Debian's modules: `http_js` of `libnginx-mod-http-js`.
    ///
    /// # Panics
    /// If nginx does not start, or the module is not installed.
    pub fn nginx_with_module(module: &str, shipped: &str, listens: &str, instead: &[(&str, String)]) -> Self {
        let load = format!("load_module /usr/lib/nginx/modules/ngx_{module}_module.so;\n");
        Self::nginx_after(&load, shipped, listens, instead)
    }

    /// Starts nginx. `first` is the text before everything else in the configuration.
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

    /// Starts HAProxy with the shipped file, which is a whole configuration. The first text of each pair is replaced
    /// by the second.
    ///
    /// # Panics
    /// If HAProxy does not start, as in [`Self::haproxy`].
    pub fn haproxy_with(shipped: &str, listens: &str, instead: &[(&str, String)]) -> Self {
        Self::start("haproxy", haproxy_command, |listen| replace_all(shipped, listens, listen, instead))
    }

    /// Starts HAProxy with a configuration like that of [`Self::nginx`].
    ///
    /// # Panics
    /// If HAProxy does not start. The Debian package is `haproxy`.
    pub fn haproxy(service: SocketAddr) -> Self {
        Self::start("haproxy", haproxy_command, |listen| haproxy(listen, service))
    }

    /// The process group of the proxy, which includes the workers of nginx.
    pub fn group(&self) -> u32 {
        self.child.pid()
    }

    /// Starts Caddy with the shipped files. The first text of each pair is replaced by the second, and `port`, the
    /// end of the listener's address in the files, by a free port.
    ///
    /// # Panics
    /// If Caddy does not start. The Debian package is `caddy`.
    pub fn caddy_with(shipped: &str, port: &str, instead: &[(&str, String)]) -> Self {
        Self::caddy_with_program("caddy", shipped, port, instead)
    }

    /// Starts Caddy like [`Self::caddy_with`], from another program than Debian's.
    ///
    /// # Panics
    /// If Caddy does not start.
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

    /// Starts Envoy from the program `binary`, with the shipped file. The first text of each pair is replaced by the
    /// second, and the text `port` by a free port.
    ///
    /// # Panics
    /// If Envoy does not start.
    pub fn envoy_with(binary: &Path, shipped: &str, port: &str, instead: &[(&str, String)]) -> Self {
        let command = |home: &Path, _| {
            // Envoy chooses the format by the extension of the file.
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

    /// Starts Traefik from the program `binary`, with two shipped files: `starts`, in which the text `port` is
    /// replaced by a free address, and `routes`, in which the first text of each pair is replaced by the second.
    ///
    /// # Panics
    /// If Traefik does not start.
    pub fn traefik_with(
        binary: &Path,
        starts: &str,
        routes: &str,
        port: &str,
        instead: &[(&str, String)],
    ) -> Self {
        let command = |home: &Path, _| {
            // Traefik chooses the format by the extension of the file.
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

    /// Starts a service that is written in another language. `command` returns its program and arguments, for the
    /// port of 127.0.0.1 at which the service has to listen.
    ///
    /// # Panics
    /// If the service does not start.
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
            // No other listener of these tests gets this port from the kernel. During a slow start, such a listener
            // would look like the proxy.
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

    /// Waits until the proxy listens. Polls, because the proxy sends no event.
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

/// The command of nginx. SIGTERM ends the master and its workers; SIGKILL would leave the workers behind.
fn nginx_command(home: &Path, _: SocketAddr) -> (&'static str, Vec<String>) {
    let home = home.display().to_string();
    let words = ["--pdeathsig", "TERM", "--", "/usr/sbin/nginx", "-e", "stderr", "-p"];
    let mut words: Vec<String> = words.map(str::to_owned).into();
    words.extend([home, "-c".to_owned(), "peer.conf".to_owned()]);
    ("setpriv", words)
}

/// The command of Caddy. Caddy keeps all its files in `home`.
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

/// Puts the address in place of `listens`, and the second text of each pair in place of the first.
///
/// # Panics
/// If the shipped text does not contain a text that is to be replaced.
fn replace_all(shipped: &str, listens: &str, listen: SocketAddr, instead: &[(&str, String)]) -> String {
    let instead: Vec<_> = instead.iter().cloned().chain([(listens, listen.to_string())]).collect();
    substitute(shipped, &instead)
}

/// Puts the second text of each pair in place of the first.
///
/// # Panics
/// If the shipped text does not contain a text that is to be replaced.
fn substitute(shipped: &str, instead: &[(&str, String)]) -> String {
    let mut written = shipped.to_owned();
    for (old, new) in instead {
        assert!(written.contains(old), "`{old}` is not there");
        written = written.replace(old, new);
    }
    written
}

/// The configuration of nginx. `user root` keeps the workers at the user of the test: another user could not open
/// nginx's folders, whose parent is closed. Without root, workers have the user of the test anyway.
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
