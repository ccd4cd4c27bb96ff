//! nginx, as the service behind every measured program and as a proxy to compare the gateway with.

use std::{fs, net::SocketAddr, time::Duration};

use fencegate_testkit::child::{ChildProcess, Signal};

use crate::{process, result::BenchResult, run::BenchRun};

/// The work of nginx per request, as a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NginxProxyWork {
    PassOn,
    /// Handles as many header fields as the gateway reads, writes and adds in both directions.
    Fields,
    /// Reads a body to its end, and passes the request on without the body: the service would answer before it has
    /// read one.
    ReadBody,
}

impl NginxProxyWork {
    fn location_directives(self) -> &'static str {
        match self {
            Self::PassOn => "",
            Self::Fields => {
                "proxy_set_header Host $host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; \
                 proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Request-ID $request_id; \
                 proxy_set_header Via \"1.1 nginx\"; \
                 add_header X-Request-ID $request_id; add_header Via \"1.1 nginx\"; add_header X-Outcome done;"
            }
            Self::ReadBody => {
                "client_max_body_size 2m; client_body_buffer_size 2m; proxy_pass_request_body off; \
                 proxy_set_header Content-Length \"\";"
            }
        }
    }
}

/// A master process and one worker per core. Dropping it ends all of them.
pub(crate) struct Nginx {
    master: ChildProcess,
    pub(crate) address: SocketAddr,
    /// The Unix socket at which nginx also listens, as a policy names it.
    pub(crate) socket: String,
}

impl Nginx {
    /// Starts a service that answers every request with three bytes.
    pub(crate) fn service(run: &BenchRun) -> BenchResult<Self> {
        Self::start(run, "service", "return 200 \"ok\\n\";", "")
    }

    /// Starts a proxy that passes every request on over kept connections, as
    /// <https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive> describes for HTTP.
    pub(crate) fn proxy(run: &BenchRun, upstream: SocketAddr, work: NginxProxyWork) -> BenchResult<Self> {
        let pass = "proxy_pass http://service; proxy_http_version 1.1; proxy_set_header Connection \"\";";
        let pass = format!("{pass} {}", work.location_directives());
        let pool = format!(
            "upstream service {{ server {upstream}; keepalive 128; keepalive_requests 1000000000; }}"
        );
        Self::start(run, "proxy", &pass, &pool)
    }

    fn start(run: &BenchRun, name: &str, location: &str, pool: &str) -> BenchResult<Self> {
        let home = run.folder().join(name);
        fs::create_dir_all(&home)?;
        let address = process::free_address()?;
        let file = home.join("socket");
        // An nginx that was killed leaves its socket, which would prevent listening at the same path.
        fs::remove_file(&file).ok();
        let socket = format!("unix:{}", file.display());
        fs::write(home.join("nginx.conf"), configuration(address, &socket, location, pool))?;
        let folder = home.display().to_string();
        // If this process is killed, the master gets SIGTERM, and not SIGKILL as other children do: a master that is
        // killed leaves its workers running.
        let arguments = [
            "--pdeathsig",
            "TERM",
            "--",
            "/usr/sbin/nginx",
            "-e",
            "stderr",
            "-p",
            &folder,
            "-c",
            "nginx.conf",
        ];
        let nginx = Self { master: ChildProcess::spawn("setpriv", arguments)?, address, socket };
        process::wait_listening(address, &nginx.master)?;
        Ok(nginx)
    }

    pub(crate) fn cpu_seconds(&self) -> BenchResult<f64> {
        process::cpu_seconds(self.master.pid())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if self.master.signal(Signal::TERM).is_ok() {
            self.master.wait(Duration::from_secs(5));
        }
    }
}

fn configuration(address: SocketAddr, socket: &str, location: &str, pool: &str) -> String {
    format!(
        "daemon off; pid nginx.pid; worker_processes auto;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n\
             access_log off; keepalive_requests 1000000000; keepalive_timeout 75s;\n\
             client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;\n\
             uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
             {pool}\n\
             server {{ listen {address}; listen {socket}; location / {{ {location} }} }}\n\
         }}\n"
    )
}
