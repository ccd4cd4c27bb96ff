//! nginx, as the service behind everybody and as the proxy beside us.

use std::{fs, net::SocketAddr, time::Duration};

use fencegate_testkit::child::{ChildProcess, Signal};

use crate::{process, result::BenchResult, run::BenchRun};

/// The work of nginx per request, as a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NginxProxyWork {
    PassOn,
    /// Handles as many header fields as the gateway reads, writes and adds in both directions.
    Fields,
    /// Reads a body to its end and passes the request on without it. The service behind would answer too early.
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

/// A master and one worker per core. Dropping it ends all of them.
pub(crate) struct Nginx {
    master: ChildProcess,
    pub(crate) address: SocketAddr,
    /// The unix socket at which it also listens, in the form of a policy.
    pub(crate) socket: String,
}

impl Nginx {
    /// Answers three bytes to everything.
    pub(crate) fn service(run: &BenchRun) -> BenchResult<Self> {
        Self::start(run, "service", "return 200 \"ok\\n\";", "")
    }

    /// Passes everything on, over connections that are kept, as
    /// <https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive> has it for HTTP.
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
        // A killed nginx leaves its socket behind.
        fs::remove_file(&file).ok();
        let socket = format!("unix:{}", file.display());
        fs::write(home.join("nginx.conf"), configuration(address, &socket, location, pool))?;
        let folder = home.display().to_string();
        // A killed master leaves its workers behind, and a terminated one ends them. So the master gets TERM when this
        // process is killed, while other children get KILL.
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
